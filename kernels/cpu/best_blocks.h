// SPDX-License-Identifier: Apache-2.0
// The best blocks of a row, as their scores come by.
#pragma once

#include <cstdint>

#include "kernels/common/calls.h"

namespace msabench::cpu {

using namespace kernels;

struct scored_block {
  float score;  ///< never NaN
  std::int32_t id;
};

/// A heap with the worst of the chosen blocks on top. Blocks must be offered in ascending order: of equal scores the
/// lower id stays.
struct best_blocks {
  scored_block* chosen;  ///< [wanted]
  std::int32_t wanted;
  std::int32_t count = 0;
};

/// Offers blocks first_id .. first_id + count - 1. NaN ranks as -infinity, and -0 as 0.
void offer(best_blocks& best, const float* scores, std::int64_t first_id, std::int64_t count);

/// Offers the blocks of another list, which becomes sorted by id. All of them must come after those offered before.
void offer_sorted(best_blocks& best, scored_block* blocks, std::int32_t count);

/// The blocks that a row has a choice of, among `visible` ones: all but the forced ones, if it has more than topk.
struct free_blocks {
  std::int64_t first, count;  ///< ids
  std::int32_t wanted;        ///< how many of them are selected
};
free_blocks free_blocks_of(const selection_rule& rule, std::int64_t visible);

/// Writes ids [topk]: forced and chosen ones ascending, then -1. Sorts `best` by id.
void write_ids(const selection_rule& rule, std::int64_t visible, best_blocks& best, std::int32_t* ids);

}  // namespace msabench::cpu
