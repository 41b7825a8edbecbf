// SPDX-License-Identifier: Apache-2.0
// K4 and K6 of attention: how large errors are against the size that the declaration leads one to expect (sigma_c in
// docs/verdicts.md). K1 bounds every element by its worst case, which honest kernels use a few per cent of; whole rows
// and groups of rows can be held to much less.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "judge/declaration.h"
#include "judge/judge.h"
#include "reference/attend.h"

namespace msabench::judge {

inline constexpr double most_row_size = 4, most_group_size = 1.25, usual_group_size = 0.9;
inline constexpr double least_n_eff = 8;
inline constexpr std::size_t least_group_rows = 64;

// Values independent of each other and of mean zero, by construction: what the expected size is derived for.
bool has_independent_values(const case_spec& c);

// Whether K4 gates: something is stored in 16 bits or less. Rounding to single precision is no larger than what sums of
// single precision do, and these have no expected size.
bool judges_error_size(const problem& p, const numerics& n);

// Errors of one (row, query head) in units of their expected size.
struct row_size {
  double r = 0;                // root of the mean square over channels
  double bias = 0;             // mean over channels of err sgn(o) / sigma
  std::size_t channel = 0;     // of the largest one
  double expected_square = 0;  // mean of sigma^2
};
// Nothing for a row without keys, or with too few channels of expected size above 0, or where sums of single precision
// make up more than half of it in the median channel.
std::optional<row_size> size_of_errors(const roundoffs& r, const reference::attend_row& row,
                                       std::span<const double> out);

// Collects rows and judges them.
class error_sizes {
 public:
  explicit error_sizes(std::int64_t group) : group_(group) {}
  // `row` outlives this.
  void add(const reference::attend_row& row, const row_size& size);
  bool empty() const { return rows_.empty(); }

  struct member {
    const reference::attend_row* row = nullptr;
    row_size size;
  };
  // The row that is worst; not of an empty collection.
  const member& worst() const;
  // Groups: the rows of one KV head, rows of one remainder by 8. The group that is worst; empty if none is large enough.
  struct group_of_rows {
    std::string name;
    double rms = 0;
    std::vector<member> rows;
  };
  group_of_rows worst_group() const;
  // Root of the mean square, and bias with its standard error, over all rows with enough keys; nothing for too few rows.
  struct summary {
    std::vector<member> rows;
    double rms = 0, bias = 0, bias_error = 0;
  };
  std::optional<summary> all_rows() const;

 private:
  std::int64_t group_;
  std::vector<member> rows_;
};

// K6b, reported: bias of the rows.
check_result check_bias(const error_sizes::summary& rows);

// A finer declaration under which the same rows would still have errors of the expected size: in one clause; empty if
// there is none. `sizes_under` gives the errors of some of the rows under other numbers.
std::string find_finer_declaration(const subject& what, const error_sizes::summary& rows,
                                   const std::function<std::vector<row_size>(const roundoffs&)>& sizes_under);

}  // namespace msabench::judge
