// SPDX-License-Identifier: Apache-2.0
// What `attend`, `dense` or `vit_attend` would answer if it had one of the gross faults of core/perturbation.h, computed from the right answer
// by exchanging the contribution of a key or block (docs/verdicts.md, "Detectability").
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/perturbation.h"
#include "reference/attend.h"
#include "reference/rows.h"

namespace msabench::judge {

struct perturbed_row {
  std::vector<double> out;
  double lse = 0;
};

// One (row, head) with its keys and their values at hand.
class perturbable_row {
 public:
  perturbable_row(const reference::attend_inputs& in, const reference::row_map& map, const reference::attend_row& want);

  // Nothing if the fault can't show on this row: no key past the diagonal, no block that is not selected, one KV head,
  // ...
  std::optional<perturbed_row> apply(perturbation fault) const;

 private:
  // Shares of the right answer's sum of exponentials: total weight, and the sum of weighted values.
  struct contribution {
    double weight = 0;
    std::vector<double> values;
  };
  contribution none() const;
  void add_key(contribution& c, std::int64_t key, double weight) const;
  void add_other(contribution& c, std::int64_t key) const;
  contribution of_selected(std::int64_t first_key, std::int64_t end_key) const;
  contribution of_others(std::int64_t first_key, std::int64_t end_key) const;
  std::optional<perturbed_row> with(const contribution& added, const contribution& removed) const;

  bool has_segments() const { return in_.kv_lens.desc.shape.empty(); }
  // Tokens of a segment; 0 if there is none.
  std::int64_t segment_length(std::int64_t segment) const;

  bool carries_values(std::int64_t first_key, std::int64_t end_key) const;
  const reference::attended_key& lightest_key() const;
  std::optional<std::int64_t> lightest_block() const;
  std::optional<std::int64_t> unselected_block() const;
  std::optional<perturbed_row> one_key(bool heaviest, bool twice) const;
  std::optional<perturbed_row> one_block(bool twice) const;
  std::optional<perturbed_row> swapped_block() const;
  std::optional<perturbed_row> key_past_diagonal() const;
  std::optional<perturbed_row> causal_bound() const;
  std::optional<perturbed_row> segments_joined() const;
  std::optional<perturbed_row> segment_padded() const;
  std::optional<perturbed_row> neighbour_values() const;
  std::optional<perturbed_row> swapped_pages() const;
  std::optional<perturbed_row> short_accumulation() const;
  std::optional<perturbed_row> short_scores() const;
  std::optional<perturbed_row> forgotten_rescale() const;
  std::optional<perturbed_row> other_scales(perturbation fault) const;
  std::optional<perturbed_row> rounded_again() const;

  const reference::attend_inputs& in_;
  reference::row_place place_;
  const reference::attend_row& want_;
  std::vector<reference::attended_key> keys_;
  std::int64_t kv_head_ = 0;
};

}  // namespace msabench::judge
