// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/stages.h"

#include "kernels/naive/attend.h"
#include "kernels/naive/attend_backward.h"
#include "kernels/naive/combine.h"
#include "kernels/naive/kl.h"
#include "kernels/naive/norm_rope.h"
#include "kernels/naive/rope3d.h"
#include "kernels/naive/score.h"
#include "kernels/naive/select.h"

namespace msabench::naive {

const stages exact_stages{
    .segment_place = segment_place,
    .visible_keys = visible_keys,
    .query_head = query_head,
    .index_head = index_head,
    .token_scale = token_scale,
    .row_blocks = row_blocks,
    .all_blocks = all_blocks,
    .block_maximum = block_maximum,
    .attend_block = attend_block,
    .merge = merge,
    .store = store,
    .attend_row = attend_row,
    .select_row = select_row,
    .partial_weights = partial_weights,
    .add_partial = add_partial,
    .norm_rope_row = norm_rope_row,
    .rope_position = rope_position,
    .norm_weights = norm_weights,
    .norm_head = norm_head,
    .rotate_head = rotate_head,
    .delta_head = delta_head,
    .score_gradient = score_gradient,
    .dq_scale = dq_scale,
    .dv_head = query_head,
    .add_dq = add_gradient,
    .add_dk = add_gradient,
    .add_dv = add_gradient,
    .store_gradient = store_gradient,
    .rotate_token = rotate_token,
    .segment_patches = segment_patches,
    .place_in_frame = place_in_frame,
    .angle_position = angle_position,
    .axis_frequency = axis_frequency,
    .rotate_patch = rotate_patch,
    .teacher_blocks = kl_blocks,
    .student_blocks = kl_blocks,
    .loss_blocks = kl_blocks,
    .teacher_scores = teacher_scores,
    .teacher_weight = teacher_weight,
    .loss_term = loss_term,
    .kl_difference = kl_difference,
    .kl_factor = kl_factor,
    .add_dq_idx = add_gradient,
    .add_dk_idx = add_gradient,
    .empty_row_gradient = zero_gradient,
    .detached_gradient = zero_gradient,
    .gradient_row = gradient_row,
};

}  // namespace msabench::naive
