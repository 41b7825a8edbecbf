// SPDX-License-Identifier: Apache-2.0
// The limits of a CPU, measured beside what is timed: multiply-adds in registers, and reading memory. Threads of this
// object sleep between two measurements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace msabench {

class cpu_probes {
 public:
  // `read_bytes` of memory are walked through, a part at a time; beyond twice the last-level cache, what is read again
  // comes from memory again. Less is taken where the machine has not so much.
  cpu_probes(int threads, std::uint64_t read_bytes);
  ~cpu_probes();

  // fp32 multiply-adds, two FLOPs each, in the widest vectors that this CPU has, by all threads for `seconds`.
  double flops_per_s(double seconds);
  // Bytes a second that all threads together read, one stream each, for about `seconds`.
  double read_bytes_per_s(double seconds);

  std::uint64_t read_bytes() const;
  // "AVX-512", "AVX2 with FMA", "the compiler's baseline vectors".
  const char* vectors() const;

 private:
  class state;
  std::unique_ptr<state> state_;
};

}  // namespace msabench
