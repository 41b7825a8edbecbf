// SPDX-License-Identifier: Apache-2.0
// Pairwise sums of tile sums: the rounding error grows with the logarithm of the number of tiles, and the order is
// fixed by the number of tiles alone.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace msabench::reference {

// Sum of the values: halves down to 128, in order below.
double pairwise_sum(std::span<const double> values);

// Element-wise pairwise sum of vectors that arrive one after the other; holds log2 of their number.
class pairwise_vectors {
 public:
  void reset(std::size_t width);
  void add(std::span<const double> values);
  // The sum of all that was added; zeros for none. Valid until the next reset or add.
  std::span<const double> total();

 private:
  std::span<double> level(std::size_t i) { return std::span(levels_).subspan(i * width_, width_); }

  std::size_t width_ = 0, count_ = 0;
  std::vector<double> levels_, carry_;
};

}  // namespace msabench::reference
