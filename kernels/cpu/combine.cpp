// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/operators.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/combine.cpp"
#include <hwy/foreach_target.h>
// After it, so that the tiles are those of the target.
#include "kernels/cpu/tiles-inl.h"

#include <cmath>
#include <limits>

#include "kernels/common/storage.h"
#include "kernels/cpu/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace msabench::cpu::HWY_NAMESPACE {

/// sum += weight * row
template <class Storage>
struct add_row {
  static HWY_INLINE void call(const char* row, int d, float weight, float* sum) {
    constexpr int element_bytes = static_cast<int>(sizeof(typename Storage::element));
    const float_tag tag;
    const auto weights = hn::Set(tag, weight);
    for (int column = 0; column < d; column += lanes) {
      const char* from = row + std::int64_t{column} * element_bytes;
      const int present = std::min(lanes, d - column);
      const auto value = present == lanes ? Storage::load(from) : load_some<Storage>(from, present);
      hn::Store(hn::MulAdd(weights, value, hn::Load(tag, sum + column)), tag, sum + column);
    }
  }
};

void add_partial(const char* row, msabench_dtype type, std::int32_t d, float weight, float* sum) {
  with_storage<add_row>(type, row, d, weight, sum);
}

}  // namespace msabench::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msabench::cpu {

HWY_EXPORT(add_partial);

namespace {

constexpr float nothing = -std::numeric_limits<float>::infinity();

thread_slices take_sums(carver& memory, const msabench_problem& problem, int threads) {
  return take_slices(memory, threads,
                     [&](carver& slice) { slice.take<float>(static_cast<double>(padded_columns(problem.d))); });
}

void combine_row(const combine_call& call, std::int64_t row, std::int64_t head, float* sum) {
  const auto lse_of = [&](std::int64_t p) {
    return call.partial_lse[p * call.partial_lse_part_stride + row * call.partial_lse_row_stride +
                            head * call.partial_lse_head_stride];
  };
  float greatest = nothing;
  for (std::int64_t p = 0; p < call.parts; ++p) greatest = std::max(greatest, lse_of(p));
  std::fill_n(sum, padded_columns(call.d), 0.0f);
  // Weights and their sum in double: there are few of them, and one rounding each is left for the products.
  double total = 0;
  for (std::int64_t p = 0; p < call.parts && greatest != nothing; ++p)
    total += std::exp(static_cast<double>(lse_of(p)) - greatest);
  for (std::int64_t p = 0; p < call.parts; ++p) {
    // Its values may be NaN.
    if (lse_of(p) == nothing) continue;
    const auto weight = static_cast<float>(std::exp(static_cast<double>(lse_of(p)) - greatest) / total);
    const std::int64_t element =
        p * call.partial_part_stride + row * call.partial_row_stride + head * call.partial_head_stride;
    HWY_DYNAMIC_DISPATCH(add_partial)
    (call.partial_out + element * bytes_of(call.partial_type), call.partial_type, call.d, weight, sum);
  }
  store_row(sum, call.d, call.out_type,
            call.out + (row * call.out_row_stride + head * call.out_head_stride) * bytes_of(call.out_type));
  call.lse[row * call.lse_row_stride + head * call.lse_head_stride] =
      greatest == nothing ? nothing : static_cast<float>(greatest + std::log(total));
}

}  // namespace

void combine(const combine_call& call, const run_context& context) {
  carver memory(context.scratch);
  const thread_slices slices = take_sums(memory, context.problem, context.threads);
  for_each_task(context.threads, call.rows, [&](std::int64_t row, int thread) {
    carver slice = slices.of(thread);
    float* sum = slice.take<float>(static_cast<double>(padded_columns(call.d)));
    for (std::int64_t head = 0; head < call.heads; ++head) combine_row(call, row, head, sum);
  });
}

double combine_scratch_bytes(const msabench_problem& problem, int threads) {
  carver memory(nullptr);
  take_sums(memory, problem, threads);
  return memory.bytes();
}

}  // namespace msabench::cpu
#endif
