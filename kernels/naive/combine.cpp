// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/combine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/storage.h"
#include "kernels/naive/tasks.h"

namespace msabench::naive {
namespace {

constexpr float no_keys = -std::numeric_limits<float>::infinity();

void combine_row(const stages& stage, const combine_call& call, std::int64_t row, std::int64_t head, float* scratch) {
  float* const lse = scratch;
  float* const weights = lse + call.parts;
  float* const values = weights + call.parts;
  float* const sum = values + call.d;
  for (std::int64_t p = 0; p < call.parts; ++p)
    lse[p] = call.partial_lse[p * call.partial_lse_part_stride + row * call.partial_lse_row_stride +
                              head * call.partial_lse_head_stride];
  float maximum = no_keys;
  const float weight = stage.partial_weights(lse, call.parts, weights, maximum);
  std::fill(sum, sum + call.d, 0.0f);
  for (std::int64_t p = 0; p < call.parts; ++p) {
    const std::int64_t element =
        p * call.partial_part_stride + row * call.partial_row_stride + head * call.partial_head_stride;
    load_row(call.partial_out + element * bytes_of(call.partial_type), call.partial_type, call.d, values);
    stage.add_partial(weights[p], values, call.d, sum);
  }
  const std::int64_t element = row * call.out_row_stride + head * call.out_head_stride;
  stage.store({sum, weight}, maximum,
              {call.out + element * bytes_of(call.out_type), call.out_type,
               call.lse + row * call.lse_row_stride + head * call.lse_head_stride, call.d});
}

}  // namespace

float partial_weights(const float* lse, std::int64_t count, float* weights, float& maximum) {
  maximum = count > 0 ? *std::max_element(lse, lse + count) : no_keys;
  float sum = 0;
  for (std::int64_t p = 0; p < count; ++p) {
    // exp(-infinity - -infinity) would be NaN.
    weights[p] = lse[p] == no_keys ? 0 : std::exp(lse[p] - maximum);
    sum += weights[p];
  }
  return sum;
}

void add_partial(float weight, const float* values, std::int32_t d, float* row) {
  if (weight == 0) return;
  for (std::int32_t c = 0; c < d; ++c) row[c] += weight * values[c];
}

double combine_scratch_bytes(std::int64_t parts, std::int64_t d) {
  return sizeof(float) * 2 * (static_cast<double>(parts) + static_cast<double>(d));
}

void combine(const stages& stage, const combine_call& call, int threads, void* scratch, std::int64_t slice_bytes) {
  const std::int64_t tasks = call.rows * call.heads;
  const auto compute = [&](std::int64_t task, void* slice) {
    combine_row(stage, call, task / call.heads, task % call.heads, static_cast<float*>(slice));
  };
  for_each_task(tasks, threads, 4, scratch, slice_bytes, compute);
}

}  // namespace msabench::naive
