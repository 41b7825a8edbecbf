// SPDX-License-Identifier: Apache-2.0
// Makes large inputs where they lie on a CUDA device, in place of uploading them.
#pragma once

#include <memory>

#include "host/worker/cuda_driver.h"
#include "inputs/generated_stream.h"

namespace msabench {

// Not for two threads. All functions throw cuda_failure.
class device_generator {
 public:
  explicit device_generator(std::shared_ptr<cuda_device> device) : device_(std::move(device)) {}
  ~device_generator();
  device_generator(const device_generator&) = delete;

  // Enqueued behind what is uploaded; `region` is the address of the region's image.
  void make(device_address region, const generated_stream& what);
  // Compares both ends and some places between them with `host`, the region as the host filled it. suite_error where
  // they differ: the fault is of the suite and would else be told of a plugin.
  void verify(device_address region, const generated_stream& what, const std::byte* host) const;

 private:
  std::shared_ptr<cuda_device> device_;
  device_address of_steps_ = 0;
};

}  // namespace msabench
