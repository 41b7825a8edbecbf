// SPDX-License-Identifier: Apache-2.0
#include "host/worker/timed_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <thread>

#include "core/environment_error.h"
#include "core/error.h"
#include "core/statistics.h"
#include "core/units.h"
#include "host/conditions.h"
#include "host/executor.h"
#include "host/worker/device_probes.h"
#include "host/worker/gpu_watch.h"
#include "host/worker/timing_memory.h"

namespace msabench {
namespace {

using clock = std::chrono::steady_clock;

// Of a probe: long enough to be steady, short enough to stand between two samples.
constexpr double flops_probe_s = 0.004, read_probe_s = 0.008;
// Probes take about a tenth of the time, and are never fewer than this.
constexpr double probe_share = 0.1;
constexpr std::size_t fewest_probes = 5;
// Threads of an OpenMP runtime spin for about a millisecond after their work, and would slow a probe down.
constexpr auto settling = std::chrono::milliseconds(3);
// The system counts CPU time in hundredths of a second.
constexpr double conditions_period_s = 0.1;
constexpr std::size_t most_samples = 4000;
// A GPU that has worked for so long since its clock was read may have another one by now.
constexpr double clock_changes_s = 1e-3;
// A launch begins once the clock is back at this share of the highest that was seen, or so much later: what begins at recovered
// clocks can be compared (perf/clocks.h).
constexpr double recovered_share = 0.97;
constexpr double longest_recovery_s = 0.02;
constexpr auto recovery_step = std::chrono::milliseconds(2);
// Runs of launches in a row: how many, what comes first without being timed as a share of what is timed (the power limit
// bites after 40 to 80 ms), and how many launches at most. Launches above a second have met the limit by themselves.
constexpr int runs_in_a_row = 2;
constexpr double lead_share = 2.0 / 3;
constexpr double most_in_a_row = 20000, longest_in_a_row_s = 1;
// Share of its time that a GPU may have worked for others just before a run.
constexpr double busy_share = 0.05;

double seconds_since(clock::time_point start) { return std::chrono::duration<double>(clock::now() - start).count(); }

class timed_loop {
 public:
  timed_loop(protocol::timed_request& request, const timed_run_environment& in)
      : request_(request),
        in_(in),
        rule_(rule_of(request.how.timing)),
        sets_(sets_of_regions(request)),
        memory_(in.device ? make_device_timing_memory(in.device, request.regions, sets_)
                          : make_host_timing_memory(request.regions, sets_, available_memory_bytes())) {
    out_.sides.resize(request.sides.size());
    if (in.device) look_at_device();
    for (std::size_t s = 0; s < request.sides.size(); ++s) prepare(s);
  }

  timed_observation run() {
    if (request_.how.timing.probes) start_probes();
    begin_ = clock::now();
    warm_up();
    leave_out();
    loop();
    launch_back_to_back();
    look_at_memory();
    for (side& s : sides_)
      if (s.plan) s.plan->inspect(out_.sides[s.index].seen);
    collect();
    for (side& s : sides_) out_.sides[s.index].launches = s.launches;
    return std::move(out_);
  }

 private:
  struct side {
    std::size_t index = 0;
    int group = 0;
    bool lead_in = false, back_to_back = false;
    std::unique_ptr<prepared_plan> plan;  // null: it has failed
    std::vector<std::size_t> bound;       // per set
    std::vector<char> used;               // per set
    std::vector<double> seconds;
    samples raw;
    std::int64_t launches = 0;
    double last_s = 0;
  };

  static stopping_rule rule_of(const timing_spec& t) {
    stopping_rule r;
    r.min_samples = static_cast<std::size_t>(std::max(t.min_samples, 1));
    r.min_long_samples = static_cast<std::size_t>(std::max(t.min_long_samples, 1));
    r.relative_half_width = t.relative_half_width;
    return r;
  }

  // Of a region: those of the group that has it.
  static std::vector<std::int64_t> sets_of_regions(const protocol::timed_request& request) {
    std::map<int, std::int64_t> per_round, least;
    for (const auto& s : request.sides) {
      per_round[s.group] += s.lead_in ? 2 : 1;
      least[s.group] = std::max(least[s.group], s.least_sets);
    }
    std::vector<std::int64_t> sets(request.regions.size(), 1);
    for (const auto& s : request.sides)
      for (const auto& t : s.tensors)
        if (t.region >= 0)
          sets[static_cast<std::size_t>(t.region)] =
              std::max(sets_of_group(per_round[s.group], request.how.timing.cold_sets), least[s.group]);
    return sets;
  }

  void prepare(std::size_t index) {
    const auto& wanted = request_.sides[index];
    side s;
    s.index = index;
    s.group = wanted.group;
    s.lead_in = wanted.lead_in;
    s.back_to_back = wanted.back_to_back;
    note(index);
    s.plan = in_.session(wanted.implementation)
                 .prepare(wanted.agreed, request_.how.timing.graph, out_.sides[index].seen, *in_.events);
    std::int64_t sets = 1;
    for (const auto& t : wanted.tensors)
      if (t.region >= 0) sets = sets_[static_cast<std::size_t>(t.region)];
    for (std::int64_t set = 0; s.plan && set < sets; ++set) {
      bound_case c{wanted.agreed, {}, {}, {}};
      for (const auto& t : wanted.tensors) {
        c.tensors.push_back(t.tensor);
        if (t.region < 0) continue;
        const auto& region = request_.regions[static_cast<std::size_t>(t.region)];
        c.tensors.back().data = memory_->base(t.region, set) + (t.tensor.data - region.memory->data());
      }
      s.bound.push_back(s.plan->bind(std::move(c)));
    }
    for (const auto& t : wanted.tensors)
      if (t.region >= 0 && memory_->sparse(t.region)) {
        out_.sides[index].seen.remarks.push_back(std::string(msabench::name(t.tensor.where)) +
                                                 " is sparse and lies in small pages, which slows reading down");
        break;
      }
    s.used.assign(s.bound.size(), 0);
    groups_[s.group].sets = sets;
    sides_.push_back(std::move(s));
    in_.events->entering("run");
    note_none();
  }

  // The host reads this after a crash.
  void note(std::size_t which) { progress().store(static_cast<std::int32_t>(which) + 1, std::memory_order_relaxed); }
  void note_none() { progress().store(0, std::memory_order_relaxed); }
  std::atomic_ref<std::int32_t> progress() {
    return std::atomic_ref<std::int32_t>(*reinterpret_cast<std::int32_t*>(request_.progress->data()));
  }

  std::size_t next_set(const side& s) {
    group& g = groups_[s.group];
    const auto set = static_cast<std::size_t>(g.next);
    g.next = (g.next + 1) % g.sets;
    return set;
  }

  void drop(side& s) {
    s.plan->inspect(out_.sides[s.index].seen);
    s.plan.reset();
  }

  bool launch(side& s) {
    const std::size_t set = next_set(s);
    note(s.index);
    const auto seconds = s.plan->launch(s.bound[set], out_.sides[s.index].seen);
    note_none();
    ++s.launches;
    if (!seconds) {
      drop(s);
      return false;
    }
    s.used[set] = 1;
    s.last_s = *seconds;
    worked_s_ += *seconds;
    return true;
  }

  // One that takes a second needs no second one: what is compiled or paged in at first is less than that.
  void warm_up() {
    for (side& s : sides_)
      for (std::int32_t i = 0; s.plan && i < std::max(request_.how.timing.warmup, 1); ++i) {
        if (i == 0 && left_s() <= 0) {
          out_.sides[s.index].left_out = "the point's time was over before its first launch";
          out_.budget_ended = true;
          drop(s);
          break;
        }
        if (i > 0 && s.last_s > left_s()) break;
        const bool went_well = i == 0 ? launch_watched(s) : launch(s);
        if (!went_well || s.last_s > rule_.long_item_s) break;
      }
  }

  // Of the budget, warm-up included. What looking at inputs takes is no time of launches: of large ones on a device it is
  // longer than all of these, and would leave none for them.
  double spent_s() const { return seconds_since(begin_) - watched_s_; }
  double left_s() const {
    const timing_spec& how = request_.how.timing;
    if (!(how.budget_s > 0)) return std::numeric_limits<double>::infinity();
    return std::max(how.budget_s, how.min_seconds) - spent_s();
  }

  // What takes longer than it was taken to has no sample if there is no time for one: the longest first.
  void leave_out() {
    for (;;) {
      double round_s = 0;
      side* longest = nullptr;
      for (side& s : sides_) {
        if (!s.plan) continue;
        round_s += s.last_s * (s.lead_in ? 2 : 1);
        if (!longest || s.last_s > longest->last_s) longest = &s;
      }
      if (!longest || round_s <= left_s()) return;
      out_.sides[longest->index].left_out =
          fmt::format("a launch takes {}, {} of the point's time are left", format_duration_s(longest->last_s),
                      format_duration_s(std::max(left_s(), 0.0)));
      out_.budget_ended = true;
      drop(*longest);
    }
  }

  // A change of the inputs that every second launch undoes would not be seen at the end.
  bool launch_watched(side& s) {
    const std::int64_t set = groups_[s.group].next;
    const auto sums = [&] {
      const auto start = clock::now();
      std::vector<std::uint64_t> all;
      for (const auto& t : request_.sides[s.index].tensors)
        if (t.region >= 0 && t.tensor.dir == direction::in) all.push_back(memory_->checksum_of(t.region, set));
      watched_s_ += seconds_since(start);
      return all;
    };
    const auto before = sums();
    const bool went_well = launch(s);
    if (sums() != before)
      out_.sides[s.index].seen.violations.push_back(
          {violation::kind::input_modified, std::nullopt, "run", "an input has changed in the first launch"});
    return went_well;
  }

  void start_probes() {
    if (!*in_.probes && in_.device) *in_.probes = make_device_probes(in_.device);
    if (!*in_.probes) *in_.probes = std::make_unique<cpu_probes>(in_.threads, request_.probe_bytes);
    out_.probes.types = (*in_.probes)->types();
    out_.probes.source = (*in_.probes)->source();
    out_.probes.read_bytes = (*in_.probes)->read_bytes();
  }

  // Before any kernel of ours runs there, the first time; the host goes by that one.
  void look_at_device() {
    const cuda_facts facts = in_.device->facts();
    out_.on = {facts.name, static_cast<double>(facts.cache_bytes), static_cast<double>(facts.free_bytes), "", ""};
    watch_ = gpu_watch::open(facts.bus);
    const auto now = watch_ ? watch_->read() : std::nullopt;
    if (!now)
      out_.on.unseen = "NVML is not here, or does not tell";
    else if (now->utilization > busy_share)
      out_.on.busy = fmt::format("another process keeps the GPU busy {:.0f} % of the time", 100 * now->utilization);
  }

  void probe() {
    const auto start = clock::now();
    std::this_thread::sleep_for(settling);
    if (!out_.probes.types.empty()) out_.probes.flops_per_s.push_back((*in_.probes)->flops_per_s(flops_probe_s));
    if ((*in_.probes)->multiplies_e4m3())
      out_.probes.e4m3_flops_per_s.push_back((*in_.probes)->e4m3_flops_per_s(flops_probe_s));
    out_.probes.bytes_per_s.push_back((*in_.probes)->read_bytes_per_s(read_probe_s));
    worked_s_ += flops_probe_s;
    last_probe_ = clock::now();
    probe_s_ = std::chrono::duration<double>(last_probe_ - start).count();
  }

  bool probes_due() const {
    return request_.how.timing.probes &&
           (out_.probes.bytes_per_s.empty() || seconds_since(last_probe_) >= probe_s_ / probe_share);
  }

  bool alive() const {
    return std::ranges::any_of(sides_, [](const side& s) { return s.plan != nullptr; });
  }

  bool satisfied() {
    return std::ranges::all_of(sides_, [&](side& s) {
      return !s.plan || s.seconds.size() >= most_samples || enough_samples(s.seconds, rule_);
    });
  }

  void loop() {
    const timing_spec& how = request_.how.timing;
    const auto first = read_cpus();
    const double first_own = own_cpu_seconds();
    last_cpus_ = first;
    last_own_ = first_own;
    last_look_ = start_ = clock::now();
    double round_s = 0;
    // Sorting all samples after each of thousands of rounds would be longer than the rounds.
    std::size_t check_at = 1, rounds = 0;
    while (alive()) {
      const auto round_start = clock::now();
      for (side& s : sides_) sample(s);
      if (probes_due()) probe();
      if (seconds_since(last_look_) >= conditions_period_s) look_at_machine();
      ++rounds;
      round_s = seconds_since(round_start);
      const double spent = seconds_since(start_), from_begin = spent_s();
      if (rounds >= check_at) {
        check_at = rounds + 1 + rounds / 16;
        if (satisfied() && spent >= how.min_seconds) break;
      }
      // A round that would end after the budget is not begun.
      if (how.budget_s > 0 && spent >= how.min_seconds && from_begin + round_s > how.budget_s) {
        out_.budget_ended |= !satisfied();
        break;
      }
    }
    while (request_.how.timing.probes && out_.probes.bytes_per_s.size() < fewest_probes) probe();
    look_at_machine();
    out_.seconds = seconds_since(start_);
    if (const auto last = read_cpus(); first && last) {
      out_.usage = usage_between(*first, *last, own_cpu_seconds() - first_own);
      out_.conditions_known = true;
    }
    for (side& s : sides_) {
      for (const double t : s.seconds) s.raw.time_us.push_back(t * 1e6);
      out_.sides[s.index].seen.timing = {std::move(s.raw)};
    }
  }

  void sample(side& s) {
    if (!s.plan) return;
    if (in_.device && *in_.probes) settle_clock();
    if (s.lead_in && !launch(s)) return;
    const double at_s = seconds_since(start_);
    if (!launch(s)) return;
    s.seconds.push_back(s.last_s);
    s.raw.order.push_back(request_.sides[s.index].implementation);
    s.raw.at_s.push_back(at_s);
    if (clock_mhz_ > 0) s.raw.sm_mhz.push_back(clock_mhz_);
  }

  // Power that the launch before drew has lowered the clock: the next one would tell of its predecessor.
  void settle_clock() {
    if (clock_mhz_ > 0 && worked_s_ < clock_changes_s) return;
    const auto start = clock::now();
    for (;;) {
      clock_mhz_ = (*in_.probes)->clock_mhz();
      highest_mhz_ = std::max(highest_mhz_, clock_mhz_);
      if (clock_mhz_ >= recovered_share * highest_mhz_ || seconds_since(start) >= longest_recovery_s) break;
      std::this_thread::sleep_for(recovery_step);
    }
    worked_s_ = 0;
  }

  void launch_back_to_back() {
    const timing_spec& how = request_.how.timing;
    if (!in_.device || !(how.back_to_back_s > 0)) return;
    const auto start = clock::now();
    for (int i = 0; i < runs_in_a_row; ++i)
      for (side& s : sides_)
        if (s.plan && s.back_to_back) launch_in_a_row(s, how.back_to_back_budget_s - seconds_since(start));
  }

  void launch_in_a_row(side& s, double left_s) {
    back_to_back& told = out_.sides[s.index].in_a_row;
    if (s.seconds.empty()) return void(told.reason = "no sample was taken");
    const double one_s = summarize(s.seconds).median, wanted_s = request_.how.timing.back_to_back_s;
    if (one_s > longest_in_a_row_s)
      return void(told.reason = "a launch above a second has met the power limit by itself");
    const auto count_of = [&](double seconds) {
      return static_cast<std::size_t>(std::clamp(std::ceil(seconds / one_s), 1.0, most_in_a_row));
    };
    const std::size_t timed = count_of(wanted_s), lead = count_of(wanted_s * lead_share);
    if (const double needed_s = static_cast<double>(timed + lead) * one_s; needed_s > left_s) {
      if (told.runs.empty())
        told.reason = fmt::format("a run of launches takes {:.3g} s, {:.3g} s of the budget are left", needed_s,
                                  std::max(left_s, 0.0));
      return;
    }
    std::vector<std::size_t> tensors;
    for (std::size_t i = 0; i < timed + lead; ++i) {
      const std::size_t set = next_set(s);
      tensors.push_back(s.bound[set]);
      s.used[set] = 1;
    }
    back_to_back_run run;
    run.launches = static_cast<std::int64_t>(timed);
    run.lead = static_cast<std::int64_t>(lead);
    note(s.index);
    const auto took = s.plan->launch_in_a_row(tensors, lead, [&] { look_at_load(run); }, out_.sides[s.index].seen);
    note_none();
    s.launches += run.launches + run.lead;
    if (!took) return drop(s);
    run.time_us = took->seconds / static_cast<double>(timed) * 1e6;
    run.enqueue_us = took->enqueue_s * 1e6;
    told.runs.push_back(run);
  }

  void look_at_load(back_to_back_run& run) {
    if (*in_.probes) run.sm_mhz = (*in_.probes)->clock_mhz();
    const auto now = watch_ ? watch_->read() : std::nullopt;
    if (!now) return;
    run.nvml_mhz = now->sm_mhz;
    run.power_w = now->power_w;
    run.temperature_c = now->temperature_c;
    run.throttle = static_cast<double>(now->throttle_reasons);
  }

  // Every sample since the last look gets what was seen now.
  void look_at_machine() {
    const auto now = read_cpus();
    const double own = own_cpu_seconds();
    if (now && last_cpus_) {
      const cpu_usage u = usage_between(*last_cpus_, *now, own - last_own_);
      for (side& s : sides_) {
        s.raw.others.resize(s.seconds.size(), u.others);
        s.raw.steal.resize(s.seconds.size(), u.steal);
        s.raw.load.resize(s.seconds.size(), u.load);
        if (u.mhz > 0) s.raw.cpu_mhz.resize(s.seconds.size(), u.mhz);
      }
    }
    if (in_.device) look_at_device_load();
    last_cpus_ = now;
    last_own_ = own;
    last_look_ = clock::now();
  }

  void look_at_device_load() {
    const auto now = watch_ ? watch_->read() : std::nullopt;
    if (!now) return;
    for (side& s : sides_) {
      s.raw.nvml_mhz.resize(s.seconds.size(), now->sm_mhz);
      s.raw.power_w.resize(s.seconds.size(), now->power_w);
      s.raw.temperature_c.resize(s.seconds.size(), now->temperature_c);
      s.raw.throttle.resize(s.seconds.size(), static_cast<double>(now->throttle_reasons));
    }
  }

  // Every side of a group may have done it; the sets that they have in common are looked at once.
  void look_at_memory() {
    std::map<int, bool> changed;
    for (const side& s : sides_)
      for (const auto& t : request_.sides[s.index].tensors) {
        if (t.region < 0 || t.tensor.dir != direction::in) continue;
        const auto [at, is_new] = changed.try_emplace(t.region, false);
        const std::int64_t sets = is_new ? sets_[static_cast<std::size_t>(t.region)] : 0;
        for (std::int64_t set = 0; set < sets && !at->second; ++set) at->second = !memory_->unchanged(t.region, set);
        if (at->second)
          out_.sides[s.index].seen.violations.push_back({violation::kind::input_modified, t.tensor.where, "run",
                                                         "an input has changed during the timed launches"});
      }
  }

  void collect() {
    for (const side& s : sides_)
      for (std::size_t set = 0; s.plan && set < s.used.size(); ++set) {
        if (!s.used[set]) continue;
        for (const auto& t : request_.sides[s.index].tensors)
          if (t.region >= 0 && t.tensor.dir == direction::out)
            memory_->download(t.region, static_cast<std::int64_t>(set));
        in_.collect(s.index, static_cast<std::int64_t>(set));
      }
  }

  struct group {
    std::int64_t sets = 1, next = 0;
  };

  protocol::timed_request& request_;
  const timed_run_environment& in_;
  const stopping_rule rule_;
  const std::vector<std::int64_t> sets_;
  std::unique_ptr<timing_memory> memory_;
  std::unique_ptr<gpu_watch> watch_;
  // Of a GPU: its clock as last counted, the highest of the run, and how long it has worked since.
  double clock_mhz_ = 0, highest_mhz_ = 0, worked_s_ = 0;
  std::map<int, group> groups_;
  std::vector<side> sides_;
  timed_observation out_;
  clock::time_point begin_, start_, last_probe_, last_look_;
  double probe_s_ = 0, last_own_ = 0;
  double watched_s_ = 0;  // since begin_
  std::optional<cpu_reading> last_cpus_;
};

}  // namespace

timed_observation run_timed(protocol::timed_request& request, const timed_run_environment& in) {
  try {
    return timed_loop(request, in).run();
  } catch (const cuda_failure& f) {
    throw environment_error(
        {"device", "cuda", "gave out: " + f.text, "look at the driver's log, and at who else uses it"});
  }
}

}  // namespace msabench
