// SPDX-License-Identifier: Apache-2.0
#include "perf/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <list>
#include <map>
#include <tuple>

#include "core/environment_error.h"
#include "core/error.h"
#include "core/selection_counts.h"
#include "core/statistics.h"
#include "core/units.h"
#include "host/interrupt.h"
#include "perf/figures.h"
#include "perf/verify.h"

namespace msabench {
namespace {

using clock = std::chrono::steady_clock;

constexpr std::uint64_t assumed_cache_bytes = std::uint64_t{64} << 20;
// Inputs come from memory where at least so many times the last-level cache was touched since they were used.
constexpr double cold_factor = 2;
// Share of the machine's limits that an implementation is taken to reach before it has been seen.
constexpr double assumed_efficiency = 0.25;
// Launches shorter than this get a lead-in: threads that sleep take tens of microseconds to wake.
constexpr double lead_in_below_s = 5e-3;
constexpr std::int32_t warmup = 2;
// Engines replay decode, up to so many tokens of a draft, as graphs.
constexpr std::int64_t most_graph_tokens = 16;
constexpr double shortest_loop_s = 0.5;
constexpr double usable_memory = 0.8;
// Making input sets and copies of them, fresh memory included.
constexpr double copied_bytes_per_s = 0.35e9;

double seconds_since(clock::time_point start) { return std::chrono::duration<double>(clock::now() - start).count(); }

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

perf_ceilings ceilings_of(const probe_samples& probes) {
  perf_ceilings c;
  if (!probes.source.empty()) c.source = "measured between the samples, medians: " + probes.source;
  if (probes.bytes_per_s.empty()) return c;
  c.bytes_per_s = median_of(probes.bytes_per_s);
  if (!probes.flops_per_s.empty())
    for (const std::string& type : probes.types) c.flops[type] = median_of(probes.flops_per_s);
  c.flops_samples = probes.flops_per_s;
  c.bytes_samples = probes.bytes_per_s;
  return c;
}

void keep_higher(perf_ceilings& c, const perf_ceilings& other) {
  for (auto& [type, flops] : c.flops)
    if (const auto at = other.flops.find(type); at != other.flops.end()) flops = std::max(flops, at->second);
  c.bytes_per_s = std::max(c.bytes_per_s, other.bytes_per_s);
}

// What was selected, where ids in canonical form tell; nothing for a tensor that is laid out otherwise.
std::optional<selection_counts> counts_of(const tensor_view* ids, const case_spec& c, const problem& p) {
  const auto batch = sequences(c);
  if (!ids || ids->data == nullptr || ids->desc.type != i32 || ids->desc.shape.size() != 3) return std::nullopt;
  if (ids->desc.shape[0] != query_rows(batch) || ids->desc.shape[1] != p.hkv || ids->desc.shape[2] != p.topk ||
      ids->desc.span_elements() != ids->desc.elements())
    return std::nullopt;
  const auto* first = static_cast<const std::int32_t*>(ids->data);
  return count_selection({first, static_cast<std::size_t>(ids->desc.elements())}, batch, p.hkv, p.block, p.topk);
}

struct candidate {
  case_spec definition;
  int implementation = 0;
  std::size_t case_index = 0;
  agreement agreed;
  perf_item item;
  double predicted_s = 0;  // of one launch
  bool runs = false;
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
    const auto points = plan_suite(setup_.what);
    require_memory(points);
    require_quiet();
    const timed_observation first = time_nothing();
    start_ = clock::now();
    if (first.interrupted) return void(run_.partial = true);
    take_device(first);
    assumed_ = ceilings_of(first.probes);
    for (const auto& p : points) run_.estimated_s += estimate(p);
    events_.planned(run_);
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (interrupted()) run_.partial = true;
      if (run_.partial) return;
      double weight = 0;
      for (std::size_t j = i; j < points.size(); ++j) weight += estimate(points[j]);
      const double left = setup_.budget_s - seconds_since(start_);
      run_.points.push_back(measure_point(points[i], left, left * estimate(points[i]) / weight));
      if (run_.partial) return;
      events_.measured(run_.points.back());
    }
  }

  void finish() {
    std::vector<double> flops, bytes;
    for (const auto& p : run_.points) {
      flops.insert(flops.end(), p.ceilings.flops_samples.begin(), p.ceilings.flops_samples.end());
      bytes.insert(bytes.end(), p.ceilings.bytes_samples.begin(), p.ceilings.bytes_samples.end());
    }
    run_.ceilings = assumed_;
    if (!flops.empty()) {
      for (auto& [type, peak] : run_.ceilings.flops) peak = median_of(flops);
      run_.ceilings.bytes_per_s = median_of(bytes);
    }
    run_.ceilings.flops_samples.clear();
    run_.ceilings.bytes_samples.clear();
    if (setup_.what.suite == perf_suite::crossover) find_crossovers();
  }

 private:
  void take_device(const timed_observation& first) {
    if (!with_.on_device) return;
    if (first.ended)
      throw environment_error({"worker", "", "ended before anything was timed: " + first.end, "see its output"});
    if (!first.on.busy.empty() && !setup_.tell_busy)
      throw environment_error({"device", first.on.name, "too busy to measure: " + first.on.busy,
                               "wait until it is idle, or take --busy tell for numbers that are marked"});
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

  void require_quiet() const {
    if (with_.on_device) return;
    const auto seen = watch_machine(setup_.watch, setup_.watch_s);
    if (!seen || setup_.tell_busy) return;
    if (const std::string why = too_busy(*seen, setup_.limits); !why.empty())
      throw environment_error({"machine", "", "too busy to measure: " + why,
                               "wait until it is idle, or take --busy tell for numbers that are marked"});
  }

  timed_observation time_nothing() {
    run_spec how;
    how.timing.enabled = true;
    how.timing.probes = true;
    return with_.timing->run({}, how);
  }

  double roofline_s(const case_spec& c, const problem& p) const {
    const work w = work_of_case(c, p);
    if (const auto limit = roofline_of({w.useful_flops, {}, w.compulsory_bytes.least, 0}, assumed_, c.type))
      return limit->seconds;
    // Without a limit of arithmetic for the type: a guess for planning, of what a device does with others.
    double flops = 1e12;
    for (const auto& [type, peak] : assumed_.flops) flops = std::min(flops, peak / 16);
    const double by_bytes = assumed_.bytes_per_s > 0 ? w.compulsory_bytes.least / assumed_.bytes_per_s : 0;
    return std::max(by_bytes, w.useful_flops / flops);
  }

  double predict_launch_s(const case_spec& c, const problem& p, int implementation) const {
    const auto seen = slowness_.find({implementation, c.operation, many_rows(c)});
    const double call_s = 5e-6;
    return call_s + roofline_s(c, p) * (seen == slowness_.end() ? 1 / assumed_efficiency : seen->second);
  }

  // With the fewest samples that count.
  static double fewest_samples_s(double launch_s) {
    return launch_s * (launch_s > stopping_rule{}.long_item_s ? 1 + 3 : warmup + 10);
  }

  // With so few that something can be said at all.
  static double least_samples_s(double launch_s) { return launch_s * (warmup + 3); }

  double estimate(const suite_point& p) const {
    double seconds = shortest_loop_s + 0.5, bytes = 0, touched = 0;
    for (const auto& c : p.cases) {
      bytes += set_bytes(c, make_problem(c));
      touched += work_of_case(c, make_problem(c)).compulsory_bytes.least;
    }
    if (setup_.cold) bytes *= 1 + static_cast<double>(rounds_until_reuse(touched, cold_factor * cache_bytes()));
    seconds += bytes / copied_bytes_per_s;
    for (const auto& c : p.cases)
      for (int i = 0; i < static_cast<int>(with_.queries.size()); ++i)
        seconds += fewest_samples_s(predict_launch_s(c, make_problem(c), i)) + verification_s(c);
    return seconds;
  }

  perf_point measure_point(const suite_point& p, double left_s, double budget_s) {
    const auto start = clock::now();
    perf_point point;
    point.phase = p.phase;
    point.query_tokens = p.query_tokens;
    point.context = p.context;
    point.batch = p.batch;
    point.selection = name(setup_.what.selection);
    point.estimated_s = estimate(p);
    std::list<candidate> all = negotiate_all(p);
    fit_into(all, left_s);
    std::list<input_set> sets;
    make_sets(all, sets);
    time_point(all, point, budget_s - seconds_since(start));
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
        c.runs = !refuse_item(c.item, c.definition, c.agreed);
        if (c.runs) {
          c.predicted_s = predict_launch_s(c.definition, c.agreed.agreed, i);
          const work w = work_of_case(c.definition, c.agreed.agreed);
          c.item.work = {w.useful_flops, {}, w.compulsory_bytes.least, w.algorithmic_bytes};
        }
        all.push_back(std::move(c));
      }
    return all;
  }

  // Leaves out the longest items until the others fit into the time that is left.
  static void fit_into(std::list<candidate>& all, double left_s) {
    for (;;) {
      double needed = shortest_loop_s;
      candidate* longest = nullptr;
      for (auto& c : all) {
        if (!c.runs) continue;
        needed += least_samples_s(c.predicted_s) + verification_s(c.definition) +
                  set_bytes(c.definition, c.agreed.agreed) / copied_bytes_per_s;
        if (!longest || c.predicted_s > longest->predicted_s) longest = &c;
      }
      if (!longest || needed <= left_s) return;
      longest->runs = false;
      longest->item.state = item_state::not_run;
      longest->item.reason = fmt::format("needs about {} with the others of this point, {} of the budget are left",
                                         format_duration_s(needed), format_duration_s(std::max(left_s, 0.0)));
    }
  }

  static void make_sets(std::list<candidate>& all, std::list<input_set>& sets) {
    std::map<std::size_t, candidate*> first;
    for (auto& c : all) {
      if (!c.runs) continue;
      const auto [at, is_first] = first.try_emplace(c.case_index, &c);
      if (is_first) {
        sets.push_back(make_inputs(c.definition, c.agreed.agreed));
      } else if (same_inputs(at->second->agreed.agreed, c.agreed.agreed)) {
        sets.push_back(with_other_outputs(c.definition, *at->second->set, c.agreed.agreed));
      } else {
        sets.push_back(make_inputs(c.definition, c.agreed.agreed));
        c.item.remarks.push_back("on a copy of the inputs, since it takes them in another layout");
      }
      leave_out_training_outputs(sets.back());
      c.set = &sets.back();
      if (const auto counts = counts_of(view_of(*c.set, slot::ids), c.definition, c.agreed.agreed))
        take_work(c, work_of_case(c.definition, c.agreed.agreed, counts));
    }
  }

  static const tensor_view* view_of(const input_set& set, slot s) {
    static thread_local tensor_view view;
    const buffer* b = set.find(s);
    if (!b || b->dir != direction::in) return nullptr;
    view = b->view();
    return &view;
  }

  static void take_work(candidate& c, const work& w) {
    c.item.work = {w.useful_flops, {}, w.compulsory_bytes.least, w.algorithmic_bytes};
  }

  // How often sets are rotated: as far apart as twice the last-level cache if the memory allows.
  // Returns the bytes that are copied.
  double plan_rotation(const std::list<candidate>& all, perf_point& point) const {
    double round_bytes = 0, rotated = 0;
    for (const auto& c : all) {
      if (!c.runs) continue;
      const double times = leads_in(c) ? 2 : 1;
      round_bytes += times * c.item.work.compulsory_bytes;
      rotated += times * static_cast<double>(c.set->bytes());
    }
    if (!setup_.cold) return rotated;
    std::int64_t rounds = rounds_until_reuse(round_bytes, cold_factor * cache_bytes());
    // Sets of a group: as many as it uses in so many rounds. Without another one nothing is copied.
    const double memory = with_.on_device ? on_.free_bytes : setup_.available_memory_bytes;
    const double room = memory * usable_memory / 2;
    if (room > 0 && rounds > 1 && rotated * static_cast<double>(rounds) > room)
      rounds = std::max<std::int64_t>(1, static_cast<std::int64_t>(room / rotated));
    point.rounds_of_sets = rounds;
    point.reuse_distance_bytes = static_cast<double>(rounds) * round_bytes;
    point.cold = point.reuse_distance_bytes >= cold_factor * cache_bytes();
    return static_cast<double>(rounds) * rotated;
  }

  // A kernel is another one in decode than in prefill.
  static bool many_rows(const case_spec& c) { return sequences(c).front().q_len > 1; }

  bool leads_in(const candidate& c) const { return !with_.on_device && c.predicted_s < lead_in_below_s; }

  void time_point(std::list<candidate>& all, perf_point& point, double budget_s) {
    std::vector<timed_side> sides;
    for (auto& c : all) {
      if (!c.runs) continue;
      // Sides share a group where they share inputs.
      int group = static_cast<int>(sides.size());
      for (std::size_t s = 0; s < sides.size(); ++s)
        if (!c.set->inputs.empty() && !sides[s].set->inputs.empty() &&
            sides[s].set->inputs.front().region == c.set->inputs.front().region)
          group = sides[s].group;
      sides.push_back({c.implementation, group, leads_in(c), c.set});
    }
    if (sides.empty()) return;
    const double copied = plan_rotation(all, point);
    budget_s -= copied / copied_bytes_per_s;
    for (const auto& c : all)
      if (c.runs) budget_s -= verification_s(c.definition);
    budget_s = std::max(budget_s, shortest_loop_s);
    run_spec how;
    how.poison_seed = setup_.what.seed;
    how.timing.enabled = true;
    how.timing.warmup = warmup;
    how.timing.graph = with_.on_device && point.query_tokens <= most_graph_tokens;
    how.timing.cold_sets = static_cast<std::int32_t>(point.rounds_of_sets);
    how.timing.min_seconds = shortest_loop_s;
    how.timing.budget_s = budget_s;
    how.timeout_s = setup_.timeout_s.value_or(time_limit_s(all, how.timing.budget_s));
    timed_observation seen = with_.timing->run(sides, how);
    // A neighbour may have been there for a moment only.
    if (!with_.on_device && !setup_.tell_busy && seen.conditions_known && !seen.interrupted &&
        !too_busy(seen.usage, setup_.limits).empty())
      seen = with_.timing->run(sides, how);
    take(std::move(seen), all, point);
  }

  static double time_limit_s(const std::list<candidate>& all, double budget_s) {
    constexpr double start_s = 60, slow_triples_per_s = 0.5e6;
    double seconds = start_s + 3 * budget_s;
    for (const auto& c : all)
      if (c.runs) seconds += 4 * static_cast<double>(cost_triples(c.definition)) / slow_triples_per_s;
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
        c.item.reason = fmt::format("the process ended in {}: {}", name_of(all, seen.ended_in), seen.end);
        c.runs = false;
        continue;
      }
      verify_item(c.item, c.definition, c.agreed, *c.set, side);
      if (!side.seen.launches.empty())
        if (const auto at = side.seen.launches.front().outputs.find(slot::ids);
            at != side.seen.launches.front().outputs.end() && c.item.state == item_state::measured)
          if (const auto counts = counts_of(&at->second, c.definition, c.agreed.agreed))
            take_work(c, work_of_case(c.definition, c.agreed.agreed, counts));
    }
  }

  static std::string name_of(const std::list<candidate>& all, int side) {
    for (const auto& c : all)
      if (c.set && side-- == 0) return c.item.operation;
    return "another item";
  }

  void finish_item(candidate& c, const perf_point& point, const std::string& busy) {
    perf_item& item = c.item;
    item.time_us = summarize(item.timing.time_us);
    item.converged = item.time_us.count >= stopping_rule{}.min_long_samples &&
                     item.time_us.relative_half_width <= stopping_rule{}.relative_half_width;
    if (item.state == item_state::failed) return;
    if (item.time_us.count == 0) {
      item.state = item_state::not_run;
      item.reason = "no sample was taken";
      return;
    }
    const double seconds = item.time_us.median * 1e-6;
    if (const double least = roofline_s(c.definition, c.agreed.agreed); least > 0)
      slowness_[{c.implementation, c.definition.operation, many_rows(c.definition)}] =
          std::max(seconds - 5e-6, 1e-9) / least;
    if (!busy.empty() && !setup_.tell_busy) {
      item.state = item_state::busy;
      item.reason = "too busy to tell: " + busy;
      return;
    }
    if (!busy.empty()) item.remarks.push_back("measured on a busy machine: " + busy);
    if (!idleness_.empty()) item.remarks.push_back(idleness_);
    item.figures = figures_of(item.work, point.ceilings, c.definition.type, seconds);
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
      i.figures = figures_of(i.work, point.ceilings, parse_case(i.name).type, i.time_us.median * 1e-6);
      if (above(i))
        i.remarks.push_back(fmt::format("faster than the limits that were measured, {:.2f} times, twice: no efficiency",
                                        i.figures->roofline_s / (i.time_us.median * 1e-6)));
    }
  }

  void find_crossovers() {
    for (int i = 0; i < static_cast<int>(with_.queries.size()); ++i) {
      std::vector<context_ratio> ratios;
      for (const auto& p : run_.points)
        for (const auto& item : p.items)
          if (item.implementation == i && item.operation == name(op::msa) && item.figures &&
              item.figures->gain_over_dense)
            ratios.push_back({p.context, 1 / *item.figures->gain_over_dense});
      const measured_crossover at = crossover_of(ratios);
      std::string note = at.at_most       ? "at the shortest context already"
                         : ratios.empty() ? "msa and dense were not both measured"
                         : at.context     ? ""
                                          : "not up to the longest context";
      run_.crossovers.push_back({i, at.context, std::move(note)});
    }
  }

  const perf_setup& setup_;
  const perf_executors& with_;
  const perf_events& events_;
  perf_run& run_;
  clock::time_point start_;  // of the budget: the limits are known by then
  perf_ceilings assumed_;
  cpu_usage usage_;
  timed_device on_;
  std::string idleness_;                                  // a remark on every figure of a GPU that was not seen idle
  std::map<std::tuple<int, op, bool>, double> slowness_;  // time / roofline time, as last seen
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
