// SPDX-License-Identifier: Apache-2.0
#include "host/worker/device_region.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/environment_error.h"

namespace msabench {
namespace {

constexpr std::uint64_t least_bytes = std::uint64_t{1} << 30, least_share_of_holes = 4;
// Of memory that holes have in common, largest first: a hole takes few mappings, whatever its size.
constexpr std::uint64_t common_bytes[] = {64 << 20, 8 << 20, 1};

[[noreturn]] void refuse(std::uint64_t bytes) {
  throw environment_error({"device memory", fmt::format("{} bytes", bytes), "the device has not so much left",
                           "take a smaller case, or a device that nobody else uses"});
}

}  // namespace

device_region::device_region(std::shared_ptr<cuda_device> device, std::uint64_t bytes,
                             const std::vector<std::pair<std::uint64_t, std::uint64_t>>& contents, std::uint8_t value)
    : device_(std::move(device)), bytes_(bytes) {
  if (!share_holes(bytes, contents)) {
    bytes_ = bytes;
    try {
      at_ = device_->allocate(bytes);
    } catch (const cuda_failure& f) {
      if (f.out_of_memory) refuse(bytes);
      throw;
    }
  }
  try {
    fill(value);
  } catch (...) {
    give_back();
    throw;
  }
}

device_region::~device_region() { give_back(); }

// False where that is not worth it, or not possible: then nothing is left of the attempt.
bool device_region::share_holes(std::uint64_t bytes,
                                const std::vector<std::pair<std::uint64_t, std::uint64_t>>& contents) {
  const std::uint64_t unit = bytes >= least_bytes ? device_->mapping_granularity() : 0;
  if (unit == 0) return false;
  std::uint64_t held = 0;
  for (const auto& [begin, end] : contents) {
    const std::uint64_t first = begin / unit * unit, last = (end + unit - 1) / unit * unit;
    if (!own_.empty() && first <= own_.back().second)
      own_.back().second = std::max(own_.back().second, last);
    else
      own_.emplace_back(first, last);
  }
  for (const auto& [begin, end] : own_) held += end - begin;
  if (held * least_share_of_holes <= bytes) {
    granularity_ = unit;
    bytes_ = (bytes + unit - 1) / unit * unit;
    try {
      map_all();
      return true;
    } catch (const cuda_failure& f) {
      give_back();
      if (f.out_of_memory) refuse(held);
    }
  }
  own_.clear();
  granularity_ = 0;
  return false;
}

void device_region::map_all() {
  at_ = device_->reserve(bytes_);
  const auto create = [&](std::uint64_t bytes) {
    memories_.push_back(device_->create_memory(bytes));
    return memories_.back();
  };
  struct common_memory {
    std::uint64_t bytes, memory = 0;
  };
  std::vector<common_memory> common;
  for (const std::uint64_t bytes : common_bytes)
    common.push_back({(bytes + granularity_ - 1) / granularity_ * granularity_});
  const auto map = [&](std::uint64_t memory, std::uint64_t bytes) {
    device_->map(at_ + mapped_, memory, bytes);
    mapped_ += bytes;
  };
  const auto map_hole = [&](std::uint64_t begin, std::uint64_t end) {
    for (common_memory& each : common)
      for (; end - begin >= each.bytes; begin += each.bytes) {
        if (each.memory == 0) {
          each.memory = create(each.bytes);
          common_.emplace_back(begin, begin + each.bytes);
        }
        map(each.memory, each.bytes);
      }
  };
  for (const auto& [begin, end] : own_) {
    map_hole(mapped_, begin);
    map(create(end - begin), end - begin);
  }
  map_hole(mapped_, bytes_);
  device_->allow_access(at_, bytes_);
}

void device_region::fill(std::uint8_t value) {
  if (granularity_ == 0) return device_->fill(at_, value, bytes_);
  for (const auto* ranges : {&own_, &common_})
    for (const auto& [begin, end] : *ranges) device_->fill(at_ + begin, value, end - begin);
}

void device_region::give_back() noexcept {
  if (at_ == 0) return;
  if (granularity_ == 0) {
    device_->release(at_);
  } else {
    if (mapped_ > 0) device_->unmap(at_, mapped_);
    for (const std::uint64_t memory : memories_) device_->release_memory(memory);
    device_->unreserve(at_, bytes_);
  }
  at_ = 0;
  mapped_ = 0;
  memories_.clear();
  common_.clear();
}

}  // namespace msabench
