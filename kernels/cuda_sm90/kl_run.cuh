// SPDX-License-Identifier: Apache-2.0
// What the kernels of kl have of a run. A reading is what it is in kernels/cuda/kl.cuh, of one tile: a (token, KV head) and a
// block of 128 keys that it reads.
#pragma once

#include <cuda.h>

#include "kernels/cuda/kl.cuh"
#include "kernels/cuda_sm90/block_tiles.cuh"

namespace msabench::cuda_sm90 {

using namespace msabench::kernels;

/// Readers of a block come 64 tokens at a time: steps of four tokens with their 16 heads each, then the index queries of all.
inline constexpr int kl_heads = 16, batch_tokens = step_rows, step_tokens = step_rows / kl_heads,
                     batch_steps = batch_tokens / step_tokens;

struct kl_run {
  cuda::kl_run parts;  ///< without differences, loss_parts and losses; its readers are those of the chunk
  CUtensorMap q;       ///< [rows][Hq][d], a box has 64 columns of a group's heads of a token
  CUtensorMap q_idx;   ///< [rows][Hi][di], a box has 64 columns of a head of a token
  float* dk_pieces;    ///< [pieces][block_keys][head_columns] of a chunk: dk_idx by one piece each, without the factor
  double* losses;      ///< [chunks][loss_items()] without the factor; 0 where there is none
  std::int64_t chunk;  ///< that is done

  static constexpr int loss_warps = 8;  ///< of a thread block, each with its own sum
  MSABENCH_HOST_DEVICE std::int64_t loss_items() const { return parts.readers.most_pieces() * loss_warps; }

  __device__ std::int64_t reading_at(const cuda::reading& task, std::int32_t token) const {
    return parts.reading_at(task, token, 0);
  }
  /// Keys of a block, the first ones, that token i of a piece sees; 0 behind the last token.
  __device__ std::int32_t seen(const cuda::reading& task, std::int32_t i) const {
    if (i >= task.tokens) return 0;
    const lengths& rows = parts.call.rows;
    const std::int64_t end = rows.cu_seqlens_q[task.keys.sequence + 1], length = rows.kv_lens[task.keys.sequence];
    const std::int64_t count = length - end + task.token(i) + 1 - task.keys.first;
    return static_cast<std::int32_t>(min(max(count, std::int64_t{0}), std::int64_t{task.keys.count}));
  }
};

/// visit(item, piece) for the pieces of this thread block that have tokens.
template <class Visit>
__device__ void for_each_piece(const kl_run& r, const Visit& visit) {
  const cuda::block_readers& readers = r.parts.readers;
  const std::int64_t items = readers.all_pieces();
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const cuda::reading task = readers.at(item, 0, block_keys);
    if (task.tokens > 0) visit(item, task);
  }
}

/// Keys of both branches, by so many threads that wait for each other afterwards.
template <int threads>
__device__ void copy_keys(const kl_run& r, const cuda::reading& task, key_tile& keys, key_tile& index_keys,
                          int thread) {
  const kl_call& c = r.parts.call;
  copy_key_tile<threads>(keys, {c.keys, task.keys.sequence, task.head}, task, thread);
  copy_key_tile<threads>(index_keys, {c.index_keys, task.keys.sequence, 0}, task, thread);
  finish_key_tiles();
}

/// Starts the copies of a token's heads to these rows of a tile; zeros for token -1.
__device__ inline void copy_heads(row_tile& to, int row, const kl_run& r, std::int32_t head, std::int32_t token,
                                  barrier* full) {
#pragma unroll
  for (int panel = 0; panel < 2; ++panel)
    copy_box<3>(to.panel[panel] + row * swizzle_row_bytes, r.q, {panel * head_columns / 2, head * kl_heads, token},
                full);
}
__device__ inline void copy_index_head(row_tile& to, int row, const kl_run& r, std::int32_t head, std::int32_t token,
                                       barrier* full) {
#pragma unroll
  for (int panel = 0; panel < 2; ++panel)
    copy_box<3>(to.panel[panel] + row * swizzle_row_bytes, r.q_idx, {panel * head_columns / 2, head, token}, full);
}

// Steps of a chunk, in this order. By blocks of keys: what the scores of readings sum up to. By tokens: normalisers. By
// blocks: losses, and what each adds to dq_idx and dk_idx. By tokens and by keys: sums of those.
template <class T>
void score_readings(const kl_run& run, cudaStream_t stream);
void normalise_rows(const kl_run& run, cudaStream_t stream);
template <class T>
void compare_readings(const kl_run& run, cudaStream_t stream);
void add_rows(const kl_run& run, cudaStream_t stream);
void add_keys(const kl_run& run, cudaStream_t stream);
/// After `chunks` of them.
void add_losses(const kl_run& run, std::int64_t chunks, cudaStream_t stream);

}  // namespace msabench::cuda_sm90
