// SPDX-License-Identifier: Apache-2.0
// K5 on one row and index head: is this set of ids one that an honest implementation may select from these scores?
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/problem.h"
#include "core/profile.h"

namespace msabench::judge {

struct selection_rules {
  std::int64_t block = 0, topk = 0, local_blocks = 0, init_blocks = 0;
  id_order order = id_order::ascending;
  double rank_step = 0;
  bool ties_low_id = false;
};
selection_rules rules_of(const problem& p, const profile& f);

struct selection_fault {
  // order: right blocks in another order than the profile declares
  enum class kind { none, structure, worse_chosen, tie, order };
  kind what = kind::none;
  std::string text;                         // for a person
  std::int64_t chosen = -1, left_out = -1;  // block wrongly chosen, wrongly left out; -1: none
  double chosen_score = 0, left_out_score = 0;
  double excess = 0;      // by how much left_out's interval lies above chosen's
  double resolution = 0;  // width of both intervals together: what an honest ranking may confuse
  explicit operator bool() const { return what != kind::none; }
};

// The ids as a set: `ids` has topk entries, `visible` blocks 0 .. visible-1 may be chosen.
selection_fault check_id_structure(std::span<const std::int32_t> ids, std::int64_t visible,
                                   const selection_rules& rules);

// Structure, then order, then the interval test on `scores` (at least `visible` of them).
selection_fault check_selection(std::span<const std::int32_t> ids, std::span<const double> scores, std::int64_t visible,
                                const selection_rules& rules);

// Where an implementation computes the scores itself: each may lie anywhere in [lo, hi], about `value`. Equal values are
// a tie under ties_low_id, so that is for scores that are equal in its own arithmetic.
struct score_intervals {
  std::span<const double> value, lo, hi;  // of the visible blocks
};
selection_fault check_selection(std::span<const std::int32_t> ids, const score_intervals& scores, std::int64_t visible,
                                const selection_rules& rules);

// A violation as a multiple of what an honest ranking may confuse; huge for what has no measure, 0 for none.
double effect_of(const selection_fault& f);

}  // namespace msabench::judge
