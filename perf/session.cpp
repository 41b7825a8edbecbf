// SPDX-License-Identifier: Apache-2.0
#include "perf/session.h"

namespace msabench {

perf_session::perf_session(std::span<const implementation_ref> implementations, const executor_options& how,
                           const perf_setup& setup) {
  // First, since it refuses what can't be compared before anything is loaded.
  timing_ = make_timing_executor({implementations.begin(), implementations.end()}, how, probe_bytes(setup));
  on_device_ = implementations.front().where.type != device_type::cpu;
  for (const auto& ref : implementations) {
    executor_options of = how;
    if (!queries_.empty()) of.field = "--against";
    queries_.push_back(make_worker_executor(ref, of));
    records_.push_back(queries_.back()->info());
  }
}

perf_executors perf_session::executors() const {
  perf_executors with;
  for (std::size_t i = 0; i < queries_.size(); ++i) {
    with.queries.push_back(queries_[i].get());
    with.labels.push_back(records_[i].name);
  }
  with.timing = timing_.get();
  with.on_device = on_device_;
  return with;
}

}  // namespace msabench
