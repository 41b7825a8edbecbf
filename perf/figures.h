// SPDX-License-Identifier: Apache-2.0
// From times to rates and ratios. Pure functions; docs/perf.md says what each figure means.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/dtype.h"
#include "core/perf_record.h"
#include "core/problem.h"
#include "core/work.h"

namespace msabench {

// A measured ceiling is a sample itself: an efficiency above this is an error of the ceiling.
inline constexpr double highest_efficiency = 1.05;

// In which formats the operands of products are stored: of the index branch, and of all others. Where two differ (q in bf16
// on keys in e4m3) the wider one counts, since no declaration allows to round the other one down to e4m3.
struct operand_types {
  operand_types(dtype all) : index(all), rest(all) {}
  operand_types(dtype of_index, dtype of_rest) : index(of_index), rest(of_rest) {}
  dtype index, rest;
};
operand_types operands_of(const problem& p, dtype type);

// The larger of useful FLOPs / peak and compulsory bytes / bandwidth; the FLOPs of the index branch at the peak of its
// operands. Nothing where the machine has no peak for what is needed.
struct roofline {
  double seconds = 0;
  bool by_flops = false;
};
std::optional<roofline> roofline_of(const perf_work& w, const perf_ceilings& c, operand_types operands);

// Rates of one call in `seconds`; efficiency only up to highest_efficiency.
perf_figures figures_of(const perf_work& w, const perf_ceilings& c, operand_types operands, double seconds);

// Fills in what compares items of a point: gain over the fastest dense, share of msa, time of the other
// implementation. Items without a number take no part, and times at different clocks (perf/clocks.h) are not compared. `labels` are those of the implementations.
void compare_items(perf_point& point, std::span<const std::string> labels);

// The shortest context from which on msa takes no longer than dense, between the measured ones by a straight line in
// log(time ratio) over log(context); `at_most` where it holds at the first already, nothing where it never does.
struct measured_crossover {
  std::optional<double> context;
  bool at_most = false;
};
struct context_ratio {
  std::int64_t context = 0;
  double msa_over_dense = 0;
};
measured_crossover crossover_of(std::span<const context_ratio> ascending);
// That of msa and dense for each implementation of the run.
void find_crossovers(perf_run& run, int implementations);

}  // namespace msabench
