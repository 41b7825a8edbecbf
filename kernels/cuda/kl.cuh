// SPDX-License-Identifier: Apache-2.0
// What the steps of kl have of a run.
//
// A reading is a (token, KV head) that reads a tile of keys of one block. Steps that need scores go by tiles of keys and the
// readings of them, each of which is a whole product, 16 query heads by 128 keys; what they find out of a reading waits in the
// workspace for the steps that go by tokens or by keys.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/training.cuh"

namespace msabench::cuda {

constexpr int kl_tile_keys = 128;
constexpr int kl_heads = 16;           ///< of a group, at the most
constexpr int kl_rows = kl_heads + 1;  ///< the teacher's heads, then the student
constexpr int kl_lse_stride = 20;      ///< rows and padding, so that lines begin at multiples of 16 bytes

/// The sum of 2^x over what was added, as its greatest x and the sum of 2^(x - greatest).
struct normaliser {
  float most, sum;
};

struct kl_run {
  kl_call call;
  std::int32_t block;  ///< Bk; in the warm-up whole tiles
  std::int32_t tiles;  ///< of a block
  std::int64_t slots;  ///< blocks that a (token, KV head) may read
  std::int64_t chunk;  ///< tokens that are done at a time
  block_readers readers;

  normaliser* parts;           ///< [readings][kl_rows]
  float* lse;                  ///< [chunk][Hkv][kl_lse_stride] in base 2
  std::uint16_t* differences;  ///< [readings][2][kl_tile_keys] P' - P as split_value, keys in the order of stored_key
  float* dq_parts;             ///< [readings][width]
  double* loss_parts;          ///< [readings]
  double* losses;              ///< [T][Hkv] without the factor
  float* dk_sums;              ///< [N][width] of dk_idx, without the factor

  __device__ bool selected() const { return call.ids != nullptr; }
  __device__ float* lse_of(std::int64_t row, std::int32_t head) const {
    return lse + ((row - readers.first_row) * call.kv_heads + head) * kl_lse_stride;
  }
  /// The readings of a token, slot by slot; -1: none. Of token i of a list, and of a tile.
  __device__ std::int64_t reading_of(std::int64_t row, std::int32_t head, std::int64_t slot,
                                     std::int64_t visible) const {
    const std::int64_t at = ((row - readers.first_row) * call.kv_heads + head) * slots + slot;
    return (selected() ? readers.places[at] : slot < visible ? at : -1) * tiles;
  }
  __device__ std::int64_t reading_at(const reading& r, std::int32_t i, int tile) const {
    if (selected()) return (r.list - readers.tokens + i) * tiles + tile;
    const std::int64_t token = r.first_token + i - readers.first_row;
    return ((token * call.kv_heads + r.head) * slots + r.keys.first / block) * tiles + tile;
  }
  /// coeff / (T Hkv)
  __device__ double factor() const {
    const std::int64_t tokens = call.rows.tokens();
    return call.coeff / (static_cast<double>(tokens < 1 ? 1 : tokens) * call.kv_heads);
  }
  /// Of sums over split values.
  __device__ float gradient_factor() const {
    return static_cast<float>(factor() * static_cast<double>(call.index_scale)) / split_value<__half>::factor;
  }
};

/// The key of a place in kl_run::differences: a lane has its 32 values of a row next to each other.
__device__ inline int stored_key(int place) { return place % 32 / 2 * 8 + place / 32 * 2 + place % 2; }

/// Steps of a chunk, in this order. By tiles of keys: what the scores of readings sum up to. By tokens: normalisers.
template <class T>
void score_readings(const kl_run& run, cudaStream_t stream);
void normalise_rows(const kl_run& run, cudaStream_t stream);
/// By tiles of keys: differences, losses and dq_idx of readings. By tokens: their sums. By keys: sums of dk_idx.
template <class T>
void compare_readings(const kl_run& run, cudaStream_t stream);
void store_rows(const kl_run& run, cudaStream_t stream);
template <class T>
void add_index_keys(const kl_run& run, cudaStream_t stream);
/// After all chunks.
void store_keys(const kl_run& run, cudaStream_t stream);

}  // namespace msabench::cuda
