// SPDX-License-Identifier: Apache-2.0
// Derivatives by moving one element of a tensor, for objectives that are computed in double.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "tests/kernels/buffer.h"

namespace msabench::plugin_test {

/// d objective() / d element, from four values around it; the element ends as it was. Of tensors in fp32, which holds
/// the moved values to 2^-24 of their size.
template <class Objective>
double central_difference(buffer& of, std::initializer_list<std::int64_t> index, const Objective& objective) {
  constexpr double step = 0x1p-6;
  const double value = of.get(index);
  const auto moved = [&](double by) {
    of.set(index, value + by);
    const double result = objective();
    of.set(index, value);
    return result;
  };
  return (8 * (moved(step) - moved(-step)) - (moved(2 * step) - moved(-2 * step))) / (12 * step);
}

}  // namespace msabench::plugin_test
