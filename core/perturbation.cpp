// SPDX-License-Identifier: Apache-2.0
#include "core/perturbation.h"

#include <array>

namespace msabench {
namespace {

struct entry {
  perturbation value;
  std::string_view name;
};

// In the order of the enumerators, which name() indexes by.
constexpr std::array entries = {
    entry{perturbation::drop_key, "drop_key"},
    entry{perturbation::double_key, "double_key"},
    entry{perturbation::drop_heavy_key, "drop_heavy_key"},
    entry{perturbation::key_past_diagonal, "key_past_diagonal"},
    entry{perturbation::drop_block, "drop_block"},
    entry{perturbation::double_block, "double_block"},
    entry{perturbation::swap_block, "swap_block"},
    entry{perturbation::neighbour_head_v, "neighbour_head_v"},
    entry{perturbation::swap_table_entries, "swap_table_entries"},
    entry{perturbation::accumulate_16bit, "accumulate_16bit"},
    entry{perturbation::scores_16bit, "scores_16bit"},
    entry{perturbation::rescale_forgotten, "rescale_forgotten"},
    entry{perturbation::drop_last_choice, "drop_last_choice"},
    entry{perturbation::forget_local, "forget_local"},
    entry{perturbation::forced_extra, "forced_extra"},
    entry{perturbation::relu_scores, "relu_scores"},
    entry{perturbation::nan_wins, "nan_wins"},
    entry{perturbation::sentinel_collides, "sentinel_collides"},
    entry{perturbation::shared_heads, "shared_heads"},
    entry{perturbation::neighbour_row, "neighbour_row"},
    entry{perturbation::rank_16bit, "rank_16bit"},
    entry{perturbation::drop_best_key, "drop_best_key"},
    entry{perturbation::mask_after_max, "mask_after_max"},
    entry{perturbation::neighbour_head_q, "neighbour_head_q"},
    entry{perturbation::unscaled_scores, "unscaled_scores"},
    entry{perturbation::drop_partial, "drop_partial"},
    entry{perturbation::double_partial, "double_partial"},
    entry{perturbation::base2_partials, "base2_partials"},
    entry{perturbation::weights_unscaled, "weights_unscaled"},
    entry{perturbation::maximum_kept, "maximum_kept"},
    entry{perturbation::empty_partial_leaks, "empty_partial_leaks"},
    entry{perturbation::nothing_is_nan, "nothing_is_nan"},
    entry{perturbation::neighbour_head_lse, "neighbour_head_lse"},
    entry{perturbation::weight_without_one, "weight_without_one"},
    entry{perturbation::eps_missing, "eps_missing"},
    entry{perturbation::norm_across_heads, "norm_across_heads"},
    entry{perturbation::position_after, "position_after"},
    entry{perturbation::position_in_chunk, "position_in_chunk"},
    entry{perturbation::rope_all_dims, "rope_all_dims"},
    entry{perturbation::rope_interleaved, "rope_interleaved"},
    entry{perturbation::rope_backwards, "rope_backwards"},
    entry{perturbation::main_norm_for_index, "main_norm_for_index"},
    entry{perturbation::rounded_after_norm, "rounded_after_norm"},
    entry{perturbation::delta_left_out, "delta_left_out"},
    entry{perturbation::delta_of_next_head, "delta_of_next_head"},
    entry{perturbation::gradient_unscaled, "gradient_unscaled"},
    entry{perturbation::gradient_of_next_group, "gradient_of_next_group"},
    entry{perturbation::teacher_left_out, "teacher_left_out"},
    entry{perturbation::teacher_of_mean_logits, "teacher_of_mean_logits"},
    entry{perturbation::teacher_head_missing, "teacher_head_missing"},
    entry{perturbation::teacher_over_all, "teacher_over_all"},
    entry{perturbation::student_over_all, "student_over_all"},
    entry{perturbation::warm_up_over_few, "warm_up_over_few"},
    entry{perturbation::mean_of_one_row_less, "mean_of_one_row_less"},
    entry{perturbation::mean_of_rows_with_keys, "mean_of_rows_with_keys"},
    entry{perturbation::mean_without_heads, "mean_without_heads"},
    entry{perturbation::coefficient_left_out, "coefficient_left_out"},
    entry{perturbation::causal_bound, "causal_bound"},
    entry{perturbation::segments_joined, "segments_joined"},
    entry{perturbation::segment_padded, "segment_padded"},
    entry{perturbation::t_not_restarted, "t_not_restarted"},
    entry{perturbation::two_axes_only, "two_axes_only"},
    entry{perturbation::axes_swapped, "axes_swapped"},
    entry{perturbation::merge_ignored, "merge_ignored"},
    entry{perturbation::window_ignored, "window_ignored"},
    entry{perturbation::frames_apart, "frames_apart"},
    entry{perturbation::base_of_text, "base_of_text"},
    entry{perturbation::dims_of_head, "dims_of_head"},
    entry{perturbation::scale_left_out, "scale_left_out"},
    entry{perturbation::scale_of_other, "scale_of_other"},
    entry{perturbation::scale_of_next_head, "scale_of_next_head"},
    entry{perturbation::scale_of_page, "scale_of_page"},
    entry{perturbation::rounded_again, "rounded_again"},
};
static_assert(entries.size() == static_cast<std::size_t>(perturbation::rounded_again) + 1);

constexpr bool in_order() {
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (static_cast<std::size_t>(entries[i].value) != i) return false;
  return true;
}
static_assert(in_order());

constexpr auto values = [] {
  std::array<perturbation, entries.size()> all{};
  for (std::size_t i = 0; i < entries.size(); ++i) all[i] = entries[i].value;
  return all;
}();

}  // namespace

std::string_view name(perturbation p) { return entries.at(static_cast<std::size_t>(p)).name; }

std::optional<perturbation> perturbation_from_name(std::string_view text) {
  for (const auto& e : entries)
    if (e.name == text) return e.value;
  return std::nullopt;
}

std::span<const perturbation> all_perturbations() { return values; }

}  // namespace msabench
