// SPDX-License-Identifier: Apache-2.0
// The fixed set of oracle perturbations, one per gross fault of public kernels: cases name those that they must see, and
// detectability measures by how much they do (docs/verdicts.md).
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace msabench {

enum class perturbation {
  // attend
  drop_key,            // the lightest visible key
  double_key,          // the same counted twice
  drop_heavy_key,      // the heaviest visible key (needles)
  key_past_diagonal,   // one key past the causal bound
  drop_block,          // the lightest selected block
  double_block,        // the same counted twice
  swap_block,          // exchanged with a visible block that is not selected
  neighbour_head_v,    // V of the next KV head
  swap_table_entries,  // two block-table entries exchanged
  accumulate_16bit,    // outputs accumulated in bf16
  scores_16bit,        // scores kept in 16 bits
  rescale_forgotten,   // block by block, what was summed up before not rescaled when the maximum rises
  // select
  drop_last_choice,   // the k-th choice replaced by the next best
  forget_local,       // a forced local block not forced
  forced_extra,       // forced blocks as a 17th: k + 1 chosen, last one cut by id
  relu_scores,        // negative scores clamped to 0
  nan_wins,           // NaN ranks first
  sentinel_collides,  // +inf and 2e30 treated as the forced sentinel
  shared_heads,       // head 0's choice for every head
  neighbour_row,      // the choice of the row before
  rank_16bit,         // ranking on 16-bit keys over the row's own range
  // score, index
  drop_best_key,     // the key that carries a block's maximum
  mask_after_max,    // maximum over all keys of the own block, the invisible ones too
  neighbour_head_q,  // the query of the next index head
  unscaled_scores,   // index_scale left out
  // combine
  drop_partial,         // the lightest partial result
  double_partial,       // the same counted twice
  base2_partials,       // partial log-sum-exps taken for base 2
  weights_unscaled,     // not divided by the sum of the weights
  maximum_kept,         // exp of the log-sum-exps themselves, in single precision
  empty_partial_leaks,  // what a part without keys holds, times its weight of 0
  nothing_is_nan,       // exp(-inf - -inf) where nothing is to be combined
  neighbour_head_lse,   // the weights of the next head
  // qk_norm_rope
  weight_without_one,   // w instead of 1 + w
  eps_missing,          // norm_eps left out
  norm_across_heads,    // one mean over all heads of the token
  position_after,       // the angles of the next position
  position_in_chunk,    // counted from the first token of this call
  rope_all_dims,        // pairs are halves of the whole head
  rope_interleaved,     // pairs are neighbours
  rope_backwards,       // the other sign of the sines
  main_norm_for_index,  // the index branch with the norm weights of q and k
  rounded_after_norm,   // rounded to storage between norm and rotation
  // attend_backward, dense_backward; D = <dO, o>
  delta_left_out,          // dS = p dP
  delta_of_next_head,      // D of the next query head
  gradient_unscaled,       // dQ without softmax_scale
  gradient_of_next_group,  // dV of the next KV head
  // kl; P the teacher, P' the student
  teacher_left_out,        // dS = c P'
  teacher_of_mean_logits,  // one softmax of the mean of the heads' scores
  teacher_head_missing,    // the last head of a group counts in the mean, but adds nothing
  teacher_over_all,        // P normalised over all visible tokens
  student_over_all,        // P' normalised over all visible tokens
  warm_up_over_few,        // the warm-up over the last topk blocks
  mean_of_one_row_less,    // divided by T - 1
  mean_of_rows_with_keys,  // divided by the rows that are not empty
  mean_without_heads,      // divided by T
  coefficient_left_out,    // as of coefficient 1
  // vision
  causal_bound,     // keys behind the row's own token left out
  segments_joined,  // the keys of the neighbouring segment attended to as well
  segment_padded,   // filled up with zeros to the longest segment
  t_not_restarted,  // t counted through the segments of an item
  two_axes_only,    // t left out
  axes_swapped,     // h and w exchanged
  merge_ignored,    // patches row by row
  window_ignored,   // items not cut into segments
  frames_apart,     // every temporal patch a segment of its own
  base_of_text,     // frequencies of the text model's theta
  dims_of_head,     // frequencies as of pairs over the whole head
  // fp8 operands of any branch
  scale_left_out,      // stored values taken for the values themselves
  scale_of_other,      // k with the scale of v, and v with that of k
  scale_of_next_head,  // the scales of the next head
  scale_of_page,       // the scale of the page's first token for all of its tokens
  rounded_again,       // scaled values rounded to e4m3 once more
};

std::string_view name(perturbation p);  // "drop_block"
std::optional<perturbation> perturbation_from_name(std::string_view text);
std::span<const perturbation> all_perturbations();

}  // namespace msabench
