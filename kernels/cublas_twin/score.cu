// SPDX-License-Identifier: Apache-2.0
// score: products with the index keys, and the best visible one of each block.
#include "kernels/cublas_twin/cublas.h"
#include "kernels/cublas_twin/gather.cuh"
#include "kernels/cublas_twin/operators.h"
#include "kernels/cublas_twin/units.cuh"

namespace msabench::cublas_twin {
namespace {

/// A warp for each line and block of the pass.
__global__ void __launch_bounds__(item_warps* warp)
    best_of_blocks(sequence_units units, index_call call, passes p, const float* scores) {
  const int lane = threadIdx.x % warp;
  const std::int64_t lines = p.lines(), blocks = p.keys / p.block, all = p.units() * lines * blocks;
  for (std::int64_t i = first_item(); i < all; i += item_step()) {
    const std::int64_t at = i / blocks, unit = at / lines, line = at % lines;
    const std::int64_t row = units.row(unit, line / p.group);
    const std::int64_t block = units.part(unit) * blocks + i % blocks;
    if (row < 0 || block >= call.max_blocks) continue;
    const std::int64_t last = units.position(unit, row);
    const float* const from = scores + at * p.padded_keys + i % blocks * p.block;
    float best = no_score;
    for (std::int64_t key = lane; key < p.block; key += warp) {
      const float score = from[key] * call.scale;
      // A NaN is no better than anything.
      if (block * p.block + key <= last && score > best) best = score;
    }
    for (int other = warp / 2; other > 0; other /= 2) best = fmaxf(best, __shfl_xor_sync(~0u, best, other));
    if (lane == 0) call.scores[line % p.group * call.score_head_stride + row * call.score_row_stride + block] = best;
  }
}

}  // namespace

void score(const index_call& call, const run_context& context) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const passes p = passes_of(context.problem);
  const pass_memory memory(p, context.scratch);
  const products product(context.state, stream, memory.cublas, call.q_type);
  const std::int64_t most_queries = std::min(context.problem.max_q_len, call.rows.row_bound);
  const std::int64_t lines = p.units() * p.lines();
  constexpr int threads = item_warps * warp;
  for (std::int64_t sequence = 0; sequence < call.rows.batch; sequence += p.sequences) {
    for (std::int64_t pass = 0; pass < p.key_passes; ++pass) {
      sequence_units units{call.rows, sequence, 0, pass * p.parts, p.heads, p.parts, p.keys};
      gather_keys<<<grid_blocks(p.units() * p.padded_keys, item_warps), threads, 0, stream>>>(units, call.keys, p,
                                                                                              memory.keys);
      for (units.first_query = 0; units.first_query < most_queries; units.first_query += p.queries) {
        gather_queries<<<grid_blocks(lines, item_warps), threads, 0, stream>>>(
            units, query_source{call.q, call.q_row_stride, call.q_head_stride}, p, memory.queries);
        product.scores({p.units(), p.lines(), p.padded_keys, p.padded_width}, memory.queries, memory.keys,
                       memory.scores);
        best_of_blocks<<<grid_blocks(lines * (p.keys / p.block), item_warps), threads, 0, stream>>>(units, call, p,
                                                                                                    memory.scores);
      }
    }
  }
}

}  // namespace msabench::cublas_twin
