// SPDX-License-Identifier: Apache-2.0
#include "perf/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/environment_error.h"
#include "core/error.h"
#include "core/units.h"
#include "judge/judge.h"
#include "judge/kl_samples.h"
#include "judge/rows.h"

namespace msabench {
namespace {

// What the oracle may spend on an item however few rows are looked at.
constexpr std::int64_t most_triples = 150'000'000;

// A row drawn after the run beside row 0, which of a whole sequence sees a single key.
std::int64_t fewest_rows(const case_spec& c) { return sequences(c).front().q_len > 1 ? 2 : 1; }

void set_failed(perf_item& item, verdict v, fail_kind kind, const std::string& reason) {
  item.state = item_state::failed;
  item.decided = v;
  item.kind = kind;
  item.reason = one_line(reason, 500);
}

void set_unverified(perf_item& item, const std::string& reason) {
  item.state = item_state::unverified;
  item.reason = one_line(reason, 500);
}

// What the judge sees: each different output once, and two equal ones where several were looked at.
std::vector<launch> launches_to_judge(const side_observation& side) {
  std::vector<launch> launches = side.seen.launches;
  if (launches.size() == 1 && side.outputs_seen > 1) {
    launches.push_back(launches.front());
    launches.back().same_as = 0;
  }
  return launches;
}

void judge_outputs(perf_item& item, judge::subject& what, side_observation& side) {
  const case_spec& c = what.definition;
  std::vector<launch> launches = launches_to_judge(side);
  for (launch& l : launches) adapt_outputs(what.delivers, l);
  const std::string& drawn_from = launches.front().outputs_sha256;
  const bool by_samples = is_large_gradient(c) || is_large_kl(c);
  const auto rows = by_samples ? sampled_rows(c, drawn_from, verification_triples, fewest_gradient_samples)
                               : rows_to_check(c, drawn_from, verification_triples, fewest_rows(c));
  const double cost = static_cast<double>(cost_triples(c)) * static_cast<double>(rows.size()) /
                      static_cast<double>(std::max<std::int64_t>(total_rows(c), 1));
  if (cost > static_cast<double>(most_triples))
    return set_unverified(item, fmt::format("not verified: the oracle would take {} operations, at most {} are spent",
                                            format_count(cost), format_count(most_triples)));
  const auto expected = judge::expect(what, rows);
  std::vector<std::vector<check_result>> per_launch;
  for (const launch& l : launches)
    per_launch.push_back(l.same_as >= 0 ? per_launch[static_cast<std::size_t>(l.same_as)]
                                        : expected->check(l, l.index, c.seed));
  item.checks = judge::check_violations(what, side.seen);
  for (auto& check : judge::merge_launches(what, launches, per_launch)) {
    // One set of outputs holds the last launch only; that is no promise broken.
    if (check.id == "K7" && !check.observed) check.gate = false;
    item.checks.push_back(std::move(check));
  }
  item.rows_checked = expected->rows_checked();
  if (is_large_gradient(c))
    item.remarks.push_back(
        fmt::format("judged of the gradients: dq of {} of {} rows, dk and dv of as many keys over all rows that read "
                    "them, and of the rest that it is finite",
                    item.rows_checked, item.rows_total));
  if (is_large_kl(c))
    item.remarks.push_back(
        fmt::format("judged of the gradients: dq_idx of {} of {} rows, dk_idx of {} keys over all rows that read them, "
                    "and of the rest, and of the loss, that they are finite",
                    item.rows_checked, item.rows_total, expected->keys_checked()));
  item.outputs_judged = static_cast<std::int64_t>(side.seen.launches.size());
  const judge::decision d = judge::decide(what, side.seen, item.checks, {});
  item.decided = d.decided;
  item.kind = d.kind;
  switch (d.decided) {
    case verdict::pass:
    case verdict::quality_warning:
      item.state = item_state::measured;
      item.reason = d.reason;
      break;
    case verdict::insensitive:
    case verdict::suite_error:
      set_unverified(item, "not verified: " + d.reason);
      break;
    default:
      set_failed(item, d.decided, d.kind, d.reason);
  }
  if (item.state == item_state::measured && side.outputs_dropped > 0)
    set_unverified(item, fmt::format("not verified: {} of {} outputs differed from the {} that were judged",
                                     side.outputs_dropped, side.outputs_seen, side.seen.launches.size()));
}

void fail_by_observation(perf_item& item, const judge::subject& what, const observation& seen) {
  item.checks = judge::check_violations(what, seen);
  const judge::decision d = judge::decide(what, seen, item.checks, {});
  set_failed(item, d.decided, d.kind, d.reason.empty() ? std::string(name(d.decided)) : d.reason);
}

}  // namespace

bool is_large_gradient(const case_spec& c) {
  return (c.operation == op::attend_backward || c.operation == op::dense_backward) &&
         cost_triples(c) > most_whole_gradient_triples;
}

bool is_large_kl(const case_spec& c) { return c.operation == op::kl && cost_triples(c) > most_triples; }

double sampled_triples(const case_spec& c, std::int64_t fewest) {
  const auto all = static_cast<double>(cost_triples(c));
  const double row = all / static_cast<double>(std::max<std::int64_t>(total_rows(c), 1));
  return std::min(all, std::max(row * static_cast<double>(fewest), static_cast<double>(verification_triples)));
}

double verification_s(const case_spec& c) {
  constexpr double triples_per_s = 5e6;
  if (is_large_gradient(c)) {
    // A key costs on average what a row does, and D is computed of every row.
    constexpr double gradient_triples_per_s = 2e6, rows_and_heads_per_s = 0.7e6;
    return 2 * sampled_triples(c, fewest_gradient_samples) / gradient_triples_per_s +
           static_cast<double>(total_rows(c) * c.shape.hq) / rows_and_heads_per_s;
  }
  if (is_large_kl(c)) return static_cast<double>(judge::kl_samples::most_key_triples) / triples_per_s;
  const double spent =
      sums_over_rows(c.operation) ? static_cast<double>(cost_triples(c)) : sampled_triples(c, fewest_rows(c));
  return spent > static_cast<double>(most_triples) ? 0 : spent / triples_per_s;
}

bool lacks_room(perf_item& item, const observation& seen) {
  constexpr std::int32_t no_resources = 3;  // msabench_status, fixed for plugin interface 1
  if (item.implementation == 0 || seen.result != outcome::error_status || seen.status != no_resources) return false;
  // run has all that it needs, and damage is damage.
  if (seen.entry == "run" || !seen.violations.empty()) return false;
  item.state = item_state::not_run;
  item.reason = one_line(fmt::format("{} has not the resources here: {}", seen.entry.empty() ? "it" : seen.entry,
                                     seen.message.empty() ? "(no message)" : seen.message),
                         500);
  return true;
}

bool refuse_item(perf_item& item, const case_spec& c, const agreement& agreed) {
  judge::subject what = judge::subject_of(c, agreed.agreed, agreed.answer.answered);
  item.remarks = agreed.answer.remarks;
  item.captured_output = agreed.answer.captured_output;
  if (agreed.answer.result != outcome::completed) {
    fail_by_observation(item, what, agreed.answer);
    if (item.decided == verdict::unsupported) item.state = item_state::unsupported;
    return true;
  }
  if (!agreed.refused.empty()) {
    item.state = item_state::unsupported;
    item.decided = verdict::unsupported;
    item.reason = agreed.refused;
    return true;
  }
  if (const auto broken = judge::broken_declarations(what.agreed, what.declared, what.delivers); !broken.empty()) {
    set_failed(item, verdict::broken_promise, fail_kind::none, "declaration: " + broken.front());
    return true;
  }
  return false;
}

void verify_item(perf_item& item, const case_spec& c, const agreement& agreed, const input_set& set,
                 side_observation& side) {
  judge::subject what = judge::subject_of(c, agreed.agreed, agreed.answer.answered);
  item.rows_total = total_rows(c);
  item.outputs_seen = side.outputs_seen;
  item.outputs_different = static_cast<std::int64_t>(side.seen.launches.size()) + side.outputs_dropped;
  if (side.seen.result != outcome::completed) return fail_by_observation(item, what, side.seen);
  for (const auto& v : side.seen.violations)
    if (v.what == violation::kind::input_modified) return fail_by_observation(item, what, side.seen);
  if (side.seen.launches.empty()) return set_unverified(item, "not verified: no outputs were seen after the loop");
  what.inputs = set.views();
  try {
    judge_outputs(item, what, side);
  } catch (const suite_error& e) {
    // An operator without an oracle among them.
    set_unverified(item, fmt::format("not verified: {}", e.what()));
  } catch (const std::bad_alloc&) {
    set_unverified(item, "not verified: there is not enough memory for the oracle");
  }
}

}  // namespace msabench
