// SPDX-License-Identifier: Apache-2.0
// Score and select in one call, and the log-sum-exp of the selected keys where training asks for it.
#include <cuda_fp8.h>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/refusal.h"
#include "kernels/cuda/scoring.h"

namespace msabench::cuda {
namespace {

/// Two neighbouring values of an operand.
template <class T>
struct operand_pair {
  using type = typename storage<T>::pair;
  static __device__ float2 widen(type x) { return storage<T>::widen(x); }
};
template <>
struct operand_pair<__nv_fp8_e4m3> {
  using type = __nv_fp8x2_e4m3;
  static __device__ float2 widen(type x) { return static_cast<float2>(x); }
};

constexpr int warps = 4, threads = warps * 32;
constexpr int key_lanes = 4;  // that multiply a key

/// A maximum or sum over a thread block, which every thread receives.
template <class Combine>
__device__ float over_block(float value, float* shared, Combine combine) {
  for (int other = 16; other > 0; other /= 2) value = combine(value, __shfl_xor_sync(all_lanes, value, other));
  __syncthreads();  // before the last one's values are written over
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (int w = 1; w < warps; ++w) value = combine(value, shared[w]);
  return value;
}

/// A thread block a row and head. The scores of all its keys lie in shared memory [topk][block], so that the maximum is
/// known before the first exponential.
template <class T>
__global__ void __launch_bounds__(threads) log_sums(index_call c) {
  extern __shared__ float scores[];
  __shared__ float partial[warps];
  using pair = typename operand_pair<T>::type;
  constexpr int piece = 16 / sizeof(T);  // elements of 16 bytes
  const std::int64_t all = c.rows.tokens() * c.heads;
  for (std::int64_t i = blockIdx.x; i < all; i += gridDim.x) {
    const std::int64_t row = i / c.heads, head = i % c.heads;
    const row_place place = c.rows.place(row);
    const std::int64_t visible = min(place.position + 1, c.max_blocks * c.rule.block);
    const std::int32_t* const ids = c.ids + row * c.id_row_stride + head * c.id_head_stride;
    const int blocks =
        static_cast<int>(min(ceil_div(max(visible, std::int64_t{0}), c.rule.block), std::int64_t{c.rule.topk}));
    const int slots = blocks * c.rule.block;
    const char* const query = c.q + (row * c.q_row_stride + head * c.q_head_stride) * sizeof(T);
    const float query_factor =
        c.q_scale == nullptr ? 1.0f : c.q_scale[row * c.q_scale_row_stride + head * c.q_scale_head_stride];
    const int part = threadIdx.x % key_lanes;
    // Every warp takes as many steps, since its lanes add to each other.
    for (int first = 0; first < slots; first += threads / key_lanes) {
      const int slot = first + threadIdx.x / key_lanes;
      const std::int64_t key =
          slot < slots ? std::int64_t{ids[slot / c.rule.block]} * c.rule.block + slot % c.rule.block : visible;
      float sum = 0;
      if (key < visible) {
        const char* const keys = c.keys.token(place.sequence, 0, key);
        for (int at = part * piece; at < c.width; at += key_lanes * piece) {
          const uint4 a = __ldg(reinterpret_cast<const uint4*>(query + at * sizeof(T)));
          const uint4 b = __ldg(reinterpret_cast<const uint4*>(keys + at * sizeof(T)));
          const auto *const left = reinterpret_cast<const pair*>(&a), *const right = reinterpret_cast<const pair*>(&b);
          for (int e = 0; e < piece / 2; ++e) {
            const float2 x = operand_pair<T>::widen(left[e]), y = operand_pair<T>::widen(right[e]);
            sum = fmaf(x.x, y.x, sum);
            sum = fmaf(x.y, y.y, sum);
          }
        }
      }
      sum += __shfl_xor_sync(all_lanes, sum, 1);
      sum += __shfl_xor_sync(all_lanes, sum, 2);
      if (part == 0 && slot < slots)
        scores[slot] =
            key < visible ? c.scale * (query_factor * c.keys.factor(place.sequence, 0, key) * sum) : -CUDART_INF_F;
    }
    __syncthreads();
    float most = -CUDART_INF_F;
    for (int slot = threadIdx.x; slot < slots; slot += threads) most = fmaxf(most, scores[slot]);
    most = over_block(most, partial, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0;
    for (int slot = threadIdx.x; slot < slots && most != -CUDART_INF_F; slot += threads)
      sum += expf(scores[slot] - most);
    sum = over_block(sum, partial, [](float a, float b) { return a + b; });
    // The logarithm in double: the declared error is absolute, and fp32 misses it once the sum passes a few hundred.
    if (threadIdx.x == 0)
      c.lse[row * c.lse_row_stride + head * c.lse_head_stride] =
          most == -CUDART_INF_F ? most : static_cast<float>(most + log(static_cast<double>(sum)));
  }
}

template <class T>
void log_sums_of(const index_call& c, cudaStream_t stream) {
  const std::size_t shared = sizeof(float) * c.rule.topk * c.rule.block;
  allow_shared_memory(log_sums<T>, shared);
  log_sums<T><<<grid_blocks(c.rows.row_bound * c.heads, 1, 16), threads, shared, stream>>>(c);
}

/// Rows of scores in scratch are whole vectors.
std::int64_t score_columns(const msabench_problem& p) { return ceil_div(max_blocks(p), 4) * 4; }

double score_bytes(const msabench_problem& p) {
  return static_cast<double>(p.total_q) * p.hi * static_cast<double>(score_columns(p)) * sizeof(float);
}

/// Whether scores are in memory before they are selected from.
bool keeps_scores(const msabench_problem& p) {
  constexpr double most_bytes = 128.0 * (1 << 20);
  return streams(p) && score_bytes(p) <= most_bytes;
}

}  // namespace

void index(const index_call& call, const run_context& context) {
  if (call.rows.batch == 0 || call.rows.row_bound == 0) return;
  if (keeps_scores(context.problem)) {
    const bool wanted = call.scores != nullptr;
    float* const scores = wanted ? call.scores : static_cast<float*>(context.scratch);
    const std::int64_t columns = score_columns(context.problem);
    const std::int64_t row_stride = wanted ? call.score_row_stride : columns;
    const std::int64_t head_stride = wanted ? call.score_head_stride : context.problem.total_q * columns;
    stream_scores(call, scores, head_stride, row_stride, wanted, context);
    select_blocks({call.rows, call.rule, call.heads, call.max_blocks, scores, head_stride, row_stride, call.ids,
                   call.id_row_stride, call.id_head_stride},
                  wanted ? call.max_blocks : columns, call.max_blocks > 0, context);
  } else {
    sweep_scores(call, context.scratch, context);
  }
  if (call.lse != nullptr) log_sums_of_selected(call, static_cast<cudaStream_t>(context.stream));
}

void log_sums_of_selected(const index_call& call, cudaStream_t stream) {
  if (same_type(call.q_type, bf16_type))
    log_sums_of<__nv_bfloat16>(call, stream);
  else if (same_type(call.q_type, e4m3_type))
    log_sums_of<__nv_fp8_e4m3>(call, stream);
  else
    log_sums_of<__half>(call, stream);
}

double index_scratch_bytes(const msabench_problem& p) {
  if (p.op == MSABENCH_OP_SCORE) return 0;
  return keeps_scores(p) ? score_bytes(p) : sweep_scratch_bytes(p);
}

msabench_numerics index_numerics(const msabench_problem& p) {
  msabench_numerics declared = fp32_numerics(p);
  // log_sums: what a thread adds, then the lanes of a warp, then the warps.
  const std::int64_t keys = std::int64_t{p.topk} * p.block;
  declared.chain_row_sum = static_cast<std::uint32_t>(ceil_div(keys, threads) + 5 + warps);
  return declared;
}

const char* index_refusal(const msabench_problem& p) {
  const bool scores = is_index_branch(p.op) || p.op == MSABENCH_OP_MSA;
  const bool selects = p.op == MSABENCH_OP_SELECT || p.op == MSABENCH_OP_INDEX || p.op == MSABENCH_OP_MSA;
  const bool has_block = p.block == 16 || p.block == 32 || p.block == 64 || p.block == 128;
  return first_refusal({
      {selects && p.topk > most_selected, "topk", p.topk, "lists of blocks have 32 places; select fewer blocks"},
      {scores && !has_block, "block", p.block, "tiles of keys hold blocks of 16, 32, 64 or 128; use one of them"},
      {scores && (p.di % 8 != 0 || p.di > most_width), "di", p.di, "no multiple of 8 up to 128; use such an index dim"},
      {scores && p.hi > least_rows, "hi", p.hi, "more than 64 heads of a token; use fewer"},
  });
}

}  // namespace msabench::cuda
