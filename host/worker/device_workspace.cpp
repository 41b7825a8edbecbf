// SPDX-License-Identifier: Apache-2.0
#include "host/worker/device_workspace.h"

#include <fmt/format.h>

#include <algorithm>

#include "inputs/poison.h"

namespace msabench {
namespace {

constexpr std::uint8_t band_value = 0xA5;

}  // namespace

device_workspace::~device_workspace() {
  if (begin_ != 0) device_->release(begin_);
  for (const device_address at : left_) device_->release(at);
}

bool device_workspace::allocate(std::uint64_t bytes, std::uint32_t alignment) {
  if (bytes == 0) return true;
  bytes_ = bytes;
  alignment_ = alignment;
  try {
    begin_ = device_->allocate(total_bytes());
  } catch (const cuda_failure& f) {
    bytes_ = 0;
    if (!f.out_of_memory) throw;
    return false;
  }
  // A multiple of the alignment and of nothing larger, so that a plugin that needs more than it says is seen.
  data_ = (begin_ + band_bytes + alignment - 1) / alignment * alignment;
  if (data_ / alignment % 2 == 0) data_ += alignment;
  return true;
}

bool device_workspace::move_elsewhere() {
  if (begin_ == 0) return true;
  device_workspace other(device_);
  if (!other.allocate(bytes_, alignment_)) return false;
  std::swap(begin_, other.begin_);
  std::swap(data_, other.data_);
  left_.push_back(std::exchange(other.begin_, 0));
  return true;
}

void device_workspace::make_dirty(int launch, std::uint64_t seed) {
  if (begin_ == 0) return;
  device_->fill(begin_, band_value, total_bytes());
  // A NaN to whoever reads it as a float, a large number to whoever reads it as an index.
  std::vector<std::byte> some(std::min<std::uint64_t>(bytes_, 4 << 20));
  fill_poison(some, fp32, launch, seed);
  for (std::uint64_t at = 0; at < bytes_; at += some.size())
    device_->upload(data_ + at, some.data(), std::min<std::uint64_t>(some.size(), bytes_ - at));
  // A run that begins before all of it has come would lose what it has written.
  device_->settle();
}

std::string device_workspace::damage() const {
  if (begin_ == 0) return {};
  const auto read = [&](device_address from, std::uint64_t bytes) {
    std::vector<std::uint8_t> band(bytes);
    device_->download(band.data(), from, bytes);
    return band;
  };
  const auto changed = [](std::uint8_t value) { return value != band_value; };
  const std::vector<std::uint8_t> below = read(begin_, data_ - begin_);
  if (const auto at = std::find_if(below.rbegin(), below.rend(), changed); at != below.rend())
    return fmt::format("workspace, {} bytes before its start", at - below.rbegin() + 1);
  const device_address end = data_ + bytes_;
  const std::vector<std::uint8_t> above = read(end, begin_ + total_bytes() - end);
  if (const auto at = std::find_if(above.begin(), above.end(), changed); at != above.end())
    return fmt::format("workspace, {} bytes past its end", at - above.begin());
  return {};
}

}  // namespace msabench
