// SPDX-License-Identifier: Apache-2.0
// The limits of a machine, measured beside what is timed: of a CPU multiply-adds in registers and reading memory; of a
// GPU (device_probes.h) matrix products and reading memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace msabench {

class machine_probes {
 public:
  virtual ~machine_probes() = default;
  // FLOP/s over `seconds`; only where types() names any.
  virtual double flops_per_s(double seconds) = 0;
  // Bytes a second that are read over about `seconds`.
  virtual double read_bytes_per_s(double seconds) = 0;
  virtual std::uint64_t read_bytes() const = 0;
  // Formats of operands that flops_per_s holds for: "fp32", "bf16".
  virtual std::vector<std::string> types() const = 0;
  // The same of operands in e4m3, where the machine multiplies them.
  virtual bool multiplies_e4m3() const { return false; }
  virtual double e4m3_flops_per_s(double /*seconds*/) { return 0; }
  // What was measured and how, for people.
  virtual std::string source() const = 0;
  // True clock of the processors now, in MHz; 0 where nobody can tell.
  virtual double clock_mhz() { return 0; }
};

// Threads of this object sleep between two measurements.
class cpu_probes final : public machine_probes {
 public:
  // `read_bytes` of memory are walked through, a part at a time; beyond twice the last-level cache, what is read again
  // comes from memory again. Less is taken where the machine has not so much.
  cpu_probes(int threads, std::uint64_t read_bytes);
  ~cpu_probes() override;

  // fp32 multiply-adds, two FLOPs each, in the widest vectors that this CPU has, by all threads.
  double flops_per_s(double seconds) override;
  // All threads together, one stream each.
  double read_bytes_per_s(double seconds) override;
  std::uint64_t read_bytes() const override;
  // Narrower operands are widened and multiplied in fp32 on a CPU without products of its own for them.
  std::vector<std::string> types() const override { return {"fp32", "bf16", "fp16", "e4m3"}; }
  std::string source() const override;

 private:
  class state;
  std::unique_ptr<state> state_;
  int threads_;
};

}  // namespace msabench
