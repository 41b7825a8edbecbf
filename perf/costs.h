// SPDX-License-Identifier: Apache-2.0
// What measuring will cost: before anything was seen by the limits of the machine, later by what was seen.
#pragma once

#include <map>
#include <span>
#include <tuple>

#include "core/case.h"
#include "core/perf_record.h"
#include "perf/suite.h"

namespace msabench {

// Inputs come from memory where at least so many times the last-level cache was touched since they were used.
inline constexpr double cold_factor = 2;
// A point is timed for so long at the least.
inline constexpr double shortest_loop_s = 0.5;
inline constexpr int warmup_launches = 2;

// One of several that are timed together. Those of one case have its inputs in common.
struct timed_item {
  std::size_t case_index = 0;
  const case_spec* definition = nullptr;
  const problem* agreed = nullptr;
  double launch_s = 0, touched_bytes = 0;
};

class point_costs {
 public:
  struct conditions {
    double cache_bytes = 0;
    bool cold = true, on_device = false;
    int implementations = 1;
    double others = 0;        // share of the CPUs that other processes use: what is done on them takes that much longer
    int cores = 2;            // of the host, among which the generator and the oracle share their work
    int fewest_samples = 10;  // of a launch below a second
  };
  void begin(const perf_ceilings& limits, const conditions& here);

  // Shortest time of a launch by the limits; a guess where the machine has none for its type.
  double roofline_s(const case_spec& c, const problem& p) const;
  double launch_s(const case_spec& c, const problem& p, int implementation) const;
  // The least that a launch can be hoped to take: that of a kernel that was not seen yet may be near the limits.
  double hoped_launch_s(const case_spec& c, const problem& p, int implementation) const;
  // Inputs that are made: of gradients the forward results are among them, which the oracle computes, or of large ones
  // an implementation, with the oracle's look at them.
  double inputs_s(const case_spec& c, const problem& p) const;
  // Sets in memory that is timed, fresh memory included, which are looked at afterwards: those that come from the host, and
  // on a device the copies of them that are made there.
  struct copied_bytes {
    double first = 0, further = 0;
  };
  double copies_s(const copied_bytes& bytes) const;
  double verification_s(const case_spec& c) const;

  // Two runs of launches in a row, each with its lead-in, on a device.
  double in_a_row_s(double launch_s) const;

  // Of the whole point, with the fewest samples that count.
  double point_s(const suite_point& p) const;
  // Of these items, with so few samples that something can be said at all. `made`: inputs are there already.
  double least_s(std::span<const timed_item> items, bool made) const;
  // Rounds of a point, each of which touches so many bytes, until an input set is used again.
  double rotations(double touched) const;

  // What was seen; later estimates go by it.
  void saw_launch(const case_spec& c, const problem& p, int implementation, double seconds);
  void saw_inputs(double estimated_s, double seconds);
  void saw_copies(const copied_bytes& bytes, double seconds);
  void saw_verification(const case_spec& c, double seconds);

 private:
  copied_bytes copied(double set_bytes, double touched) const;

  // A kernel is another one in decode than in prefill.
  using kernel = std::tuple<int, op, bool>;
  static kernel kernel_of(const case_spec& c, int implementation);

  perf_ceilings limits_;
  conditions here_;
  double inputs_slower_ = 1, copies_slower_ = 1, verification_slower_ = 1;  // than on an idle machine
  std::map<kernel, double> slowness_;                                       // time / roofline time, as last seen
};

// The item without which the others cost least.
std::size_t dearest(const point_costs& costs, std::span<const timed_item> items, bool made);

}  // namespace msabench
