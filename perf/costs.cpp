// SPDX-License-Identifier: Apache-2.0
#include "perf/costs.h"

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "core/operator_table.h"
#include "core/statistics.h"
#include "perf/figures.h"
#include "perf/forward.h"
#include "perf/verify.h"

namespace msabench {
namespace {

// Share of the machine's limits that an implementation is taken to reach before it has been seen.
constexpr double assumed_efficiency = 0.25, hoped_efficiency = 0.9;
constexpr double call_s = 5e-6;
// The generator and the oracle on so many cores; what they do on one of them rules beyond the most. (16 cores make 3.4 GB a second.)
constexpr int assumed_cores = 2, most_cores = 16;
// Uploaded: made on the device for the most part, where they are looked at as well, and summed on the host.
constexpr double made_bytes_per_s = 0.35e9, copied_bytes_per_s = 0.35e9, uploaded_bytes_per_s = 4e9;
constexpr double assumed_device_bytes_per_s = 0.5e12;
constexpr double oracle_triples_per_s = 5e6;
// Tensors of a forward pass: to the implementation and back, copied, and hashed.
constexpr double handed_over_bytes_per_s = 0.5e9;
// So much is taken and expected besides: processes that start and clocks that rise, of which small sets say more than of
// what is estimated for large ones.
constexpr double besides_s = 0.25;

// What is left of a run's seconds beside those of its launches, which are estimated, may be less than none.
double slower_than_expected(double expected_s, double seconds) {
  return (std::max(seconds, 0.0) + besides_s) / (expected_s + besides_s);
}

double fewest_samples_s(double launch_s, int samples) {
  return launch_s * (launch_s > stopping_rule{}.long_item_s ? 1 + 3 : warmup_launches + samples);
}

}  // namespace

void point_costs::begin(const perf_ceilings& limits, const conditions& here) {
  limits_ = limits;
  here_ = here;
  // Who asks gets a share of the processors however much the others want: a third, until more is known.
  constexpr double most = 2.0 / 3;
  copies_slower_ = 1 / (1 - std::clamp(here.others, 0.0, most));
  inputs_slower_ = verification_slower_ = copies_slower_ * assumed_cores / std::clamp(here.cores, 1, most_cores);
}

point_costs::kernel point_costs::kernel_of(const case_spec& c, int implementation) {
  return {implementation, c.operation, sequences(c).front().q_len > 1};
}

double point_costs::roofline_s(const case_spec& c, const problem& p) const {
  const perf_work w = least_work(c, p);
  if (const auto limit = roofline_of(w, limits_, operands_of(p, c.type))) return limit->seconds;
  // Without a limit of arithmetic for the type: a guess for planning, of what a device does with others.
  double flops = 1e12;
  for (const auto& [type, peak] : limits_.flops) flops = std::min(flops, peak / 16);
  const double by_bytes = limits_.bytes_per_s > 0 ? w.compulsory_bytes / limits_.bytes_per_s : 0;
  return std::max(by_bytes, w.useful_flops / flops);
}

double point_costs::launch_s(const case_spec& c, const problem& p, int implementation) const {
  const auto seen = slowness_.find(kernel_of(c, implementation));
  return call_s + roofline_s(c, p) * (seen == slowness_.end() ? 1 / assumed_efficiency : seen->second);
}

double point_costs::hoped_launch_s(const case_spec& c, const problem& p, int implementation) const {
  if (slowness_.contains(kernel_of(c, implementation))) return launch_s(c, p, implementation);
  return call_s + roofline_s(c, p) / hoped_efficiency;
}

double point_costs::inputs_s(const case_spec& c, const problem& p) const {
  const bool forward_results = std::ranges::any_of(slots_of(c.operation), [](const slot_rule& r) {
    return r.dir == direction::in && (r.where == slot::out || r.where == slot::lse);
  });
  const double made_s = set_bytes(c, p) / made_bytes_per_s;
  if (!forward_results) return made_s * inputs_slower_;
  if (!is_large_gradient(c))
    return (made_s + static_cast<double>(cost_triples(c)) / oracle_triples_per_s) * inputs_slower_;
  const case_spec forward = forward_of(c);
  const problem asked = make_problem(forward);
  const double looked_at_s = sampled_triples(forward, fewest_gradient_samples) / oracle_triples_per_s;
  return (made_s + looked_at_s) * inputs_slower_ + launch_s(forward, asked, 0) +
         set_bytes(forward, asked) / handed_over_bytes_per_s;
}

double point_costs::copies_s(const copied_bytes& bytes) const {
  if (!here_.on_device) return (bytes.first + bytes.further) / copied_bytes_per_s * copies_slower_;
  // A copy is read and written, and afterwards compared with what it is a copy of.
  const double device_bytes_per_s = limits_.bytes_per_s > 0 ? limits_.bytes_per_s : assumed_device_bytes_per_s;
  return (bytes.first / uploaded_bytes_per_s + 4 * bytes.further / device_bytes_per_s) * copies_slower_;
}

point_costs::copied_bytes point_costs::copied(double set_bytes, double touched) const {
  return {set_bytes, set_bytes * (rotations(touched) - 1)};
}

double point_costs::verification_s(const case_spec& c) const {
  return msabench::verification_s(c) * verification_slower_;
}

double point_costs::rotations(double touched) const {
  return here_.cold ? static_cast<double>(rounds_until_reuse(touched, cold_factor * here_.cache_bytes)) : 1;
}

double point_costs::in_a_row_s(double launch_s) const {
  constexpr double run_s = 0.25;  // and two launches at the least
  return here_.on_device && launch_s <= stopping_rule{}.long_item_s ? 2 * std::max(run_s, 2 * launch_s) : 0;
}

double point_costs::point_s(const suite_point& p) const {
  double seconds = shortest_loop_s + 0.5, bytes = 0, touched = 0;
  for (const auto& c : p.cases) {
    const problem asked = make_problem(c);
    bytes += set_bytes(c, asked);
    seconds += inputs_s(c, asked);
    touched += least_work(c, asked).compulsory_bytes;
    for (int i = 0; i < here_.implementations; ++i) {
      const double one_s = launch_s(c, asked, i);
      seconds += fewest_samples_s(one_s, here_.fewest_samples) + in_a_row_s(one_s) + verification_s(c);
    }
  }
  return seconds + copies_s(copied(bytes, touched));
}

double point_costs::least_s(std::span<const timed_item> items, bool made) const {
  double seconds = shortest_loop_s, bytes = 0, touched = 0;
  std::set<std::size_t> cases;
  for (const timed_item& i : items) {
    seconds += i.launch_s * (warmup_launches + 3) + verification_s(*i.definition);
    if (cases.insert(i.case_index).second && !made) seconds += inputs_s(*i.definition, *i.agreed);
    bytes += set_bytes(*i.definition, *i.agreed);
    touched += i.touched_bytes;
  }
  return seconds + copies_s(copied(bytes, touched));
}

std::size_t dearest(const point_costs& costs, std::span<const timed_item> items, bool made) {
  std::size_t found = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t without = 0; without < items.size(); ++without) {
    std::vector<timed_item> others(items.begin(), items.end());
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(without));
    if (const double seconds = costs.least_s(others, made); seconds < least) {
      least = seconds;
      found = without;
    }
  }
  return found;
}

void point_costs::saw_launch(const case_spec& c, const problem& p, int implementation, double seconds) {
  if (const double least = roofline_s(c, p); least > 0)
    slowness_[kernel_of(c, implementation)] = std::max(seconds - call_s, 1e-9) / least;
}

void point_costs::saw_inputs(double estimated_s, double seconds) {
  inputs_slower_ *= slower_than_expected(estimated_s, seconds);
}

void point_costs::saw_copies(const copied_bytes& bytes, double seconds) {
  copies_slower_ *= slower_than_expected(copies_s(bytes), seconds);
}

void point_costs::saw_verification(const case_spec& c, double seconds) {
  verification_slower_ *= slower_than_expected(verification_s(c), seconds);
}

}  // namespace msabench
