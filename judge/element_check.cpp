// SPDX-License-Identifier: Apache-2.0
#include "judge/element_check.h"

#include <fmt/format.h>

#include "judge/cure.h"

namespace msabench::judge {

check_result element_check::result() const {
  check_result c = check_;
  c.passed = failing_ == 0;
  if (c.passed) return c;
  c.kind = std::isfinite(c.worst.got) ? fail_kind::numeric : fail_kind::nonfinite;
  c.note = fmt::format("{} of {} {} exceed the limit", failing_, lines_, line_name_);
  return c;
}

std::string find_element_cure(const subject& what, const std::function<bool(const roundoffs&)>& passes) {
  const cure_search search(what, [&](const numerics& n) { return passes(resolve(what.agreed, n)); });
  const cure_search::store_field store{"out_store", &numerics::out_store, truncates_out};
  const std::string cure = search.stores({&store, 1});
  return cure.empty() ? search.exponential() : cure;
}

}  // namespace msabench::judge
