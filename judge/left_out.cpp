// SPDX-License-Identifier: Apache-2.0
#include "judge/left_out.h"

#include <fmt/format.h>

namespace msabench::judge {

bool belongs_to(std::string_view check_id, std::string_view left_out) {
  if (left_out.empty() || !check_id.starts_with(left_out)) return false;
  const std::string_view rest = check_id.substr(left_out.size());
  return rest.empty() || (rest.front() >= 'a' && rest.front() <= 'z');
}

std::vector<check_result> leave_out(std::vector<check_result> checks, std::string_view left_out) {
  std::erase_if(checks, [&](const check_result& c) { return belongs_to(c.id, left_out); });
  return checks;
}

decision without(decision d, std::string_view left_out) {
  if (left_out.empty() || (d.decided != verdict::pass && d.decided != verdict::quality_warning)) return d;
  return {verdict::insensitive, fail_kind::none,
          fmt::format("{} was left out, and nothing else fails: nothing is verified", left_out)};
}

std::string left_out_remark(std::string_view left_out) {
  return fmt::format("invalid as a verdict: judged without {}", left_out);
}

}  // namespace msabench::judge
