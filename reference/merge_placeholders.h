// SPDX-License-Identifier: Apache-2.0
// Where images and videos enter a text: feature rows of the vision tower replace the hidden rows of their placeholder
// tokens (docs/contract.md section 8). Part of the layer's reference; no plugin operator.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor_view.h"

namespace msabench::reference {

struct placeholder_inputs {
  tensor_view hidden;          // [T, width]
  tensor_view token_ids;       // [T] int32
  tensor_view image_features;  // [images' tokens, width]
  tensor_view video_features;  // [videos' tokens, width]
  std::int32_t image_id = 0, video_id = 0;
};

// hidden [T, width] in float64 with the i-th row of image_features in place of the i-th token image_id, and likewise for
// videos: each kind in its own order, however they are mixed. usage_error naming both counts if there are more or fewer
// feature rows than placeholders; suite_error for shapes that contradict each other and equal ids.
std::vector<double> merge_placeholders(const placeholder_inputs& in);

}  // namespace msabench::reference
