// SPDX-License-Identifier: Apache-2.0
// A checksum of device memory, made where it lies: to download what is looked at takes a thousand times as long. The same of
// the host's memory, by all of its processors, says whether the two hold the same bytes. No defence against somebody who wants to
// deceive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "host/protocol_tensors.h"
#include "host/worker/cuda_driver.h"

namespace msabench {

// Depends on every bit of the ranges and on where it lies in the region. `region` is aligned to 8 bytes.
std::uint64_t checksum_on_host(const std::byte* region, const protocol::byte_ranges& ranges);

// Not for two threads. Throws cuda_failure, and suite_error on a device that makes another checksum than the host.
class device_checksum {
 public:
  explicit device_checksum(std::shared_ptr<cuda_device> device) : device_(std::move(device)) {}
  ~device_checksum();
  device_checksum(const device_checksum&) = delete;
  device_checksum& operator=(const device_checksum&) = delete;

  // Waits for all that was enqueued, on any stream.
  std::uint64_t of(device_address region, const protocol::byte_ranges& ranges);

 private:
  void prepare();
  std::uint64_t sum_of(device_address region, const protocol::byte_ranges& ranges);
  // As the kernels read it.
  struct piece {
    std::uint64_t begin, elements;
  };
  void launch(const char* kernel, device_address region, const std::vector<piece>& pieces);

  std::shared_ptr<cuda_device> device_;
  device_address sum_ = 0, pieces_ = 0;  // 0 before the first use
  std::size_t capacity_ = 0;             // of pieces_
};

}  // namespace msabench
