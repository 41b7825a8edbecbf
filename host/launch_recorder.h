// SPDX-License-Identifier: Apache-2.0
// The host's side of launches: poison before, checks and copies after. Outputs lie in memory of this process, so it
// does not matter who ran the launch, nor whether that process is still alive.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/observation.h"
#include "core/run_spec.h"
#include "host/output_copy.h"
#include "host/plugin_session.h"
#include "inputs/input_set.h"

namespace msabench {

class launch_recorder {
 public:
  // Poisons the outputs for launch 0. `set` must outlive this; with how.second_plan the second plan gets outputs of its
  // own. On a device steady inputs come back, and are looked at, only once no launch may follow.
  launch_recorder(input_set& set, const run_spec& how, bool on_device);
  // However the launches ended, the inputs are as they were made.
  ~launch_recorder() { restore_lengths(); }
  launch_recorder(const launch_recorder&) = delete;
  launch_recorder& operator=(const launch_recorder&) = delete;

  // With other outputs, the same inputs; null without a second plan.
  const input_set* second() const { return second_ ? &*second_ : nullptr; }

  // Of launches that returned: what was damaged, and the outputs; then poisons for the next. False: `reports` are not
  // of the launches that were due.
  bool record(std::span<const launch_report> reports, observation& into);

  // How many have been recorded so far, the rehearsal included.
  std::int32_t launches_recorded() const { return next_; }

  // Of a launch that did not return: what was damaged.
  void record_abnormal_end(observation& into);

  // Once no launch follows, however many there were: looks at the inputs that none has looked at since the last one.
  void finish(observation& into);

 private:
  // Contents of the rehearsal: the lengths of the first sequence alone (of none where there is one only).
  void shorten_lengths();
  void restore_lengths();
  bool rehearsing() const { return how_.rehearse && next_ == 0; }
  std::int64_t rows_due() const { return rehearsing() ? rehearsed_rows_ : set_.sizes.t; }

  void prepare();
  void check_inputs(bool steady_ones_too, observation& into);
  void check_outputs(const input_set& set, std::int32_t index, bool returned_error, observation& into);
  void keep(const input_set& set, const launch_report& report, observation& into);

  input_set& set_;
  const run_spec how_;
  const bool on_device_;
  std::optional<input_set> second_;
  std::int32_t next_ = 0;  // index of the launch that is due
  std::vector<std::pair<slot, std::vector<std::int32_t>>> full_lengths_;
  std::int64_t rehearsed_rows_ = 0;  // all of them where the operator has no lengths
  input_checksums inputs_checksum_;  // of the contents that the due launch sees
  bool all_looked_at_ = true;        // since the last launch
};

// The tensors of `set` (and the outputs of `second`, if any) as they are in this process.
bound_case bind(const input_set& set, const input_set* second);

}  // namespace msabench
