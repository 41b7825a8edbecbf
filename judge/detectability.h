// SPDX-License-Identifier: Apache-2.0
// How strongly a case sees its target faults: the smallest, over the faults, of the largest effect / limit that any of
// its gating checks shows on a few of its rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/perturbation.h"
#include "core/problem.h"
#include "core/record.h"
#include "reference/rows.h"

namespace msabench::judge {

inline constexpr std::size_t most_perturbed_rows = 8;

// Stands for an effect without bound (a structural fault, a limit of zero): reports hold finite numbers only.
inline constexpr double unbounded_effect = 1e9;

// At most eight positions in `rows`, ascending: the first and last row with a key, then some of every kind that a fault
// needs (a visible block that is not selected; a key that follows in the row's own block; a row before it), then
// evenly.
std::vector<std::size_t> rows_to_perturb(const reference::row_map& map, std::span<const std::int64_t> rows,
                                         const problem& p);

// The same of the rows that see least of their own block, of those whose block has keys behind the row's own: on these a
// key past the diagonal is likely to be the best of its block.
std::vector<std::size_t> rows_with_hidden_keys(const reference::row_map& map, std::span<const std::int64_t> rows,
                                               const problem& p);
// The same of any kinds of positions that there are: of each kind in turn so many as it asks for, evenly, until there are
// eight; then evenly of the first kind.
struct kind_of_position {
  std::vector<std::size_t> positions;
  std::size_t most = most_perturbed_rows;
};
std::vector<std::size_t> positions_to_perturb(std::span<const kind_of_position> kinds);

struct effect {
  double ratio = 0;      // to the limit
  std::string by_check;  // empty: no check sees anything
};

// How many tokens change places where two entries of the block table do. Slots (page_size 1) move by the block: of single
// tokens that a row attends to anyway, nobody sees the order.
inline std::int64_t swapped_tokens(const problem& p) { return p.page_size == 1 ? p.block : p.page_size; }

// `effect_of`: the largest effect of a fault over the sampled rows.
detectability weakest_of(std::span<const perturbation> targets, const std::function<effect(perturbation)>& effect_of);

}  // namespace msabench::judge
