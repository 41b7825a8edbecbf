// SPDX-License-Identifier: Apache-2.0
#include "conformance/promises.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "inputs/batch.h"
#include "inputs/lone_row.h"
#include "judge/promises.h"

namespace msabench {

namespace {

// One launch: what is compared are its bits with those of the case's own launches.
run_spec once(const run_spec& how) {
  run_spec one = how;
  one.rehearse = one.second_plan = false;
  one.launches = 1;
  return one;
}

// Whether outputs under both answers have the same form, element by element.
bool same_form(const agreement& other, const judge::subject& what) {
  return other.refused.empty() && other.answer.result == outcome::completed && other.answer.answered &&
         other.agreed.layout == what.agreed.layout && other.agreed.page_size == what.agreed.page_size &&
         other.answer.answered->delivers == what.delivers;
}

std::string refusal_of(const agreement& other) {
  if (other.answer.result == outcome::unsupported) return other.answer.message;
  return other.refused.empty() ? "another profile is declared for it" : other.refused;
}

class promise_runs {
 public:
  promise_runs(executor& on, const judge::subject& what, const run_spec& how, promise_findings& into)
      : on_(on), what_(what), how_(once(how)), into_(into) {}

  // The launch of `set`; nothing if it did not complete, which is noted.
  std::optional<launch> run(input_set& set, const std::string& during) {
    observation seen = on_.execute(set, how_);
    for (const violation& v : seen.violations) into_.violations.push_back(v);
    if (seen.result != outcome::completed || seen.launches.empty()) {
      into_.ended = {during, std::move(seen)};
      return std::nullopt;
    }
    launch l = std::move(seen.launches.front());
    adapt_outputs(what_.delivers, l);
    return l;
  }

  // What both agree on for a problem; nothing if the query itself ended badly, or if the forms differ.
  std::optional<problem> agree(const problem& wanted, const std::string& during, std::string& refused) {
    agreement other = negotiate(on_, wanted);
    for (const violation& v : other.answer.violations) into_.violations.push_back(v);
    if (same_form(other, what_)) return other.agreed;
    if (other.answer.result == outcome::completed || other.answer.result == outcome::unsupported)
      refused = fmt::format("{}: {}", during, refusal_of(other));
    else
      into_.ended = {during, std::move(other.answer)};
    return std::nullopt;
  }

 private:
  executor& on_;
  const judge::subject& what_;
  run_spec how_;
  promise_findings& into_;
};

void hold_to_batch_invariance(promise_runs& runs, const judge::subject& what, const launch& together,
                              const input_set& whole, promise_findings& into) {
  const case_spec& c = what.definition;
  std::vector<judge::lone_launch> alone;
  std::string why = "the call has one row";
  for (const std::int64_t row : batch(c).total_q() > 1 ? rows_to_run_alone(c) : std::vector<std::int64_t>{}) {
    const std::string during = fmt::format("row {} alone", row);
    const auto agreed = runs.agree(lone_row_problem(c, make_problem(c), row), during, why);
    if (into.ended) return;
    if (!agreed) continue;
    auto set = make_lone_row(c, whole, *agreed, row);
    if (!set) {
      why = "too many keys to copy";
      continue;
    }
    auto l = runs.run(*set, during);
    if (!l) return;
    alone.push_back({row, std::move(*l)});
  }
  if (alone.empty()) {
    into.unobserved.push_back("promise batch_invariant not observed: " + why);
  } else {
    into.checks.push_back(judge::check_batch_invariance(what, together, alone));
  }
}

// One part, and numbers of parts that divide no power of two evenly.
constexpr std::int32_t split_hints[] = {1, 3, 7};

void hold_to_split_invariance(promise_runs& runs, const judge::subject& what, const launch& usual, input_set& set,
                              promise_findings& into) {
  const case_spec& c = what.definition;
  std::vector<judge::split_launch> others;
  std::string why = "sums of this family are exact in any order";
  if (c.operation == op::combine) why = "the number of parts is given";  // as data, by the shape of the inputs
  const problem first = set.agreed;
  for (const std::int32_t splits : split_hints) {
    if (c.operation == op::combine || !judge::shows_order_of_sums(c)) break;
    const std::string during = fmt::format("splits {}", splits);
    problem wanted = make_problem(c);
    wanted.splits = splits;
    const auto agreed = runs.agree(wanted, during, why);
    if (into.ended) return;
    if (!agreed) continue;
    set.agreed = *agreed;
    auto l = runs.run(set, during);
    set.agreed = first;
    if (!l) return;
    others.push_back({splits, std::move(*l)});
  }
  if (others.empty()) {
    into.unobserved.push_back("promise split_invariant not observed: " + why);
  } else {
    into.checks.push_back(judge::check_split_invariance(what, usual, others));
  }
}

}  // namespace

std::vector<std::int64_t> rows_to_run_alone(const case_spec& c) {
  const batch rows(c);
  std::vector<std::int64_t> with_keys;
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < rows.total_q(); ++i) {
    const auto& row = rows.rows()[static_cast<std::size_t>(i)];
    // Rows of combine have parts whatever their sequence has.
    if (row.empty() && c.operation != op::combine) continue;
    with_keys.push_back(i);
    if (row.position > rows.rows()[static_cast<std::size_t>(with_keys[static_cast<std::size_t>(longest)])].position)
      longest = std::ssize(with_keys) - 1;
  }
  if (with_keys.empty()) return {};
  std::vector<std::int64_t> chosen = {with_keys[static_cast<std::size_t>(longest)], with_keys[with_keys.size() / 2],
                                      with_keys.back()};
  std::ranges::sort(chosen);
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

promise_findings hold_to_promises(executor& on, const judge::subject& what, const observation& seen, input_set& set,
                                  const run_spec& how) {
  promise_findings found;
  if (seen.launches.empty()) return found;
  promise_runs runs(on, what, how, found);
  const launch& first = seen.launches.front();
  if (what.delivers.batch_invariant) hold_to_batch_invariance(runs, what, first, set, found);
  if (what.delivers.split_invariant && !found.ended) hold_to_split_invariance(runs, what, first, set, found);
  // A graph is captured on devices alone; what a plan may not remember of lengths the rehearsal shows.
  for (const auto& [promised, text] :
       {std::pair{what.delivers.graph_safe, "graph_safe"}, {what.delivers.hardened, "hardened"}})
    if (promised)
      found.unobserved.push_back(fmt::format("promise {} not checked: no case of this version holds it to it", text));
  return found;
}

}  // namespace msabench
