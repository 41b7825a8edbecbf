// SPDX-License-Identifier: Apache-2.0
// What the kernels of attend_backward have of a run.
#pragma once

#include <cuda.h>

#include "kernels/cuda/backward.cuh"
#include "kernels/cuda_sm90/block_tiles.cuh"

namespace msabench::cuda_sm90 {

using namespace msabench::kernels;

/// The batch is taken in chunks of tokens, so that what is kept of readings fits the scratch. A reading is a (token, KV
/// head) and a block that it reads. Its place is that of the token in block_readers::tokens; where all keys are read, a
/// list has a place for each token of the chunk.
struct backward_run {
  cuda::backward_run parts;  ///< its readers are those of the chunk
  CUtensorMap q, d_out;      ///< [rows][Hq][d], a box has 64 columns of a group's heads of a token
  std::int64_t chunk;        ///< tokens that are done at a time
  float* dq;                 ///< [readings][G][d] of a chunk: dq by one block each, not scaled
  float* kept;               ///< [lists][2][block_keys][d]: dk and dv of the chunks before; nullptr: one chunk is all
  bool first, last;          ///< of the chunks

  __device__ bool selected() const { return parts.call.ids != nullptr; }
  /// The list that a piece is of, and the place of its first reading.
  __device__ std::int64_t list_of(std::int64_t piece) const {
    const cuda::block_readers& r = parts.readers;
    return selected() ? r.pieces[piece].list : r.list(static_cast<std::int32_t>(piece % r.heads), piece / r.heads);
  }
  __device__ std::int64_t first_place(const cuda::reading& task, std::int64_t list) const {
    const cuda::block_readers& r = parts.readers;
    return selected() ? task.list - r.tokens : list * chunk + task.first_token - r.first_row;
  }

  /// Two neighbouring elements of dk and dv of a key of a list, as this chunk leaves them: kept for the next one, or
  /// written.
  __device__ void finish(std::int64_t list, std::int64_t row, std::int32_t head, int key, int column, float2 dk,
                         float2 dv) const {
    auto* const k = reinterpret_cast<float2*>(kept + (list * 2 * block_keys + key) * head_columns + column);
    auto* const v = k + block_keys * head_columns / 2;
    if (!first) {
      dk = make_float2(k->x + dk.x, k->y + dk.y);
      dv = make_float2(v->x + dv.x, v->y + dv.y);
    }
    if (!last) {
      *k = dk;
      *v = dv;
      return;
    }
    const backward_call& c = parts.call;
    cuda::store_pair(c.dk.at(row, head, c.gradient_type), c.gradient_type, column, dk.x * c.scale, dk.y * c.scale);
    cuda::store_pair(c.dv.at(row, head, c.gradient_type), c.gradient_type, column, dv.x, dv.y);
  }
};

/// By blocks of keys: dk, dv, and what each block adds to dq of its readers.
template <class T>
void add_block_gradients(const backward_run& run, cudaStream_t stream);

}  // namespace msabench::cuda_sm90
