// SPDX-License-Identifier: Apache-2.0
#include "host/worker/device_image.h"

#include <fmt/format.h>

#include <utility>

#include "core/environment_error.h"
#include "core/error.h"
#include "host/protocol_tensors.h"

namespace msabench {
namespace {

// 0xFFFF and 0xFFFFFFFF are NaN as bf16, fp16 and fp32, 0xFF is as e4m3; as ids they are -1, as lengths too.
constexpr std::uint8_t nobodys = 0xFF;

device_address allocate(const cuda_device& device, std::uint64_t bytes) {
  try {
    return device.allocate(bytes);
  } catch (const cuda_failure& f) {
    if (!f.out_of_memory) throw;
    throw environment_error({"device memory", fmt::format("{} bytes", bytes), "the device has not so much left",
                             "take a smaller case, or a device that nobody else uses"});
  }
}

}  // namespace

device_image::device_image(std::shared_ptr<cuda_device> device, const bound_case& c)
    : device_(device), case_(c), generator_(std::move(device)) {
  images_.reserve(c.regions.size());
  for (const memory_region& r : c.regions) {
    images_.push_back(allocate(*device_, r.bytes));
    device_->fill(images_.back(), nobodys, r.bytes);
  }
}

device_image::~device_image() {
  for (const device_address at : images_) device_->release(at);
  for (const device_address at : left_) device_->release(at);
}

void device_image::upload() {
  for (std::size_t i = 0; i < images_.size(); ++i) {
    const memory_region& r = case_.regions[i];
    for (const auto& [begin, end] : protocol::uploaded(r.contents, r.generated))
      device_->upload(images_[i] + begin, r.data + begin, end - begin);
    generator_.make(images_[i], r.generated);
  }
  device_->settle();
  if (std::exchange(verified_, true)) return;
  for (std::size_t i = 0; i < images_.size(); ++i)
    generator_.verify(images_[i], case_.regions[i].generated, case_.regions[i].data);
}

void device_image::download() {
  for (std::size_t i = 0; i < images_.size(); ++i) {
    const memory_region& r = case_.regions[i];
    for (const auto& [begin, end] : r.contents) device_->download(r.data + begin, images_[i] + begin, end - begin);
  }
}

void* device_image::at(const bound_tensor& t) const {
  if (t.data == nullptr) return nullptr;
  for (std::size_t i = 0; i < images_.size(); ++i) {
    const memory_region& r = case_.regions[i];
    if (t.data >= r.data && t.data < r.data + r.bytes)
      return reinterpret_cast<void*>(images_[i] + static_cast<std::uint64_t>(t.data - r.data));
  }
  throw suite_error(fmt::format("tensor {} lies in no region of its case", name(t.where)));
}

void device_image::move_elsewhere() {
  for (std::size_t i = 0; i < images_.size(); ++i) {
    const std::uint64_t bytes = case_.regions[i].bytes;
    const device_address moved = allocate(*device_, bytes);
    device_->fill(images_[i], nobodys, bytes);
    left_.push_back(images_[i]);
    images_[i] = moved;
    device_->fill(moved, nobodys, bytes);
  }
}

}  // namespace msabench
