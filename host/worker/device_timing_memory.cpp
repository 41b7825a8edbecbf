// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/environment_error.h"
#include "host/worker/device_comparison.h"
#include "host/worker/device_generator.h"
#include "host/worker/timing_memory.h"
#include "inputs/checksum.h"

namespace msabench {
namespace {

// NaN in every type, -1 as an id or a length.
constexpr std::uint8_t nobodys = 0xFF;

class device_timing_memory final : public timing_memory {
 public:
  device_timing_memory(std::shared_ptr<cuda_device> device, std::vector<protocol::mapped_region>& regions,
                       std::vector<std::int64_t> sets)
      : device_(device),
        regions_(regions),
        copies_(regions.size()),
        generator_(device),
        comparison_(std::move(device)) {
    for (std::size_t r = 0; r < regions.size(); ++r) {
      add(r);
      fill_first(r);
      for (std::int64_t s = 1; s < sets[r]; ++s) {
        add(r);
        copy_first(r);
      }
    }
    device_->settle();
  }

  ~device_timing_memory() override {
    for (const auto& copies : copies_)
      for (const device_address at : copies) device_->release(at);
  }

  std::byte* base(int region, std::int64_t set) const override {
    return reinterpret_cast<std::byte*>(address(region, set));
  }

  // A further set is a copy of the first, so it is compared with that one, where they lie.
  bool unchanged(int region, std::int64_t set) override {
    if (set > 0) {
      for (const auto& [begin, end] : regions_[static_cast<std::size_t>(region)].filled)
        comparison_.compare(address(region, 0) + begin, address(region, set) + begin, end - begin);
      return !comparison_.found_difference();
    }
    const std::byte* const own = regions_[static_cast<std::size_t>(region)].memory->data();
    return every_range(region, set, [&](const std::byte* is, std::uint64_t begin, std::uint64_t bytes) {
      return std::memcmp(is, own + begin, bytes) == 0;
    });
  }

  std::uint64_t checksum_of(int region, std::int64_t set) const override {
    std::uint64_t sum = 0;
    every_range(region, set, [&](const std::byte* is, std::uint64_t, std::uint64_t bytes) {
      sum = checksum({is, is + bytes}, sum);
      return true;
    });
    return sum;
  }

  void download(int region, std::int64_t set) override {
    const auto& to = regions_[static_cast<std::size_t>(region)];
    for (const auto& [begin, end] : to.filled)
      device_->download(to.memory->data() + begin, address(region, set) + begin, end - begin);
  }

  bool sparse(int) const override { return false; }

 private:
  device_address address(int region, std::int64_t set) const {
    return copies_[static_cast<std::size_t>(region)][static_cast<std::size_t>(set)];
  }

  device_address allocate(std::uint64_t bytes) const {
    try {
      return device_->allocate(bytes);
    } catch (const cuda_failure& f) {
      if (!f.out_of_memory) throw;
      throw environment_error({"device memory", fmt::format("{} bytes", bytes), "can't be had for another input set",
                               "take a smaller context or batch, --cache hot, or a device with more memory"});
    }
  }

  void add(std::size_t region) {
    const std::uint64_t bytes = regions_[region].memory->bytes();
    copies_[region].push_back(allocate(bytes));
    device_->fill(copies_[region].back(), nobodys, bytes);
  }

  void fill_first(std::size_t region) {
    const protocol::mapped_region& from = regions_[region];
    const device_address to = copies_[region].front();
    const protocol::byte_ranges rest = protocol::uploaded(from.filled, from.generated);
    for (const auto* ranges : {&rest, &from.poisoned})
      for (const auto& [begin, end] : *ranges) device_->upload(to + begin, from.memory->data() + begin, end - begin);
    generator_.make(to, from.generated);
    generator_.verify(to, from.generated, from.memory->data());
  }

  // As on a CPU, poison in the first set is enough.
  void copy_first(std::size_t region) const {
    const device_address from = copies_[region].front(), to = copies_[region].back();
    // The default stream: behind what was uploaded and made.
    for (const auto& [begin, end] : regions_[region].filled)
      device_->copy(to + begin, from + begin, end - begin, nullptr);
  }

  // visit(bytes as they are now, their offset, their number) for what the host wrote, a part at a time, while it is true.
  template <class Visit>
  bool every_range(int region, std::int64_t set, const Visit& visit) const {
    constexpr std::uint64_t part = std::uint64_t{16} << 20;
    std::vector<std::byte> held;
    for (const auto& [first, end] : regions_[static_cast<std::size_t>(region)].filled)
      for (std::uint64_t begin = first; begin < end; begin += part) {
        held.resize(std::min(part, end - begin));
        device_->download(held.data(), address(region, set) + begin, held.size());
        if (!visit(held.data(), begin, held.size())) return false;
      }
    return true;
  }

  std::shared_ptr<cuda_device> device_;
  std::vector<protocol::mapped_region>& regions_;
  std::vector<std::vector<device_address>> copies_;
  device_generator generator_;
  device_comparison comparison_;
};

}  // namespace

std::unique_ptr<timing_memory> make_device_timing_memory(std::shared_ptr<cuda_device> device,
                                                         std::vector<protocol::mapped_region>& regions,
                                                         std::vector<std::int64_t> sets) {
  return std::make_unique<device_timing_memory>(std::move(device), regions, std::move(sets));
}

}  // namespace msabench
