// SPDX-License-Identifier: Apache-2.0
#include "perf/clocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/statistics.h"

namespace msabench {

std::vector<std::int64_t> low_clock_samples(std::span<const double> sm_mhz) {
  std::vector<std::int64_t> low;
  const double least = summarize(sm_mhz).median * low_clock_share;
  for (std::size_t i = 0; i < sm_mhz.size(); ++i)
    if (sm_mhz[i] < least) low.push_back(static_cast<std::int64_t>(i));
  return low;
}

std::string clocks_apart(const samples& a, const samples& b) {
  if (a.sm_mhz.empty() || b.sm_mhz.empty()) return {};
  const double first = summarize(a.sm_mhz).median, second = summarize(b.sm_mhz).median;
  if (std::abs(first - second) <= most_clock_difference * std::max(first, second)) return {};
  return fmt::format("taken at clocks of {:.0f} and {:.0f} MHz, more than {:g} % apart", first, second,
                     100 * most_clock_difference);
}

}  // namespace msabench
