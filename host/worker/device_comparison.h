// SPDX-License-Identifier: Apache-2.0
// Whether two parts of a device's memory hold the same bytes, found out where they lie: to download both takes a hundred
// times as long.
#pragma once

#include <cstdint>
#include <memory>

#include "host/worker/cuda_driver.h"

namespace msabench {

// Not for two threads. Throws cuda_failure, and suite_error on a device that doesn't see a difference that is there.
class device_comparison {
 public:
  explicit device_comparison(std::shared_ptr<cuda_device> device) : device_(std::move(device)) {}
  ~device_comparison();
  device_comparison(const device_comparison&) = delete;
  device_comparison& operator=(const device_comparison&) = delete;

  // Both on the default stream: behind what was enqueued there.
  void compare(device_address one, device_address other, std::uint64_t bytes);
  // Waits; whether any pair since the last call differs.
  bool found_difference();

 private:
  void prepare();
  void launch(const char* kernel, device_address one, device_address other, std::uint64_t words);

  std::shared_ptr<cuda_device> device_;
  device_address found_ = 0;  // of a 32-bit number that is not 0 once a difference was found; 0 before the first use
};

}  // namespace msabench
