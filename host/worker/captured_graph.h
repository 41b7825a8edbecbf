// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "host/worker/calls.h"
#include "host/worker/cuda_driver.h"
#include "msabench/plugin.h"

namespace msabench {

// What a plugin enqueues, captured once.
class captured_graph {
 public:
  explicit captured_graph(std::shared_ptr<cuda_device> device) : device_(std::move(device)) {}
  ~captured_graph() {
    if (graph_ != nullptr) device_->destroy_graph(graph_);
  }
  captured_graph(const captured_graph&) = delete;

  // False: it can't be, and why() tells. Nothing has run either way.
  template <class Enqueue>
  bool capture(void* stream, const Enqueue& enqueue) {
    device_->begin_capture(stream);
    const call_end end = catching(enqueue);
    if (end.threw || end.status != MSABENCH_OK) why_ = fmt::format("status {} of run", end.status);
    try {
      graph_ = device_->end_capture(stream);
    } catch (const cuda_failure& f) {
      why_ = f.text;
    }
    return why_.empty();
  }
  bool captured() const { return graph_ != nullptr && why_.empty(); }
  const std::string& why() const { return why_; }
  void launch(void* stream) const { device_->launch_graph(graph_, stream); }

 private:
  std::shared_ptr<cuda_device> device_;
  void* graph_ = nullptr;
  std::string why_;
};

}  // namespace msabench
