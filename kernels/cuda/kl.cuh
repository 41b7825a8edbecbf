// SPDX-License-Identifier: Apache-2.0
// What the two passes of kl have of a run.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/training.cuh"

namespace msabench::cuda {

constexpr int kl_tile_keys = 128;

struct kl_run {
  kl_call call;
  std::int32_t block;  ///< Bk, and in the warm-up whole tiles
  float* lse;          ///< [T][Hq] of the teacher's heads, in base 2
  float* lse_idx;      ///< [T][Hkv] of the student, in base 2
  double* losses;      ///< [T][Hkv] without the factor
  block_readers readers;
  float* sums;  ///< [pieces][tiles of a block][kl_tile_keys][width] of dk_idx, without the factor

  __device__ bool selected() const { return call.ids != nullptr; }
  __device__ float& lse_of(std::int64_t row, std::int32_t head) const {
    return lse[row * call.kv_heads * call.group + head];
  }
  /// coeff / (T Hkv)
  __device__ double factor() const {
    const std::int64_t tokens = call.rows.tokens();
    return call.coeff / (static_cast<double>(tokens < 1 ? 1 : tokens) * call.kv_heads);
  }
  __device__ float gradient_factor() const {
    return static_cast<float>(factor() * static_cast<double>(call.index_scale));
  }
};

/// The passes: normalisers, losses and dq_idx by tokens; dk_idx by blocks of keys.
template <class T>
void compare_rows(const kl_run& run, cudaStream_t stream);
template <class T>
void add_index_key_gradients(const kl_run& run, cudaStream_t stream);

}  // namespace msabench::cuda
