// SPDX-License-Identifier: Apache-2.0
// What an operator works on in one run, once the tensors have been checked (check.h): addresses, strides and sizes.
//
// Symbols as in docs/contract.md: T query tokens, Hq and Hkv heads, G = Hq / Hkv, d, Bk = tokens per block, N_b = keys
// of sequence b, pos = absolute position of a query token, own = pos / Bk. Strides are in elements, innermost ones are 1.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>

#include "kernels/common/grids.h"
#include "kernels/common/lengths.h"
#include "kernels/common/types.h"

namespace msabench::kernels {

struct selection_rule {
  std::int32_t block;    ///< Bk
  std::int32_t topk;     ///< selected blocks in total
  std::int32_t local;    ///< forced last visible blocks
  std::int32_t initial;  ///< forced first blocks
};

/// Factors of the stored values of a cache, one for all or one for each (head, token).
struct scales {
  const float* data;                                    ///< nullptr = none
  std::int64_t token_stride, head_stride, page_stride;  ///< all 0 = one for all
  std::int32_t heads;
};

/// Keys or values in memory, contiguous or paged.
struct cache {
  const char* data;
  msabench_dtype type;
  std::int64_t extent;  ///< keys, or pages, that there is memory for
  std::int64_t token_stride, head_stride;
  std::int64_t page_stride;           ///< unused when contiguous
  const std::int32_t* block_table;    ///< nullptr = contiguous
  std::int64_t table_stride;          ///< between sequences
  const std::int32_t* cu_seqlens_kv;  ///< nullptr = paged
  std::int64_t page_size;
  scales scale;

  /// Address of token j of a sequence. Offsets pass 2^32 bytes.
  MSABENCH_HOST_DEVICE const char* token(std::int64_t sequence, std::int64_t head, std::int64_t j) const {
    return data + element(*this, sequence, head, j) * bytes_of(type);
  }

  /// What its stored values are multiplied by.
  MSABENCH_HOST_DEVICE float factor(std::int64_t sequence, std::int64_t head, std::int64_t j) const {
    return scale.data == nullptr ? 1.0f : scale.data[element(scale, sequence, head, j)];
  }

 private:
  template <class Strides>
  MSABENCH_HOST_DEVICE std::int64_t element(const Strides& s, std::int64_t sequence, std::int64_t head,
                                            std::int64_t j) const {
    if (block_table == nullptr) return (cu_seqlens_kv[sequence] + j) * s.token_stride + head * s.head_stride;
    const std::int64_t page = block_table[sequence * table_stride + j / page_size];
    return page * s.page_stride + j % page_size * s.token_stride + head * s.head_stride;
  }
};

/// Block ids from given scores.
struct select_call {
  lengths rows;
  selection_rule rule;
  std::int32_t heads;       ///< Hkv
  std::int64_t max_blocks;  ///< columns of scores
  const float* scores;      ///< [heads][T][max_blocks]
  std::int64_t score_head_stride, score_row_stride;
  std::int32_t* ids;  ///< [T][heads][topk]
  std::int64_t id_row_stride, id_head_stride;
};

/// The index branch: block scores, or the ids selected by them.
struct index_call {
  lengths rows;
  selection_rule rule;
  std::int32_t heads, width;  ///< Hi = Hkv, di
  float scale;
  std::int64_t max_blocks;  ///< columns of scores
  cache keys;               ///< k_idx: of one head, its head stride is 0
  const char* q;            ///< q_idx [T][Hi][di]
  msabench_dtype q_type;
  std::int64_t q_row_stride, q_head_stride;
  const float* q_scale;  ///< [T][Hi], factors of the stored queries; nullptr = none
  std::int64_t q_scale_row_stride, q_scale_head_stride;
  float* scores;  ///< of score, and of msa if wanted: [heads][T][max_blocks]
  std::int64_t score_head_stride, score_row_stride;
  std::int32_t* ids;  ///< of index and msa: [T][heads][topk]; msa: nullptr = not wanted
  std::int64_t id_row_stride, id_head_stride;
  float* lse;  ///< lse_idx of index: [T][heads]; nullptr = not wanted
  std::int64_t lse_row_stride, lse_head_stride;
};

/// Keys of a block where every visible key is read: dense and vit_attend have no blocks of their own.
inline constexpr std::int32_t dense_block = 128;

/// Attention over the blocks of the ids, or over every visible key.
struct attend_call {
  lengths rows;
  std::int32_t kv_heads, group, d;  ///< Hkv, G
  std::int32_t block, topk;
  std::int32_t capacity;  ///< most blocks a row can have
  float scale;
  cache keys, values;
  const char* q;  ///< [T][Hq][d]
  msabench_dtype q_type;
  std::int64_t q_row_stride, q_head_stride;
  const std::int32_t* ids;  ///< [T][Hkv][topk]; nullptr = dense
  std::int64_t id_row_stride, id_head_stride;
  char* out;  ///< [T][Hq][d]
  msabench_dtype out_type;
  std::int64_t out_row_stride, out_head_stride;
  float* lse;  ///< [T][Hq]; nullptr = not wanted
  std::int64_t lse_row_stride, lse_head_stride;
};

/// Gradients of attention over the blocks of the ids, or over every visible key; contiguous batches.
struct backward_call {
  /// [T][Hq][d]
  struct token_tensor {
    const char* data;
    msabench_dtype type;
    std::int64_t row_stride, head_stride;

    MSABENCH_HOST_DEVICE const char* at(std::int64_t row, std::int64_t head) const {
      return data + (row * row_stride + head * head_stride) * bytes_of(type);
    }
  };
  /// [T][Hq][d] or [N][Hkv][d]
  struct gradient {
    char* data;
    std::int64_t row_stride, head_stride;

    MSABENCH_HOST_DEVICE char* at(std::int64_t row, std::int64_t head, msabench_dtype type) const {
      return data + (row * row_stride + head * head_stride) * bytes_of(type);
    }
  };
  lengths rows;
  std::int32_t kv_heads, group, d;  ///< Hkv, G
  std::int32_t block, topk;
  std::int32_t capacity;    ///< most blocks a row can have
  std::int64_t max_blocks;  ///< of a sequence
  float scale;
  cache keys, values;
  token_tensor q, out, d_out;
  const float* lse;  ///< [T][Hq]
  std::int64_t lse_row_stride, lse_head_stride;
  const std::int32_t* ids;  ///< [T][Hkv][topk]; nullptr = dense_backward
  std::int64_t id_row_stride, id_head_stride;
  msabench_dtype gradient_type;
  gradient dq, dk, dv;
};

/// The loss of the index branch and its gradients, over the blocks of the ids or, in the warm-up, every visible key;
/// contiguous batches.
struct kl_call {
  using token_tensor = backward_call::token_tensor;
  using gradient = backward_call::gradient;

  lengths rows;
  std::int32_t kv_heads, group, d, di;  ///< Hkv = Hi, G
  std::int32_t block, topk;
  std::int64_t max_blocks;  ///< of a sequence
  float scale, index_scale;
  double coeff;
  cache keys, index_keys;   ///< k, and k_idx, which has one head
  token_tensor q, q_idx;    ///< [T][Hq][d], [T][Hi][di]
  const std::int32_t* ids;  ///< [T][Hkv][topk]; nullptr = warm-up
  std::int64_t id_row_stride, id_head_stride;
  double* loss;  ///< [1]
  msabench_dtype gradient_type;
  gradient dq_idx, dk_idx;  ///< [T][Hi][di], [N][di]
  gradient dq, dk;          ///< as q and k; data nullptr = not wanted
};

/// Partial results of disjoint sets of keys, put together.
struct combine_call {
  std::int64_t parts, rows;  ///< P, T
  std::int32_t heads, d;     ///< Hq
  const char* partial_out;   ///< [P][T][Hq][d]
  msabench_dtype partial_type;
  std::int64_t partial_part_stride, partial_row_stride, partial_head_stride;
  const float* partial_lse;  ///< [P][T][Hq], natural
  std::int64_t partial_lse_part_stride, partial_lse_row_stride, partial_lse_head_stride;
  char* out;  ///< [T][Hq][d]
  msabench_dtype out_type;
  std::int64_t out_row_stride, out_head_stride;
  float* lse;  ///< [T][Hq]
  std::int64_t lse_row_stride, lse_head_stride;
};

/// Norm, then partial rotation, of the heads of new tokens.
struct norm_rope_call {
  /// One of q, k, q_idx and k_idx, which has one head.
  struct tensor {
    const char* x;  ///< [T][heads][dim]
    std::int64_t x_row_stride, x_head_stride;
    const char* weight;  ///< [dim]
    char* y;             ///< [T][heads][dim]
    std::int64_t y_row_stride, y_head_stride;
    std::int32_t heads, dim;
  };
  lengths rows;
  tensor tensors[4];    ///< in the order above
  msabench_dtype type;  ///< of all of them
  float eps;
  std::int32_t rope_dims;
  const float* cos_sin;  ///< [max_pos][rope_dims]
  std::int64_t cos_sin_stride;
};

/// Where a patch stands: t in its segment, h and w in its item.
struct patch_position {
  std::int64_t t, h, w;
};

/// Positions and segments of images and videos, and the rotation of their patches.
struct rope3d_call {
  /// q or k
  struct tensor {
    const char* x;  ///< [N][heads][d]
    std::int64_t x_row_stride, x_head_stride;
    char* y;  ///< the same, rotated
    std::int64_t y_row_stride, y_head_stride;
  };
  patch_grids items;
  std::int64_t tokens;  ///< N, of all items; where grids can't be read yet, the rows that there are
  tensor tensors[2];    ///< q, k
  msabench_dtype type;  ///< of both
  std::int32_t heads, d;
  double theta;
  std::int32_t* positions;  ///< [N][3] t, h, w
  std::int64_t position_stride;
  std::int32_t* cu_segments;  ///< [S + 1]
};

/// Rotation, and attention on what it writes. What a caller does not want of the rotation is nullptr, and attend.q, its
/// keys and its rows are not set: see vit3d_tensors.h.
struct vit3d_call {
  rope3d_call rope;
  attend_call attend;
};

/// The index branch, and attention over the ids that it writes (attend.ids is not set).
struct msa_call {
  index_call index;
  attend_call attend;
};

}  // namespace msabench::kernels
