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
};

/// Where the readings of a piece are, token by token.
struct piece_readings {
  std::int64_t first, stride;

  __device__ piece_readings(const kl_run& r, const cuda::reading& task)
      : first(r.parts.reading_at(task, 0, 0)),
        stride(r.parts.selected() ? 1 : r.parts.reading_at(task, 1, 0) - first) {}
  __device__ std::int64_t at(std::int32_t token) const { return first + token * stride; }
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

/// What a warp of those that copy knows of the tokens of a piece. Warp w of four brings token w of each step: lane s has that
/// of step s of a batch. Tokens of the next batch are on their way while those of one come by.
class batch_reader {
 public:
  __device__ batch_reader(const kl_run& run, const cuda::reading& task)
      : task_(task), own_(threadIdx.x / 32), lane_(threadIdx.x % 32) {
    const lengths& rows = run.parts.call.rows;
    const std::int64_t end = rows.cu_seqlens_q[task.keys.sequence + 1], length = rows.kv_lens[task.keys.sequence];
    first_hidden_ = length - end + 1 - task.keys.first;
    next_ = token_at(0);
  }

  /// Of the batch that begins with this token of the piece.
  __device__ void begin(int first) {
    token_ = next_;
    next_ = token_at(first + batch_tokens);
  }
  /// This lane's token; -1: there is none.
  __device__ std::int32_t token() const { return token_; }
  /// Where it is among those of the batch.
  __device__ int place() const { return lane_ * step_tokens + own_; }
  /// Keys of the block, the first ones, that it sees.
  __device__ std::int32_t seen() const {
    if (token_ < 0) return 0;
    return static_cast<std::int32_t>(min(max(first_hidden_ + token_, std::int64_t{0}), std::int64_t{task_.keys.count}));
  }
  /// The warp's token of a step.
  __device__ std::int32_t token_of(int step) const { return __shfl_sync(~0u, token_, step); }
  __device__ int warp() const { return own_; }
  /// Whether this lane has a place in a batch.
  __device__ bool has_place() const { return lane_ < batch_steps; }

 private:
  __device__ std::int32_t token_at(int first) const {
    const int i = first + place();
    return has_place() && i < task_.tokens ? static_cast<std::int32_t>(task_.token(i)) : -1;
  }

  const cuda::reading& task_;
  int own_, lane_;
  std::int64_t first_hidden_;  ///< of the token in row 0, if it were there
  std::int32_t token_ = -1, next_;
};

/// Starts the copies of a token's heads, 16 rows of a tile from this one on; zeros for token -1.
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
/// A warp's share of a tile, either way.
inline constexpr int copying_warps = 4;
inline constexpr std::uint32_t copied_bytes = sizeof(row_tile) / copying_warps;

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
