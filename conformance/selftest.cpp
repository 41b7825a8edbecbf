// SPDX-License-Identifier: Apache-2.0
#include "conformance/selftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>

#include "conformance/lists.h"
#include "conformance/runner.h"
#include "conformance/shared_case.h"
#include "core/shell.h"
#include "host/interrupt.h"
#include "judge/left_out.h"

namespace msabench {

namespace {

std::string operator_of(const std::string& case_name) { return case_name.substr(0, case_name.find('/')); }

std::string text_of(const device& d) { return d.type == device_type::cpu ? "cpu" : fmt::format("cuda:{}", d.id); }

bool has_failed(const selftest_trial& t) {
  switch (t.decided) {
    case verdict::fail:
    case verdict::broken_promise:
    case verdict::crash:
    case verdict::timeout:
    case verdict::device_lost:
      return true;
    default:
      return false;
  }
}

// Whether its limit is one of errors; others count.
bool has_limits(std::string_view check_id) {
  return std::ranges::any_of(std::array{"K1", "K2", "K3", "K4", "K8"},
                             [&](const char* of) { return judge::belongs_to(check_id, of); });
}

// What an implementation is tried on, and as what.
struct candidate {
  selftest_subject subject;
  implementation_ref where;
  bool honest = false;
  std::vector<std::string> cases;
  bool has_line = true;  // `cases` are those of its line in mutants.txt or variants.txt
};

class selftest {
 public:
  selftest(const selftest_lists& lists, const selftest_setup& setup) : lists_(lists), setup_(setup) {
    for (const auto& each : lists.mutants) add("mutants:" + each.id, false, each.checks, each.cases);
    for (const auto& each : lists.variants) add("variants:" + each.name, true, {}, each.cases);
    for (const auto& file : setup.more_mutants) add_foreign(file, false);
    for (const auto& file : setup.more_variants) add_foreign(file, true);
  }

  std::vector<std::string> cases() const {
    std::vector<std::string> wanted;
    for (const auto& each : lists_.cases)
      if (wanted_by_filter(each) && std::ranges::any_of(candidates_, [&](const candidate& c) { return runs(c, each); }))
        wanted.push_back(each);
    return wanted;
  }

  // False: interrupted.
  bool try_all_on(const std::string& case_name, double& oracle_s) {
    const case_spec c = parse_case(case_name + "/s0");
    shared_case made(c);
    for (candidate& each : candidates_) {
      if (!runs(each, case_name)) continue;
      if (interrupted()) return false;
      each.subject.trials.push_back(run(each, c, made));
    }
    oracle_s += made.seconds();
    return !interrupted();
  }

  void finish(selftest_record& into) {
    for (candidate& each : candidates_) {
      if (each.subject.trials.empty() && !setup_.filters.empty()) continue;
      // The case that is meant for it first.
      const auto place = [&](const selftest_trial& t) {
        const std::string plain = t.case_name.substr(0, t.case_name.rfind('/'));
        return std::ranges::find(each.cases, plain) - each.cases.begin();
      };
      std::ranges::stable_sort(each.subject.trials, {}, place);
      for (auto& t : each.subject.trials)
        t.is_own = each.has_line && place(t) < static_cast<std::ptrdiff_t>(each.cases.size());
      each.honest ? judge_variant(each.subject) : judge_mutant(each.subject);
      (each.honest ? into.variants : into.mutants).push_back(std::move(each.subject));
    }
  }

 private:
  bool wanted_by_filter(const std::string& case_name) const { return any_glob_matches(setup_.filters, case_name); }

  void add(const std::string& label, bool honest, std::vector<std::string> due, std::vector<std::string> cases) {
    const std::string short_name = label.substr(label.find(':') + 1);
    if (!setup_.only.empty() && !glob_matches(setup_.only, short_name)) return;
    candidate made{{}, resolve_implementation(label, std::nullopt), honest, std::move(cases), true};
    made.subject.name = label;
    made.subject.due = std::move(due);
    candidates_.push_back(std::move(made));
  }

  void add_foreign(const std::string& file, bool honest) {
    candidate made{{}, resolve_implementation(file, setup_.where), honest, lists_.cases, false};
    made.subject.name = file;
    candidates_.push_back(std::move(made));
  }

  bool runs(const candidate& each, const std::string& case_name) const {
    if (setup_.quick) return std::ranges::find(each.cases, case_name) != each.cases.end();
    return std::ranges::any_of(each.cases, [&](const auto& own) { return operator_of(own) == operator_of(case_name); });
  }

  selftest_trial run(candidate& each, const case_spec& c, shared_case& made) {
    // A process of its own for each: what a mutant has done to it is gone with it.
    const auto on = make_worker_executor(each.where, {setup_.threads, 60});
    runner_options options;
    options.timeout_s = setup_.timeout_s;
    options.left_out = setup_.without;
    options.shared = &made;
    options.repro_suffix = " --impl " + shell_word(each.subject.name);
    if (!each.has_line && setup_.where) options.repro_suffix += " --device " + text_of(*setup_.where);
    const case_record record = run_case(*on, c, options);
    if (each.subject.what.empty()) each.subject.what = on->info().description;
    selftest_trial t{record.name, record.decided, record.kind, record.reason, {}, {}, record.repro};
    for (const auto& check : record.checks) {
      if (!check.observed) continue;
      const double ratio = check.limit > 0 ? check.value / check.limit : 0;
      if (check.gate && !check.passed) t.failed.push_back({check.id, ratio});
      const bool measured =
          check.id == "K6u" || (check.gate && check.passed && check.limit > 0 && has_limits(check.id));
      if (each.honest && measured) {
        double& use = t.use[check.id];
        use = std::max(use, check.id == "K6u" ? check.value : ratio);
      }
    }
    return t;
  }

  const selftest_lists& lists_;
  const selftest_setup& setup_;
  std::vector<candidate> candidates_;
};

// The words of `due` are ids of checks, of which a failing one may be a part ("K4" of "K4a"), or verdicts.
bool is_due(const selftest_subject& mutant, std::string_view what) {
  return mutant.due.empty() || std::ranges::any_of(mutant.due, [&](const std::string& due) {
           return due == what || judge::belongs_to(what, due);
         });
}

// How it died of what it should; empty: it did not.
std::string due_death(const selftest_subject& mutant, const selftest_trial& t) {
  if (!has_failed(t)) return "";
  for (const auto& check : t.failed)
    if (is_due(mutant, check.id)) return check.id;
  const std::string end(name(t.decided));
  return t.failed.empty() && is_due(mutant, end) ? end : "";
}

}  // namespace

void judge_mutant(selftest_subject& mutant) {
  mutant.held = false;
  for (std::size_t i = 0; i < mutant.trials.size() && mutant.by.empty(); ++i)
    if (mutant.by = due_death(mutant, mutant.trials[i]); !mutant.by.empty()) mutant.at = i;
  const auto elsewhere = std::ranges::find_if(mutant.trials, has_failed);
  // One from elsewhere has no case that is meant for it.
  mutant.held = !mutant.by.empty() && (mutant.at == 0 || mutant.due.empty());
  if (mutant.held) return;
  if (mutant.trials.empty())
    mutant.complaint = "has not been tried";
  else if (!mutant.by.empty())
    mutant.complaint = fmt::format("lives in {}, which is meant for it", mutant.trials.front().case_name);
  else if (elsewhere != mutant.trials.end())
    mutant.complaint = fmt::format("dies of {} in {}, and of none of {}",
                                   elsewhere->failed.empty() ? name(elsewhere->decided) : elsewhere->failed.front().id,
                                   elsewhere->case_name, fmt::join(mutant.due, ", "));
  else
    mutant.complaint = fmt::format("lives: {}", mutant.trials.front().case_name);
}

void judge_variant(selftest_subject& variant) {
  variant.held = false;
  bool verified = false;
  for (const auto& t : variant.trials) {
    if (t.decided == verdict::pass || t.decided == verdict::quality_warning) {
      verified = true;
    } else if (t.is_own || (t.decided != verdict::unsupported && t.decided != verdict::insensitive)) {
      variant.complaint = fmt::format("{} in {}: {}", name(t.decided), t.case_name, t.reason);
      return;
    }
    for (const auto& [id, use] : t.use) {
      constexpr double healthy = 0.5;
      if (id != "K6u" || use < healthy) continue;
      variant.complaint = fmt::format("uses {:.2f} of what K1 allows beyond the store in {}; healthy is below {}", use,
                                      t.case_name, healthy);
      return;
    }
  }
  variant.held = verified;
  if (!verified) variant.complaint = "is verified in no case";
}

selftest_record run_selftest(const selftest_lists& lists, const selftest_setup& setup,
                             const std::function<void(const selftest_progress&)>& after_each) {
  const auto start = std::chrono::steady_clock::now();
  selftest_record into;
  into.lists_sha256 = lists.sha256;
  into.without = setup.without;
  into.whole = !setup.quick && setup.only.empty() && setup.filters.empty();
  selftest all(lists, setup);
  const auto cases = all.cases();
  for (std::size_t i = 0; i < cases.size() && !into.partial; ++i) {
    into.partial = !all.try_all_on(cases[i], into.oracle_s);
    after_each({i + 1, cases.size(), cases[i]});
  }
  all.finish(into);
  into.total_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return into;
}

}  // namespace msabench
