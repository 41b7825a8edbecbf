// SPDX-License-Identifier: Apache-2.0
// attend and dense: products with the keys, softmax over each part of them, products with the values, and the parts put
// together.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cublas_twin/cublas.h"
#include "kernels/cublas_twin/gather.cuh"
#include "kernels/cublas_twin/operators.h"
#include "kernels/cublas_twin/units.cuh"

namespace msabench::cublas_twin {
namespace {

constexpr unsigned all_lanes = ~0u;

/// Where the row of each unit stands, and its blocks: the distinct visible ids in the order given. A warp for each unit.
__global__ void __launch_bounds__(warp)
    list_blocks(attend_call call, std::int64_t first_row, passes p, std::int32_t* blocks, row_place* places) {
  const int lane = threadIdx.x;
  const std::int64_t unit = blockIdx.y, row = first_row + unit / p.heads, head = unit % p.heads;
  std::int32_t* const to = blocks + unit * p.capacity;
  std::int32_t found = 0;
  row_place place{-1, 0, -1};
  if (row < call.rows.tokens()) {
    place = call.rows.place(row);
    const std::int32_t* const ids = call.ids + row * call.id_row_stride + head * call.id_head_stride;
    const std::int64_t visible = visible_blocks(place, call.block);
    for (std::int32_t first = 0; first < call.topk; first += warp) {
      const std::int32_t slot = first + lane, id = slot < call.topk ? ids[slot] : -1;
      bool is_new = id >= 0 && id < visible;
      for (std::int32_t earlier = 0; is_new && earlier < slot; ++earlier) is_new = ids[earlier] != id;
      const unsigned fresh = __ballot_sync(all_lanes, is_new);
      const std::int32_t at = found + __popc(fresh & ((1u << lane) - 1));
      if (is_new && at < p.capacity) to[at] = id;
      found += __popc(fresh);
    }
  }
  for (std::int64_t slot = found + lane; slot < p.capacity; slot += warp) to[slot] = -1;
  if (lane == 0) places[unit] = place;
}

constexpr int line_threads = 128, line_warps = line_threads / warp;

__device__ float maximum_of(float a, float b) { return fmaxf(a, b); }
__device__ float sum_of(float a, float b) { return a + b; }

/// One value of all threads of the block, the same for each.
template <float (*join)(float, float)>
__device__ float joined(float own, float (&shared)[line_warps]) {
  for (int other = warp / 2; other > 0; other /= 2) own = join(own, __shfl_xor_sync(all_lanes, own, other));
  __syncthreads();  // of the call before, which may still be read
  if (threadIdx.x % warp == 0) shared[threadIdx.x / warp] = own;
  __syncthreads();
  float all = shared[0];
  for (int i = 1; i < line_warps; ++i) all = join(all, shared[i]);
  return all;
}

/// Four values, stored at once.
template <class Stored>
struct alignas(8) four {
  Stored values[4];
};

/// Exponentials of a line's visible scores relative to their maximum, rounded once to the type of the values; 0 for
/// others. The sum is that of the exponentials before rounding. A block for each line.
template <class Stored, class Units>
__global__ void __launch_bounds__(line_threads)
    soften(Units units, float scale, passes p, const float* scores, Stored* weights, line_sum* sums) {
  __shared__ float shared[line_warps];
  const auto unit = units.at(blockIdx.y);
  for (std::int64_t line = blockIdx.x; line < p.lines(); line += gridDim.x) {
    const std::int64_t row = unit.row(line / p.group), at = blockIdx.y * p.lines() + line;
    const std::int64_t last = row < 0 ? -1 : unit.position(row);
    const auto* const from = reinterpret_cast<const float4*>(scores + at * p.padded_keys);
    auto* const to = reinterpret_cast<four<Stored>*>(weights + at * p.padded_keys);
    const auto visible_scores = [&](std::int64_t key, float(&of)[4]) {
      const std::int32_t visible = unit.visible(key, last);
      const float4 four_scores = visible > 0 ? from[key / 4] : float4{};
      of[0] = visible > 0 ? four_scores.x * scale : no_score;
      of[1] = visible > 1 ? four_scores.y * scale : no_score;
      of[2] = visible > 2 ? four_scores.z * scale : no_score;
      of[3] = visible > 3 ? four_scores.w * scale : no_score;
    };
    float own = no_score, some[4];
    for (std::int64_t key = 4 * threadIdx.x; key < p.padded_keys; key += 4 * line_threads) {
      visible_scores(key, some);
      own = fmaxf(fmaxf(fmaxf(own, some[0]), fmaxf(some[1], some[2])), some[3]);
    }
    const float maximum = joined<maximum_of>(own, shared);
    float sum = 0;
    for (std::int64_t key = 4 * threadIdx.x; key < p.padded_keys; key += 4 * line_threads) {
      visible_scores(key, some);
      four<Stored> rounded;
      for (int i = 0; i < 4; ++i) {
        // Without a visible key the maximum is no number that anything is relative to.
        const float weight = some[i] == no_score ? 0.0f : expf(some[i] - maximum);
        rounded.values[i] = Stored(weight);
        sum += weight;
      }
      to[key / 4] = rounded;
    }
    sum = joined<sum_of>(sum, shared);
    if (threadIdx.x == 0) sums[at] = {maximum, sum};
  }
}

__device__ void store(char* to, msabench_dtype type, std::int64_t element, float value) {
  if (same_type(type, bf16_type))
    reinterpret_cast<__nv_bfloat16*>(to)[element] = __float2bfloat16_rn(value);
  else
    reinterpret_cast<__half*>(to)[element] = __float2half_rn(value);
}

/// Parts of the same line, put together as partial results are. A column of blocks for the units of one part, and a warp
/// for each line.
template <class Units>
__global__ void __launch_bounds__(item_warps* warp)
    join_parts(Units units, attend_call call, passes p, const float* outs, const line_sum* sums) {
  const int lane = threadIdx.x % warp;
  const std::int64_t first_unit = blockIdx.y * p.parts;
  const auto unit = units.at(first_unit);
  for (std::int64_t line = first_item(); line < p.lines(); line += item_step()) {
    const std::int64_t row = unit.row(line / p.group), head = unit.head * p.group + line % p.group;
    if (row < 0) continue;
    const auto kept = [&](std::int64_t part) {
      return (part / p.parts * p.units() + first_unit + part % p.parts) * p.lines() + line;
    };
    const std::int64_t parts = p.key_passes * p.parts;
    float maximum = no_score, weight = 0;
    for (std::int64_t part = lane; part < parts; part += warp) maximum = fmaxf(maximum, sums[kept(part)].maximum);
    for (int other = warp / 2; other > 0; other /= 2)
      maximum = fmaxf(maximum, __shfl_xor_sync(all_lanes, maximum, other));
    const bool is_empty = maximum == no_score;
    // Every lane adds the weights in the order of the parts, so all have the same sum.
    for (std::int64_t part = 0; part < parts && !is_empty; ++part)
      weight += expf(sums[kept(part)].maximum - maximum) * sums[kept(part)].weight;
    for (std::int64_t column = lane; column < p.width; column += warp) {
      float sum = 0;
      for (std::int64_t part = 0; part < parts && !is_empty; ++part)
        sum += expf(sums[kept(part)].maximum - maximum) * outs[kept(part) * p.padded_width + column];
      store(call.out, call.out_type, row * call.out_row_stride + head * call.out_head_stride + column,
            is_empty ? 0.0f : sum / weight);
    }
    // The logarithm in double: the declared error is absolute, and fp32 misses it once the sum passes a few hundred.
    if (lane == 0 && call.lse != nullptr)
      call.lse[row * call.lse_row_stride + head * call.lse_head_stride] =
          is_empty ? no_score : static_cast<float>(maximum + log(static_cast<double>(weight)));
  }
}

/// Products, softmax and products of one pass over the keys.
template <class Stored, class Units>
void attend_keys(const Units& units, const attend_call& call, const passes& p, const pass_memory& memory,
                 std::int64_t key_pass, const products& product, cudaStream_t stream) {
  const std::int64_t kept = key_pass * p.units() * p.lines();
  gather_queries<<<unit_grid(p.units(), p.lines(), 8), gather_threads, 0, stream>>>(
      units, query_source{call.q, call.q_row_stride, call.q_head_stride}, p, memory.queries);
  gather_keys<<<unit_grid(p.units(), p.padded_keys, 64), gather_threads, 0, stream>>>(units, call.keys, call.values, p,
                                                                                      memory.keys, memory.values);
  const product_sizes sizes{p.units(), p.lines(), p.padded_keys, p.padded_width};
  product.scores(sizes, memory.queries, memory.keys, memory.scores);
  soften<<<unit_grid(p.units(), p.lines(), 1), line_threads, 0, stream>>>(
      units, call.scale, p, memory.scores, static_cast<Stored*>(memory.weights), memory.sums + kept);
  product.outs(sizes, memory.weights, memory.values, memory.outs + kept * p.padded_width);
}

template <class Stored>
void attend_as(const attend_call& call, const run_context& context) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const passes p = passes_of(context.problem);
  const pass_memory memory(p, context.scratch);
  const products product(context.state, stream, memory.cublas, call.q_type);
  auto* const places = static_cast<row_place*>(memory.places);
  for (std::int64_t row = 0; row < call.rows.row_bound; row += p.sequences) {
    list_blocks<<<unit_grid(p.units(), 1, 1), warp, 0, stream>>>(call, row, p, memory.blocks, places);
    const row_units units{row,
                          p.heads,
                          call.block,
                          static_cast<std::int32_t>(p.padded_block),
                          static_cast<std::int32_t>(p.capacity),
                          memory.blocks,
                          places};
    attend_keys<Stored>(units, call, p, memory, 0, product, stream);
    join_parts<<<unit_grid(p.units(), p.lines(), item_warps), item_warps * warp, 0, stream>>>(units, call, p,
                                                                                              memory.outs, memory.sums);
  }
}

template <class Stored>
void dense_as(const attend_call& call, const run_context& context) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const passes p = passes_of(context.problem);
  const pass_memory memory(p, context.scratch);
  const products product(context.state, stream, memory.cublas, call.q_type);
  const std::int64_t most_queries = std::min(context.problem.max_q_len, call.rows.row_bound);
  for (std::int64_t sequence = 0; sequence < call.rows.batch; sequence += p.sequences) {
    for (std::int64_t query = 0; query < most_queries; query += p.queries) {
      sequence_units units{call.rows, sequence, query, 0, p.heads, p.parts, p.keys};
      for (std::int64_t pass = 0; pass < p.key_passes; ++pass) {
        units.first_part = pass * p.parts;
        attend_keys<Stored>(units, call, p, memory, pass, product, stream);
      }
      join_parts<<<unit_grid(p.sequences * p.heads, p.lines(), item_warps), item_warps * warp, 0, stream>>>(
          units, call, p, memory.outs, memory.sums);
    }
  }
}

}  // namespace

void attend(const attend_call& call, const run_context& context) {
  if (same_type(call.q_type, bf16_type))
    attend_as<__nv_bfloat16>(call, context);
  else
    attend_as<__half>(call, context);
}

void dense(const attend_call& call, const run_context& context) {
  if (same_type(call.q_type, bf16_type))
    dense_as<__nv_bfloat16>(call, context);
  else
    dense_as<__half>(call, context);
}

}  // namespace msabench::cublas_twin
