// SPDX-License-Identifier: Apache-2.0
// The oracle's answer to an `attend`, `dense` or `vit_attend` case and the checks K0-K3 against it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "judge/declaration.h"
#include "judge/error_size.h"
#include "judge/judge.h"
#include "reference/attend.h"
#include "reference/rows.h"

namespace msabench::judge {

// Without ids for `dense`: every visible key. Of `vit_attend` the segments are the sequences.
reference::attend_inputs attend_inputs_of(const subject& what);

// The families whose weights are equal and whose values code something (K3).
enum class probe { none, code, carry };
probe probe_of(const case_spec& c);

// Limits and differences of one row and head under one declaration. Refers to its arguments.
class attend_gauge {
 public:
  attend_gauge(const subject& what, const roundoffs& r) : what_(what), r_(r), probe_(probe_of(what.definition)) {}

  // Checks that gate channels, by their ids.
  bool judges_k1(const reference::attend_row& row) const;
  bool judges_k3() const;
  bool judges_k4() const;  // K4a

  double k1_limit(const reference::attend_row& row, std::size_t c) const;
  double k2_limit(const reference::attend_row& row) const;
  double k3_limit(const reference::attend_row& row, std::size_t c) const;
  std::vector<std::pair<std::string, double>> k3_terms(const reference::attend_row& row, std::size_t c) const;

  // Largest ratio to the limit over the row's channels and log-sum-exp, of the checks that apply; which: "K1" to "K3",
  // "K4a".
  double worst_ratio(const reference::attend_row& row, std::span<const double> out, double lse, bool with_lse,
                     std::string* which) const;

  const roundoffs& numbers() const { return r_; }

 private:
  const subject& what_;
  const roundoffs& r_;
  probe probe_;
};

// Outputs of one launch, read as the contract has them: lse natural whatever base was delivered.
class attend_outputs {
 public:
  attend_outputs(const subject& what, const launch& l);
  bool has_out() const { return out_ != nullptr; }
  bool has_lse() const { return lse_ != nullptr; }
  const tensor_view& out_view() const { return *out_; }
  const tensor_view& lse_view() const { return *lse_; }
  void out(std::int64_t row, std::int64_t head, std::vector<double>& channels) const;
  // Natural: adapt_outputs of host/ has converted what was delivered to base 2.
  double lse(std::int64_t row, std::int64_t head) const;

 private:
  const tensor_view *out_ = nullptr, *lse_ = nullptr;
};

class attend_expectation final : public expectation {
 public:
  attend_expectation(const subject& what, std::span<const std::int64_t> rows);

  std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const override;
  detectability measure() const override;
  void answer(answers& into, const launch& outputs) const override;
  std::int64_t rows_checked() const override { return static_cast<std::int64_t>(rows_.size()); }

 private:
  check_result check_structure(const attend_outputs& got, int launch_index, std::uint64_t poison_seed) const;
  check_result check_output(const attend_outputs& got) const;
  check_result check_lse(const attend_outputs& got) const;
  check_result check_probe(const attend_outputs& got) const;
  // K4a, K4b and what is reported of K6, as far as there are rows for them (attend_sizes.cpp).
  void check_sizes(const attend_outputs& got, std::vector<check_result>& into) const;
  check_result check_rows_size(const attend_outputs& got, const error_sizes& sizes) const;
  check_result check_groups_size(const attend_outputs& got, const error_sizes::group_of_rows& worst) const;
  check_result report_accuracy(const attend_outputs& got, const error_sizes::summary& rows) const;
  // K6u: how much of what K1 allows beyond the rounding of the output the worst element uses, in rows of many keys; nothing
  // where there are none.
  std::optional<check_result> report_use(const attend_outputs& got) const;
  // K6l: whether lse is as that of exact weights though it is declared to come from rounded ones; nothing where too few
  // rows tell.
  std::optional<check_result> report_sum_of_weights(const attend_outputs& got) const;

  const reference::attend_row& want(std::size_t row_index, std::int64_t head) const {
    return want_[row_index * static_cast<std::size_t>(what_.agreed.hq) + static_cast<std::size_t>(head)];
  }
  // A row that the contract leaves to an implementation with `empty_row: undefined` counts as unspecified.
  bool selects_nothing(std::int64_t row, std::int64_t kv_head) const;

  subject what_;
  reference::attend_inputs in_;
  reference::row_map map_;
  roundoffs r_;
  attend_gauge gauge_;
  std::vector<std::int64_t> rows_;
  std::vector<reference::attend_row> want_;
};

// The declared number that would have let these rows pass `id` (rows of `want`, worst first; the first few are tried):
// a field of the numerics within its cap, and the value it would have needed. Empty if none would.
std::string find_cure(const subject& what, const reference::attend_inputs& in, const attend_outputs& got,
                      std::span<const reference::attend_row* const> failing, std::string_view id);

}  // namespace msabench::judge
