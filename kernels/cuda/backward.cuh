// SPDX-License-Identifier: Apache-2.0
// What the two passes of attend_backward have of a run.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/training.cuh"

namespace msabench::cuda {

/// What a row (token, query head) is summed up to before the passes.
struct row_sums {
  float lse;    ///< in base 2
  float delta;  ///< D = <dO, o>
};

/// Sums of a block's keys by one of its pieces, for those of long lists: dk [keys][width], then dv.
struct piece_sums {
  float* data;
  std::int64_t size;  ///< of a tile of keys of a piece

  __device__ float* at(std::int64_t slot) const { return data + slot * size; }
};

struct backward_run {
  backward_call call;
  row_sums* sums;  ///< [T][Hq]
  block_readers readers;
  piece_sums pieces;

  __device__ row_sums& sums_of(std::int64_t row, std::int32_t head) const {
    return sums[row * call.kv_heads * call.group + head];
  }
};

/// lse in base 2 and D of every row, for what comes next.
template <class T>
void sum_rows(const backward_run& run, cudaStream_t stream);

/// The passes: dq by tokens, dk and dv by blocks of keys.
template <class T>
void add_query_gradients(const backward_run& run, cudaStream_t stream);
template <class T>
void add_key_gradients(const backward_run& run, cudaStream_t stream);

}  // namespace msabench::cuda
