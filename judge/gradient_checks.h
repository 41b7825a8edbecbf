// SPDX-License-Identifier: Apache-2.0
// K8: gradients against the oracle's. Every element is held to its bound, all elements of an output together to the
// expected size of their errors, and the output as a whole to its scale, which shows factors that are the same
// everywhere and too small for any bound.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/check_result.h"
#include "core/tensor_view.h"
#include "judge/limits.h"
#include "judge/value_scan.h"
#include "reference/gradient.h"

namespace msabench::judge {

inline constexpr double most_pooled_size = 1.25;

using gradient_element_limit = limit<4>;
gradient_element_limit limit_of_gradient(const reference::gradient& g, std::size_t element,
                                         const reference::sum_error& err);

// One output of a launch beside what is due.
struct judged_gradient {
  slot where;
  const reference::gradient& want;
  tensor_view got;
};

// What the limit of the scale is made of, beside the gauges.
struct scale_numbers {
  double roundoff = 0;     // the largest of P, dS and the store of gradients
  double exp_error = 0;    // of exp
  double largest_lse = 0;  // |LSE|
};

// K0: written and finite everywhere, and exactly 0 where nothing adds to a line.
void scan_gradient(value_scan& scan, const judged_gradient& g);

// K8a.
check_result check_gradient_elements(std::span<const judged_gradient> all, const reference::sum_error& err);

// Whether errors of this output have an expected size: roundings to storage, not sums, make most of it in the median
// element.
bool has_expected_size(const reference::gradient& g, const reference::sum_error& err);
// K8b: root of the mean of err^2 / s2 over an output, the worst; nothing if none has an expected size.
std::optional<check_result> check_gradient_sizes(std::span<const judged_gradient> all, const reference::sum_error& err);

// What alpha may be off from 1; nothing for a gradient that is zero.
std::optional<double> limit_of_scale(const reference::gradient& g, const reference::sum_error& err,
                                     const scale_numbers& numbers);

// K8c: alpha = <g', g> / <g, g> of an output that is not zero, the worst; nothing if all are.
std::optional<check_result> check_gradient_scales(std::span<const judged_gradient> all, const reference::sum_error& err,
                                                  const scale_numbers& numbers);

}  // namespace msabench::judge
