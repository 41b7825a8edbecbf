// SPDX-License-Identifier: Apache-2.0
// The scratch memory of one plan on a CUDA device: dirty before every launch, with bands on both sides that show what was
// written outside.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/worker/cuda_driver.h"
#include "host/worker/workspace.h"

namespace msabench {

class device_workspace final : public scratch_memory {
 public:
  explicit device_workspace(std::shared_ptr<cuda_device> device) : device_(std::move(device)) {}
  ~device_workspace() override;
  device_workspace(const device_workspace&) = delete;

  bool allocate(std::uint64_t bytes, std::uint32_t alignment) override;
  bool move_elsewhere() override;
  std::uint64_t move_bytes() const override { return total_bytes(); }
  void* data() const override { return reinterpret_cast<void*>(data_); }
  void make_dirty(int launch, std::uint64_t seed) override;
  std::string damage() const override;

 private:
  static constexpr std::uint64_t band_bytes = 4096;
  std::uint64_t total_bytes() const {
    return bytes_ == 0 ? 0 : bytes_ + 2 * band_bytes + 2 * std::uint64_t{alignment_};
  }

  std::shared_ptr<cuda_device> device_;
  device_address begin_ = 0, data_ = 0;  // begin_: of the allocation
  std::uint64_t bytes_ = 0;
  std::uint32_t alignment_ = 1;
  std::vector<device_address> left_;  // earlier places
};

}  // namespace msabench
