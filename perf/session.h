// SPDX-License-Identifier: Apache-2.0
// Implementations that are ready to be timed: one executor each that answers queries, and one that times all of them in
// turn.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "perf/measure.h"

namespace msabench {

class perf_session {
 public:
  // Loads them. usage_error (field "--impl") for what is no plugin.
  perf_session(std::span<const implementation_ref> implementations, const executor_options& how,
               const perf_setup& setup);

  perf_executors executors() const;
  const std::vector<implementation_record>& implementations() const { return records_; }

 private:
  std::vector<std::unique_ptr<executor>> queries_;
  std::vector<implementation_record> records_;
  std::unique_ptr<timing_executor> timing_;
  bool on_device_ = false;
};

}  // namespace msabench
