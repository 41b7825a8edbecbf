// SPDX-License-Identifier: Apache-2.0
// The naive kernels as a list of stages. Each is a plain function pointer: a plugin that differs in one of them is the
// same program with that one pointer replaced, so whatever the suite says about it is said about that stage.
//
// Symbols as in docs/contract.md: T query tokens, Hq and Hkv heads, G = Hq / Hkv, d, Bk = tokens per block, pos =
// absolute position of a query token, own = pos / Bk.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>

#include "kernels/common/calls.h"

namespace msabench::naive {

using namespace kernels;

/// The visible keys (or values) of one block of one row, widened to fp32.
struct tile {
  const float* rows;   ///< [count][d]
  std::int32_t count;  ///< visible keys, from the block's first one on
  std::int32_t d;
  std::int64_t block;  ///< logical block
  std::int32_t slot;   ///< which of the row's blocks this is, from 0
  std::int32_t slots;  ///< how many the row has
};

/// Softmax-weighted sum of values, before the division: of one block, or of the blocks of a row so far.
struct weighted_sum {
  float* values;  ///< [d]
  float weight;   ///< sum of the exponentials
};

/// Where a finished row of one query head goes.
struct output_row {
  void* out;  ///< [d], of type
  msabench_dtype type;
  float* lse;  ///< nullptr = not wanted
  std::int32_t d;
};

struct stages;

struct stages {
  /// Where a token stands in its segment of a vision tower: at the end, since it sees all of it.
  row_place (*segment_place)(const lengths&, std::int64_t row);

  /// How many keys of `block` the row sees; they are the block's first ones.
  std::int32_t (*visible_keys)(const row_place&, std::int64_t block, std::int32_t block_size);

  /// The query head that is member 0..group-1 of the group of `kv_head`.
  std::int32_t (*query_head)(std::int32_t kv_head, std::int32_t member, std::int32_t kv_heads, std::int32_t group);

  /// The head of q_idx that scores blocks for a KV head.
  std::int32_t (*index_head)(std::int32_t kv_head, std::int32_t kv_heads);

  /// What the stored values of token j are multiplied by.
  float (*token_scale)(const cache&, std::int64_t sequence, std::int64_t head, std::int64_t j);

  /// Blocks to attend to, from ids [topk] as handed in: the distinct ones in 0..own, in the order of their first
  /// mention. Writes at most `capacity` of them and returns their number.
  std::int32_t (*row_blocks)(const row_place&, const std::int32_t* ids, std::int32_t topk, std::int32_t block_size,
                             std::int32_t* blocks, std::int32_t capacity);

  /// The same where every visible key is read: all blocks in 0..own, ascending.
  std::int32_t (*all_blocks)(const row_place&, std::int32_t block_size, std::int32_t* blocks, std::int32_t capacity);

  /// Scaled scores of one query head against a tile, [count], and the greatest of them; NaN never is.
  float (*block_maximum)(const float* query, float scale, const tile& keys, float* scores);

  /// exp(score - maximum) times values, summed over a tile in the order of its keys. Overwrites `sum`.
  void (*attend_block)(const float* scores, float maximum, const tile& values, weighted_sum& sum);

  /// Adds a block's sum to the row's.
  void (*merge)(const weighted_sum& block, std::int32_t slot, std::int32_t slots, std::int32_t d, weighted_sum& row);

  /// Divides, rounds and writes. maximum = -infinity: an empty row, 0 and -infinity.
  void (*store)(const weighted_sum& row, float maximum, const output_row& to);

  /// All query heads of one KV head at one token, from the stages above; `scratch` as attend_scratch_bytes says.
  void (*attend_row)(const stages&, const attend_call&, std::int64_t row, std::int32_t kv_head, void* scratch);

  /// Ids [topk] of one row from its scores [own + 1]: ascending, then -1. `candidates` is scratch, [own + 1].
  void (*select_row)(const selection_rule&, const row_place&, const float* scores, std::int32_t* candidates,
                     std::int32_t* ids);

  /// Weights [count] of partial results from their log-sum-exps: exp(lse - maximum), 0 for a part without keys. Sets
  /// `maximum`, -infinity if no part has keys, and returns their sum.
  float (*partial_weights)(const float* lse, std::int64_t count, float* weights, float& maximum);

  /// Adds weight * values to a row; a weight of 0 adds nothing, whatever the values are.
  void (*add_partial)(float weight, const float* values, std::int32_t d, float* row);

  /// All heads of tensor 0..3 at one token, from the stages below; `scratch` as norm_rope_scratch_bytes says.
  void (*norm_rope_row)(const stages&, const norm_rope_call&, std::int64_t row, std::int32_t tensor, float* scratch);

  /// The position whose angles a token is rotated by; negative for a padding token.
  std::int64_t (*rope_position)(const lengths&, std::int64_t row);

  /// Whose norm weights tensor 0..3 (q, k, q_idx, k_idx) is multiplied by.
  std::int32_t (*norm_weights)(std::int32_t tensor);

  /// y = x * rsqrt(mean(x^2) + eps) * (1 + weight) of one head, [dim] each.
  void (*norm_head)(const float* x, const float* weight, float eps, std::int32_t dim, float* y);

  /// Rotates the pairs (c, c + rope_dims / 2) of one head, in place. cos_sin: rope_dims / 2 cosines, then the sines.
  void (*rotate_head)(const float* cos_sin, std::int32_t rope_dims, std::int32_t dim, float* y);

  /// The query head whose D = <dO, o> is subtracted for a head.
  std::int32_t (*delta_head)(std::int32_t head, std::int32_t heads);

  /// dS of a key, from its weight, dP = <dO, v> and D.
  float (*score_gradient)(float weight, float d_weight, float delta);

  /// What dQ is multiplied by, beside the keys.
  float (*dq_scale)(float softmax_scale);

  /// The query head whose dO adds to dV of a KV head for member 0..group-1 of its group.
  std::int32_t (*dv_head)(std::int32_t kv_head, std::int32_t member, std::int32_t kv_heads, std::int32_t group);

  /// Adds factor * values to a sum, [d]: dS k, dS q, P dO.
  void (*add_dq)(float factor, const float* values, std::int32_t d, float* sum);
  void (*add_dk)(float factor, const float* values, std::int32_t d, float* sum);
  void (*add_dv)(float factor, const float* values, std::int32_t d, float* sum);

  /// Overwrites one line [d] of a gradient.
  void (*store_gradient)(const float* values, std::int32_t d, msabench_dtype type, void* to);

  /// All heads of q and k at one patch, and its position, from the stages below; `scratch` as rope3d_scratch_bytes says.
  void (*rotate_token)(const stages&, const rope3d_call&, std::int64_t token, float* scratch);

  /// Temporal patches of a segment of an item; the last segment has what is left.
  std::int64_t (*segment_patches)(const patch_grids& items, const patch_grid& item);

  /// h and w of a patch of a frame, which are in merge blocks.
  patch_position (*place_in_frame)(const patch_grid& item, std::int64_t patch);

  /// The coordinates that angles are made of. `segment_first`: the temporal patch of the item that t counts from.
  patch_position (*angle_position)(const patch_position&, std::int64_t segment_first);

  /// Angle of pair i of an axis of so many, of a head of d, for each step of its coordinate.
  float (*axis_frequency)(std::int32_t i, std::int32_t pairs, std::int32_t d, double theta);

  /// Rotates the pairs (i, i + pairs) of one head, in place; what is left passes through.
  void (*rotate_patch)(const float* cosines, const float* sines, std::int32_t pairs, std::int32_t d, float* x);

  /// kl: blocks over which the softmax of the teacher is normalised for a row, that of the student, and those whose keys
  /// have a part in the loss. Writes at most max_blocks of the call and returns their number.
  std::int32_t (*teacher_blocks)(const stages&, const kl_call&, std::int64_t row, std::int32_t kv_head,
                                 std::int32_t* blocks);
  std::int32_t (*student_blocks)(const stages&, const kl_call&, std::int64_t row, std::int32_t kv_head,
                                 std::int32_t* blocks);
  std::int32_t (*loss_blocks)(const stages&, const kl_call&, std::int64_t row, std::int32_t kv_head,
                              std::int32_t* blocks);

  /// Changes the scores [group] of a key before each head's softmax: not at all.
  void (*teacher_scores)(float* scores, std::int32_t group);

  /// P of a key, from its weights [group] in the softmaxes of the heads: their mean.
  float (*teacher_weight)(const float* weights, std::int32_t group);

  /// P (ln P - ln P') of a key.
  double (*loss_term)(float teacher, float log_student);

  /// What index key and index query are multiplied by in the gradients, before the factor: P' - P.
  float (*kl_difference)(float student, float teacher);

  /// The factor of loss and gradients: coeff / (max(T, 1) Hkv).
  double (*kl_factor)(double coeff, const lengths& rows, std::int32_t kv_heads);

  /// Adds difference * values to a sum, [di]: of dq_idx and dk_idx.
  void (*add_dq_idx)(float difference, const float* values, std::int32_t di, float* sum);
  void (*add_dk_idx)(float difference, const float* values, std::int32_t di, float* sum);

  /// The line [count] of dq_idx of a row without keys, and any line of dq or dk: zeros. `values`: the same line of q_idx,
  /// q or k.
  void (*empty_row_gradient)(const float* values, std::int32_t count, float* line);
  void (*detached_gradient)(const float* values, std::int32_t count, float* line);

  /// Which of `count` rows from `first` on adds to dK and dV in turn i, from 0; each has one turn.
  std::int64_t (*gradient_row)(std::int64_t first, std::int64_t count, std::int64_t i);
};

/// The contract's own.
extern const stages exact_stages;

}  // namespace msabench::naive
