// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scoring.h"

namespace msabench::cuda {
namespace {

constexpr int warps = 8;

struct merge_call {
  index_call index;
  const rank* lists;
  int splits;
};

/// The best of the lists of a row; a warp a row.
__global__ void __launch_bounds__(warps * 32) merge(merge_call s) {
  const index_call& c = s.index;
  const int lane = threadIdx.x % 32, wanted = wanted_blocks(c.rule);
  const std::int64_t rows = c.rows.tokens() * c.heads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * warps + threadIdx.x / 32; i < rows;
       i += std::int64_t{gridDim.x} * warps) {
    const std::int64_t row = i / c.heads, head = i % c.heads;
    const std::int64_t visible = min(visible_blocks(c.rows.place(row), c.rule.block), c.max_blocks);
    top_list best;
    if (visible > c.rule.topk) {
      const rank* const lists = s.lists + i * s.splits * wanted;
      for (int split = 0; split < s.splits; ++split)
        best.merge(lane < wanted ? lists[split * wanted + lane] : no_block);
    }
    write_ids(c.rule, visible, best.mine, c.ids + row * c.id_row_stride + head * c.id_head_stride);
  }
}

}  // namespace

void merge_lists(const index_call& call, const rank* lists, int splits, cudaStream_t stream) {
  merge<<<grid_blocks(call.rows.row_bound * call.heads, warps), warps * 32, 0, stream>>>({call, lists, splits});
}

}  // namespace msabench::cuda
