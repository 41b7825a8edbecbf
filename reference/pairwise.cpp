// SPDX-License-Identifier: Apache-2.0
#include "reference/pairwise.h"

#include <algorithm>

namespace msabench::reference {
namespace {

void add_to(std::span<double> sum, std::span<const double> values) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
}

}  // namespace

double pairwise_sum(std::span<const double> values) {
  constexpr std::size_t tile = 128;
  if (values.size() > tile) {
    const std::size_t tiles = (values.size() + tile - 1) / tile, half = (tiles + 1) / 2 * tile;
    return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
  }
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

void pairwise_vectors::reset(std::size_t width) {
  width_ = width;
  count_ = 0;
}

// Level i holds the sum of 2^i vectors where bit i of the count is set: adding one carries as in a binary counter.
void pairwise_vectors::add(std::span<const double> values) {
  carry_.assign(values.begin(), values.end());
  std::size_t i = 0;
  for (; (count_ >> i & 1u) != 0; ++i) add_to(carry_, level(i));
  if (levels_.size() < (i + 1) * width_) levels_.resize((i + 1) * width_);
  std::ranges::copy(carry_, level(i).begin());
  ++count_;
}

std::span<const double> pairwise_vectors::total() {
  carry_.assign(width_, 0.0);
  for (std::size_t i = 0; count_ >> i != 0; ++i)
    if ((count_ >> i & 1u) != 0) add_to(carry_, level(i));
  return carry_;
}

}  // namespace msabench::reference
