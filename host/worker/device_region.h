// SPDX-License-Identifier: Apache-2.0
// Device memory of one region of a case. A pool can be larger than any device and hold a few pages only: then the pages have
// memory of their own, and all the addresses between them lead to a few stretches of memory that they have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "host/worker/cuda_driver.h"

namespace msabench {

// Throws environment_error where the device has not the memory, cuda_failure for all else.
class device_region {
 public:
  // `contents`: bytes from its start, ascending, that hold anything. All of it is `value` at first.
  device_region(std::shared_ptr<cuda_device> device, std::uint64_t bytes,
                const std::vector<std::pair<std::uint64_t, std::uint64_t>>& contents, std::uint8_t value);
  ~device_region();
  device_region(const device_region&) = delete;
  device_region& operator=(const device_region&) = delete;

  device_address at() const { return at_; }
  void fill(std::uint8_t value);

 private:
  bool share_holes(std::uint64_t bytes, const std::vector<std::pair<std::uint64_t, std::uint64_t>>& contents);
  void map_all();
  void give_back() noexcept;

  std::shared_ptr<cuda_device> device_;
  device_address at_ = 0;
  std::uint64_t bytes_ = 0, mapped_ = 0;                               // so much of it, from its start
  std::uint64_t granularity_ = 0;                                      // 0: memory throughout
  std::vector<std::pair<std::uint64_t, std::uint64_t>> own_, common_;  // ranges; of `common_` each memory once
  std::vector<std::uint64_t> memories_;
};

}  // namespace msabench
