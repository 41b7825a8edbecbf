// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/operators.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm_rope.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/common/storage.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace msabench::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// x = norm and rotation of x [dim]. `factors` = 1 + weights; rows hold whole vectors, what is behind `dim` is 0.
void norm_and_rotate(float* HWY_RESTRICT x, const float* HWY_RESTRICT factors, float eps, std::int32_t dim,
                     const float* HWY_RESTRICT cos_sin, std::int32_t rope_dims) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int32_t>(hn::Lanes(d));
  auto squares = hn::Zero(d);
  for (std::int32_t c = 0; c < dim; c += lanes) {
    const auto value = hn::Load(d, x + c);
    squares = hn::MulAdd(value, value, squares);
  }
  const float mean = hn::GetLane(hn::SumOfLanes(d, squares)) / static_cast<float>(dim);
  const auto scale = hn::Set(d, 1 / std::sqrt(mean + eps));
  for (std::int32_t c = 0; c < dim; c += lanes) {
    hn::Store(hn::Mul(hn::Mul(hn::Load(d, x + c), scale), hn::Load(d, factors + c)), d, x + c);
  }
  const std::int32_t half = rope_dims / 2;
  std::int32_t c = 0;
  for (; c + lanes <= half; c += lanes) {
    const auto cosine = hn::LoadU(d, cos_sin + c), sine = hn::LoadU(d, cos_sin + half + c);
    const auto first = hn::LoadU(d, x + c), second = hn::LoadU(d, x + half + c);
    hn::StoreU(hn::NegMulAdd(second, sine, hn::Mul(first, cosine)), d, x + c);
    hn::StoreU(hn::MulAdd(first, sine, hn::Mul(second, cosine)), d, x + half + c);
  }
  for (; c < half; ++c) {
    const float first = x[c], second = x[half + c];
    x[c] = first * cos_sin[c] - second * cos_sin[half + c];
    x[half + c] = second * cos_sin[c] + first * cos_sin[half + c];
  }
}

}  // namespace msabench::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msabench::cpu {

HWY_EXPORT(norm_and_rotate);

namespace {

struct scratch {
  float *x, *factors;  // [dim], in whole vectors
};

scratch take_scratch(carver& memory, std::int64_t dim) {
  const auto count = static_cast<double>(padded_columns(dim));
  return {memory.take<float>(count), memory.take<float>(count)};
}

thread_slices take_all(carver& memory, const msabench_problem& problem, int threads) {
  return take_slices(memory, threads, [&](carver& slice) { take_scratch(slice, std::max(problem.d, problem.di)); });
}

void compute_heads(const norm_rope_call& call, std::int64_t row, const norm_rope_call::tensor& t,
                   const scratch& memory) {
  const std::int64_t position = call.rows.place(row).position;
  std::fill_n(memory.x, padded_columns(t.dim), 0.0f);
  std::fill_n(memory.factors, padded_columns(t.dim), 0.0f);
  widen(t.weight, call.type, t.dim, 1.0f, memory.factors);
  for (std::int32_t c = 0; c < t.dim; ++c) memory.factors[c] += 1.0f;
  for (std::int32_t head = 0; head < t.heads; ++head) {
    if (position < 0) {
      // Nobody reads the row, but it is written, and the table has no angles for it.
      std::fill_n(memory.x, t.dim, 0.0f);
    } else {
      widen(t.x + (row * t.x_row_stride + head * t.x_head_stride) * bytes_of(call.type), call.type, t.dim, 1.0f,
            memory.x);
      HWY_DYNAMIC_DISPATCH(norm_and_rotate)
      (memory.x, memory.factors, call.eps, t.dim, call.cos_sin + position * call.cos_sin_stride, call.rope_dims);
    }
    store_row(memory.x, t.dim, call.type, t.y + (row * t.y_row_stride + head * t.y_head_stride) * bytes_of(call.type));
  }
}

}  // namespace

void norm_rope(const norm_rope_call& call, const run_context& context) {
  carver shared(context.scratch);
  const thread_slices slices = take_all(shared, context.problem, context.threads);
  const std::int64_t most_dim = std::max(context.problem.d, context.problem.di);
  for_each_task(context.threads, call.rows.tokens(), [&](std::int64_t row, int thread) {
    carver slice = slices.of(thread);
    const scratch memory = take_scratch(slice, most_dim);
    for (const auto& tensor : call.tensors) compute_heads(call, row, tensor, memory);
  });
}

double norm_rope_scratch_bytes(const msabench_problem& problem, int threads) {
  carver memory(nullptr);
  take_all(memory, problem, threads);
  return memory.bytes();
}

}  // namespace msabench::cpu
#endif
