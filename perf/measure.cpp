// SPDX-License-Identifier: Apache-2.0
#include "perf/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <list>
#include <map>

#include "core/environment_error.h"
#include "core/error.h"
#include "core/statistics.h"
#include "core/units.h"
#include "host/implementation.h"
#include "host/interrupt.h"
#include "perf/ceilings.h"
#include "perf/clocks.h"
#include "perf/costs.h"
#include "perf/figures.h"
#include "perf/forward.h"
#include "perf/selected.h"
#include "perf/time_shares.h"
#include "perf/topk.h"
#include "perf/verify.h"
#include "perf/whole.h"

namespace msabench {
namespace {

using clock = std::chrono::steady_clock;

constexpr std::uint64_t assumed_cache_bytes = std::uint64_t{64} << 20;
// Launches shorter than this get a lead-in: threads that sleep take tens of microseconds to wake.
constexpr double lead_in_below_s = 5e-3;
// Engines replay decode, up to so many tokens of a draft, as graphs.
constexpr std::int64_t most_graph_tokens = 16;
constexpr double usable_memory = 0.8;
// Of a run of launches back to back: the power limit of a GPU bites after 40 to 80 ms.
constexpr double in_a_row_s = 0.15;
// For what launches take beyond what they were taken to, and for clocks that recover in between.
constexpr double room_for_launches = 1.2;
constexpr std::int64_t most_sets_in_a_row = 4096;

double seconds_since(clock::time_point start) { return std::chrono::duration<double>(clock::now() - start).count(); }

// What nobody should need: of a process that starts and has so many seconds of samples, and of the slowest kernel.
double process_limit_s(double budget_s) { return 60 + 3 * budget_s; }
double slow_s(const case_spec& c) { return 4 * static_cast<double>(cost_triples(c)) / 0.5e6; }

struct candidate {
  case_spec definition;
  int implementation = 0;
  std::size_t case_index = 0;
  agreement agreed;
  perf_item item;
  double predicted_s = 0;  // of one launch
  std::int64_t least_sets = 1;
  std::string left_out;  // why there is no sample
  bool runs = false;
  bool timed = false;  // it was a side of the timed run
  input_set* set = nullptr;
};

bool same_inputs(const problem& a, const problem& b) {
  return a.layout == b.layout && a.asked.in_id_order == b.asked.in_id_order &&
         a.asked.in_id_layout == b.asked.in_id_layout && a.asked.in_id_form == b.asked.in_id_form;
}

class measurement {
 public:
  measurement(const perf_setup& setup, const perf_executors& with, const perf_events& events, perf_run& run)
      : setup_(setup), with_(with), events_(events), run_(run) {}

  void all() {
    auto points = plan_suite(setup_.what);
    require_memory(points);
    require_quiet();
    const timed_observation first = time_nothing();
    start_ = clock::now();
    if (first.interrupted) return void(run_.partial = true);
    take_device(first);
    assumed_ = ceilings_of(first.probes);
    costs_.begin(assumed_, {cache_bytes(), setup_.cold, with_.on_device, static_cast<int>(with_.queries.size()),
                            others_, available_cores(), fewest_samples()});
    for (const auto& p : points) run_.estimated_s += costs_.point_s(p);
    if (is_whole()) points = in_spread_order(std::move(points));
    events_.planned(run_);
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (interrupted()) run_.partial = true;
      if (run_.partial) return;
      const double left = setup_.budget_s - seconds_since(start_);
      // A chunk without a time says nothing that the sums do not.
      if (is_whole() && costs_.point_s(points[i]) > left) continue;
      double weight = 0;
      for (std::size_t j = i; j < points.size(); ++j) {
        const double point_s = costs_.point_s(points[j]);
        // Chunks that won't come to their turn have no share in the time.
        if (!is_whole() || weight + point_s <= left) weight += point_s;
      }
      run_.points.push_back(measure_point(points[i], left, left * costs_.point_s(points[i]) / weight));
      if (run_.partial) return;
      events_.measured(run_.points.back());
    }
  }

  void finish() {
    run_.ceilings = ceilings_over(run_.points, assumed_);
    const int implementations = static_cast<int>(with_.queries.size());
    if (setup_.what.suite == perf_suite::crossover) find_crossovers(run_, implementations);
    if (setup_.what.suite == perf_suite::topk) run_.topk = topk_rows(run_.points, implementations);
    if (!is_whole()) return;
    std::ranges::stable_sort(run_.points, {}, &perf_point::context);
    run_.wholes = wholes_of(run_, contexts_of(setup_.what), chunk_of(setup_.what), setup_.what.batch, with_.labels);
  }

 private:
  bool is_whole() const { return setup_.what.suite == perf_suite::prefill_whole; }

  // A chunk is a part of a launch that takes seconds as a whole.
  int fewest_samples() const {
    const stopping_rule usual;
    return static_cast<int>(is_whole() ? usual.min_long_samples : usual.min_samples);
  }

  void take_device(const timed_observation& first) {
    if (!with_.on_device) return;
    if (first.ended)
      throw environment_error({"worker", "", "ended before anything was timed: " + first.end, "see its output"});
    if (!first.on.busy.empty() && !setup_.tell_busy) refuse_busy("device", first.on.name, first.on.busy);
    on_ = first.on;
    if (!first.on.unseen.empty()) idleness_ = "whether others used the GPU is not known: " + first.on.unseen;
    if (!first.on.busy.empty()) idleness_ = "measured on a busy GPU: " + first.on.busy;
    run_.last_level_cache_bytes = static_cast<std::uint64_t>(on_.cache_bytes);
  }

  double cache_bytes() const {
    if (with_.on_device) return on_.cache_bytes;
    return static_cast<double>(setup_.last_level_cache_bytes.value_or(assumed_cache_bytes));
  }

  void require_memory(const std::vector<suite_point>& points) const {
    if (setup_.available_memory_bytes <= 0) return;
    const double usable = setup_.available_memory_bytes * usable_memory;
    for (const auto& p : points) {
      double needed = static_cast<double>(probe_bytes(setup_));
      for (const auto& c : p.cases) needed += set_bytes(c, make_problem(c));
      if (needed > usable)
        throw environment_error({"--context", format_size(p.context),
                                 fmt::format("needs {} of memory for its operators, and {} can be used here",
                                             format_bytes(needed), format_bytes(usable)),
                                 "give shorter contexts, a smaller --batch or fewer operators with --op"});
    }
  }

  void require_quiet() {
    if (with_.on_device) return;
    const auto seen = watch_machine(setup_.watch, setup_.watch_s);
    if (seen) others_ = seen->others + seen->steal;
    if (!seen || setup_.tell_busy) return;
    if (const std::string why = too_busy(*seen, setup_.limits); !why.empty()) refuse_busy("machine", "", why);
  }

  [[noreturn]] void refuse_busy(const char* what, const std::string& which, const std::string& why) const {
    throw environment_error(
        {what, which, "too busy to measure: " + why,
         "wait until it is idle, or take " + setup_.options.tell_busy + " for numbers that are marked"});
  }

  timed_observation time_nothing() {
    run_spec how;
    how.timing.enabled = true;
    how.timing.probes = true;
    return with_.timing->run({}, how);
  }

  perf_point measure_point(const suite_point& p, double left_s, double budget_s) {
    const auto start = clock::now();
    perf_point point;
    point.phase = p.phase;
    point.query_tokens = p.query_tokens;
    point.context = p.context;
    point.batch = p.batch;
    point.topk = p.topk;
    point.selection = name(setup_.what.selection);
    point.estimated_s = costs_.point_s(p);
    std::list<candidate> all = negotiate_all(p);
    fit_into(all, left_s, false);
    std::list<input_set> sets;
    make_sets(all, sets);
    // The machine may have made them slower than it was taken to.
    fit_into(all, left_s - seconds_since(start), true);
    time_point(all, point, budget_s - seconds_since(start), left_s - seconds_since(start));
    const std::string busy = point.conditions_known && !with_.on_device ? too_busy(usage_, setup_.limits) : "";
    for (auto& c : all) {
      if (c.runs) finish_item(c, point, busy);
      point.items.push_back(std::move(c.item));
    }
    check_ceilings(point);
    compare_items(point, with_.labels);
    point.seconds = seconds_since(start);
    return point;
  }

  // lse_idx is for training; who serves asks `index` for ids alone.
  static void leave_out_training_outputs(input_set& set) {
    std::erase_if(set.outputs, [](const buffer& b) { return b.where == slot::lse_idx; });
  }

  std::list<candidate> negotiate_all(const suite_point& p) {
    std::list<candidate> all;
    for (std::size_t at = 0; at < p.cases.size(); ++at)
      for (int i = 0; i < static_cast<int>(with_.queries.size()); ++i) {
        candidate c;
        c.definition = p.cases[at];
        c.implementation = i;
        c.case_index = at;
        c.item.name = name(c.definition);
        c.item.definition_sha256 = definition_sha256(c.definition);
        c.item.operation = name(c.definition.operation);
        c.item.seed = c.definition.seed;
        c.item.implementation = i;
        c.agreed = negotiate(*with_.queries[static_cast<std::size_t>(i)], make_problem(c.definition));
        if (interrupted()) {
          run_.partial = true;
          return {};
        }
        if (lacks_room(c.item, c.agreed.answer)) {
          c.item.remarks = c.agreed.answer.remarks;
          c.item.captured_output = c.agreed.answer.captured_output;
        } else {
          c.runs = !refuse_item(c.item, c.definition, c.agreed);
        }
        if (c.runs) {
          c.predicted_s = costs_.launch_s(c.definition, c.agreed.agreed, i);
          c.item.work = least_work(c.definition, c.agreed.agreed);
        }
        all.push_back(std::move(c));
      }
    return all;
  }

  // Leaves out what costs most until the others may fit into the time that is left; launches that turn out too long for it are
  // left out where they are timed. `made`: inputs are there already.
  void fit_into(std::list<candidate>& all, double left_s, bool made) const {
    for (;;) {
      std::vector<candidate*> running;
      std::vector<timed_item> items;
      for (auto& c : all) {
        if (!c.runs) continue;
        running.push_back(&c);
        const double launch_s = costs_.hoped_launch_s(c.definition, c.agreed.agreed, c.implementation);
        items.push_back({c.case_index, &c.definition, &c.agreed.agreed, launch_s, c.item.work.compulsory_bytes});
      }
      const double needed = costs_.least_s(items, made);
      if (items.empty() || needed <= left_s) return;
      candidate& out = *running[dearest(costs_, items, made)];
      out.runs = false;
      out.item.state = item_state::not_run;
      out.item.reason =
          fmt::format("needs about {} with the others of this point, {} of the budget are left; give more with {}",
                      format_duration_s(needed), format_duration_s(std::max(left_s, 0.0)), setup_.options.budget);
    }
  }

  void make_sets(std::list<candidate>& all, std::list<input_set>& sets) {
    const auto start = clock::now();
    double estimated_s = 0;
    std::map<std::size_t, candidate*> first;
    std::map<std::size_t, forward_outcome> forwards;
    for (auto& c : all) {
      if (!c.runs) continue;
      forward_outcome& forward = forwards[c.case_index];
      // What nobody could make is not tried again for another implementation.
      if (!forward.made && !forward.told.empty() && !tell_forward(c, forward)) continue;
      const auto [at, is_first] = first.try_emplace(c.case_index, &c);
      if (is_first || !same_inputs(at->second->agreed.agreed, c.agreed.agreed))
        estimated_s += costs_.inputs_s(c.definition, c.agreed.agreed);
      const bool large = is_large_gradient(c.definition);
      if (!is_first && same_inputs(at->second->agreed.agreed, c.agreed.agreed)) {
        sets.push_back(with_other_outputs(c.definition, *at->second->set, c.agreed.agreed));
      } else {
        sets.push_back(make_inputs(c.definition, c.agreed.agreed,
                                   large ? forward_results::left_to_caller : forward_results::computed));
        if (!is_first) c.item.remarks.push_back("on a copy of the inputs, since it takes them in another layout");
        if (large) take_forward(sets.back(), c, is_first ? nullptr : at->second->set, forward);
      }
      if (large && !tell_forward(c, forward)) {
        sets.pop_back();
        continue;
      }
      leave_out_training_outputs(sets.back());
      c.set = &sets.back();
      if (const auto counts = counts_of(view_of(*c.set, slot::ids), c.definition, c.agreed.agreed))
        c.item.work = least_work(c.definition, c.agreed.agreed, counts);
    }
    costs_.saw_inputs(estimated_s, seconds_since(start));
  }

  // out and lse of a large gradient's inputs; whoever has the case on another copy of the inputs gets the same.
  void take_forward(input_set& set, const candidate& c, const input_set* earlier, forward_outcome& seen) {
    if (!earlier) {
      if (seen.told.empty())
        seen = make_forward(set, c.definition, with_.queries, with_.labels,
                            setup_.timeout_s.value_or(process_limit_s(setup_.budget_s) + slow_s(c.definition)));
      if (interrupted()) run_.partial = true;
      return;
    }
    for (const slot where : {slot::out, slot::lse}) put_input(set, where, earlier->find(where)->view());
  }

  static bool tell_forward(candidate& c, const forward_outcome& seen) {
    if (seen.made) {
      c.item.remarks.push_back(seen.told);
    } else {
      c.runs = false;
      c.item.state = item_state::not_run;
      c.item.reason = seen.told;
    }
    return seen.made;
  }

  static const tensor_view* view_of(const input_set& set, slot s) {
    static thread_local tensor_view view;
    const buffer* b = set.find(s);
    if (!b || b->dir != direction::in) return nullptr;
    view = b->view();
    return &view;
  }

  // Of a device all of a region is there, of a CPU what is filled.
  double held_bytes(const input_set& set) const {
    if (!with_.on_device) return static_cast<double>(set.bytes());
    std::map<const shared_region*, double> regions;
    for (const auto* buffers : {&set.inputs, &set.outputs})
      for (const buffer& b : *buffers)
        if (b.region) regions[b.region.get()] = static_cast<double>(b.region->bytes());
    double total = 0;
    for (const auto& [region, bytes] : regions) total += bytes;
    return total;
  }

  // How often sets are rotated: as far apart as twice the last-level cache if the memory allows.
  // Returns the bytes that are copied.
  point_costs::copied_bytes plan_rotation(std::list<candidate>& all, perf_point& point) const {
    double round_bytes = 0, rotated = 0, held = 0;
    for (const auto& c : all) {
      if (!c.runs) continue;
      const double times = leads_in(c) ? 2 : 1;
      round_bytes += times * c.item.work.compulsory_bytes;
      rotated += times * static_cast<double>(c.set->bytes());
      held += times * held_bytes(*c.set);
    }
    const double memory = with_.on_device ? on_.free_bytes : setup_.available_memory_bytes;
    if (setup_.cold) {
      std::int64_t rounds = rounds_until_reuse(round_bytes, cold_factor * cache_bytes());
      // Sets of a group: as many as it uses in so many rounds. Without another one nothing is copied.
      const double room = memory * usable_memory / 2;
      if (room > 0 && rounds > 1 && held * static_cast<double>(rounds) > room)
        rounds = std::max<std::int64_t>(1, static_cast<std::int64_t>(room / held));
      point.rounds_of_sets = rounds;
      point.reuse_distance_bytes = static_cast<double>(rounds) * round_bytes;
      point.cold = point.reuse_distance_bytes >= cold_factor * cache_bytes();
    }
    const double rounds = std::max(1.0, static_cast<double>(point.rounds_of_sets));
    const double more = with_.on_device ? plan_back_to_back(all, rounds, memory * usable_memory - rounds * held) : 0;
    return {rotated, (setup_.cold ? rounds - 1 : 0) * rotated + more};
  }

  // Launches back to back are those of one item alone, so its own input sets have to be far enough apart. Returns the bytes
  // that are copied for it.
  double plan_back_to_back(std::list<candidate>& all, double rounds, double room) const {
    double copied = 0;
    for (auto& c : all) {
      if (!c.runs) continue;
      const std::int64_t wanted =
          setup_.cold ? rounds_until_reuse(c.item.work.compulsory_bytes, cold_factor * cache_bytes()) : 1;
      const double more = std::max(0.0, static_cast<double>(wanted) - rounds), bytes = held_bytes(*c.set);
      // What is there already is enough for launches that read more than twice the cache.
      if (wanted > most_sets_in_a_row || (more > 0 && more * bytes > room)) {
        c.item.in_a_row.reason = fmt::format("{} input sets of {} would be needed to keep launches in a row cold",
                                             wanted, format_bytes(bytes));
        continue;
      }
      room -= more * bytes;
      copied += more * static_cast<double>(c.set->bytes());
      c.least_sets = wanted;
    }
    return copied;
  }

  bool leads_in(const candidate& c) const { return !with_.on_device && c.predicted_s < lead_in_below_s; }

  void time_point(std::list<candidate>& all, perf_point& point, double budget_s, double left_s) {
    std::vector<timed_side> sides;
    for (auto& c : all) {
      if (!c.runs) continue;
      // Sides share a group where they share inputs.
      int group = static_cast<int>(sides.size());
      for (std::size_t s = 0; s < sides.size(); ++s)
        if (!c.set->inputs.empty() && !sides[s].set->inputs.empty() &&
            sides[s].set->inputs.front().region == c.set->inputs.front().region)
          group = sides[s].group;
      timed_side side;
      side.implementation = c.implementation;
      side.group = group;
      side.lead_in = leads_in(c);
      side.set = c.set;
      c.timed = true;
      sides.push_back(side);
    }
    if (sides.empty()) return;
    const point_costs::copied_bytes copied = plan_rotation(all, point);
    double spent_s = costs_.copies_s(copied);
    for (const auto& c : all)
      if (c.runs) spent_s += costs_.verification_s(c.definition);
    time_wishes wishes{.own_s = budget_s - spent_s, .left_s = left_s - spent_s, .at_any_price = is_whole()};
    wishes.fewest_s = is_whole() ? fewest_samples_s(all) : shortest_loop_s;
    std::size_t at = 0;
    for (const auto& c : all) {
      if (!c.runs) continue;
      sides[at].least_sets = c.least_sets;
      sides[at].back_to_back = with_.on_device && c.item.in_a_row.reason.empty();
      if (sides[at++].back_to_back) {
        wishes.least_in_a_row_s += room_for_launches * costs_.in_a_row_s(c.predicted_s);
        // Two runs, each with what comes first and is not timed, and room for what captures and waits take.
        wishes.wanted_in_a_row_s += 2 * 3 * std::max(in_a_row_s, c.predicted_s);
      }
    }
    const time_shares shares = share_time(wishes);
    run_spec how;
    how.poison_seed = setup_.what.seed;
    how.timing.enabled = true;
    how.timing.warmup = warmup_launches;
    how.timing.min_samples = fewest_samples();
    how.timing.graph = with_.on_device && point.query_tokens <= most_graph_tokens;
    how.timing.cold_sets = static_cast<std::int32_t>(point.rounds_of_sets);
    how.timing.min_seconds = shortest_loop_s;
    how.timing.budget_s = shares.samples_s;
    how.timing.back_to_back_s = with_.on_device ? in_a_row_s : 0;
    how.timing.back_to_back_budget_s = shares.in_a_row_s;
    how.timeout_s = setup_.timeout_s.value_or(time_limit_s(all, shares.samples_s + shares.in_a_row_s));
    const auto start = clock::now();
    timed_observation seen = with_.timing->run(sides, how);
    double in_a_row = 0;
    for (const auto& side : seen.sides)
      for (const auto& r : side.in_a_row.runs) in_a_row += static_cast<double>(r.launches + r.lead) * r.time_us * 1e-6;
    costs_.saw_copies(copied, seconds_since(start) - seen.seconds - in_a_row);
    // A neighbour may have been there for a moment only.
    if (!with_.on_device && !setup_.tell_busy && seen.conditions_known && !seen.interrupted &&
        !too_busy(seen.usage, setup_.limits).empty() &&
        seconds_since(start_) + seen.seconds + costs_.copies_s(copied) <= setup_.budget_s)
      seen = with_.timing->run(sides, how);
    take(std::move(seen), all, point);
  }

  // A chunk whose inputs took longer than they were taken to is timed nevertheless: without a time it says nothing.
  double fewest_samples_s(const std::list<candidate>& all) const {
    double seconds = 0;
    for (const auto& c : all)
      if (c.runs) seconds += room_for_launches * (warmup_launches + fewest_samples()) * c.predicted_s;
    return seconds;
  }

  static double time_limit_s(const std::list<candidate>& all, double budget_s) {
    double seconds = process_limit_s(budget_s);
    for (const auto& c : all)
      if (c.runs) seconds += slow_s(c.definition);
    return seconds;
  }

  void take(timed_observation seen, std::list<candidate>& all, perf_point& point) {
    if (seen.interrupted) run_.partial = true;
    point.budget_ended = seen.budget_ended;
    point.conditions_known = seen.conditions_known;
    usage_ = seen.usage;
    point.others = usage_.others;
    point.steal = usage_.steal;
    point.load = usage_.load;
    point.mhz = usage_.mhz;
    point.ceilings = ceilings_of(seen.probes);
    std::size_t next = 0;
    for (auto& c : all) {
      if (!c.runs) continue;
      side_observation& side = seen.sides[next++];
      c.item.launches = side.launches;
      if (c.item.in_a_row.reason.empty()) c.item.in_a_row = std::move(side.in_a_row);
      c.left_out = side.left_out;
      if (!side.seen.timing.empty()) c.item.timing = side.seen.timing.front();
      c.item.remarks.insert(c.item.remarks.end(), side.seen.remarks.begin(), side.seen.remarks.end());
      c.item.captured_output += side.seen.captured_output;
      if (seen.interrupted) {
        c.item.state = item_state::not_run;
        c.item.reason = "interrupted";
        c.runs = false;
        continue;
      }
      if (seen.ended && side.seen.result == outcome::completed) {
        c.item.state = item_state::not_run;
        c.item.reason = fmt::format("the process ended{}: {}", name_of(all, seen.ended_in), seen.end);
        c.runs = false;
        continue;
      }
      if (lacks_room(c.item, side.seen)) {
        c.runs = false;
        continue;
      }
      const auto start = clock::now();
      verify_item(c.item, c.definition, c.agreed, *c.set, side);
      costs_.saw_verification(c.definition, seconds_since(start));
      if (!side.seen.launches.empty())
        if (const auto at = side.seen.launches.front().outputs.find(slot::ids);
            at != side.seen.launches.front().outputs.end() && c.item.state == item_state::measured)
          if (const auto counts = counts_of(&at->second, c.definition, c.agreed.agreed))
            c.item.work = least_work(c.definition, c.agreed.agreed, counts);
    }
  }

  // " in" it; empty where no side is to blame.
  std::string name_of(const std::list<candidate>& all, int side) const {
    for (const auto& c : all)
      if (c.timed && side-- == 0)
        return fmt::format(" in {} by {}", c.item.operation, with_.labels[static_cast<std::size_t>(c.implementation)]);
    return "";
  }

  void finish_item(candidate& c, const perf_point& point, const std::string& busy) {
    perf_item& item = c.item;
    item.time_us = summarize(item.timing.time_us);
    item.converged = item.time_us.count >= stopping_rule{}.min_long_samples &&
                     item.time_us.relative_half_width <= stopping_rule{}.relative_half_width;
    if (item.state == item_state::failed) return;
    if (item.time_us.count == 0) {
      item.state = item_state::not_run;
      item.reason = c.left_out.empty() ? "no sample was taken" : c.left_out;
      return;
    }
    const double seconds = item.time_us.median * 1e-6;
    item.low_clock = low_clock_samples(item.timing.sm_mhz);
    costs_.saw_launch(c.definition, c.agreed.agreed, c.implementation, seconds);
    if (!busy.empty() && !setup_.tell_busy) {
      item.state = item_state::busy;
      item.reason = "too busy to tell: " + busy;
      return;
    }
    if (!busy.empty()) item.remarks.push_back("measured on a busy machine: " + busy);
    if (!idleness_.empty()) item.remarks.push_back(idleness_);
    item.figures = figures_of(item.work, point.ceilings, operands_of(c.agreed.agreed, c.definition.type), seconds);
  }

  // Above what the machine can do is an error of the ceiling: it is measured again, and else not told.
  void check_ceilings(perf_point& point) {
    const auto above = [](const perf_item& i) {
      return i.figures && i.figures->roofline_s > 0 && !i.figures->efficiency;
    };
    if (std::ranges::none_of(point.items, above)) return;
    keep_higher(point.ceilings, ceilings_of(time_nothing().probes));
    for (auto& i : point.items) {
      if (!i.figures) continue;
      const case_spec c = parse_case(i.name);
      i.figures = figures_of(i.work, point.ceilings, operands_of(make_problem(c), c.type), i.time_us.median * 1e-6);
      if (above(i))
        i.remarks.push_back(fmt::format("faster than the limits that were measured, {:.2f} times, twice: no efficiency",
                                        i.figures->roofline_s / (i.time_us.median * 1e-6)));
    }
  }

  const perf_setup& setup_;
  const perf_executors& with_;
  const perf_events& events_;
  perf_run& run_;
  clock::time_point start_;  // of the budget: the limits are known by then
  perf_ceilings assumed_;
  point_costs costs_;
  double others_ = 0;  // share of the CPUs that others used before the run
  cpu_usage usage_;
  timed_device on_;
  std::string idleness_;  // a remark on every figure of a GPU that was not seen idle
};

}  // namespace

std::uint64_t probe_bytes(const perf_setup& setup) {
  const double wanted = cold_factor * static_cast<double>(setup.last_level_cache_bytes.value_or(assumed_cache_bytes));
  const double room = setup.available_memory_bytes > 0 ? setup.available_memory_bytes / 4 : wanted;
  constexpr double huge_page = 2 << 20;
  return static_cast<std::uint64_t>(std::floor(std::min(wanted, room) / huge_page) * huge_page);
}

void measure(const perf_setup& setup, const perf_executors& with, const perf_events& events, perf_run& run) {
  measurement m(setup, with, events, run);
  m.all();
  m.finish();
}

}  // namespace msabench
