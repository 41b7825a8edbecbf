// SPDX-License-Identifier: Apache-2.0
// Shapes and small steps that the two passes of attend_backward share.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/readers.cuh"
#include "kernels/cuda/tiles.cuh"

namespace msabench::cuda {

constexpr int warp = 32;
constexpr float log2e = 1.4426950408889634f;

/// What a row (token, query head) is summed up to before the passes.
struct row_sums {
  float lse;    ///< in base 2
  float delta;  ///< D = <dO, o>
};

/// Where a lane's part of a product of mma lies: rows g and g + 8, columns 2t, 2t+1 of each tile of 8 columns.
struct lane_place {
  int g, t;
  __device__ lane_place() : g(threadIdx.x % warp / 4), t(threadIdx.x % 4) {}
};

/// Keys or values of one sequence and head, which lie in rows: batches of training are contiguous.
struct key_rows {
  const char* first;
  std::int64_t row_bytes;

  __device__ key_rows(const cache& from, std::int64_t sequence, std::int32_t head)
      : first(from.token(sequence, head, 0)), row_bytes(from.token_stride * bytes_of(from.type)) {}
  __device__ const char* at(std::int64_t j) const { return first + j * row_bytes; }
};

/// Two neighbouring elements of a gradient.
__device__ inline void store_pair(char* line, msabench_dtype type, int column, float x, float y) {
  if (same_type(type, fp32_type))
    *reinterpret_cast<float2*>(line + column * 4) = make_float2(x, y);
  else
    *reinterpret_cast<std::uint32_t*>(line + column * 2) =
        same_type(type, bf16_type) ? storage<__nv_bfloat16>::pack(x, y) : storage<__half>::pack(x, y);
}

/// Sums of a block's keys by one of its pieces, for those of long lists: dk [keys][d], then dv.
struct piece_sums {
  float* data;
  std::int64_t size;  ///< of a piece: 2 * keys * d

  __device__ float* at(std::int64_t slot) const { return data + slot * size; }
};

/// All that the kernels of one run have.
struct backward_run {
  backward_call call;
  row_sums* sums;  ///< [T][Hq]
  block_numbers numbers;
  block_readers readers;  ///< of attend_backward only
  piece_sums pieces;

  __device__ bool sparse() const { return call.ids != nullptr; }
  __device__ row_sums& sums_of(std::int64_t row, std::int32_t head) const {
    return sums[row * call.kv_heads * call.group + head];
  }
};

/// The passes: dq by tokens, dk and dv by blocks of keys.
template <class T>
void add_query_gradients(const backward_run& run, cudaStream_t stream);
template <class T>
void add_key_gradients(const backward_run& run, cudaStream_t stream);

}  // namespace msabench::cuda
