// SPDX-License-Identifier: Apache-2.0
// A thread block has a block's keys and values in shared memory, and its warps take one after the other of the tokens that
// selected it: the scores and sums of 128 keys, which are then added to what the token has from its earlier blocks.
//
// The blocks of a token have to be added in their order, or its bits would be other ones in every run. Thread blocks begin
// in the order of their numbers, in which blocks ascend: who waits for a token's earlier block waits for a thread block
// that has begun.
#include "kernels/cuda/gathered_attention.h"

#include <math_constants.h>

#include <algorithm>

#include "kernels/common/declare.h"
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/attention_shapes.cuh"
#include "kernels/cuda/gathered_pairs.cuh"

namespace msabench::cuda {
namespace {

/// Straight from memory: each warp has other rows, and reads them once.
template <class S>
__device__ query_fragments<S> read_fragments(const attend_call& call, std::int64_t row, std::int64_t kv_head) {
  query_fragments<S> fragments;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const auto word = [&](int r, int column) -> std::uint32_t {
    if (r >= call.group || column >= call.d) return 0;
    const std::int64_t element = row * call.q_row_stride + (kv_head * call.group + r) * call.q_head_stride + column;
    return __ldg(reinterpret_cast<const std::uint32_t*>(call.q + element * 2));
  };
#pragma unroll
  for (int k = 0; k < S::columns / 16; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) fragments.kept[k][i] = word(g + i % 2 * 8, k * 16 + i / 2 * 8 + 2 * t);
  return fragments;
}

__device__ inline std::uint32_t load_acquired(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline void store_released(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

/// Adds the sums of a block to those of the token's earlier blocks, which lie in the state.
template <int octets>
__device__ void add_to_state(const gathered_chunk& chunk, std::int64_t head, const token_pair& pair,
                             attention_rows<1, octets>& sums) {
  const int lane = threadIdx.x % 32;
  float4* const state = chunk.state + std::int64_t{pair.token} * (octets + 1) * 32 + lane;
  std::uint32_t* const done = chunk.done + chunk.at(head, pair.token);
  const bool is_first = pair.rank == 0, is_last = pair.rank + 1 == pair.count;
  while (lane == 0 && !is_first && load_acquired(done) != pair.rank) __nanosleep(64);
  __syncwarp();
  const float4 stats = is_first ? float4{-CUDART_INF_F, -CUDART_INF_F, 0, 0} : __ldcg(state + octets * 32);
  const merge_factors factors[2] = {{stats.x, sums.most[0][0]}, {stats.y, sums.most[0][1]}};
  sums.most[0][0] = factors[0].most;
  sums.most[0][1] = factors[1].most;
  sums.sum[0][0] = factors[0](stats.z, sums.sum[0][0]);
  sums.sum[0][1] = factors[1](stats.w, sums.sum[0][1]);
#pragma unroll
  for (int n = 0; n < octets; ++n) {
    const float4 before = is_first ? float4{} : __ldcg(state + n * 32);
    float(&out)[4] = sums.out[0][n];
    out[0] = factors[0](before.x, out[0]);
    out[1] = factors[0](before.y, out[1]);
    out[2] = factors[1](before.z, out[2]);
    out[3] = factors[1](before.w, out[3]);
  }
  if (is_last) return;
#pragma unroll
  for (int n = 0; n < octets; ++n)
    __stcg(state + n * 32, float4{sums.out[0][n][0], sums.out[0][n][1], sums.out[0][n][2], sums.out[0][n][3]});
  __stcg(state + octets * 32, float4{sums.most[0][0], sums.most[0][1], sums.sum[0][0], sums.sum[0][1]});
  __threadfence();
  __syncwarp();
  if (lane == 0) store_released(done, pair.rank + 1u);
}

/// Scores of a part to sums of its rows, in the order that attention_shapes.cuh tells of.
template <class S>
__device__ void sum_part(attention_scores<S>& scores, const typename S::value* values,
                         attention_rows<1, S::octets>& sums) {
  constexpr int octets_of_quarter = part_keys / part_quarters / 8;
  sums.clear();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = -CUDART_INF_F;
#pragma unroll
    for (int n = 0; n < part_keys / 8; ++n)
      most = fmaxf(most, fmaxf(scores.values[0][n][2 * half], scores.values[0][n][2 * half + 1]));
    sums.most[0][half] = most = row_maximum(most);
#pragma unroll
    for (int quarter = 0; quarter < part_quarters; ++quarter) {
      float sum = 0;
#pragma unroll
      for (int n = quarter * octets_of_quarter; n < (quarter + 1) * octets_of_quarter; ++n) {
        sum += weigh(scores.values[0][n][2 * half], most);
        sum += weigh(scores.values[0][n][2 * half + 1], most);
      }
      sums.sum[0][half] += row_sum(sum);
    }
  }
  const std::uint32_t address = value_address<S>(values);
#pragma unroll
  for (int k = 0; k < part_keys / 16; ++k) {
    std::uint32_t weights[1][4];
    weight_fragment<S>(scores, 0, k, weights[0]);
    add_values<typename S::value>(weights, address + k * 16 * S::stride * 2, sums);
  }
}

template <class S>
__global__ void __launch_bounds__(S::threads, 3)
    attend_blocks(attend_call call, gathered_chunk chunk, std::int32_t head) {
  using T = typename S::value;
  extern __shared__ __align__(16) unsigned char shared[];
  T* const key_tile = reinterpret_cast<T*>(shared);
  T* const value_tile = key_tile + S::tile_elements;
  __shared__ token_pair pairs[work_pairs];
  __shared__ token_tile tiles[work_pairs];
  __shared__ std::uint32_t most;

  const std::uint32_t number = chunk.works_of[head] + blockIdx.x;
  if (number >= chunk.works_of[head + 1]) return;
  const block_work work = chunk.works[number];
  const int count = min(work_pairs, chunk.begins[work.block + 1] - work.first_pair);
  const std::int64_t local = work.block - head * chunk.blocks_of_head(), sequence = local / chunk.max_blocks;
  const auto first = static_cast<std::uint32_t>(local % chunk.max_blocks) * part_keys;
  if (threadIdx.x < work_pairs) {
    std::uint32_t limit = 0;
    if (static_cast<int>(threadIdx.x) < count) {
      const token_pair pair = chunk.pairs[work.first_pair + threadIdx.x];
      const token_tile tile = token_tile_at(call.rows, chunk.first + pair.token, 1);
      pairs[threadIdx.x] = pair;
      tiles[threadIdx.x] = tile;
      limit = tile.limit(0);
    }
    limit = __reduce_max_sync(~0u, limit);
    if (threadIdx.x == 0) most = limit;
  }
  __syncthreads();
  const key_list keys{nullptr, 0, most};
  copy_tile<S>(call.keys, sequence, head, call.d, keys, first, most, key_tile);
  copy_tile<S>(call.values, sequence, head, call.d, keys, first, most, value_tile);
  commit_copies();
  wait_copies<0>();
  __syncthreads();

  const float scale = call.scale * static_cast<float>(CUDART_L2E);
  for (int i = threadIdx.x / 32; i < count; i += S::warps) {
    const token_tile tile = tiles[i];
    const query_fragments<S> fragments = read_fragments<S>(call, tile.first, head);
    const std::uint32_t limit = tile.limit(0), limits[1][2] = {{limit, limit}};
    attention_scores<S> scores;
    score_tile<S>(fragments, key_tile, scores);
    scale_tile<S>(scale, scores);
    if (first + part_keys > limit) mask_tile<S>(keys, first, limits, scores);
    attention_rows<1, S::octets> sums;
    sum_part<S>(scores, value_tile, sums);
    add_to_state(chunk, head, pairs[i], sums);
    if (pairs[i].rank + 1 == pairs[i].count) write_rows(call, tile, head, 0, 0, sums);
    __syncwarp();  // lanes of rows that there aren't have been faster
  }
}

template <class T, int columns>
void attend_chunk(const attend_call& call, const gathered_chunk& chunk, cudaStream_t stream) {
  using S = part_shape<T, columns>;
  constexpr std::size_t shared = 2 * S::tile_elements * sizeof(T);
  allow_shared_memory(attend_blocks<S>, shared);
  for (std::int32_t head = 0; head < chunk.heads; ++head)
    attend_blocks<S><<<static_cast<unsigned>(chunk.most_works()), S::threads, shared, stream>>>(call, chunk, head);
}

}  // namespace

bool gathers_tokens(const msabench_problem& p) {
  if (reads_all_keys(p) || p.block != part_keys || p.topk > 32) return false;
  // Fewer rows don't fill a device, and soon have their own thread blocks' results put together. More blocks take one thread
  // block long to count.
  constexpr std::int64_t least_rows = 96, most_blocks = 1 << 18;
  const std::int64_t blocks = p.batch * max_blocks(p);
  return p.total_q * p.hkv >= least_rows && blocks > 0 && p.total_q * p.topk >= 2 * blocks &&
         blocks * p.hkv <= most_blocks;
}

double gathered_attention_bytes(const msabench_problem& p) { return lay_out_chunk(p, nullptr).bytes; }

void gathered_attention(const attend_call& call, const run_context& context) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const msabench_problem& p = context.problem;
  gathered_chunk chunk = lay_out_chunk(p, context.scratch);
  chunk.sequences = call.rows.batch;
  const std::int64_t rows = call.rows.batch == 0 ? 0 : std::min(call.rows.row_bound, p.total_q);
  for (; chunk.first < rows; chunk.first += chunk.tokens) {
    const std::int64_t items = chunk.heads * chunk.tokens;
    cudaMemsetAsync(chunk.counts, 0, reinterpret_cast<char*>(chunk.begins) - reinterpret_cast<char*>(chunk.counts),
                    stream);
    list_pairs<<<static_cast<unsigned>(ceil_div(items, list_warps)), 32 * list_warps, 0, stream>>>(call, chunk);
    scan_blocks<<<1, scan_threads, 0, stream>>>(chunk);
    place_pairs<<<static_cast<unsigned>(ceil_div(items * chunk.topk, 256)), 256, 0, stream>>>(chunk);
    const bool is_bf16 = same_type(call.q_type, bf16_type), is_short = shape_columns(false, call.d) == 64;
    if (is_bf16)
      is_short ? attend_chunk<__nv_bfloat16, 64>(call, chunk, stream)
               : attend_chunk<__nv_bfloat16, 128>(call, chunk, stream);
    else
      is_short ? attend_chunk<__half, 64>(call, chunk, stream) : attend_chunk<__half, 128>(call, chunk, stream);
  }
}

}  // namespace msabench::cuda
