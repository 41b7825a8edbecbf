// SPDX-License-Identifier: Apache-2.0
// Which query rows the oracle checks: all where that is affordable, else a stratified sample, part of it drawn after
// the run.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/case.h"

namespace msabench {

// Triples (row, head, visible key) that the oracle may spend on one case.
inline constexpr std::int64_t oracle_budget_triples = 4'000'000;

// Ascending, unique rows below T, all heads of each. First row 0 and the last row of every sequence, as far as the budget
// goes; then first rows and rows on both sides of block borders up to half of it, then rows spread evenly, then at least an eighth of the budget drawn from the seed and `outputs_sha256`,
// which nobody knows before the run. At least `fewest` rows, whatever they cost.
std::vector<std::int64_t> rows_to_check(const case_spec& c, std::string_view outputs_sha256,
                                        std::int64_t budget_triples = oracle_budget_triples, std::int64_t fewest = 8);

// The same of any operator: rows for whoever judges a gradient by samples.
std::vector<std::int64_t> sampled_rows(const case_spec& c, std::string_view outputs_sha256, std::int64_t budget_triples,
                                       std::int64_t fewest);

// Operators of training: a gradient of a key or a loss is a sum over all rows, so that all are checked whatever it costs.
bool sums_over_rows(op o);

std::int64_t total_rows(const case_spec& c);

}  // namespace msabench
