// SPDX-License-Identifier: Apache-2.0
// The memory of a case on a CUDA device. The host fills, poisons and checks regions of its own memory, whoever runs the
// launch; here each region has an image of the same size in device memory, guard bands and all, that is uploaded before
// a launch and downloaded after it; a steady region is uploaded before the first launch and downloaded after the last. So
// whatever a kernel wrote (outputs, bands, inputs) is seen where it is seen for a CPU plugin.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "host/plugin_session.h"
#include "host/worker/cuda_driver.h"
#include "host/worker/device_generator.h"
#include "host/worker/device_region.h"

namespace msabench {

// Not for two threads. Throws environment_error where the device has not the memory, cuda_failure for all else.
class device_image {
 public:
  // `c` must outlive it; its regions may move in host memory.
  device_image(std::shared_ptr<cuda_device> device, const bound_case& c);
  device_image(const device_image&) = delete;

  // What the host holds: ranges with contents; the rest of the image is NaN in every type. What the generator gives is
  // made here, and checked against the host's the first time. Steady regions come once.
  void upload();
  // Back into the host's regions, the same ranges.
  void download(bool steady_ones_too);
  // Of the first element; null for an empty tensor.
  void* at(const bound_tensor& t) const;
  // To other addresses, for rule R1, steady regions as launches have left them; what was there before is filled with NaN
  // and stays allocated until this ends.
  void move_elsewhere();

 private:
  void upload(std::size_t region, const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges);

  std::shared_ptr<cuda_device> device_;
  const bound_case& case_;
  std::vector<std::unique_ptr<device_region>> images_;  // of case_.regions
  std::vector<std::unique_ptr<device_region>> left_;
  device_generator generator_;
  std::vector<std::byte> staging_;
  bool steady_ones_came_ = false;
  bool verified_ = false;
};

}  // namespace msabench
