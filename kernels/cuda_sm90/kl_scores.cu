// SPDX-License-Identifier: Apache-2.0
// What the scores of readings sum up to: a thread block for each piece of a list of readers. The block's keys of both
// branches stay in shared memory; tiles of 64 rows come by, brought by four warps of their own: for 64 tokens 16 tiles of four
// tokens' heads, then their index queries. Three warpgroups take turns at tiles, and each has the products of its tile, 64 by
// 128, while another has exponentials. A thread has two rows, so a row's sum takes two exchanges of lanes.
#include <math_constants.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/kl_run.cuh"

namespace msabench::cuda_sm90 {
namespace {

using cuda::normaliser;
using cuda::reading;

constexpr int groups = 3, scorers = groups * group_threads, threads = group_threads + scorers;
constexpr int scorer_registers = 152, copier_registers = 56;
constexpr int scorers_meet = 1;  // id of their barrier

struct shared_memory {
  static constexpr int stages = 8;
  key_tile keys, index_keys;
  row_tile rows[stages];
  std::int32_t seen[stages][batch_tokens];  ///< keys of the block, the first ones, that a token of the tile sees
  barrier full[stages], empty[stages];
};
constexpr int shared_bytes = sizeof(shared_memory) + swizzle_atom_bytes;

/// Tiles of a piece: of whole batches 16 and one, of the last as many as it has tokens for.
struct tile_place {
  int first;  ///< token of the piece
  bool student;

  __device__ static int count(const reading& task) {
    const int rest = task.tokens % batch_tokens;
    const int of_rest = rest == 0 ? 0 : (rest + step_tokens - 1) / step_tokens + 1;
    return task.tokens / batch_tokens * (batch_steps + 1) + of_rest;
  }
  __device__ tile_place(int tile, int tiles) {
    const int batch = tile / (batch_steps + 1), step = tile % (batch_steps + 1);
    student = step == batch_steps || tile == tiles - 1;
    first = batch * batch_tokens + (student ? 0 : step * step_tokens);
  }
};

/// The stage of the n-th tile of a thread block, and the parity of its completion.
struct stage_place {
  int stage;
  std::uint32_t parity;
  __device__ explicit stage_place(int n) : stage(n % shared_memory::stages), parity(n / shared_memory::stages % 2) {}
};

/// A warp of four.
__device__ void copy_rows(const kl_run& r, shared_memory& m) {
  int done = 0;
  for_each_piece(r, [&](std::int64_t, const reading& task) {
    const int tiles = tile_place::count(task);
    batch_reader batch(r, task);
    for (int tile = 0; tile < tiles; ++tile) {
      const tile_place place(tile, tiles);
      const stage_place at(done + tile);
      const int step = tile % (batch_steps + 1);
      if (step == 0) batch.begin(place.first);
      row_tile& to = m.rows[at.stage];
      barrier* const full = &m.full[at.stage];
      const std::int32_t token = batch.token_of(step % batch_steps);
      wait_for(&m.empty[at.stage], at.parity ^ 1);
      if (place.student) {
        if (batch.has_place()) m.seen[at.stage][batch.place()] = batch.seen();
      } else if (threadIdx.x % 32 == step) {
        m.seen[at.stage][batch.warp()] = batch.seen();
      }
      arrive_all_expecting(full, copied_bytes);
      __syncwarp();
      if (threadIdx.x % 32 == 0 && !place.student) copy_heads(to, batch.warp() * kl_heads, r, task.head, token, full);
      __syncwarp();
      if (place.student && batch.has_place()) copy_index_head(to, batch.place(), r, task.head, batch.token(), full);
      __syncwarp();
    }
    done += tiles;
  });
}

/// Of both rows of a lane's part of the scores, over the keys that are seen. `scale` is positive. Each sum is of two, so that
/// no addition waits long for the one before.
template <bool masked>
__device__ void sum_up(normaliser (&found)[2], const float (&c)[sum_values], const std::int32_t (&seen)[2],
                       float scale) {
  const int first_key = threadIdx.x % 4 * 2;
  float most[4], sums[4];  // of the value i of four
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    most[i] = -CUDART_INF_F;
    sums[i] = 0;
  }
#pragma unroll
  for (int n = 0; n < block_keys / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (!masked || n * 8 + first_key + i % 2 < seen[i / 2]) most[i] = fmaxf(most[i], c[n * 4 + i]);
  float reference[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float greatest = fmaxf(most[half * 2], most[half * 2 + 1]);
    for (int other = 1; other < 4; other *= 2) greatest = fmaxf(greatest, __shfl_xor_sync(~0u, greatest, other));
    found[half].most = greatest * scale;
    reference[half] = found[half].most == -CUDART_INF_F ? 0.0f : found[half].most;
  }
#pragma unroll
  for (int n = 0; n < block_keys / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float weight = power_of_2(fmaf(c[n * 4 + i], scale, -reference[i / 2]));
      sums[i] += !masked || n * 8 + first_key + i % 2 < seen[i / 2] ? weight : 0.0f;
    }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = sums[half * 2] + sums[half * 2 + 1];
    for (int other = 1; other < 4; other *= 2) sum += __shfl_xor_sync(~0u, sum, other);
    found[half].sum = sum;
  }
}

/// A warpgroup that multiplies.
template <class T>
__device__ void score_rows(const kl_run& r, shared_memory& m) {
  const kl_call& c = r.parts.call;
  const group_place own;
  const float scale = c.scale * cuda::log2e, index_scale = c.index_scale * cuda::log2e;
  const std::uint64_t keys = k_major_descriptor(cuda::shared_address(&m.keys));
  const std::uint64_t index_keys = k_major_descriptor(cuda::shared_address(&m.index_keys));
  int done = 0;
  for_each_piece(r, [&](std::int64_t, const reading& task) {
    meet(scorers_meet, scorers);  // all are done with the keys before
    copy_keys<scorers>(r, task, m.keys, m.index_keys, threadIdx.x - group_threads);
    meet(scorers_meet, scorers);
    const int tiles = tile_place::count(task);
    const piece_readings readings(r, task);
    for (int tile = (own.group - done % groups + groups) % groups; tile < tiles; tile += groups) {
      const tile_place place(tile, tiles);
      const stage_place at(done + tile);
      wait_for(&m.full[at.stage], at.parity);
      float products[sum_values];
      const std::uint64_t rows = k_major_descriptor(cuda::shared_address(&m.rows[at.stage]));
      begin_products();
      multiply_rows<T>(products, one_for_all(rows), one_for_all(place.student ? index_keys : keys));
      finish_products<0>();
      pin(products);
      // A row's token: all 16 rows of a warp are one's heads, or each is one's index query.
      std::int32_t tokens[2], seen[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = place.student ? own.row(half) : own.first_row / kl_heads;
        tokens[half] = place.first + i;
        seen[half] = m.seen[at.stage][i];
      }
      arrive(&m.empty[at.stage]);
      const float factor = place.student ? index_scale : scale;
      normaliser found[2];
      if (__all_sync(~0u, min(seen[0], seen[1]) == block_keys))
        sum_up<false>(found, products, seen, factor);
      else
        sum_up<true>(found, products, seen, factor);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (own.lane % 4 == 0 && tokens[half] < task.tokens)
          r.parts
              .parts[readings.at(tokens[half]) * cuda::kl_rows + (place.student ? kl_heads : own.lane / 4 + half * 8)] =
              found[half];
    }
    done += tiles;
  });
}

template <class T>
__global__ void __launch_bounds__(threads, 1) score(const __grid_constant__ kl_run r) {
  extern __shared__ char shared[];
  auto& m = aligned_memory<shared_memory>(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < shared_memory::stages; ++i) {
      make_barrier(&m.full[i], copying_warps * 32);
      make_barrier(&m.empty[i], group_threads);
    }
    publish_barriers();
    prefetch_map(r.q);
    prefetch_map(r.q_idx);
  }
  __syncthreads();
  if (threadIdx.x < group_threads) {
    give_registers<copier_registers>();
    copy_rows(r, m);
  } else {
    take_registers<scorer_registers>();
    score_rows<T>(r, m);
  }
}

}  // namespace

template <class T>
void score_readings(const kl_run& r, cudaStream_t stream) {
  cuda::allow_shared_memory(score<T>, shared_bytes);
  score<T><<<cuda::grid_blocks(r.parts.readers.most_pieces(), 1, 64), threads, shared_bytes, stream>>>(r);
}

template void score_readings<__nv_bfloat16>(const kl_run&, cudaStream_t);
template void score_readings<__half>(const kl_run&, cudaStream_t);

}  // namespace msabench::cuda_sm90
