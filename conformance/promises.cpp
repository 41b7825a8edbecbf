// SPDX-License-Identifier: Apache-2.0
#include "conformance/promises.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "core/operator_table.h"
#include "inputs/batch.h"
#include "inputs/changed_contents.h"
#include "inputs/lone_row.h"

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
    observation seen = run_apart(set, 1);
    for (const violation& v : seen.violations) into_.violations.push_back(v);
    if (seen.result != outcome::completed || seen.launches.empty()) {
      into_.ended = {during, std::move(seen)};
      return std::nullopt;
    }
    return std::move(seen.launches.front());
  }

  // Launches of one plan, whatever becomes of them.
  observation run_apart(input_set& set, std::int32_t launches, bool graph = false) {
    run_spec how = how_;
    how.launches = launches;
    how.graph = graph;
    observation seen = on_.execute(set, how);
    for (launch& l : seen.launches) adapt_outputs(what_.delivers, l);
    return seen;
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
  // Rows of one item follow each other, whatever stands beside it.
  const bool has_items = c.operation == op::rope3d || c.operation == op::vit3d;
  std::string why = has_items ? "the items of a call are data" : "the call has one row";
  for (const std::int64_t row :
       batch(c).total_q() > 1 && !has_items ? rows_to_run_alone(c) : std::vector<std::int64_t>{}) {
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

// The rows of `other` in a copy of `usual`: row r is row row_in_other[r], -1 where it has none. Outputs that have no rows,
// gradients of keys, are sums over all of them: those of `other` stand only where it has all rows in their places.
launch put_together(const judge::subject& what, const launch& usual, const launch& other,
                    std::span<const std::int64_t> row_in_other) {
  launch whole = usual;
  auto memory = std::make_shared<std::vector<std::byte>>(*usual.memory);
  whole.index = other.index;
  whole.same_as = -1;
  bool all_in_place = true;
  for (std::size_t row = 0; row < row_in_other.size(); ++row)
    all_in_place &= row_in_other[row] == static_cast<std::int64_t>(row);
  for (auto& [where, view] : whole.outputs) {
    if (!view.data) continue;
    const tensor_view& from = other.outputs.at(where);
    std::byte* const to = memory->data() + (static_cast<const std::byte*>(view.data) - usual.memory->data());
    view.data = to;
    int row_axis = -1;
    for (const slot_rule& rule : slots_of(what.agreed.operation))
      if (rule.where == where && rule.dir == direction::out) row_axis = axis_of(rule, what.agreed, "T");
    if (row_axis < 0 && !all_in_place) continue;
    const auto axis = static_cast<std::size_t>(row_axis);
    const auto size = static_cast<std::size_t>(size_bytes(view.desc.type));
    std::vector<std::int64_t> index(view.desc.shape.size(), 0);
    for (bool more = view.desc.elements() > 0; more;) {
      std::int64_t place = 0, its_place = 0;
      bool has = true;
      for (std::size_t i = 0; i < index.size(); ++i) {
        const bool row = i == axis;
        has = has &&
              !(row && (index[i] >= std::ssize(row_in_other) || row_in_other[static_cast<std::size_t>(index[i])] < 0));
        place += index[i] * view.desc.strides[i];
        its_place += (row && has ? row_in_other[static_cast<std::size_t>(index[i])] : index[i]) * view.desc.strides[i];
      }
      if (has)
        std::memcpy(to + static_cast<std::size_t>(place) * size,
                    static_cast<const std::byte*>(from.data) + static_cast<std::size_t>(its_place) * size, size);
      std::size_t i = index.size();
      while (i > 0 && ++index[i - 1] == view.desc.shape[i - 1]) index[--i] = 0;
      more = i > 0;
    }
  }
  whole.memory = std::move(memory);
  return whole;
}

std::string damage_of(const observation& seen) {
  switch (seen.result) {
    case outcome::crashed:
    case outcome::device_lost:
      return fmt::format("{} crashed ({})", seen.entry, seen.message);
    case outcome::timed_out:
      return fmt::format("{} did not end ({})", seen.entry, seen.message);
    default:
      break;
  }
  for (const violation& v : seen.violations)
    if (v.what != violation::kind::memory_limit) return v.detail;
  return {};
}

// As a graph is captured and replayed, which on a device it is: few rows, all of them, all sequences in the opposite order, few rows again. After
// the first launch every buffer lies elsewhere.
void replay_one_plan(promise_runs& runs, const judge::subject& what, const launch& usual, input_set& set,
                     promise_findings& into) {
  if (set.find(slot::cu_seqlens_q) == nullptr || set.sizes.t == 0) {
    into.unobserved.push_back("promise graph_safe not observed: there are no lengths to change");
    return;
  }
  changed_contents contents(set);
  set.changing = contents.changing_slots();
  std::vector<std::int64_t> reversed, few;
  set.before_launch = [&](std::int32_t launch) {
    contents.restore();
    if (launch == 2) reversed = contents.reverse();
    if (launch != 0 && launch != 3) return;
    few.assign(static_cast<std::size_t>(set.sizes.t), -1);
    const std::int64_t left = contents.shorten();
    for (std::int64_t row = 0; row < left; ++row) few[static_cast<std::size_t>(row)] = row;
  };
  constexpr std::int32_t replays = 4;
  const observation seen = runs.run_apart(set, replays, true);
  set.before_launch = {};
  set.changing = {};
  contents.restore();
  std::string damage = damage_of(seen);
  if (damage.empty() && seen.result != outcome::completed)
    damage = fmt::format("{} answered status {}: {}", seen.entry, seen.status, seen.message);
  if (!damage.empty()) {
    into.checks.push_back(judge::replay_damaged(damage));
    return;
  }
  std::vector<std::int64_t> same(static_cast<std::size_t>(set.sizes.t));
  std::iota(same.begin(), same.end(), std::int64_t{0});
  const auto add = [&](std::size_t launch, std::string_view name, const std::vector<std::int64_t>& rows) {
    into.replays.push_back({std::string(name), put_together(what, usual, seen.launches[launch], rows)});
  };
  // The mean of kl is over the rows of the call: fewer have other gradients.
  const bool is_mean = what.definition.operation == op::kl;
  if (!is_mean) add(0, "fewer rows first", few);
  add(1, "more rows than at first", same);
  if (!reversed.empty()) add(2, "its sequences in the opposite order", reversed);
  if (!is_mean) add(3, "fewer rows after more", few);
  if (reversed.empty())
    into.unobserved.push_back(
        "promise graph_safe observed with other lengths only: there is one sequence, or its keys "
        "can't be moved");
}

// An error is an answer: what counts is that nothing outside is read or written. Each breach in a run of its own.
void hold_to_hardening(promise_runs& runs, input_set& set, promise_findings& into) {
  std::vector<judge::breached_launch> launches;
  for (const duty d : every_duty) {
    changed_contents contents(set);
    if (!contents.breach(d)) continue;
    launches.push_back({breach_of(d), damage_of(runs.run_apart(set, 1))});
  }
  if (launches.empty())
    into.unobserved.push_back("promise hardened not observed: the case has no lengths, tables or ids to break");
  else
    into.checks.push_back(judge::check_hardening(launches));
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
  if (is_vision(c.operation))
    for (auto& row : chosen) row = rows.first_row(rows.rows()[static_cast<std::size_t>(row)].sequence);
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
  if (what.delivers.graph_safe && !found.ended) replay_one_plan(runs, what, first, set, found);
  if (what.delivers.hardened && !found.ended) hold_to_hardening(runs, set, found);
  return found;
}

}  // namespace msabench
