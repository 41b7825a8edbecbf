// SPDX-License-Identifier: Apache-2.0
#include "conformance/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace msabench {

namespace {

constexpr std::int64_t affordable_triples = 1'000'000;

const check_result* accuracy_in(std::span<const check_result> checks) {
  const auto at = std::ranges::find(checks, "K6a", &check_result::id);
  return at == checks.end() || !at->observed ? nullptr : &*at;
}

}  // namespace

std::unique_ptr<executor> make_naive_beside(const implementation_ref& beside, const executor_options& how) {
  constexpr std::string_view baseline = "naive";
  for (const auto& built_in : builtin_implementations()) {
    if (built_in.name != baseline || !built_in.present) continue;
    const implementation_ref ref = resolve_implementation(built_in.name, std::nullopt);
    if (ref.path != beside.path) return make_worker_executor(ref, how);
  }
  return nullptr;
}

std::optional<check_result> compare_with_naive(executor& naive, const judge::subject& what,
                                               const judge::expectation& expected, std::span<const check_result> checks,
                                               input_set& set, const run_spec& how) {
  const check_result* own = accuracy_in(checks);
  if (own == nullptr || cost_triples(what.definition) > affordable_triples) return std::nullopt;
  const agreement agreed = negotiate(naive, make_problem(what.definition));
  // The tensors are laid out for the other implementation's choices.
  if (agreed.answer.result != outcome::completed || !agreed.refused.empty() ||
      agreed.agreed.layout != what.agreed.layout || agreed.agreed.asked.in_id_form != what.agreed.asked.in_id_form)
    return std::nullopt;
  run_spec once = how;
  once.rehearse = once.second_plan = false;
  once.launches = 1;
  const problem first = set.agreed;
  set.agreed = agreed.agreed;
  const observation seen = naive.execute(set, once);
  set.agreed = first;
  if (seen.result != outcome::completed || seen.launches.empty()) return std::nullopt;
  const launch& l = seen.launches.front();
  const auto judged = expected.check(l, l.index, how.poison_seed);
  const check_result* its = accuracy_in(judged);
  if (its == nullptr || !(its->value > 0)) return std::nullopt;
  check_result c;
  c.id = "K6n";
  c.gate = false;
  c.passed = true;
  c.unit = "rms error / that of naive";
  c.value = own->value / its->value;
  c.note = fmt::format("naive: {:.3g} of the expected size", its->value);
  return c;
}

}  // namespace msabench
