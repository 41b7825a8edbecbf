// SPDX-License-Identifier: Apache-2.0
// Attention over all visible keys: dense, vit_attend, and the attention in vit3d.
#include <algorithm>

#include "kernels/common/declare.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/wide_attention.h"
#include "kernels/cuda_sm90/wide_shape.cuh"

namespace msabench::cuda_sm90 {

bool takes_wide_attention(const msabench_problem& p) {
  if (!is_attention(p.op) || !reads_all_keys(p)) return false;
  constexpr std::int64_t countable_keys = 1 << 30;
  // A tile of keys is in one page. Without pages their size is 0.
  return cuda::plan_attention(p).wide && p.page_size % wide_tile_keys == 0 && cuda::most_keys(p) <= countable_keys;
}

void dense(const attend_call& call, const run_context& context) {
  if (takes_wide_attention(context.problem))
    wide_attention(call, context);
  else
    cuda::dense(call, context);
}

void vit_attend(const attend_call& call, const run_context& context) { dense(call, context); }

void vit3d(const vit3d_call& call, const run_context& context) { cuda::vit3d_of(call, context, vit_attend); }

msabench_numerics attention_numerics(const msabench_problem& p) {
  msabench_numerics declared = cuda::attention_numerics(p);
  if (!takes_wide_attention(p)) return declared;
  // A lane adds a fourth of the keys of a tile and rescales; four lanes and the spans are added up.
  const cuda::attention_plan plan = cuda::plan_attention(p);
  const std::int64_t keys = cuda::most_keys(p);
  const std::int64_t tiles = cuda::ceil_div(plan.span_keys, wide_tile_keys), merges = 2 + 2 * plan.spans;
  const auto chain = [keys](std::int64_t additions) { return static_cast<std::uint32_t>(std::min(additions, keys)); };
  declared.chain_row_sum = chain(wide_tile_keys / 4 + 2 * tiles + merges);
  declared.chain_out = chain(plan.span_keys + tiles + merges);
  return declared;
}

}  // namespace msabench::cuda_sm90
