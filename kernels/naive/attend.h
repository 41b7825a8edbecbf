// SPDX-License-Identifier: Apache-2.0
// attend: attention over the selected blocks (docs/contract.md, section 5), in two passes over a row's keys: scores and
// their maximum, then exponentials and values. Each block gives a partial sum in fp32, and the blocks are added in the
// order of the ids; a block is at most Bk dependent additions long, so an output element has at most Bk + topk of them.
#pragma once

#include <cstdint>

#include "kernels/naive/lengths.h"
#include "kernels/naive/stages.h"
#include "kernels/naive/storage.h"

namespace msabench::naive {

/// Keys or values in memory, contiguous or paged. Strides are in elements.
struct cache {
  const char* data;
  msabench_dtype type;
  std::int64_t token_stride, head_stride;
  std::int64_t page_stride;           ///< unused when contiguous
  const std::int32_t* block_table;    ///< nullptr = contiguous
  std::int64_t table_stride;          ///< between sequences
  const std::int32_t* cu_seqlens_kv;  ///< nullptr = paged
  std::int64_t page_size;

  /// Address of token j of a sequence. Offsets pass 2^32 bytes.
  const char* token(std::int64_t sequence, std::int64_t head, std::int64_t j) const {
    std::int64_t element = head * head_stride;
    if (block_table != nullptr) {
      const std::int64_t page = block_table[sequence * table_stride + j / page_size];
      element += page * page_stride + j % page_size * token_stride;
    } else {
      element += (cu_seqlens_kv[sequence] + j) * token_stride;
    }
    return data + element * bytes_of(type);
  }
};

/// One run of attend. Strides are in elements; innermost ones are 1.
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
  const std::int32_t* ids;  ///< [T][Hkv][topk]
  std::int64_t id_row_stride, id_head_stride;
  char* out;  ///< [T][Hq][d]
  msabench_dtype out_type;
  std::int64_t out_row_stride, out_head_stride;
  float* lse;  ///< [T][Hq]; nullptr = not wanted
  std::int64_t lse_row_stride, lse_head_stride;
};

/// The sizes that a thread's scratch follows from.
struct attend_sizes {
  std::int64_t group, d, block, capacity;
};

/// Scratch of one thread; a double, since sizes that no machine has must not wrap around.
double attend_scratch_bytes(const attend_sizes& sizes);

/// All rows. `scratch` holds `threads` slices of `slice_bytes`.
void attend(const stages& stage, const attend_call& call, int threads, void* scratch, std::int64_t slice_bytes);

std::int32_t visible_keys(const row_place& place, std::int64_t block, std::int32_t block_size);
std::int32_t query_head(std::int32_t kv_head, std::int32_t member, std::int32_t kv_heads, std::int32_t group);
std::int32_t row_blocks(const row_place& place, const std::int32_t* ids, std::int32_t topk, std::int32_t block_size,
                        std::int32_t* blocks, std::int32_t capacity);
float block_maximum(const float* query, float scale, const tile& keys, float* scores);
void attend_block(const float* scores, float maximum, const tile& values, weighted_sum& sum);
void merge(const weighted_sum& block, std::int32_t slot, std::int32_t slots, std::int32_t d, weighted_sum& row);
void store(const weighted_sum& row, float maximum, const output_row& to);
void attend_row(const stages& stage, const attend_call& call, std::int64_t row, std::int32_t kv_head, void* scratch);

}  // namespace msabench::naive
