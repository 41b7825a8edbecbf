// SPDX-License-Identifier: Apache-2.0
// Linear maps without bias in float64, as the layer uses them: y = x W^T.
#pragma once

#include <vector>

#include "core/tensor_view.h"

namespace msabench::reference {

// x [T, in], weight [out, in], both with innermost stride 1; result [T, out]. Sums run pairwise over tiles of 128
// inputs; bit-identical for any number of threads. suite_error for shapes that contradict each other.
std::vector<double> project(const tensor_view& x, const tensor_view& weight);

}  // namespace msabench::reference
