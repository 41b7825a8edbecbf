// SPDX-License-Identifier: Apache-2.0
// Selections gone wrong, on scores that are right.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/mutants/mutant.h"
#include "kernels/naive/select.h"

namespace msabench::mutants {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

struct row_of_scores {
  const selection_rule& rule;
  const row_place& place;
  const float* scores;
  std::int32_t* candidates;
  std::int32_t* ids;

  std::int64_t visible() const { return visible_blocks(place, rule.block); }
  bool chooses() const { return visible() > rule.topk; }
  bool forced(std::int64_t block) const { return is_forced(rule, visible(), block); }
  bool chosen(std::int64_t block) const { return std::find(ids, ids + rule.topk, block) != ids + rule.topk; }
  void select() const { exact_stages.select_row(rule, place, scores, candidates, ids); }
};

/// Scores of the row that may be changed; no launch after the first one allocates.
std::vector<float>& copied(const row_of_scores& row) {
  static thread_local std::vector<float> copy;
  copy.assign(row.scores, row.scores + std::max<std::int64_t>(0, row.visible()));
  return copy;
}

/// Selects by other scores, and by nothing else.
void select_by(const row_of_scores& row, const std::vector<float>& scores) {
  selection_rule unforced = row.rule;
  unforced.local = unforced.initial = 0;
  exact_stages.select_row(unforced, row.place, scores.data(), row.candidates, row.ids);
}

template <void (*Select)(const row_of_scores&)>
void replace(stages& s) {
  s.select_row = [](const selection_rule& rule, const row_place& place, const float* scores, std::int32_t* candidates,
                    std::int32_t* ids) { Select({rule, place, scores, candidates, ids}); };
}

void without_local(const row_of_scores& row) {
  selection_rule rule = row.rule;
  rule.local = 0;
  exact_stages.select_row(rule, row.place, row.scores, row.candidates, row.ids);
}

void local_as_one_more(const row_of_scores& row) {
  without_local(row);
  if (!row.chooses() || row.rule.local == 0 || row.chosen(row.visible() - 1)) return;
  row.ids[row.rule.topk] = static_cast<std::int32_t>(row.visible() - 1);
}

void by_forced_value(const row_of_scores& row, float value) {
  std::vector<float>& scores = copied(row);
  for (std::int64_t b = 0; b < row.visible(); ++b)
    if (row.forced(b)) scores[static_cast<std::size_t>(b)] = value;
  select_by(row, scores);
}
void forced_is_infinity(const row_of_scores& row) { by_forced_value(row, infinity); }
void forced_is_greatest(const row_of_scores& row) { by_forced_value(row, std::numeric_limits<float>::max()); }
void forced_is_1e30(const row_of_scores& row) { by_forced_value(row, 1e30f); }

/// The one of the row's choice that has the lowest score; nullptr if all are forced.
std::int32_t* last_choice(const row_of_scores& row) {
  std::int32_t* last = nullptr;
  for (std::int32_t* id = row.ids; id != row.ids + row.rule.topk; ++id)
    if (!row.forced(*id) && (last == nullptr || rank_score(row.scores[*id]) <= rank_score(row.scores[*last])))
      last = id;
  return last;
}

/// A block that was not chosen though its score is that of the last choice; -1: there is none.
std::int64_t tied_with(const row_of_scores& row, std::int32_t last) {
  for (std::int64_t b = row.visible() - 1; b >= 0; --b)
    if (!row.chosen(b) && rank_score(row.scores[b]) == rank_score(row.scores[last])) return b;
  return -1;
}

void equals_chosen_twice(const row_of_scores& row) {
  row.select();
  if (!row.chooses()) return;
  std::int32_t* last = last_choice(row);
  if (last == nullptr || last == row.ids || tied_with(row, *last) < 0) return;
  *last = last[-1];
}

void all_equals_chosen(const row_of_scores& row) {
  row.select();
  if (!row.chooses()) return;
  const std::int32_t* last = last_choice(row);
  if (last == nullptr) return;
  if (const std::int64_t b = tied_with(row, *last); b >= 0) row.ids[row.rule.topk] = static_cast<std::int32_t>(b);
}

/// Equals of the last choice come before the local block, and the list ends after k.
void local_cut_off(const row_of_scores& row) {
  row.select();
  if (!row.chooses() || row.rule.local == 0) return;
  const std::int32_t* last = last_choice(row);
  if (last == nullptr) return;
  const std::int64_t b = tied_with(row, *last);
  if (b < 0) return;
  row.ids[row.rule.topk - 1] = static_cast<std::int32_t>(b);
  std::sort(row.ids, row.ids + row.rule.topk);
}

void higher_of_equals(const row_of_scores& row) {
  row.select();
  if (!row.chooses()) return;
  std::int32_t* last = last_choice(row);
  if (last == nullptr) return;
  const std::int64_t b = tied_with(row, *last);
  if (b <= *last) return;
  *last = static_cast<std::int32_t>(b);
  std::sort(row.ids, row.ids + row.rule.topk);
}

/// Ascending with the float.
std::uint32_t ordered_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// A radix select whose list for the bin of the k-th value has so many places; what comes after is lost.
template <int BinBits, std::int64_t Places>
void from_full_bin(const row_of_scores& row) {
  row.select();
  if (!row.chooses()) return;
  const std::int32_t* last = last_choice(row);
  if (last == nullptr) return;
  const auto bin_of = [&](std::int64_t b) { return ordered_bits(row.scores[b]) >> (32 - BinBits); };
  const std::uint32_t bin = bin_of(*last);
  std::vector<float>& scores = copied(row);
  std::int64_t taken = 0;
  for (std::int64_t b = 0; b < row.visible(); ++b)
    if (!row.forced(b) && bin_of(b) == bin && ++taken > Places) scores[static_cast<std::size_t>(b)] = -infinity;
  exact_stages.select_row(row.rule, row.place, scores.data(), row.candidates, row.ids);
}

/// Candidates in a buffer of fixed size.
template <std::int64_t Places>
void from_first_blocks(const row_of_scores& row) {
  std::vector<float>& scores = copied(row);
  for (std::int64_t b = Places; b < row.visible(); ++b) scores[static_cast<std::size_t>(b)] = -infinity;
  exact_stages.select_row(row.rule, row.place, scores.data(), row.candidates, row.ids);
}

void by_16_bit_keys(const row_of_scores& row) {
  float low = infinity, high = -infinity;
  for (std::int64_t b = 0; b < row.visible(); ++b) {
    if (row.forced(b) || !std::isfinite(row.scores[b])) continue;
    low = std::min(low, row.scores[b]);
    high = std::max(high, row.scores[b]);
  }
  std::vector<float>& scores = copied(row);
  constexpr float steps = 65535;
  for (float& s : scores)
    if (high > low && std::isfinite(s)) s = std::floor((s - low) / (high - low) * steps);
  exact_stages.select_row(row.rule, row.place, scores.data(), row.candidates, row.ids);
}

/// A running list of the best: a comparison with NaN is never true, so a NaN in it is never found to be the worst.
void nan_stays_in_list(const row_of_scores& row) {
  row.select();
  if (!row.chooses()) return;
  std::int64_t unforced = 0;
  std::int32_t nan = -1;
  for (std::int32_t b = 0; b < row.visible() && unforced < row.rule.topk; ++b) {
    if (row.forced(b)) continue;
    ++unforced;
    if (std::isnan(row.scores[b]) && !row.chosen(b)) nan = b;
  }
  std::int32_t* last = last_choice(row);
  if (nan < 0 || last == nullptr) return;
  *last = nan;
  std::sort(row.ids, row.ids + row.rule.topk);
}

void nan_is_greatest(const row_of_scores& row) {
  std::vector<float>& scores = copied(row);
  for (float& s : scores)
    if (std::isnan(s)) s = infinity;
  exact_stages.select_row(row.rule, row.place, scores.data(), row.candidates, row.ids);
}

void minus_zero_is_less(const row_of_scores& row) {
  std::vector<float>& scores = copied(row);
  for (float& s : scores)
    if (s == 0 && std::signbit(s)) s = -std::numeric_limits<float>::denorm_min();
  exact_stages.select_row(row.rule, row.place, scores.data(), row.candidates, row.ids);
}

void best_given_up(const row_of_scores& row) {
  row.select();
  if (!row.chooses()) return;
  std::int32_t* last = last_choice(row);
  if (last == nullptr) return;
  std::int32_t best_left = -1;
  for (std::int32_t b = 0; b < row.visible(); ++b)
    if (!row.chosen(b) && (best_left < 0 || rank_score(row.scores[b]) > rank_score(row.scores[best_left])))
      best_left = b;
  *last = best_left;
  std::sort(row.ids, row.ids + row.rule.topk);
}

void unused_slots_unwritten(const row_of_scores& row) {
  static thread_local std::vector<std::int32_t> before;
  before.assign(row.ids, row.ids + row.rule.topk);
  row.select();
  for (std::int32_t i = 0; i < row.rule.topk; ++i)
    if (row.ids[i] == -1) row.ids[i] = before[static_cast<std::size_t>(i)];
}

/// Counts how often a block was chosen, and -1 as well: the counters lie where the ids do.
void minus_one_is_written(const row_of_scores& row) {
  row.select();
  if (row.ids[row.rule.topk - 1] == -1) row.ids[-1] = 1;
}

constexpr mutant mutants[] = {
    {"SEL-1.a", "the local block is not forced", replace<without_local>, nullptr},
    {"SEL-1.b", "the local block is forced as one more than k", replace<local_as_one_more>, nullptr},
    {"SEL-2.a", "forced blocks have the score +inf, which others have too", replace<forced_is_infinity>, nullptr},
    {"SEL-2.b", "forced blocks have the score FLT_MAX, which +inf exceeds", replace<forced_is_greatest>, nullptr},
    {"SEL-2.c", "forced blocks have the score 1e30, which real ones exceed", replace<forced_is_1e30>, nullptr},
    {"SEL-6.a", "of blocks with equal scores one is chosen twice", replace<equals_chosen_twice>, nullptr},
    {"SEL-6.b", "of blocks with equal scores more than k are chosen", replace<all_equals_chosen>, nullptr},
    {"SEL-6.c", "of blocks with equal scores so many are listed that the local one is cut off", replace<local_cut_off>,
     nullptr},
    {"SEL-6.d", "of blocks with equal scores the higher id is taken, against the promise", replace<higher_of_equals>,
     nullptr},
    {"SEL-7.a", "of scores that share 16 leading bits with the k-th, all but the first 1024 are lost",
     replace<from_full_bin<16, 1024>>, nullptr},
    {"SEL-7.b", "blocks from number 4096 on are no candidates", replace<from_first_blocks<4096>>, nullptr},
    {"SEL-7.c", "blocks from number 1024 on are no candidates", replace<from_first_blocks<1024>>, nullptr},
    {"SEL-8.a", "ranks on 16-bit keys over the row's range and does not say so", replace<by_16_bit_keys>, nullptr},
    {"SEL-9.b", "a NaN that once is in the list of the best stays there", replace<nan_stays_in_list>, nullptr},
    {"SEL-9.c", "NaN is the greatest of scores", replace<nan_is_greatest>, nullptr},
    {"SEL-9.d", "-0 is less than +0", replace<minus_zero_is_less>, nullptr},
    {"SEL-7.d", "the last choice is lost, and the best block that was not chosen stands in its place",
     replace<best_given_up>, nullptr},
    {"IDX-4.b", "-1 used as an index in a write: the number before the row's ids", replace<minus_one_is_written>,
     nullptr},
    {"RACE-3.b", "unused slots of ids are not written", replace<unused_slots_unwritten>, nullptr},
};

}  // namespace

std::span<const mutant> select_mutants() { return mutants; }

}  // namespace msabench::mutants
