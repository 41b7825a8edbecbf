// SPDX-License-Identifier: Apache-2.0
#include "host/worker/timed_plan.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "core/error.h"
#include "host/worker/captured_graph.h"
#include "host/worker/process_state.h"

namespace msabench {
namespace {

using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point start) { return std::chrono::duration<double>(clock::now() - start).count(); }

class timed_plan final : public prepared_plan {
 public:
  explicit timed_plan(timed_plan_parts parts)
      : of_(std::move(parts)), device_(of_.on), stream_(device_), graph_(of_.graph && device_) {
    if (of_.memory) of_.memory->make_dirty(0, 0);
    if (!device_) return;
    for (void*& event : events_) event = device_->make_event();
  }

  ~timed_plan() override {
    catching([&] {
      of_.table->destroy(of_.plan);
      return std::int32_t{MSABENCH_OK};
    });
    for (void* event : events_)
      if (event != nullptr) device_->destroy_event(event);
  }

  std::size_t bind(bound_case tensors) override {
    auto kept = std::make_unique<bound>(std::move(tensors), of_.where, device_);
    bound_.push_back(std::move(kept));
    return bound_.size() - 1;
  }

  std::optional<double> launch(std::size_t tensors, observation& seen) override {
    bound& on = *bound_.at(tensors);
    return device_ ? launch_on_device(on, seen) : launch_here(on, seen);
  }

  std::optional<launches_in_a_row> launch_in_a_row(std::span<const std::size_t> tensors, std::size_t lead,
                                                   const std::function<void()>& near_end, observation& seen) override {
    if (!device_ || tensors.size() <= lead) throw suite_error("launches in a row are for devices, and need some");
    return guarded<launches_in_a_row>(seen, [&]() -> std::optional<launches_in_a_row> {
      for (const std::size_t t : tensors) capture_if_due(*bound_.at(t), seen);
      const std::size_t timed = tensors.size() - lead, near = tensors.size() - std::max<std::size_t>(1, timed / 10);
      const std::size_t watched = std::min<std::size_t>(queue_depth, tensors.size());
      launches_in_a_row told;
      const auto start = clock::now();
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (i == lead) device_->record(events_[first], stream_.get());
        if (i == near) device_->record(events_[close], stream_.get());
        if (const call_end end = enqueue(*bound_[tensors[i]]); failed(end)) {
          stream_.wait();
          of_.tell_failure(seen, end);
          return std::nullopt;
        }
        if (i + 1 == watched) told.enqueue_s = seconds_since(start) / static_cast<double>(watched);
      }
      device_->record(events_[last], stream_.get());
      device_->seconds_between(events_[first], events_[close]);  // waits for the later one
      near_end();
      told.seconds = device_->seconds_between(events_[first], events_[last]);
      of_.check_current_device(seen.violations);
      return told;
    });
  }

  void inspect(observation& seen) override {
    before_.restore("run", seen.violations);
    if (const std::string where = of_.memory ? of_.memory->damage() : std::string(); !where.empty())
      seen.violations.push_back({violation::kind::out_of_bounds, std::nullopt, "run", where});
  }

 private:
  struct bound {
    bound(bound_case c, device where, std::shared_ptr<cuda_device> on)
        : tensors(std::move(c)), args(tensors, false, where), graph(std::move(on)) {}
    bound_case tensors;
    run_arguments args;
    captured_graph graph;
  };

  enum mark { first, close, last, marks };
  // Launches that a stream takes without making the host wait; a little less than CUDA's, so that none of them waits.
  static constexpr std::size_t queue_depth = 256;

  static bool failed(const call_end& end) { return end.threw || end.status != MSABENCH_OK; }

  std::optional<double> launch_here(const bound& on, observation& seen) {
    const auto start = clock::now();
    const call_end end = catching([&] { return run(on); });
    const auto stop = clock::now();
    if (!failed(end)) return std::chrono::duration<double>(stop - start).count();
    of_.tell_failure(seen, end);
    return std::nullopt;
  }

  std::optional<double> launch_on_device(bound& on, observation& seen) {
    return guarded<double>(seen, [&]() -> std::optional<double> {
      // The first launch of a plan may load code, which no capture allows.
      if (launched_) capture_if_due(on, seen);
      device_->record(events_[first], stream_.get());
      const call_end end = enqueue(on);
      of_.check_current_device(seen.violations);
      device_->record(events_[last], stream_.get());
      const double seconds = device_->seconds_between(events_[first], events_[last]);
      launched_ = true;
      if (!failed(end)) return seconds;
      of_.tell_failure(seen, end);
      return std::nullopt;
    });
  }

  // A device that failed holds nothing that could be relied on.
  template <class Result, class Work>
  static std::optional<Result> guarded(observation& seen, const Work& work) {
    try {
      return work();
    } catch (const cuda_failure& f) {
      seen.result = outcome::device_lost;
      seen.entry = "run";
      seen.message = f.text;
      return std::nullopt;
    }
  }

  void capture_if_due(bound& on, observation& seen) {
    if (!graph_ || on.graph.captured() || on.graph.capture(stream_.get(), [&] { return run(on); })) return;
    graph_ = false;
    seen.remarks.push_back("launched without a graph, since run can't be captured: " + on.graph.why());
  }

  call_end enqueue(bound& on) {
    if (!on.graph.captured()) return catching([&] { return run(on); });
    on.graph.launch(stream_.get());
    return {};
  }

  std::int32_t run(const bound& on) {
    return of_.table->run(of_.plan, on.args.get(), of_.memory ? of_.memory->data() : nullptr, stream_.get());
  }

  timed_plan_parts of_;
  std::shared_ptr<cuda_device> device_;
  device_stream stream_;
  void* events_[marks] = {};
  bool graph_, launched_ = false;
  std::vector<std::unique_ptr<bound>> bound_;
  process_state before_;
};

}  // namespace

std::unique_ptr<prepared_plan> make_timed_plan(timed_plan_parts parts) {
  return std::make_unique<timed_plan>(std::move(parts));
}

}  // namespace msabench
