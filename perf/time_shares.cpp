// SPDX-License-Identifier: Apache-2.0
#include "perf/time_shares.h"

#include <algorithm>

namespace msabench {

time_shares share_time(const time_wishes& w) {
  const double needed_s = w.fewest_s + w.least_in_a_row_s;
  const double all_s = std::max({w.own_s, w.fewest_s, w.at_any_price ? needed_s : std::min(needed_s, w.left_s)});
  const double most_in_a_row_s = std::min(std::max(all_s / 2, w.least_in_a_row_s), all_s - w.fewest_s);
  const double in_a_row_s = std::min(w.wanted_in_a_row_s, most_in_a_row_s);
  return {all_s - in_a_row_s, in_a_row_s};
}

}  // namespace msabench
