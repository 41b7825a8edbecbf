// SPDX-License-Identifier: Apache-2.0
// Fills the inputs of one operator. One file per operator, <operator>_inputs.cpp, and one row in the table of
// input_set.cpp.
#pragma once

#include "inputs/batch.h"
#include "inputs/input_set.h"

namespace msabench {

class index_family;
class selection;

// What a filler is given: a set whose buffers are allocated and whose lengths (cu_seqlens_q, kv_lens, cu_seqlens_kv)
// are written, and cu_segments or grids.
struct fill_job {
  const case_spec& definition;
  const batch& rows;
  input_set& set;
  forward_results forward = forward_results::computed;

  // Throws suite_error if the operator has no such input.
  buffer& input(slot s) const;
};

void fill_attend(const fill_job& job);
void fill_index(const fill_job& job);  // score too: they have the same inputs
void fill_dense(const fill_job& job);
void fill_vit_attend(const fill_job& job);
void fill_vit3d(const fill_job& job);
void fill_rope3d(const fill_job& job);
void fill_msa(const fill_job& job);
void fill_select(const fill_job& job);
void fill_combine(const fill_job& job);
void fill_qk_norm_rope(const fill_job& job);
void fill_attend_backward(const fill_job& job);
void fill_dense_backward(const fill_job& job);
void fill_kl(const fill_job& job);

// The inputs of the index branch, q_idx, k_idx and block_table_idx, for any operator that has them. Values are those of
// the case's family, or of `random` where that is a family of the main branch alone.
void fill_index_branch(const fill_job& job);
// The same with these values; `shares_pages` as in index_family_info. Keys that `chosen`, if there is one, does not say are
// read by some head hold poison or nothing.
void fill_index_branch(const fill_job& job, const index_family& values, bool shares_pages,
                       const selection* chosen = nullptr);

// Queries, keys and values (of kl no values) of the main branch, of the case's family, and its block table; keys that `chosen` does not
// say are read hold poison or nothing.
void fill_attention(const fill_job& job, const selection& chosen);

// ids, as the problem asks for them.
void fill_ids(const fill_job& job, const selection& chosen);

// For a tensor that is written as a whole: poisons its region and declares the tensor, gaps and rows past T included,
// filled and the rest of the region poisoned. The filler then writes the values.
void prepare_whole(buffer& b, std::uint64_t seed);

// Less than this is filled by one thread: waking others takes longer, most of all on a busy machine.
inline constexpr std::uint64_t small_bytes = std::uint64_t{1} << 20;

// The launch whose poison inputs hold: none that an output ever sees.
inline constexpr int input_poison_launch = 30;

}  // namespace msabench
