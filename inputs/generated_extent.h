// SPDX-License-Identifier: Apache-2.0
// Large parts of a region that hold one stream of the generator as it comes, so that a device can make them itself.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "core/generator.h"
#include "core/operator_table.h"

namespace msabench {

// Elements first, first + 1, ... of the normal stream (key, seed), times 2^exponent. Counters give four elements each;
// an extent is made of whole counters, and `begin` is a multiple of what one gives.
struct generated_extent {
  slot where = slot::q;
  dtype type;
  std::uint64_t begin = 0;             // bytes from the region's start
  std::uint64_t first = 0, count = 0;  // elements
  std::uint64_t key = 0, seed = 0;
  int exponent = 0;

  std::uint64_t end() const { return begin + count * static_cast<std::uint64_t>(size_bytes(type)); }
};

// Less than this is uploaded in the time that it takes to describe, make and check it.
inline constexpr std::uint64_t least_generated_bytes = std::uint64_t{16} << 20;

class generated_list {
 public:
  // `scale`: a power of two.
  generated_list(slot where, dtype type, const stream& from, double scale);

  // Elements from byte `begin` of the region on; runs that go on where the last one ended become one.
  void add(std::uint64_t begin, std::uint64_t first, std::uint64_t count);
  // Those that are large enough, cut to whole counters.
  std::vector<generated_extent> finish();

 private:
  void close();

  generated_extent open_;
  std::vector<generated_extent> all_;
};

}  // namespace msabench
