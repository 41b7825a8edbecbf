// SPDX-License-Identifier: Apache-2.0
#include "host/worker/device_image.h"

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <utility>

#include "core/error.h"
#include "host/protocol_tensors.h"

namespace msabench {
namespace {

// 0xFFFF and 0xFFFFFFFF are NaN as bf16, fp16 and fp32, 0xFF is as e4m3; as ids they are -1, as lengths too.
constexpr std::uint8_t nobodys = 0xFF;

// A copy takes as long as some ten thousand bytes of it, so what lies close together travels as one, by way of `staging`.
constexpr std::uint64_t small_gap = 32 << 10, most_together = 4 << 20;

// Calls with each longest stretch of `ranges` that travels as one.
template <class Visit>
void for_each_stretch(std::span<const std::pair<std::uint64_t, std::uint64_t>> ranges, Visit&& visit) {
  for (std::size_t first = 0; first < ranges.size();) {
    std::size_t end = first + 1;
    while (end < ranges.size() && ranges[end].first - ranges[end - 1].second <= small_gap &&
           ranges[end].second - ranges[first].first <= most_together)
      ++end;
    visit(ranges.subspan(first, end - first));
    first = end;
  }
}

}  // namespace

device_image::device_image(std::shared_ptr<cuda_device> device, const bound_case& c)
    : device_(device), case_(c), generator_(std::move(device)) {
  for (const memory_region& r : c.regions)
    images_.push_back(std::make_unique<device_region>(device_, r.bytes, r.contents, nobodys));
}

void device_image::upload(std::size_t region, const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges) {
  const std::byte* const from = case_.regions[region].data;
  for_each_stretch(ranges, [&](auto stretch) {
    const std::uint64_t first = stretch.front().first, bytes = stretch.back().second - first;
    if (stretch.size() == 1) return device_->upload(images_[region]->at() + first, from + first, bytes);
    staging_.assign(bytes, std::byte{nobodys});
    for (const auto& [begin, end] : stretch) std::memcpy(staging_.data() + (begin - first), from + begin, end - begin);
    device_->upload(images_[region]->at() + first, staging_.data(), bytes);
  });
}

void device_image::upload() {
  const bool without_steady_ones = std::exchange(steady_ones_came_, true);
  for (std::size_t i = 0; i < images_.size(); ++i) {
    const memory_region& r = case_.regions[i];
    if (r.steady && without_steady_ones) continue;
    upload(i, protocol::uploaded(r.contents, r.generated));
    // After what lies between was overwritten.
    generator_.make(images_[i]->at(), r.generated);
  }
  device_->settle();
  if (std::exchange(verified_, true)) return;
  for (std::size_t i = 0; i < images_.size(); ++i)
    generator_.verify(images_[i]->at(), case_.regions[i].generated, case_.regions[i].data);
}

void device_image::download(bool steady_ones_too) {
  for (std::size_t i = 0; i < images_.size(); ++i) {
    const memory_region& r = case_.regions[i];
    if (r.steady && !steady_ones_too) continue;
    for_each_stretch(r.contents, [&](auto stretch) {
      const std::uint64_t first = stretch.front().first, bytes = stretch.back().second - first;
      if (stretch.size() == 1) return device_->download(r.data + first, images_[i]->at() + first, bytes);
      staging_.resize(bytes);
      device_->download(staging_.data(), images_[i]->at() + first, bytes);
      for (const auto& [begin, end] : stretch)
        std::memcpy(r.data + begin, staging_.data() + (begin - first), end - begin);
    });
  }
}

void* device_image::at(const bound_tensor& t) const {
  if (t.data == nullptr) return nullptr;
  for (std::size_t i = 0; i < images_.size(); ++i) {
    const memory_region& r = case_.regions[i];
    if (t.data >= r.data && t.data < r.data + r.bytes)
      return reinterpret_cast<void*>(images_[i]->at() + static_cast<std::uint64_t>(t.data - r.data));
  }
  throw suite_error(fmt::format("tensor {} lies in no region of its case", name(t.where)));
}

void device_image::move_elsewhere() {
  for (std::size_t i = 0; i < images_.size(); ++i) {
    const memory_region& r = case_.regions[i];
    auto moved = std::make_unique<device_region>(device_, r.bytes, r.contents, nobodys);
    if (r.steady && steady_ones_came_)
      for_each_stretch(r.contents, [&](auto stretch) {
        const std::uint64_t first = stretch.front().first;
        device_->copy(moved->at() + first, images_[i]->at() + first, stretch.back().second - first, nullptr);
      });
    images_[i]->fill(nobodys);
    left_.push_back(std::exchange(images_[i], std::move(moved)));
  }
}

}  // namespace msabench
