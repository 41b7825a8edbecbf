// SPDX-License-Identifier: Apache-2.0
// attend, dense and vit_attend: attention over the selected blocks or all visible keys (docs/contract.md, sections 5 and
// 8), in two passes over a row's keys: scores and their maximum, then exponentials and values. Each block gives a partial
// sum in fp32, and the blocks are added in the order of the ids; a block is at most Bk dependent additions long, so an
// output element has at most Bk + topk of them. dense and vit_attend go through blocks of 128 keys, as many as there are.
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"
#include "kernels/common/storage.h"
#include "kernels/naive/stages.h"

namespace msabench::naive {

/// The sizes that a thread's scratch follows from.
struct attend_sizes {
  std::int64_t group, d, block, capacity;
};

/// Scratch of one thread; a double, since sizes that no machine has must not wrap around.
double attend_scratch_bytes(const attend_sizes& sizes);

/// All rows. `scratch` holds `threads` slices of `slice_bytes`.
void attend(const stages& stage, const attend_call& call, int threads, void* scratch, std::int64_t slice_bytes);

float token_scale(const cache& from, std::int64_t sequence, std::int64_t head, std::int64_t j);

/// The visible tokens of a block of a cache, widened and scaled, into `to`.
void load_tile(const stages& stage, const cache& from, const row_place& place, std::int32_t kv_head,
               std::int32_t block_size, const tile& shape, float* to);

row_place segment_place(const lengths& segments, std::int64_t row);
std::int32_t visible_keys(const row_place& place, std::int64_t block, std::int32_t block_size);
std::int32_t query_head(std::int32_t kv_head, std::int32_t member, std::int32_t kv_heads, std::int32_t group);
std::int32_t row_blocks(const row_place& place, const std::int32_t* ids, std::int32_t topk, std::int32_t block_size,
                        std::int32_t* blocks, std::int32_t capacity);
std::int32_t all_blocks(const row_place& place, std::int32_t block_size, std::int32_t* blocks, std::int32_t capacity);
float block_maximum(const float* query, float scale, const tile& keys, float* scores);
void attend_block(const float* scores, float maximum, const tile& values, weighted_sum& sum);
void merge(const weighted_sum& block, std::int32_t slot, std::int32_t slots, std::int32_t d, weighted_sum& row);
void store(const weighted_sum& row, float maximum, const output_row& to);
void attend_row(const stages& stage, const attend_call& call, std::int64_t row, std::int32_t kv_head, void* scratch);

}  // namespace msabench::naive
