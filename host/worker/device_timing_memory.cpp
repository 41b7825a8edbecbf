// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/environment_error.h"
#include "host/worker/device_checksum.h"
#include "host/worker/device_comparison.h"
#include "host/worker/device_generator.h"
#include "host/worker/timing_memory.h"

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
        own_(regions.size()),
        generator_(device),
        comparison_(device),
        checksum_(std::move(device)) {
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

  // A further set is a copy of the first, so it is compared with that one, where they lie. The first is compared with what the
  // host wrote, by checksums: of what was made on the device too this looks at every byte.
  bool unchanged(int region, std::int64_t set) override {
    if (set > 0) {
      for (const auto& [begin, end] : regions_[static_cast<std::size_t>(region)].filled)
        comparison_.compare(address(region, 0) + begin, address(region, set) + begin, end - begin);
      return !comparison_.found_difference();
    }
    const protocol::mapped_region& from = regions_[static_cast<std::size_t>(region)];
    auto& own = own_[static_cast<std::size_t>(region)];
    if (!own) own = checksum_on_host(from.memory->data(), from.filled);
    return checksum_.of(address(region, 0), from.filled) == *own;
  }

  std::uint64_t checksum_of(int region, std::int64_t set) override {
    return checksum_.of(address(region, set), regions_[static_cast<std::size_t>(region)].filled);
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

  std::shared_ptr<cuda_device> device_;
  std::vector<protocol::mapped_region>& regions_;
  std::vector<std::vector<device_address>> copies_;
  std::vector<std::optional<std::uint64_t>> own_;  // checksums of the host's regions
  device_generator generator_;
  device_comparison comparison_;
  device_checksum checksum_;
};

}  // namespace

std::unique_ptr<timing_memory> make_device_timing_memory(std::shared_ptr<cuda_device> device,
                                                         std::vector<protocol::mapped_region>& regions,
                                                         std::vector<std::int64_t> sets) {
  return std::make_unique<device_timing_memory>(std::move(device), regions, std::move(sets));
}

}  // namespace msabench
