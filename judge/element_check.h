// SPDX-License-Identifier: Apache-2.0
// A check of numbers one by one, each against a limit of its own: counts the lines that exceed theirs and keeps the
// element that is worst.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/check_result.h"
#include "judge/judge.h"
#include "judge/limits.h"
#include "judge/value_scan.h"

namespace msabench::judge {

class element_check {
 public:
  // `lines`: what a line is called in notes.
  explicit element_check(std::string id, std::string lines = "rows x heads") : line_name_(std::move(lines)) {
    check_.id = std::move(id), check_.unit = "abs";
  }

  // A line of channels, or a single number, at `index` of an output. limit_of(c) is a limit<Count>.
  template <class LimitOf>
  void add(slot where, const std::vector<std::int64_t>& index, std::span<const double> got,
           std::span<const double> want, const LimitOf& limit_of) {
    ++lines_;
    double ratio = -1;
    std::size_t channel = 0;
    for (std::size_t c = 0; c < want.size(); ++c)
      if (const double r = ratio_to(limit_of(c).total, got[c], want[c]); r > ratio) {
        ratio = r;
        channel = c;
      }
    if (ratio > 1) ++failing_;
    if (ratio <= worst_) return;
    worst_ = ratio;
    const auto limit = limit_of(channel);
    check_.worst = {where, index, value_scan::axes_of(where), got[channel], want[channel]};
    if (check_.worst.axes.size() > index.size()) check_.worst.index.push_back(static_cast<std::int64_t>(channel));
    check_.value = std::abs(got[channel] - want[channel]);
    check_.limit = limit.total;
    check_.terms = listed(limit);
  }

  check_result result() const;

 private:
  check_result check_;
  std::string line_name_;
  double worst_ = -1;
  std::int64_t lines_ = 0, failing_ = 0;
};

// Which declaration of the output's store or of exp would have let a check pass that looks at nothing else that is
// declared. `passes` judges under other roundoffs.
std::string find_element_cure(const subject& what, const std::function<bool(const roundoffs&)>& passes);

}  // namespace msabench::judge
