// SPDX-License-Identifier: Apache-2.0
#include "conformance/targets.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace msabench {

namespace {

using enum perturbation;

// One key among thousands drowns in the limits of an implementation with long chains of additions; among these it does not.
constexpr std::int64_t few_keys = 512;
// The same of a block, which a row of so many keys shows even where only its output is seen.
constexpr std::int64_t usual_keys = 2048;

// What the lengths of a case make possible at all: a fault that needs an unselected block cannot show where all are
// taken.
struct opportunities {
  bool rows = false;             // a row that sees a key
  bool two_blocks = false;       // a row that sees two blocks
  bool sparse = false;           // a row that sees more blocks than it selects
  std::int64_t sparse_rows = 0;  // how many do
  bool future_keys = false;      // a row of few keys whose next key exists in its own block
  bool two_rows = false;         // neighbouring rows of one sequence, both sparse
  // How many of the eight rows that see least of their own block are to be expected to have the block's best key among
  // those that they do not see: the next one, or all of them.
  double next_is_best = 0, hidden_is_best = 0;
  bool two_pages = false;  // a row that sees two pages and two blocks
  // The same where every visible key is read.
  bool next_key = false;      // a row of few keys whose sequence has a next one in the same block
  bool short_rows = false;    // a row that sees two blocks, but no more keys than selected ones are
  bool partial_page = false;  // a row of few keys that sees two pages and only part of the last
};

opportunities look(const case_spec& c) {
  opportunities o;
  const std::int64_t page = make_problem(c).page_size;
  std::vector<std::pair<std::int64_t, std::int64_t>> hidden;  // of a row: visible keys of its own block, hidden ones
  for (const auto& s : sequences(c)) {
    for (std::int64_t i = 0; i < s.q_len; ++i) {
      const std::int64_t position = s.kv_len - s.q_len + i;
      if (position < 0) continue;
      const std::int64_t seen = position / c.shape.block + 1;
      o.rows = true;
      o.two_blocks |= seen >= 2;
      o.sparse |= seen > c.shape.topk;
      o.sparse_rows += seen > c.shape.topk ? 1 : 0;
      const std::int64_t keys = std::min(position + 1, std::int64_t{c.shape.topk} * c.shape.block);
      o.future_keys |= keys <= few_keys && position + 1 < s.kv_len && (position + 1) % c.shape.block != 0;
      o.two_pages |= page > 0 && position >= std::max<std::int64_t>(page, c.shape.block);
      const std::int64_t own_end = std::min(s.kv_len, (position / c.shape.block + 1) * c.shape.block);
      if (own_end > position + 1) hidden.emplace_back(position % c.shape.block + 1, own_end - position - 1);
      o.two_rows |= i > 0 && (position - 1) / c.shape.block + 1 > c.shape.topk;
      o.next_key |= position < few_keys && position + 1 < s.kv_len && (position + 1) % c.shape.block != 0;
      o.short_rows |= seen >= 2 && position < usual_keys;
      o.partial_page |= page > 0 && position < usual_keys && position > page && (position + 1) % page != 0;
    }
  }
  std::ranges::stable_sort(hidden);
  for (std::size_t i = 0; i < std::min<std::size_t>(8, hidden.size()); ++i) {
    const auto [seen, rest] = hidden[i];
    o.next_is_best += 1.0 / static_cast<double>(seen + 1);
    o.hidden_is_best += static_cast<double>(rest) / static_cast<double>(seen + rest);
  }
  return o;
}

// So many rows x index heads on which something is expected that it is all but certain to happen on one.
constexpr double all_but_certain = 3.5;

// Faults of the scales of keys and values, where stored values are not what they stand for.
std::vector<perturbation> kv_scale_targets(const case_spec& c, bool two_pages) {
  if (c.options.fp8 == scale_form::none) return {};
  std::vector<perturbation> t = {scale_left_out};
  // A needle's values are any numbers, and it is alone: no mean over many keys hides a second rounding.
  if (c.family == "needle") t.push_back(rounded_again);
  if (c.options.fp8 == scale_form::tensor || c.family == "needle") t.push_back(scale_of_other);
  if (c.options.fp8 == scale_form::tensor || c.family != "random") return t;
  if (c.shape.hkv > 1) t.push_back(scale_of_next_head);
  if (two_pages && make_problem(c).page_size > 1) t.push_back(scale_of_page);
  return t;
}

// Families whose scores or values are extreme; of them no other fault is asked that random shows.
std::optional<std::vector<perturbation>> extreme_targets(const case_spec& c, const opportunities& can) {
  if (c.family == "cancel" || c.family == "offset") return {{drop_heavy_key}};
  // At -60000 the order of additions alone moves a score; only a head dim of 16 leaves limits that see anything.
  if (c.family == "hot_flat" && c.variant == "n60000") return {{drop_heavy_key}};
  if (c.family == "hot_flat") return {{scores_16bit, drop_heavy_key}};
  if (c.family == "hot_peaked") {
    if (c.variant == "s43" || c.shape.hkv == 1) return {{drop_heavy_key}};
    return {{drop_heavy_key, neighbour_head_v}};
  }
  if (c.family != "ramp") return std::nullopt;
  if (c.variant == "rising" && can.two_blocks && c.shape.topk > 1) return {{rescale_forgotten, drop_heavy_key}};
  return {{drop_heavy_key}};
}

std::vector<perturbation> attend_targets(const case_spec& c, const opportunities& can) {
  if (const auto extreme = extreme_targets(c, can)) return *extreme;
  std::vector<perturbation> t;
  const bool chooses = can.sparse && c.shape.topk > 1;
  if (c.family == "carry") return {accumulate_16bit};
  if (c.family == "needle") {
    t = {drop_heavy_key};
    if (c.shape.hkv > 1) t.push_back(neighbour_head_v);
    return t;
  }
  if (c.family == "key_code") {
    t = {drop_key, double_key};
    // A whole block of codes is the same for every head: a neighbour's shows where the row has not selected it.
    if (c.shape.hkv > 1 && can.sparse_rows * c.shape.hkv >= 4) t.push_back(neighbour_head_v);
  }
  // Codes of blocks are 17 channels apart from head to head.
  if (c.family == "block_code" && c.shape.hkv > 1 && c.shape.d % 17 != 0) t.push_back(neighbour_head_v);
  const bool random = c.family == "random" || c.family == "planted";
  if (c.family == "block_code" || random) {
    if (can.two_blocks && c.shape.topk > 1) t.insert(t.end(), {drop_block, double_block});
    if (chooses && c.variant != "high") t.push_back(swap_block);
  }
  if (random) {
    if (c.shape.hkv > 1) t.push_back(neighbour_head_v);
    if (can.future_keys) t.push_back(key_past_diagonal);
    if (c.layout != page_layout::contiguous && can.two_blocks) t.push_back(swap_table_entries);
  }
  // A case with rows and no target would pass without having shown that it sees anything.
  if (t.empty()) t = {drop_heavy_key};
  return t;
}

// Nothing is selected, so nothing can be exchanged for what is not. Long rows drown a block as well: there the codes name
// blocks and keys, and random values show what is wrong as a whole.
std::vector<perturbation> dense_targets(const case_spec& c, const opportunities& can) {
  if (const auto extreme = extreme_targets(c, can)) return *extreme;
  std::vector<perturbation> t;
  if (c.family == "carry") return {accumulate_16bit};
  if (c.family == "key_code") return {drop_key, double_key};
  if (c.family == "needle") t = {drop_heavy_key};
  if (c.family == "block_code" && can.two_blocks) return {drop_block, double_block};
  if (c.family == "random") {
    if (can.short_rows) t.insert(t.end(), {drop_block, double_block});
    if (can.next_key) t.push_back(key_past_diagonal);
    if (can.partial_page) t.push_back(swap_table_entries);
  }
  if (c.family != "block_code" && c.shape.hkv > 1) t.push_back(neighbour_head_v);
  if (t.empty()) t = {drop_heavy_key};
  return t;
}

// Both branches. Where the selection is planted, a fault of it exchanges a block that has a high score for one without.
std::vector<perturbation> msa_targets(const case_spec& c, const opportunities& can) {
  auto t = attend_targets(c, can);
  const bool free_slots = c.shape.topk > c.shape.local_blocks + c.shape.init_blocks;
  if (!can.sparse || !free_slots) return t;
  t.push_back(drop_last_choice);
  if (c.shape.hi > 1) t.push_back(neighbour_head_q);
  if (c.shape.local_blocks > 0 && plants_selection(c)) t.push_back(forget_local);
  // One scale for all keys changes no order.
  if (c.family == "random" && c.options.fp8_index == scale_form::token) t.push_back(scale_left_out);
  return t;
}

std::vector<perturbation> select_faults(const case_spec& c, const opportunities& can) {
  if (!can.sparse) return {drop_last_choice};
  std::vector<perturbation> t;
  const bool distinct = c.variant != "equal" && c.variant != "few" && c.variant != "tie17" && c.variant != "zero";
  const bool free_slots = c.shape.topk > c.shape.local_blocks + c.shape.init_blocks;
  if (distinct && free_slots) t.push_back(drop_last_choice);
  // In `random` and `nan` nothing makes the local block the worst one: it may be chosen without being forced, unless every
  // slot is a forced one.
  const bool local_is_worst = (c.variant != "nan" && c.variant != "random") || !free_slots;
  if (c.shape.local_blocks > 0 && local_is_worst) t.push_back(forget_local);
  if (!free_slots) return t;
  if (c.variant == "heads" && c.shape.hkv > 1) t.push_back(shared_heads);
  if (c.variant == "random" && can.two_rows) t.push_back(neighbour_row);
  if (c.variant == "negative") t.push_back(relu_scores);
  if (c.variant == "nan") t.push_back(nan_wins);
  if (c.variant == "inf" || c.variant == "huge") t.push_back(sentinel_collides);
  if (c.variant == "outlier") t.push_back(rank_16bit);
  return t;
}

// Where nothing may show (all scores equal and nothing forced), the target that every choice has makes the case
// insensitive instead of passed.
std::vector<perturbation> select_targets(const case_spec& c, const opportunities& can) {
  auto t = select_faults(c, can);
  if (t.empty()) t = {drop_last_choice};
  return t;
}

// Scores are judged one by one, so each fault shows where its block is.
std::vector<perturbation> score_targets(const case_spec& c, const opportunities& can) {
  if (c.family == "special") return {c.variant == "nan" ? nan_wins : sentinel_collides};
  std::vector<perturbation> t = {drop_best_key};
  // Equal maxima are equal for every head.
  const bool alike = c.family == "ramp" && c.variant == "equal";
  if (c.shape.hi > 1 && !alike) t.push_back(neighbour_head_q);
  if (c.family == "negative" || (c.family == "hot_flat" && c.variant.starts_with('n'))) t.push_back(relu_scores);
  if (c.family == "hot_flat") t.push_back(accumulate_16bit);
  if (c.options.fp8 != scale_form::none) t.push_back(scale_left_out);
  if (c.family != "random") return t;
  if (c.options.fp8 != scale_form::none && c.shape.hi > 1) t.push_back(scale_of_next_head);
  if (c.options.fp8 == scale_form::token && can.two_pages) t.push_back(scale_of_page);
  t.insert(t.end(), {accumulate_16bit, unscaled_scores});
  if (can.hidden_is_best * c.shape.hi >= all_but_certain) t.push_back(mask_after_max);
  if (can.next_is_best * c.shape.hi >= all_but_certain) t.push_back(key_past_diagonal);
  if (can.two_pages) t.push_back(swap_table_entries);
  return t;
}

// What changes a score has to change the selection to be seen.
std::vector<perturbation> index_targets(const case_spec& c, const opportunities& can) {
  const bool free_slots = c.shape.topk > c.shape.local_blocks + c.shape.init_blocks;
  if (!can.sparse) return {drop_last_choice};
  if (!free_slots) return {c.shape.local_blocks > 0 ? forget_local : drop_last_choice};
  std::vector<perturbation> t;
  if (c.family == "special") t.push_back(c.variant == "nan" ? nan_wins : sentinel_collides);
  if (c.family == "negative" || (c.family == "hot_flat" && c.variant.starts_with('n'))) t.push_back(relu_scores);
  if (c.family == "ramp" || c.family == "hot_flat") t.push_back(drop_last_choice);
  if (c.family == "index_code" && c.variant != "ties") t.push_back(drop_best_key);
  if (c.family == "random") {
    t.push_back(drop_last_choice);
    if (can.two_pages) t.push_back(swap_table_entries);
    // One scale for all keys changes no order.
    if (c.options.fp8 == scale_form::token) t.push_back(scale_left_out);
  }
  // Equal maxima are equal for every head.
  const bool alike = c.family == "ramp" && c.variant == "equal";
  if (c.shape.hi > 1 && c.family != "special" && !alike) t.push_back(neighbour_head_q);
  if (t.empty()) t = {drop_last_choice};
  return t;
}

// Rows of a combine case have as many parts as its option says; which of them have keys is up to the family.
std::vector<perturbation> combine_targets(const case_spec& c) {
  std::int64_t rows = 0, most_keys = 0;
  bool any_without_keys = c.options.splits == 0;
  for (const auto& s : sequences(c)) {
    rows += s.q_len;
    if (s.q_len > 0) most_keys = std::max(most_keys, s.kv_len);
    any_without_keys |= s.q_len > s.kv_len;
  }
  if (rows == 0) return {};
  const bool holes = c.variant == "holes";
  // Parts that the fullest row has: `random` has no more than keys, `holes` leaves one out.
  const std::int64_t parts = std::min<std::int64_t>(c.options.splits - (holes && c.options.splits > 1 ? 1 : 0),
                                                    c.variant == "random" ? most_keys : c.options.splits);
  std::vector<perturbation> t;
  if (any_without_keys || (holes && rows >= 16)) t.push_back(nothing_is_nan);
  if (parts == 0 || most_keys == 0) return t;
  // Vanishing weights are below fp16's range even in base 2, so that only a wrong part shows there.
  if (c.variant == "tiny" && parts > 1) return {c.type == fp16 ? neighbour_head_lse : base2_partials};
  t.push_back(drop_partial);
  if (c.variant == "large") t.push_back(maximum_kept);
  if (holes && c.options.splits > 1) t.push_back(empty_partial_leaks);
  if (parts == 1) return t;
  t.insert(t.end(), {double_partial, base2_partials, weights_unscaled});
  if (c.shape.hq > 1 && !holes) t.push_back(neighbour_head_lse);
  return t;
}

// As dense, over segments: faults are of their borders, not of a diagonal.
std::vector<perturbation> vit_attend_targets(const case_spec& c) {
  const auto segments = sequences(c);
  std::int64_t shortest = segments.front().kv_len, longest = shortest;
  for (const auto& s : segments) {
    shortest = std::min(shortest, s.kv_len);
    longest = std::max(longest, s.kv_len);
  }
  // A block of its own, in a segment short enough to show it by its output.
  const bool two_blocks = longest > c.shape.block && shortest <= usual_keys;
  std::vector<perturbation> t;
  if (c.family == "carry") return {accumulate_16bit};
  if (c.family == "key_code") return {drop_key, double_key};
  if (c.family == "block_code") return two_blocks ? std::vector{drop_block, double_block} : std::vector{drop_heavy_key};
  if (c.family == "needle") t = {drop_heavy_key};
  if (c.shape.hkv > 1) t.push_back(neighbour_head_v);
  if (c.family == "needle") return t;
  t.push_back(causal_bound);
  if (segments.size() > 1) t.push_back(segments_joined);
  if (shortest < longest) t.push_back(segment_padded);
  return t;
}

std::vector<perturbation> rope3d_targets(const case_spec& c) {
  const std::int32_t pairs = c.shape.d / 3 / 2;
  if (pairs == 0) return {merge_ignored};
  std::vector<perturbation> t = {rope_backwards};
  if (c.variant != "random") return t;
  const std::int32_t window = make_problem(c).vit_window;
  bool long_item = false, video = false, wide = false, large = false;
  for (const grid& g : c.lengths.grids) {
    long_item |= window != 0 && g.t > window;
    video |= g.t > 1 && window != 1;
    wide |= g.w > 2;
    large |= g.h > 2 || g.w > 2;
  }
  t.push_back(axes_swapped);
  if (pairs > 1 && large) t.insert(t.end(), {base_of_text, dims_of_head});
  if (wide) t.push_back(merge_ignored);
  if (long_item) t.insert(t.end(), {t_not_restarted, window_ignored});
  if (video) t.insert(t.end(), {two_axes_only, frames_apart});
  t.push_back(rope_interleaved);
  if (6 * pairs < c.shape.d && c.shape.d % 2 == 0) t.push_back(rope_all_dims);
  return t;
}

// Where the rotation is handed back it is judged by itself; codes and carries have no queries to rotate.
std::vector<perturbation> vit3d_targets(const case_spec& c) {
  std::vector<perturbation> t = vit_attend_targets(c);
  if (c.options.bare || c.family != "random") return t;
  case_spec tokens = c;
  tokens.variant = "random";
  for (const perturbation fault : rope3d_targets(tokens)) t.push_back(fault);
  return t;
}

std::vector<perturbation> norm_rope_targets(const case_spec& c) {
  const shape_spec& s = c.shape;
  const std::int32_t dims = make_problem(c).rope_dims, narrowest = std::min(s.d, s.di);
  std::vector<perturbation> t = {weight_without_one};
  if (c.variant == "small" || c.variant == "subnormal") t.push_back(eps_missing);
  if (c.variant != "random") return t;
  if (s.hq > 1) t.push_back(norm_across_heads);
  if (s.d == s.di) t.push_back(main_norm_for_index);
  if (dims == 0) return t;
  bool prefix = false, two_positions = false;
  for (const auto& q : sequences(c)) {
    prefix |= q.q_len > 0 && q.kv_len > q.q_len;
    two_positions |= q.q_len > 0 && q.kv_len > 1;
  }
  t.push_back(rope_backwards);
  if (two_positions) t.push_back(position_after);
  if (prefix) t.push_back(position_in_chunk);
  if (dims > 2) t.push_back(rope_interleaved);
  if (dims < narrowest && narrowest % 2 == 0) t.push_back(rope_all_dims);
  if (c.type != fp32) t.push_back(rounded_after_norm);
  return t;
}

// A key among more drowns in the bounds of short operands, and so do sums in 16 bits of less terms.
constexpr std::int64_t few_keys_of_gradient = 16, many_terms = 256;

std::vector<perturbation> backward_targets(const case_spec& c) {
  if (c.family == "carry") return {accumulate_16bit};
  bool early = false, two_keys = false;
  std::int64_t keys = 0;
  for (const auto& s : sequences(c)) {
    keys += s.kv_len;
    for (std::int64_t i = 0; i < s.q_len; ++i) {
      const std::int64_t position = s.kv_len - s.q_len + i, next = position + 1;
      two_keys |= position > 0 && c.shape.block > 1;
      early |= position >= 0 && next <= few_keys_of_gradient && next < s.kv_len && next % c.shape.block != 0;
    }
  }
  std::vector<perturbation> t = {delta_left_out};
  if (c.shape.hq > 1) t.push_back(delta_of_next_head);
  if (two_keys && make_problem(c).softmax_scale != 1) t.push_back(gradient_unscaled);
  if (c.shape.hkv > 1) t.push_back(gradient_of_next_group);
  if (early) t.push_back(key_past_diagonal);
  if (cost_triples(c) / (keys * c.shape.hkv) >= many_terms) t.push_back(accumulate_16bit);
  return t;
}

// One row of more drowns in what errors of bf16 do to a gradient as a whole.
constexpr std::int64_t few_rows_of_loss = 128;

std::vector<perturbation> kl_targets(const case_spec& c, const opportunities& can) {
  if (c.options.kl_coeff == 0) return {coefficient_left_out};
  const shape_spec& s = c.shape;
  std::int64_t rows = 0, empty = 0;
  bool early = false, two_keys = false, beyond_few = false;
  for (const auto& q : sequences(c))
    for (std::int64_t i = 0; i < q.q_len; ++i) {
      const std::int64_t position = q.kv_len - q.q_len + i, next = position + 1;
      ++rows;
      empty += position < 0 ? 1 : 0;
      two_keys |= position > 0 && (s.block > 1 || s.topk > 1 || c.options.warm);
      beyond_few |= position / s.block >= s.topk;
      early |= position >= 0 && next <= few_keys_of_gradient && next < q.kv_len && next % s.block != 0;
    }
  // A single key weighs 1, whatever its scores are.
  std::vector<perturbation> t = {teacher_left_out};
  if (early) t.push_back(key_past_diagonal);
  if (!two_keys) return t;
  if (s.hq > s.hkv && c.variant != "flat") t.push_back(teacher_of_mean_logits);
  if (s.hq > s.hkv) t.push_back(teacher_head_missing);
  if (s.hi > 1) t.push_back(neighbour_head_q);
  if (make_problem(c).index_scale != 1) t.push_back(gradient_unscaled);
  if (can.sparse && !c.options.warm) t.insert(t.end(), {teacher_over_all, student_over_all});
  if (beyond_few && c.options.warm) t.push_back(warm_up_over_few);
  if (rows > 1 && rows <= few_rows_of_loss) t.push_back(mean_of_one_row_less);
  if (empty > 0 && empty < rows) t.push_back(mean_of_rows_with_keys);
  if (s.hkv > 1) t.push_back(mean_without_heads);
  return t;
}

}  // namespace

std::vector<perturbation> targets_of(const case_spec& c) {
  if (c.operation == op::vit_attend) return vit_attend_targets(c);
  if (c.operation == op::rope3d) return rope3d_targets(c);
  if (c.operation == op::vit3d) return vit3d_targets(c);
  const opportunities can = look(c);
  if (c.operation == op::combine) return combine_targets(c);  // also of rows that see no key
  if (!can.rows) return {};
  const auto with_scales = [&](std::vector<perturbation> t) {
    const auto more = kv_scale_targets(c, can.two_pages);
    t.insert(t.end(), more.begin(), more.end());
    return t;
  };
  switch (c.operation) {
    case op::attend:
      return with_scales(attend_targets(c, can));
    case op::dense:
      return with_scales(dense_targets(c, can));
    case op::msa:
      return with_scales(msa_targets(c, can));
    case op::select:
      return select_targets(c, can);
    case op::score:
      return score_targets(c, can);
    case op::index:
      return index_targets(c, can);
    case op::qk_norm_rope:
      return norm_rope_targets(c);
    case op::attend_backward:
    case op::dense_backward:
      return backward_targets(c);
    case op::kl:
      return kl_targets(c, can);
    default:
      return {};
  }
}

}  // namespace msabench
