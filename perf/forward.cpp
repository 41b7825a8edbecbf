// SPDX-License-Identifier: Apache-2.0
#include "perf/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "judge/judge.h"
#include "judge/rows.h"
#include "perf/verify.h"

namespace msabench {
namespace {

// Whether tensors that are laid out for `gradient` are what `forward` takes.
bool reads_alike(const problem& forward, const problem& gradient) {
  const profile &a = forward.asked, &b = gradient.asked;
  return forward.layout == gradient.layout &&
         (forward.operation != op::attend ||
          (a.in_id_order == b.in_id_order && a.in_id_layout == b.in_id_layout && a.in_id_form == b.in_id_form));
}

std::string ended_otherwise(const observation& seen) {
  return seen.message.empty() ? fmt::format("{} ended with status {}", seen.entry, seen.status) : seen.message;
}

// Rows of a launch that the oracle has looked at, or why it can't be used.
struct looked_at {
  std::int64_t rows = 0;
  std::string wrong;
};

looked_at look_at(const judge::subject& what, const observation& seen) {
  const launch& l = seen.launches.front();
  const auto rows = sampled_rows(what.definition, l.outputs_sha256, verification_triples, fewest_gradient_samples);
  const auto expected = judge::expect(what, rows);
  std::vector<check_result> checks = judge::check_violations(what, seen);
  for (check_result& c : expected->check(l, l.index, what.definition.seed)) checks.push_back(std::move(c));
  for (const check_result& c : checks)
    if (c.id == "K2" && !c.observed) return {0, "gives no lse"};
  const judge::decision d = judge::decide(what, seen, checks, {});
  if (d.decided != verdict::pass && d.decided != verdict::quality_warning) return {0, "is wrong: " + d.reason};
  return {expected->rows_checked(), {}};
}

// Nothing: done, and `rows` says how many were looked at.
std::optional<std::string> make_with(executor& by, input_set& set, const case_spec& forward, double timeout_s,
                                     std::int64_t& rows) {
  const agreement agreed = negotiate(by, make_problem(forward));
  if (agreed.answer.result != outcome::completed) return ended_otherwise(agreed.answer);
  if (!agreed.refused.empty()) return agreed.refused;
  if (!reads_alike(agreed.agreed, set.agreed)) return "takes the inputs in another layout than the gradient";
  judge::subject what = judge::subject_of(forward, agreed.agreed, agreed.answer.answered);
  if (const auto broken = judge::broken_declarations(what.agreed, what.declared, what.delivers); !broken.empty())
    return broken.front();
  input_set inputs = with_other_operator(forward, set, agreed.agreed);
  what.inputs = inputs.views();
  run_spec how;
  how.launches = 1;
  how.poison_seed = forward.seed;
  how.timeout_s = timeout_s;
  observation seen = by.execute(inputs, how);
  if (seen.result != outcome::completed || seen.launches.empty()) return ended_otherwise(seen);
  adapt_outputs(what.delivers, seen.launches.front());
  const looked_at found = look_at(what, seen);
  if (!found.wrong.empty()) return found.wrong;
  const auto& outputs = seen.launches.front().outputs;
  for (const slot where : {slot::out, slot::lse}) {
    if (!outputs.contains(where)) return fmt::format("gives no {}", name(where));
    put_input(set, where, outputs.at(where));
  }
  rows = found.rows;
  return std::nullopt;
}

}  // namespace

case_spec forward_of(const case_spec& backward) {
  case_spec c = backward;
  c.operation = backward.operation == op::attend_backward ? op::attend : op::dense;
  c.options.grad16 = false;
  return c;
}

forward_outcome make_forward(input_set& set, const case_spec& backward, std::span<executor* const> implementations,
                             std::span<const std::string> labels, double timeout_s) {
  const case_spec forward = forward_of(backward);
  std::string reasons;
  for (std::size_t i = 0; i < implementations.size(); ++i) {
    std::int64_t rows = 0;
    const auto why_not = make_with(*implementations[i], set, forward, timeout_s, rows);
    if (!why_not)
      return {true, fmt::format("inputs out and lse are what {} of {} makes, of which {} of {} rows were judged",
                                name(forward.operation), labels[i], rows, total_rows(forward))};
    reasons += fmt::format("{}{} of {}: {}", reasons.empty() ? "" : "; ", name(forward.operation), labels[i], *why_not);
  }
  return {false,
          "nobody makes its inputs out and lse, which the oracle would take too long for: " + one_line(reasons, 400)};
}

}  // namespace msabench
