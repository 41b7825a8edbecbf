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

/// Where each row of the pass stands, and its blocks: the distinct visible ids in the order given. A warp for each unit.
__global__ void __launch_bounds__(item_warps* warp)
    list_blocks(attend_call call, std::int64_t first_row, passes p, std::int32_t* blocks, row_place* places) {
  const int lane = threadIdx.x % warp;
  const std::int64_t tokens = call.rows.tokens();
  for (std::int64_t unit = first_item(); unit < p.units(); unit += item_step()) {
    const std::int64_t row = first_row + unit / p.heads, head = unit % p.heads;
    std::int32_t* const to = blocks + unit * p.capacity;
    std::int32_t found = 0;
    row_place place{-1, 0, -1};
    if (row < tokens) {
      place = call.rows.place(row);
      const std::int32_t* const ids = call.ids + row * call.id_row_stride + head * call.id_head_stride;
      const std::int64_t visible = visible_blocks(place, call.block);
      for (std::int32_t first = 0; first < call.topk; first += warp) {
        const std::int32_t slot = first + lane, id = slot < call.topk ? ids[slot] : -1;
        bool is_new = id >= 0 && id < visible;
        for (std::int32_t earlier = 0; is_new && earlier < slot; ++earlier) is_new = ids[earlier] != id;
        const unsigned fresh = __ballot_sync(~0u, is_new);
        const std::int32_t at = found + __popc(fresh & ((1u << lane) - 1));
        if (is_new && at < p.capacity) to[at] = id;
        found += __popc(fresh);
      }
    }
    for (std::int64_t slot = found + lane; slot < p.capacity; slot += warp) to[slot] = -1;
    if (lane == 0) places[unit] = place;
  }
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

/// Exponentials of a line's visible scores relative to their maximum, rounded once to the type of the values; 0 for
/// others. The sum is that of the exponentials before rounding. A block for each line.
template <class Stored, class Units>
__global__ void __launch_bounds__(line_threads)
    soften(Units units, float scale, passes p, const float* scores, Stored* weights, line_sum* sums) {
  __shared__ float shared[line_warps];
  const std::int64_t lines = p.lines(), all = p.units() * lines;
  for (std::int64_t i = blockIdx.x; i < all; i += gridDim.x) {
    const std::int64_t unit = i / lines, row = units.row(unit, i % lines / p.group);
    const std::int64_t last = row < 0 ? -1 : units.position(unit, row);
    const float* const line = scores + i * p.padded_keys;
    float own = no_score;
    for (std::int64_t key = threadIdx.x; key < p.padded_keys; key += line_threads)
      if (units.token(unit, key) <= last) own = fmaxf(own, line[key] * scale);
    const float maximum = joined<maximum_of>(own, shared);
    float sum = 0;
    for (std::int64_t key = threadIdx.x; key < p.padded_keys; key += line_threads) {
      const bool is_visible = maximum != no_score && units.token(unit, key) <= last;
      const float weight = is_visible ? expf(line[key] * scale - maximum) : 0.0f;
      weights[i * p.padded_keys + key] = Stored(weight);
      sum += weight;
    }
    sum = joined<sum_of>(sum, shared);
    if (threadIdx.x == 0) sums[i] = {maximum, sum};
  }
}

__device__ void store(char* to, msabench_dtype type, std::int64_t element, float value) {
  if (same_type(type, bf16_type))
    reinterpret_cast<__nv_bfloat16*>(to)[element] = __float2bfloat16_rn(value);
  else
    reinterpret_cast<__half*>(to)[element] = __float2half_rn(value);
}

/// Parts of the same line, put together as partial results are. A warp for each line of all parts.
template <class Units>
__global__ void __launch_bounds__(item_warps* warp)
    join_parts(Units units, attend_call call, passes p, const float* outs, const line_sum* sums) {
  const int lane = threadIdx.x % warp;
  const std::int64_t lines = p.lines(), heads = p.units() / p.parts, all = heads * lines;
  for (std::int64_t i = first_item(); i < all; i += item_step()) {
    const std::int64_t first_unit = i / lines * p.parts, line = i % lines;
    const std::int64_t row = units.row(first_unit, line / p.group);
    if (row < 0) continue;
    const std::int64_t head = units.head(first_unit) * p.group + line % p.group;
    const auto kept = [&](std::int64_t part) {
      return (part / p.parts * p.units() + first_unit + part % p.parts) * lines + line;
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
  const std::int64_t lines = p.units() * p.lines(), keys = p.units() * p.padded_keys, kept = key_pass * lines;
  constexpr int threads = item_warps * warp;
  gather_queries<<<grid_blocks(lines, item_warps), threads, 0, stream>>>(
      units, query_source{call.q, call.q_row_stride, call.q_head_stride}, p, memory.queries);
  gather_keys<<<grid_blocks(keys, item_warps), threads, 0, stream>>>(units, call.keys, p, memory.keys);
  gather_keys<<<grid_blocks(keys, item_warps), threads, 0, stream>>>(units, call.values, p, memory.values);
  const product_sizes sizes{p.units(), p.lines(), p.padded_keys, p.padded_width};
  product.scores(sizes, memory.queries, memory.keys, memory.scores);
  soften<<<grid_blocks(lines, 1), line_threads, 0, stream>>>(units, call.scale, p, memory.scores,
                                                             static_cast<Stored*>(memory.weights), memory.sums + kept);
  product.outs(sizes, memory.weights, memory.values, memory.outs + kept * p.padded_width);
}

template <class Stored>
void attend_as(const attend_call& call, const run_context& context) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const passes p = passes_of(context.problem);
  const pass_memory memory(p, context.scratch);
  const products product(context.state, stream, memory.cublas, call.q_type);
  constexpr int threads = item_warps * warp;
  for (std::int64_t row = 0; row < call.rows.row_bound; row += p.sequences) {
    auto* const places = static_cast<row_place*>(memory.places);
    list_blocks<<<grid_blocks(p.units(), item_warps), threads, 0, stream>>>(call, row, p, memory.blocks, places);
    const row_units units{row, p.heads, call.block, static_cast<std::int32_t>(p.capacity), memory.blocks, places};
    attend_keys<Stored>(units, call, p, memory, 0, product, stream);
    join_parts<<<grid_blocks(p.units() * p.lines(), item_warps), threads, 0, stream>>>(units, call, p, memory.outs,
                                                                                       memory.sums);
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
      const std::int64_t lines = p.sequences * p.heads * p.lines();
      join_parts<<<grid_blocks(lines, item_warps), item_warps * warp, 0, stream>>>(units, call, p, memory.outs,
                                                                                   memory.sums);
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
