// SPDX-License-Identifier: Apache-2.0
// The words of a decision and the exit codes that they lead to (docs/verdicts.md).
#pragma once

#include <optional>
#include <string_view>

namespace msabench {

enum class verdict {
  pass,
  quality_warning,
  fail,
  unsupported,
  broken_promise,
  insensitive,
  timeout,
  crash,
  device_lost,
  waived,
  xpass,
  suite_error,
};

// Which kind of `fail`; none for the other verdicts.
enum class fail_kind { none, numeric, nonfinite, selection, out_of_bounds, input_modified, nondeterministic, contract };

std::string_view name(verdict v);    // "broken-promise"
std::string_view name(fail_kind k);  // "out-of-bounds"; "" for none
std::optional<verdict> verdict_from_name(std::string_view text);
std::optional<fail_kind> fail_kind_from_name(std::string_view text);

namespace exit_code {
inline constexpr int ok = 0, failed = 1, partial = 2, nothing_verified = 3, environment_refused = 4, usage = 64,
                     suite = 70;
}

}  // namespace msabench
