// SPDX-License-Identifier: Apache-2.0
#include "conformance/runner.h"

#include <fmt/format.h>

#include <chrono>

#include "conformance/accuracy.h"
#include "conformance/cost.h"
#include "conformance/lists.h"
#include "conformance/promises.h"
#include "conformance/shared_case.h"
#include "conformance/targets.h"
#include "core/environment_error.h"
#include "core/error.h"
#include "core/operator_table.h"
#include "core/units.h"
#include "host/executor.h"
#include "host/interrupt.h"
#include "host/launch_recorder.h"
#include "inputs/input_set.h"
#include "judge/judge.h"
#include "judge/left_out.h"
#include "judge/rows.h"

namespace msabench {

namespace {

using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point start) { return std::chrono::duration<double>(clock::now() - start).count(); }

run_spec how_to_run(const case_spec& c, const runner_options& options) {
  run_spec how;
  how.rehearse = true;
  how.launches = 1 + (c.options.rep ? 20 : 2);
  how.second_plan = c.options.rep;
  how.poison_seed = c.seed;
  how.timeout_s = options.timeout_s.value_or(time_limit_s(c));
  return how;
}

void take_decision(case_record& record, const judge::decision& d) {
  record.decided = d.decided;
  record.kind = d.kind;
  record.reason = d.reason;
}

// What the executor says about the process, for cases that never produced outputs to check.
void judge_without_outputs(case_record& record, const judge::subject& what, const observation& seen) {
  if (what.definition.options.pool_pages != 0 && seen.result == outcome::crashed && seen.entry == "run")
    record.remarks.push_back(
        "the pages lie far out: one whose number is cut to 16 bits, or its offset to 32, leads where nothing is "
        "mapped");
  record.checks = judge::check_violations(what, seen);
  take_decision(record, judge::decide(what, seen, record.checks, record.sees));
}

judge::subject describe(const case_spec& c, const agreement& agreed) {
  judge::subject what = judge::subject_of(c, agreed.agreed, agreed.answer.answered);
  what.targets = targets_of(c);
  if (agreed.agreed.page_size == 1) std::erase(what.targets, perturbation::scale_of_page);
  return what;
}

// Names the input that was written into, which only the inputs themselves, made anew, can tell.
void name_modified_inputs(observation& seen, const case_spec& c, const input_set& set) {
  for (auto& v : seen.violations) {
    if (v.what != violation::kind::input_modified || v.where) continue;
    if (const buffer* b = find_modified_input(c, set)) v.where = b->where;
  }
}

void judge_outputs(case_record& record, judge::subject& what, const observation& seen, shared_case& made,
                   const promise_findings& promises, const runner_options& options) {
  const case_spec& c = what.definition;
  input_set& set = made.inputs(what.agreed);
  what.inputs = set.views();
  const auto rows = rows_to_check(c, seen.launches.empty() ? "" : seen.launches[0].outputs_sha256);
  auto& [expected, sees] = made.expected(what, rows);
  std::vector<std::vector<check_result>> per_launch;
  for (std::size_t i = 0; i < seen.launches.size(); ++i) {
    const launch& l = seen.launches[i];
    // Equal bytes are judged equally; only poison that was left differs, and then the bytes do too.
    per_launch.push_back(l.same_as >= 0 ? per_launch[static_cast<std::size_t>(l.same_as)]
                                        : judge::leave_out(expected->check(l, l.index, how_to_run(c, {}).poison_seed),
                                                           options.left_out));
  }
  record.checks = judge::leave_out(judge::check_violations(what, seen), options.left_out);
  for (auto& check : judge::merge_launches(what, seen.launches, per_launch)) record.checks.push_back(std::move(check));
  record.checks.insert(record.checks.end(), promises.checks.begin(), promises.checks.end());
  if (!promises.replays.empty()) {
    std::vector<std::vector<check_result>> of_replays;
    for (const auto& replay : promises.replays)
      of_replays.push_back(expected->check(replay.outputs, replay.outputs.index, how_to_run(c, {}).poison_seed));
    record.checks.push_back(judge::check_graph_safety(promises.replays, of_replays));
  }
  if (options.naive != nullptr)
    if (auto ratio = compare_with_naive(*options.naive, what, *expected, record.checks, set, how_to_run(c, options)))
      record.checks.push_back(std::move(*ratio));
  if (!what.targets.empty()) {
    if (!sees) sees = expected->measure();
    record.sees = *sees;
  }
  record.rows_checked = expected->rows_checked();
  for (const auto& check : record.checks)
    if (!check.observed)
      record.unobserved.push_back(check.id + " not observed" + (check.note.empty() ? "" : ": " + check.note));
  // What is only reported and unusual.
  for (const auto& check : record.checks)
    if (!check.gate && check.observed && !check.passed)
      record.remarks.push_back(fmt::format(
          "{}: {}", check.id,
          check.note.empty() ? fmt::format("{:.3g} {}, usual is up to {:.3g}", check.value, check.unit, check.limit)
                             : check.note));
  record.unobserved.insert(record.unobserved.end(), promises.unobserved.begin(), promises.unobserved.end());
  if (record.rows_total == 0) record.remarks.push_back("no query tokens: only that nothing is touched was checked");
  take_decision(record, judge::without(judge::decide(what, seen, record.checks, record.sees), options.left_out));
  if (options.inspect) options.inspect({c, what.delivers, set, seen, expected.get()});
}

// Whoever runs a case next meets its inputs as they were made: what an implementation has damaged, or a run with other
// contents has written into, is made anew.
struct discard_unless_sound {
  shared_case& made;
  problem agreed;
  bool keep = false;
  ~discard_unless_sound() {
    if (!keep) made.discard(agreed);
  }
};

void run_into(case_record& record, executor& on, const case_spec& c, shared_case& made, const runner_options& options) {
  const agreement agreed = negotiate(on, make_problem(c));
  judge::subject what = describe(c, agreed);
  record.remarks.insert(record.remarks.end(), agreed.answer.remarks.begin(), agreed.answer.remarks.end());
  record.captured_output = agreed.answer.captured_output;
  if (agreed.answer.result != outcome::completed) return judge_without_outputs(record, what, agreed.answer);
  record.declared = what.declared;
  record.delivers = what.delivers;
  // The name says otherwise, so the record has to tell.
  if (agreed.agreed.layout != c.layout)
    record.remarks.push_back("K and V handed over as fused pages: separate ones are refused");
  if (const problem asked = make_problem(c); agreed.agreed.page_size != asked.page_size)
    record.remarks.push_back(
        fmt::format("caches handed over by slots (page_size 1): pages of {} tokens are refused", asked.page_size));
  if (!agreed.refused.empty()) {
    record.decided = verdict::unsupported;
    record.reason = agreed.refused;
    return;
  }
  if (const auto broken = judge::broken_declarations(what.agreed, what.declared, what.delivers); !broken.empty()) {
    record.decided = verdict::broken_promise;
    record.reason = fmt::format("declaration: {}", fmt::join(broken, "; "));
    return;
  }
  input_set& set = made.inputs(what.agreed);
  discard_unless_sound sound{made, what.agreed};
  observation seen = on.execute(set, how_to_run(c, options));
  for (auto& l : seen.launches) adapt_outputs(what.delivers, l);
  // What a query left behind is held against the case that asked.
  const auto& before = agreed.answer.violations;
  seen.violations.insert(seen.violations.begin(), before.begin(), before.end());
  name_modified_inputs(seen, c, set);
  record.remarks.insert(record.remarks.end(), seen.remarks.begin(), seen.remarks.end());
  record.captured_output += seen.captured_output;
  const auto judge_no_outputs = [&](const observation& ended) {
    judge_without_outputs(record, what, ended);
    if (options.inspect) options.inspect({c, what.delivers, set, ended, nullptr});
  };
  if (seen.result != outcome::completed) return judge_no_outputs(seen);
  // What an implementation wrote into an input would be judged as if it had been asked for.
  for (const auto& v : seen.violations)
    if (v.what == violation::kind::input_modified && !judge::belongs_to("K0", options.left_out))
      return judge_no_outputs(seen);
  const promise_findings promises = hold_to_promises(on, what, seen, set, how_to_run(c, options));
  if (promises.ended) {
    judge_no_outputs(promises.ended->seen);
    record.reason = fmt::format("{}: {}", promises.ended->during, record.reason);
    return;
  }
  for (const auto& v : promises.violations) add_violation(seen, v);
  judge_outputs(record, what, seen, made, promises, options);
  sound.keep = seen.violations.empty() && !what.delivers.graph_safe && !what.delivers.hardened;
}

}  // namespace

double time_limit_s(const case_spec& c) {
  constexpr double slow_triples_per_s = 0.5e6, start_s = 20, slow_bytes_per_s = 200e6;
  const auto launches = static_cast<double>(launches_of(c));
  const problem p = make_problem(c);
  const double output_bytes = static_cast<double>(p.total_q) * p.hq * p.d * 4;
  return start_s +
         launches * (static_cast<double>(cost_triples(c)) / slow_triples_per_s + output_bytes / slow_bytes_per_s);
}

double memory_bytes(const case_spec& c) {
  // Of a large pool hardly more than the used pages is filled.
  case_spec usual = c;
  usual.options.pool_pages = 0;
  const problem p = make_problem(usual);
  // Outputs lie in shared memory and are copied after each launch unless equal to an earlier one; a right kernel has one copy.
  constexpr double output_copies = 2;
  double total = 0;
  for (const auto& rule : slots_of(p.operation)) {
    // Only what some row selects of k and v is filled; dense reads all of its keys, and so do the warm-up of kl and the
    // index branch.
    const bool partly_read = (rule.where == slot::k || rule.where == slot::v) && p.operation != op::dense &&
                             p.operation != op::dense_backward && p.kl_warm_up == 0;
    if (partly_read || !present(rule, p)) continue;
    double elements = 1;
    for (const auto side : shape_of(rule, p, bounds_of(p))) elements *= static_cast<double>(side);
    total +=
        elements * static_cast<double>(size_bytes(type_of(rule, p))) * (rule.dir == direction::out ? output_copies : 1);
  }
  return total;
}

void require_memory(const case_spec& c) {
  constexpr double usable = 0.8;
  const double available = available_memory_bytes() * usable;
  if (const double needed = memory_bytes(c); available > 0 && needed > available)
    throw environment_error(
        {"case", name(c),
         fmt::format("needs {} of memory, and {} can be used here", format_bytes(needed), format_bytes(available)),
         "take a smaller case, or a machine with more memory"});
}

case_record run_case(executor& on, const case_spec& c, const runner_options& options) {
  case_record record;
  const auto start = clock::now();
  record.name = name(c);
  record.seed = c.seed;
  record.definition_sha256 = definition_sha256(c);
  record.rows_total = total_rows(c);
  record.repro = "msabench repro " + record.name + options.repro_suffix;
  for (const auto& each : withdrawn_cases())
    if (each.name == name_without_seed(c)) record.remarks.push_back("withdrawn from the lists: " + each.reason);
  shared_case alone(c);
  try {
    run_into(record, on, c, options.shared != nullptr ? *options.shared : alone, options);
  } catch (const usage_error&) {
    throw;  // the plugin cannot be loaded at all: the user's affair
  } catch (const environment_error&) {
    throw;  // nothing is known about the case, and the next would meet the same
  } catch (const std::bad_alloc&) {
    throw environment_error({"case", record.name, "there is not enough memory to make or judge it",
                             "take a smaller case, or a machine with more memory"});
  } catch (const std::exception& e) {
    record.decided = verdict::suite_error;
    record.reason = fmt::format("suite: {}", one_line(e.what(), 300));
  }
  if (!options.left_out.empty()) record.remarks.push_back(judge::left_out_remark(options.left_out));
  record.elapsed_s = seconds_since(start);
  return record;
}

void run_cases(executor& on, const std::vector<case_spec>& cases, const runner_options& options, run_record& into,
               const std::function<void(const case_record&, const progress&)>& after_each) {
  double left = 0, spent = 0;
  for (const auto& c : cases) left += expected_work(c);
  const auto start = clock::now();
  progress where{0, cases.size(), 0};
  for (const auto& c : cases) {
    if (interrupted()) {
      into.partial = true;
      return;
    }
    case_record record = run_case(on, c, options);
    if (interrupted()) {  // whatever the last case says, it was cut short
      into.partial = true;
      return;
    }
    left -= expected_work(c);
    spent += expected_work(c);
    ++where.done;
    where.seconds_left = seconds_since(start) / spent * left;
    into.cases.push_back(std::move(record));
    after_each(into.cases.back(), where);
  }
}

}  // namespace msabench
