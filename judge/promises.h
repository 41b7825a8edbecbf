// SPDX-License-Identifier: Apache-2.0
// K7, promises: whether the bits of a row stay the same where the profile says that they do. Where nothing is promised,
// other bits are nobody's fault.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "judge/judge.h"

namespace msabench::judge {

// Row `row` of the case in a call of its own.
struct lone_launch {
  std::int64_t row = 0;
  launch outputs;
};

// `batch_invariant` (K7b): each row alone against the same row in `together`. Of axes that are shorter alone (blocks that
// the row does not see) the common part counts. Elements that neither launch wrote agree.
check_result check_batch_invariance(const subject& what, const launch& together, std::span<const lone_launch> alone);

// The whole case with another hint for the number of splits.
struct split_launch {
  std::int32_t splits = 0;
  launch outputs;
};

// `split_invariant` (K7s): every element against the same in `usual`.
check_result check_split_invariance(const subject& what, const launch& usual, std::span<const split_launch> others);

// One launch of a plan that was replayed with other contents: its rows where the case has them, the rows that it did not
// have from the case's own launch; and what the case's checks say of it.
struct replayed_launch {
  std::string contents;  // "fewer rows"
  launch outputs;
};

// `graph_safe` (K7g): every check of the case on each replay; `checks` has one list for each.
check_result check_graph_safety(std::span<const replayed_launch> replays,
                                std::span<const std::vector<check_result>> checks);

// The same where a replay came to no outputs, or wrote elsewhere.
check_result replay_damaged(const std::string& damage);

// What a launch did when the caller broke a duty of its own.
struct breached_launch {
  std::string breach;  // "page ids out of range"
  std::string damage;  // empty: none
};

// `hardened` (K7d): no damage, whatever the outputs are.
check_result check_hardening(std::span<const breached_launch> launches);

// Whether other orders of addition can show: sums of the coded families are exact in any.
bool shows_order_of_sums(const case_spec& c);

}  // namespace msabench::judge
