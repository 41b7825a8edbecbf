// SPDX-License-Identifier: Apache-2.0
// The index branch of a case as its checks see it: inputs, intervals under a declaration, and what single blocks would
// score under the gross faults of core/perturbation.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/perturbation.h"
#include "judge/declaration.h"
#include "judge/judge.h"
#include "reference/score.h"

namespace msabench::judge {

reference::score_inputs score_inputs_of(const subject& what);

// index_scale, or what 0 stands for.
double index_scale_of(const problem& p);

// Roundoffs of the score product q_idx k_idx under a declaration.
roundoffs index_roundoffs(const problem& p, const numerics& n);
reference::interval_model interval_model_of(const problem& p, const profile& f, const numerics& n);

// True where scores of equal blocks are equal in any honest arithmetic: dyadic inputs whose sums are exact in any order,
// and a scale that rounds nothing wherever it is applied.
bool scores_are_exact(const case_spec& c, const problem& p);

struct key_score {
  std::int64_t key = 0;
  double score = 0, magnitude = 0;  // s_j, G_j
};

// Scores of single keys and of blocks, right and faulty. Holds a reference: the inputs must outlive it.
class index_probe {
 public:
  explicit index_probe(const reference::score_inputs& in) : in_(in) {}

  // Keys of a block that the row sees, or, `hidden` too, all below N_b; by the query of index head `head`.
  std::vector<key_score> keys(std::int64_t row, std::int64_t head, std::int64_t block, bool hidden) const;

  // The block's score if the implementation had this fault; nothing if it can't show there.
  std::optional<double> apply(perturbation fault, std::int64_t row, std::int64_t head, std::int64_t block) const;

  // The block's score with entries `a` and `b` of the row's block table exchanged.
  double with_swapped_pages(std::int64_t row, std::int64_t head, std::int64_t block, std::int64_t a,
                            std::int64_t b) const;

 private:
  double short_accumulation(std::int64_t row, std::int64_t head, std::int64_t block) const;
  double scale_of_key(std::int64_t sequence, std::int64_t key) const;
  double with_other_scales(perturbation fault, std::int64_t row, std::int64_t head, std::int64_t block) const;

  const reference::score_inputs& in_;
};

// The largest, NaN left out; -inf of none.
double largest_score(const std::vector<key_score>& keys);

}  // namespace msabench::judge
