// SPDX-License-Identifier: Apache-2.0
// The parts of a large region that hold a stream of the generator as it comes, so that a device can make them itself.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "core/generator.h"
#include "core/operator_table.h"

namespace msabench {

// Elements first, first + 1, ... of the stream, from byte `begin` of the region on. The generator's counters give four
// elements each: a run is made of whole counters, and `begin` is a multiple of what one gives.
struct generated_run {
  std::uint64_t begin = 0, first = 0, count = 0;
};

// Normal values of the stream (key, seed), times 2^exponent.
struct generated_stream {
  slot where = slot::q;
  dtype type;
  std::uint64_t key = 0, seed = 0;
  int exponent = 0;
  std::vector<generated_run> runs;  // ascending, apart; none: the region is uploaded

  std::uint64_t end_of(const generated_run& r) const {
    return r.begin + r.count * static_cast<std::uint64_t>(size_bytes(type));
  }
};

// Shorter runs are uploaded as fast, and so is less than this altogether.
inline constexpr std::uint64_t least_run_bytes = std::uint64_t{64} << 10;
inline constexpr std::uint64_t least_generated_bytes = std::uint64_t{16} << 20;

class generated_runs {
 public:
  // `scale`: a power of two.
  generated_runs(slot where, dtype type, const stream& from, double scale);

  // In ascending order; a run that goes on where the last one ended is a part of it.
  void add(std::uint64_t begin, std::uint64_t first, std::uint64_t count);
  // Runs that are large enough, cut to whole counters.
  generated_stream finish();

 private:
  void close();

  generated_stream all_;
  generated_run open_;
  std::uint64_t bytes_ = 0;
};

}  // namespace msabench
