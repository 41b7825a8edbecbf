// SPDX-License-Identifier: Apache-2.0
// Scores on a level of their own: channel 0 of every query is one number and that of a key what the score is to be raised
// by, while the other channels keep their normal values.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/dtype.h"

namespace msabench {

struct level {
  double query = 64;  // channel 0 of queries: a power of two, so that keys stay far from the largest fp16
  double scale = 1;   // of the product of query and key

  // Channel 0 of a key whose scores are to be `raised` higher.
  double key(double raised) const { return raised / (query * scale); }

  // Over packed [heads, width] queries.
  void write_queries(std::int64_t heads, std::int64_t width, dtype type, void* dst) const {
    for (std::int64_t head = 0; head < heads; ++head) store(dst, type, head * width, query);
  }
};

// Of variants p30, n1000: +30, -1000.
double level_of_variant(std::string_view variant);

enum class slope { rising, falling, equal };
slope slope_of_variant(std::string_view variant);

// By how much the scores of a block are raised, of as many blocks as there are: from -4 to 4, or 4 to -4.
double raised_by_slope(slope way, std::int64_t block, std::int64_t blocks);

// Of equal block maxima: the score of the first key of each block, above what normal ones of half the size reach.
inline constexpr double equal_maximum = 6;

}  // namespace msabench
