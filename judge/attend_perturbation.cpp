// SPDX-License-Identifier: Apache-2.0
#include "judge/attend_perturbation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/dtype.h"
#include "judge/detectability.h"

namespace msabench::judge {

using reference::attended_key;

namespace {

// Weights closer than this differ by rounding.
constexpr double equal_weights = 1 + 1e-9;

}  // namespace

perturbable_row::perturbable_row(const reference::attend_inputs& in, const reference::row_map& map,
                                 const reference::attend_row& want)
    : in_(in),
      place_(map[want.row]),
      want_(want),
      keys_(reference::attended_keys(in, want.row, want.head)),
      kv_head_(want.head / std::max(1, in.p.group())) {}

perturbable_row::contribution perturbable_row::none() const {
  return {0, std::vector<double>(static_cast<std::size_t>(in_.p.d))};
}

void perturbable_row::add_key(contribution& c, std::int64_t key, double weight) const {
  std::vector<double> v(c.values.size());
  reference::value_of(in_, want_.row, kv_head_, key, v);
  c.weight += weight;
  for (std::size_t i = 0; i < v.size(); ++i) c.values[i] += weight * v[i];
}

perturbable_row::contribution perturbable_row::of_selected(std::int64_t first_key, std::int64_t end_key) const {
  contribution c = none();
  for (const auto& k : keys_)
    if (k.key >= first_key && k.key < end_key) add_key(c, k.key, k.weight);
  return c;
}

// A key that the row did not attend to, weighed as if it had.
void perturbable_row::add_other(contribution& c, std::int64_t key) const {
  add_key(c, key, std::exp(reference::score_of(in_, want_.row, want_.head, key) - want_.lse));
}

perturbable_row::contribution perturbable_row::of_others(std::int64_t first_key, std::int64_t end_key) const {
  contribution c = none();
  for (std::int64_t key = first_key; key < end_key; ++key) add_other(c, key);
  return c;
}

std::optional<perturbed_row> perturbable_row::with(const contribution& added, const contribution& removed) const {
  const double weight = 1 + added.weight - removed.weight;
  perturbed_row p{std::vector<double>(want_.out.size()), -std::numeric_limits<double>::infinity()};
  // Nothing is left but rounding: the row would be empty.
  if (weight < 1e-12) return p;
  p.lse = want_.lse + std::log(weight);
  for (std::size_t c = 0; c < p.out.size(); ++c)
    p.out[c] = (want_.out[c] + added.values[c] - removed.values[c]) / weight;
  return p;
}

// Weights of the code families are equal, so "the lightest" is any key; one that carries a code is meant.
bool perturbable_row::carries_values(std::int64_t first_key, std::int64_t end_key) const {
  std::vector<double> v(want_.out.size());
  for (std::int64_t key = first_key; key < end_key; ++key) {
    reference::value_of(in_, want_.row, kv_head_, key, v);
    if (std::ranges::any_of(v, [](double x) { return x != 0; })) return true;
  }
  return false;
}

const attended_key& perturbable_row::lightest_key() const {
  const auto& lightest = *std::ranges::min_element(keys_, {}, [](const auto& k) { return k.weight; });
  for (const auto& k : keys_)
    if (k.weight <= lightest.weight * equal_weights && carries_values(k.key, k.key + 1)) return k;
  return lightest;
}

std::optional<std::int64_t> perturbable_row::lightest_block() const {
  struct block {
    std::int64_t id, first_key, end_key;
    double weight;
  };
  std::map<std::int64_t, block> blocks;
  for (const auto& k : keys_) {
    auto& b = blocks.try_emplace(k.block, block{k.block, k.key, k.key, 0}).first->second;
    b.weight += k.weight;
    b.first_key = std::min(b.first_key, k.key);
    b.end_key = std::max(b.end_key, k.key + 1);
  }
  if (blocks.empty()) return std::nullopt;
  const auto lightest =
      std::ranges::min_element(blocks, {}, [](const auto& entry) { return entry.second.weight; })->second;
  for (const auto& [id, b] : blocks)
    if (b.weight <= lightest.weight * equal_weights && carries_values(b.first_key, b.end_key)) return id;
  return lightest.id;
}

std::optional<std::int64_t> perturbable_row::unselected_block() const {
  std::vector<std::int64_t> selected;
  for (const auto& k : keys_)
    if (selected.empty() || selected.back() != k.block) selected.push_back(k.block);
  std::ranges::sort(selected);
  // Behind the first selected one: there even a neighbour's block is caught.
  const std::int64_t visible = reference::visible_blocks(place_, in_.p.block);
  const std::int64_t first = selected.empty() ? 0 : selected.front();
  for (std::int64_t i = 0; i < visible; ++i)
    if (const auto b = (first + i) % visible; !std::ranges::binary_search(selected, b)) return b;
  return std::nullopt;
}

std::optional<perturbed_row> perturbable_row::one_key(bool heaviest, bool twice) const {
  if (keys_.empty()) return std::nullopt;
  const auto weight = [](const attended_key& key) { return key.weight; };
  const auto& k = heaviest ? *std::ranges::max_element(keys_, {}, weight) : lightest_key();
  const contribution c = of_selected(k.key, k.key + 1);
  return twice ? with(c, none()) : with(none(), c);
}

std::optional<perturbed_row> perturbable_row::one_block(bool twice) const {
  const auto b = lightest_block();
  if (!b) return std::nullopt;
  const contribution c = of_selected(*b * in_.p.block, (*b + 1) * in_.p.block);
  return twice ? with(c, none()) : with(none(), c);
}

std::optional<perturbed_row> perturbable_row::swapped_block() const {
  const auto lost = lightest_block(), gained = unselected_block();
  if (!lost || !gained) return std::nullopt;
  const std::int64_t first = *gained * in_.p.block;
  return with(of_others(first, std::min(first + in_.p.block, place_.position + 1)),
              of_selected(*lost * in_.p.block, (*lost + 1) * in_.p.block));
}

std::optional<perturbed_row> perturbable_row::key_past_diagonal() const {
  const std::int64_t next = place_.position + 1, own = place_.position / in_.p.block;
  const bool attends_own = std::ranges::any_of(keys_, [&](const auto& k) { return k.block == own; });
  if (!attends_own || next >= place_.kv_len || next / in_.p.block != own) return std::nullopt;
  return with(of_others(next, next + 1), none());
}

std::int64_t perturbable_row::segment_length(std::int64_t segment) const {
  const tensor_view& ends = in_.cu_seqlens_q;
  if (segment < 0 || segment + 1 >= ends.desc.shape[0]) return 0;
  return ends.int_at(segment + 1) - ends.int_at(segment);
}

std::optional<perturbed_row> perturbable_row::causal_bound() const {
  const std::int64_t behind = want_.row - in_.cu_seqlens_q.int_at(place_.sequence) + 1;
  if (!has_segments() || behind >= place_.kv_len) return std::nullopt;
  return with(none(), of_selected(behind, place_.kv_len));
}

// Keys are counted from the row's own segment, whose neighbours' lie before and behind it.
std::optional<perturbed_row> perturbable_row::segments_joined() const {
  if (!has_segments()) return std::nullopt;
  const std::int64_t next = segment_length(place_.sequence + 1), previous = segment_length(place_.sequence - 1);
  if (next > 0) return with(of_others(place_.kv_len, place_.kv_len + next), none());
  return previous > 0 ? with(of_others(-previous, 0), none()) : std::nullopt;
}

// A score of 0 for each token that the segment is short of, and no value.
std::optional<perturbed_row> perturbable_row::segment_padded() const {
  if (!has_segments()) return std::nullopt;
  std::int64_t longest = 0;
  for (std::int64_t s = 0; s + 1 < in_.cu_seqlens_q.desc.shape[0]; ++s) longest = std::max(longest, segment_length(s));
  if (longest == place_.kv_len) return std::nullopt;
  contribution zeros = none();
  zeros.weight = static_cast<double>(longest - place_.kv_len) * std::exp(-want_.lse);
  return with(zeros, none());
}

std::optional<perturbed_row> perturbable_row::neighbour_values() const {
  if (in_.p.hkv < 2 || keys_.empty()) return std::nullopt;
  perturbed_row p{std::vector<double>(want_.out.size()), want_.lse};
  std::vector<double> v(p.out.size());
  for (const auto& k : keys_) {
    reference::value_of(in_, want_.row, (kv_head_ + 1) % in_.p.hkv, k.key, v);
    for (std::size_t c = 0; c < v.size(); ++c) p.out[c] += k.weight * v[c];
  }
  return p;
}

// Two entries of the block table change places. With the page of an unselected block other keys are read; without one,
// the row's last page is taken, as the keys of two whole selected pages would only be read in another order.
std::optional<perturbed_row> perturbable_row::swapped_pages() const {
  const std::int64_t page = swapped_tokens(in_.p);
  if (page <= 0 || keys_.empty()) return std::nullopt;
  const auto other = unselected_block();
  const std::int64_t first = keys_.front().key / page;
  const std::int64_t second = other ? *other * in_.p.block / page : place_.position / page;
  if (first == second) return std::nullopt;
  contribution lost = none(), gained = none();
  for (const auto& k : keys_) {
    const std::int64_t mine = k.key / page;
    if (mine != first && mine != second) continue;
    add_key(lost, k.key, k.weight);
    // Slots past the sequence may be unwritten: what they would add is not counted.
    const std::int64_t instead = (mine == first ? second : first) * page + k.key % page;
    if (instead < place_.kv_len) add_other(gained, instead);
  }
  return with(gained, lost);
}

std::optional<perturbed_row> perturbable_row::short_accumulation() const {
  if (keys_.empty()) return std::nullopt;
  const dtype narrow = in_.p.q == fp16 ? fp16 : bf16;
  perturbed_row p{std::vector<double>(want_.out.size()), want_.lse};
  std::vector<double> v(p.out.size());
  double sum = 0;
  for (const auto& k : keys_) {
    const double e = std::exp(k.score - want_.m);
    sum += e;
    reference::value_of(in_, want_.row, kv_head_, k.key, v);
    for (std::size_t c = 0; c < v.size(); ++c) p.out[c] = round_to(p.out[c] + e * v[c], narrow);
  }
  for (auto& o : p.out) o /= sum;
  return p;
}

std::optional<perturbed_row> perturbable_row::short_scores() const {
  if (keys_.empty()) return std::nullopt;
  const dtype narrow = in_.p.q == fp16 ? fp16 : bf16;
  double m = -std::numeric_limits<double>::infinity();
  for (const auto& k : keys_) m = std::max(m, round_to(k.score, narrow));
  contribution c = none();
  for (const auto& k : keys_) add_key(c, k.key, std::exp(round_to(k.score, narrow) - m));
  for (auto& v : c.values) v /= c.weight;
  return perturbed_row{std::move(c.values), m + std::log(c.weight)};
}

std::optional<perturbed_row> perturbable_row::forgotten_rescale() const {
  double m = -std::numeric_limits<double>::infinity();
  bool risen = false;
  contribution c = none();
  for (std::size_t first = 0, end = 0; first < keys_.size(); first = end) {
    double highest = m;
    for (end = first; end < keys_.size() && keys_[end].block == keys_[first].block; ++end)
      highest = std::max(highest, keys_[end].score);
    risen |= first > 0 && highest > m;
    m = highest;
    for (std::size_t i = first; i < end; ++i) add_key(c, keys_[i].key, std::exp(keys_[i].score - m));
  }
  if (!risen) return std::nullopt;
  for (auto& v : c.values) v /= c.weight;
  return perturbed_row{std::move(c.values), m + std::log(c.weight)};
}

// The oracle itself on other scales: they are of all keys, so that nothing of the right answer stays.
std::optional<perturbed_row> perturbable_row::other_scales(perturbation fault) const {
  const problem& p = in_.p;
  if (p.kv_scale == 0) return std::nullopt;
  reference::attend_inputs other = in_;
  if (fault == perturbation::scale_left_out) other.k_scale = other.v_scale = {};
  if (fault == perturbation::scale_of_other) std::swap(other.k_scale, other.v_scale);
  if (fault == perturbation::scale_of_next_head) {
    if (p.kv_scale != 2 || p.hkv < 2) return std::nullopt;
    const std::int64_t steps = (kv_head_ + 1) % p.hkv - kv_head_;
    for (tensor_view* scale : {&other.k_scale, &other.v_scale})
      scale->data = static_cast<const float*>(scale->data) + steps * scale->desc.strides[1];
  }
  if (fault == perturbation::scale_of_page) {
    if (p.kv_scale != 2 || !p.paged()) return std::nullopt;
    other.k_scale.desc.strides[2] = other.v_scale.desc.strides[2] = 0;
  }
  const auto row = reference::attend_head(other, want_.row, want_.head, {});
  return perturbed_row{row.out, row.lse};
}

// Scores stay: their shift is of the size that a declaration may allow.
std::optional<perturbed_row> perturbable_row::rounded_again() const {
  if (in_.p.kv_scale == 0 || keys_.empty()) return std::nullopt;
  perturbed_row p{std::vector<double>(want_.out.size()), want_.lse};
  std::vector<double> v(p.out.size());
  for (const auto& k : keys_) {
    reference::value_of(in_, want_.row, kv_head_, k.key, v);
    for (std::size_t c = 0; c < v.size(); ++c) p.out[c] += k.weight * round_to(v[c], e4m3);
  }
  return p;
}

std::optional<perturbed_row> perturbable_row::apply(perturbation fault) const {
  if (want_.n == 0) return std::nullopt;
  switch (fault) {
    case perturbation::drop_key:
      return one_key(false, false);
    case perturbation::double_key:
      return one_key(false, true);
    case perturbation::drop_heavy_key:
      return one_key(true, false);
    case perturbation::key_past_diagonal:
      return key_past_diagonal();
    case perturbation::drop_block:
      return one_block(false);
    case perturbation::double_block:
      return one_block(true);
    case perturbation::swap_block:
      return swapped_block();
    case perturbation::causal_bound:
      return causal_bound();
    case perturbation::segments_joined:
      return segments_joined();
    case perturbation::segment_padded:
      return segment_padded();
    case perturbation::neighbour_head_v:
      return neighbour_values();
    case perturbation::swap_table_entries:
      return swapped_pages();
    case perturbation::accumulate_16bit:
      return short_accumulation();
    case perturbation::scores_16bit:
      return short_scores();
    case perturbation::rescale_forgotten:
      return forgotten_rescale();
    case perturbation::scale_left_out:
    case perturbation::scale_of_other:
    case perturbation::scale_of_next_head:
    case perturbation::scale_of_page:
      return other_scales(fault);
    case perturbation::rounded_again:
      return rounded_again();
    default:
      return std::nullopt;
  }
}

}  // namespace msabench::judge
