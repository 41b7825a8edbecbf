// SPDX-License-Identifier: Apache-2.0
#include "conformance/fuzz.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/case_source.h"
#include "conformance/shrink.h"
#include "core/verdict.h"
#include "host/interrupt.h"

namespace msabench {

namespace {

using clock = std::chrono::steady_clock;

// Of one failure.
constexpr double longest_shrinking_s = 30;

// One that can't even be loaded fails thousands of times in a second, and each is a record of the report.
constexpr int most_failing_cases = 1000;

double seconds_since(clock::time_point start) { return std::chrono::duration<double>(clock::now() - start).count(); }

bool violated(const check_result& check) { return check.gate && check.observed && !check.passed; }

// What a broken declaration is about, "numerics.chain_out"; empty for every other reason.
std::string declared_field(const case_record& record) {
  constexpr std::string_view lead = "declaration: ";
  if (!record.reason.starts_with(lead)) return {};
  return record.reason.substr(lead.size(), record.reason.find(' ', lead.size()) - lead.size());
}

// All that is wrong, what the record names first at the front; empty for a case that did not fail.
std::vector<std::string> failures_of(const case_record& record) {
  if (!is_failure(record) && record.decided != verdict::suite_error) return {};
  const std::string decided(name(record.decided));
  std::vector<std::string> all;
  if (record.decided == verdict::fail || record.decided == verdict::broken_promise) {
    for (const auto& check : record.checks)
      if (violated(check)) all.push_back(decided + " " + check.id);
    if (const std::string field = declared_field(record); !field.empty()) all.push_back(decided + " " + field);
  }
  if (all.empty()) all.push_back(decided);
  return all;
}

class run {
 public:
  run(executor& on, const runner_options& options, run_record& into, const fuzz_progress& tell)
      : on_(on), options_(options), into_(into), tell_(tell) {}

  void look_for_failures(const fuzz_plan& plan) {
    into_.fuzz = fuzz_record{plan.seconds, {}};
    const case_source source(plan.seed, plan.operators);
    const auto start = clock::now();
    std::set<std::string> known;
    int failing = 0;
    for (std::uint64_t number = 0; seconds_since(start) < plan.seconds; ++number) {
      const case_spec c = source.draw(number);
      case_record record = run_case(on_, c, options_);
      if (interrupted()) return stop();  // whatever the last case says, it was cut short
      const std::string failure = failure_of(record);
      into_.cases.push_back(std::move(record));
      tell_.after_each(into_.cases.back(), plan.seconds - seconds_since(start));
      if (failure.empty()) continue;
      if (known.insert(std::string(name(c.operation)) + " " + failure).second) shrink_failure(c, failure);
      if (interrupted()) return stop();
      if (++failing < most_failing_cases) continue;
      into_.cases.back().remarks.push_back(fmt::format("ended early: {} cases have failed", failing));
      return;
    }
  }

 private:
  void stop() { into_.partial = true; }

  void shrink_failure(const case_spec& c, const std::string& failure) {
    const auto start = clock::now();
    case_record last = into_.cases.back();
    const auto still_fails = [&](const case_spec& smaller) {
      case_record record = run_case(on_, smaller, options_);
      if (interrupted() || !fails_alike(record, failure)) return false;
      last = std::move(record);
      return true;
    };
    const auto may_go_on = [&] { return !interrupted() && seconds_since(start) < longest_shrinking_s; };
    const shrunk result = shrink(c, still_fails, may_go_on);
    const found_failure found{failure, name(c), name(result.smallest), result.finished && !interrupted()};
    const bool known =
        std::ranges::any_of(into_.cases, [&](const case_record& each) { return each.name == found.smallest; });
    if (!known) {
      last.remarks.push_back("the smallest case found that fails like " + found.found);
      into_.cases.push_back(last);
    }
    into_.fuzz->failures.push_back(found);
    tell_.after_shrinking(found, last);
  }

  executor& on_;
  const runner_options& options_;
  run_record& into_;
  const fuzz_progress& tell_;
};

}  // namespace

std::string failure_of(const case_record& record) {
  const auto all = failures_of(record);
  return all.empty() ? std::string() : all.front();
}

bool fails_alike(const case_record& record, const std::string& failure) {
  const auto all = failures_of(record);
  return std::ranges::find(all, failure) != all.end();
}

void fuzz(executor& on, const fuzz_plan& plan, const runner_options& options, run_record& into,
          const fuzz_progress& tell) {
  run(on, options, into, tell).look_for_failures(plan);
}

}  // namespace msabench
