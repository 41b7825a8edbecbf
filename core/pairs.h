// SPDX-License-Identifier: Apache-2.0
// Rows, (query, key) pairs and blocks of a batch, counted in closed form: what the work model (core/work.h) multiplies.
//
// The query tokens of a sequence are the last q_len of its kv_len tokens, pos(i) = kv_len - q_len + i, own(i) = pos(i) / block.
// A row with pos(i) < 0 is padding: it sees nothing. The others are live, and see the keys 0 .. pos(i) and the blocks 0 .. own(i).
//
// Counts of pairs are double: every one is exact below 2^53 (the whole prefill of 1M tokens has 2^39) and correct to a few
// roundings beyond. Lengths outside 0 .. max_size (core/units.h) and counts below 1 are a suite_error, so nothing overflows.
#pragma once

#include <cstdint>
#include <span>

#include "core/case.h"

namespace msabench {

using batch_lengths = std::span<const sequence>;

// Blocks are selected by this rule (contract, section 4): min(topk, own + 1) of them, the forced ones included.
struct selection_rule {
  std::int64_t block = 0, topk = 0, local_blocks = 0, init_blocks = 0;
};

std::int64_t query_rows(batch_lengths batch);   // T
std::int64_t live_rows(batch_lengths batch);    // rows that see a key
std::int64_t cached_keys(batch_lengths batch);  // N: keys of all sequences
// Keys that a row of this call sees: all of a sequence with query tokens, none of one without.
std::int64_t visible_keys(batch_lengths batch);
// Positions with a live row, each once: rows of the rotary table that the call reads.
std::int64_t distinct_positions(batch_lengths batch);

// E_causal: sum of pos(i) + 1 over live rows.
double causal_pairs(batch_lengths batch);
// Sum of own(i) + 1 over live rows.
double visible_blocks(batch_lengths batch, std::int64_t block);
// Sum of min(topk, own(i) + 1) over live rows.
double selected_blocks(batch_lengths batch, std::int64_t block, std::int64_t topk);

struct count_bounds {
  double least = 0, most = 0;
  bool exact() const { return least == most; }
};

// E_sel: selected and visible pairs of one KV head. Whichever blocks are selected, all but the own one are seen whole, so the count
// is known as soon as the own block is known to be selected: with local_blocks >= 1 the bounds are equal. Without, they say the
// count with every own block selected, and with none where there is a choice.
count_bounds selected_pairs(batch_lengths batch, const selection_rule& rule);
// Of these, pairs in forced blocks of rows that have a choice (own + 1 > topk).
double forced_pairs(batch_lengths batch, const selection_rule& rule);

// The rows that have a choice: the others select all that they see, whatever the scores are.
sequence rows_with_choice(const sequence& s, const selection_rule& rule);
// Keys outside the forced blocks of at least one row with a choice: those whose scores can matter.
double scored_keys(batch_lengths batch, const selection_rule& rule);

// Different keys that are selected and visible, over all sequences: between all rows sharing their blocks as far as the rule allows,
// and none. Both ends can be reached. `selections` selections are made independently for each row, and the union is counted: 1 for the
// keys of one KV head, the number of index heads for index keys.
count_bounds distinct_selected_keys(batch_lengths batch, const selection_rule& rule, std::int64_t selections = 1);

// Vision: patches of the items, and (query, key) pairs inside segments of `window` temporal patches (0: one segment an item).
double patches(std::span<const grid> items);
double segment_pairs(std::span<const grid> items, std::int64_t window);

}  // namespace msabench
