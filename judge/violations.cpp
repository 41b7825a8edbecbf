// SPDX-License-Identifier: Apache-2.0
// Damage that the executor saw, as checks: guard bands and inputs belong to K0, the rest to the plugin rules R3 .. R8.
#include <fmt/format.h>

#include "judge/judge.h"

namespace msabench::judge {
namespace {

struct reading {
  const char* id;
  fail_kind kind;
  const char* what;
};

reading read(violation::kind k) {
  switch (k) {
    case violation::kind::out_of_bounds:
      return {"K0", fail_kind::out_of_bounds, "bytes outside of the buffer changed"};
    case violation::kind::input_modified:
      return {"K0", fail_kind::input_modified, "an input changed"};
    case violation::kind::beyond_t:
      return {"R4", fail_kind::out_of_bounds, "rows at or past T changed"};
    case violation::kind::wrote_on_error:
      return {"R8", fail_kind::contract, "outputs changed although the call failed"};
    case violation::kind::floating_point_mode:
      return {"R6", fail_kind::contract, "the floating-point mode was left changed"};
    case violation::kind::signal_handler:
      return {"R6", fail_kind::contract, "a signal handler was left changed"};
    case violation::kind::current_device:
      return {"R6", fail_kind::contract, "the current device was left changed"};
    case violation::kind::memory_limit:
      return {"R3", fail_kind::contract, "run needs memory of its own"};
    case violation::kind::struct_overrun:
      return {"R9", fail_kind::contract, "bytes past struct_size of an answer were written"};
  }
  return {"K0", fail_kind::contract, "damage of an unknown kind"};
}

}  // namespace

std::vector<check_result> check_violations(const subject&, const observation& seen) {
  std::vector<check_result> checks;
  for (const auto& v : seen.violations) {
    const reading r = read(v.what);
    check_result c;
    c.id = r.id;
    c.kind = r.kind;
    c.value = 1;
    c.unit = "violations";
    c.worst.where = v.where;
    c.note = r.what;
    if (v.where) c.note += fmt::format(" at {}", name(*v.where));
    if (!v.entry.empty()) c.note += fmt::format(" by {}", v.entry);
    if (!v.detail.empty()) c.note += ": " + v.detail;
    checks.push_back(std::move(c));
  }
  return checks;
}

}  // namespace msabench::judge
