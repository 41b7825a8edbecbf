// SPDX-License-Identifier: Apache-2.0
#include "host/worker/timing_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/environment_error.h"
#include "inputs/checksum.h"

namespace msabench {
namespace {

constexpr std::uint64_t huge_page = std::uint64_t{2} << 20;
// Between two copies in one mapping: what is written a little too far is seen in the bands of an output.
constexpr std::uint64_t gap = 4096;
// Shares of the memory that is available: for single copies beside the host's own, and for huge pages beyond contents.
constexpr double single_copy_share = 0.3, huge_share = 0.25;

std::uint64_t round_up(std::uint64_t x, std::uint64_t to) { return (x + to - 1) / to * to; }

std::uint64_t filled_bytes(const protocol::mapped_region& r) {
  std::uint64_t total = 0;
  for (const auto& [begin, end] : r.filled) total += end - begin;
  return total;
}

// Bytes of all huge pages of which something is filled.
std::uint64_t huge_bytes(const protocol::mapped_region& r) {
  std::uint64_t pages = 0, next = 0;
  for (const auto& [begin, end] : r.filled) {
    if (begin == end) continue;
    const std::uint64_t first = std::max(begin / huge_page, next), last = (end - 1) / huge_page;
    if (last >= first) pages += last - first + 1;
    next = last + 1;
  }
  return pages * huge_page;
}

void gather_into_huge_pages([[maybe_unused]] std::byte* data, [[maybe_unused]] std::uint64_t bytes) {
#ifdef MADV_COLLAPSE
  // Best effort: the contents are the same, and a kernel that can't do it says so.
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uint64_t skip = round_up(address, huge_page) - address;
  if (bytes > skip + huge_page) ::madvise(data + skip, (bytes - skip) / huge_page * huge_page, MADV_COLLAPSE);
#endif
}

class host_timing_memory final : public timing_memory {
 public:
  host_timing_memory(std::vector<protocol::mapped_region>& regions, std::vector<std::int64_t> sets,
                     double available_bytes);
  ~host_timing_memory() override;

  std::byte* base(int region, std::int64_t set) const override;
  bool unchanged(int region, std::int64_t set) override;
  std::uint64_t checksum_of(int region, std::int64_t set) override;
  void download(int region, std::int64_t set) override;
  bool sparse(int region) const override { return sparse_[static_cast<std::size_t>(region)] != 0; }

 private:
  std::byte* reserve(std::uint64_t bytes, bool huge);
  void copy(std::size_t region, std::int64_t set, std::byte* to) const;

  struct mapping {
    std::byte* at = nullptr;
    std::uint64_t bytes = 0;
  };
  std::vector<protocol::mapped_region>& regions_;
  std::vector<std::vector<std::byte*>> copies_;  // per region; empty: the host's own
  std::vector<char> sparse_;
  std::vector<mapping> mappings_;
};

host_timing_memory::host_timing_memory(std::vector<protocol::mapped_region>& regions, std::vector<std::int64_t> sets,
                                       double available_bytes)
    : regions_(regions), copies_(regions.size()), sparse_(regions.size(), 0) {
  double spare = available_bytes * huge_share, single = available_bytes * single_copy_share;
  std::uint64_t small = 0;
  std::vector<std::size_t> together;
  for (std::size_t r = 0; r < regions.size(); ++r) {
    const std::uint64_t bytes = regions[r].memory->bytes(), filled = filled_bytes(regions[r]);
    const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(sets[r], 1));
    if (bytes < huge_page) {
      small += count * round_up(bytes + gap, gap);
      together.push_back(r);
      continue;
    }
    if (count == 1 && static_cast<double>(filled) > single) {
      gather_into_huge_pages(regions[r].memory->data(), bytes);
      continue;
    }
    if (count == 1) single -= static_cast<double>(filled);
    const auto beyond = static_cast<double>(count) *
                        static_cast<double>(huge_bytes(regions[r]) - std::min(filled, huge_bytes(regions[r])));
    const bool huge = beyond <= spare;
    if (huge)
      spare -= beyond;
    else
      sparse_[r] = 1;
    for (std::uint64_t s = 0; s < count; ++s) {
      copies_[r].push_back(reserve(bytes, huge));
      copy(r, static_cast<std::int64_t>(s), copies_[r].back());
    }
  }
  if (small == 0) return;
  std::byte* next = reserve(small, true);
  for (const std::size_t r : together)
    for (std::int64_t s = 0; s < std::max<std::int64_t>(sets[r], 1); ++s) {
      copies_[r].push_back(next);
      copy(r, s, next);
      next += round_up(regions[r].memory->bytes() + gap, gap);
    }
}

host_timing_memory::~host_timing_memory() {
  for (const mapping& m : mappings_) ::munmap(m.at, m.bytes);
}

// With pages without access on both sides.
std::byte* host_timing_memory::reserve(std::uint64_t bytes, bool huge) {
  const std::uint64_t guard = huge ? huge_page : 65536;
  const std::uint64_t inside = round_up(bytes, huge ? huge_page : 4096), total = inside + 2 * guard + huge_page;
  void* const at = ::mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const auto give_up = [&] {
    throw environment_error({"memory", fmt::format("{} bytes", bytes), "can't be had for another input set",
                             "take a smaller context or batch, --cache hot, or a machine with more memory"});
  };
  if (at == MAP_FAILED) give_up();
  mappings_.push_back({static_cast<std::byte*>(at), total});
  std::byte* data = static_cast<std::byte*>(at) + guard;
  if (huge)
    data += round_up(reinterpret_cast<std::uintptr_t>(data), huge_page) - reinterpret_cast<std::uintptr_t>(data);
  if (::mprotect(data, inside, PROT_READ | PROT_WRITE) != 0) give_up();
  if (huge) ::madvise(data, inside, MADV_HUGEPAGE);
  return data;
}

void host_timing_memory::copy(std::size_t region, std::int64_t set, std::byte* to) const {
  const protocol::mapped_region& from = regions_[region];
  // Poison in one of them is enough: its outputs differ then if it was read. In all of them it would often be most of
  // what is copied.
  std::vector<const protocol::byte_ranges*> copied = {&from.filled};
  if (set == 0) copied.push_back(&from.poisoned);
  for (const auto* ranges : copied)
    for (const auto& [begin, end] : *ranges) std::memcpy(to + begin, from.memory->data() + begin, end - begin);
}

std::byte* host_timing_memory::base(int region, std::int64_t set) const {
  const auto r = static_cast<std::size_t>(region);
  return copies_[r].empty() ? regions_[r].memory->data() : copies_[r][static_cast<std::size_t>(set)];
}

bool host_timing_memory::unchanged(int region, std::int64_t set) {
  const auto r = static_cast<std::size_t>(region);
  if (copies_[r].empty()) return true;
  const std::byte *const mine = base(region, set), *const own = regions_[r].memory->data();
  return std::ranges::all_of(regions_[r].filled, [&](const auto& range) {
    return std::memcmp(mine + range.first, own + range.first, range.second - range.first) == 0;
  });
}

std::uint64_t host_timing_memory::checksum_of(int region, std::int64_t set) {
  const std::byte* const data = base(region, set);
  std::uint64_t sum = 0;
  for (const auto& [begin, end] : regions_[static_cast<std::size_t>(region)].filled)
    sum = checksum({data + begin, data + end}, sum);
  return sum;
}

void host_timing_memory::download(int region, std::int64_t set) {
  const auto r = static_cast<std::size_t>(region);
  if (copies_[r].empty()) return;
  for (const auto& [begin, end] : regions_[r].filled)
    std::memcpy(regions_[r].memory->data() + begin, base(region, set) + begin, end - begin);
}

}  // namespace

std::unique_ptr<timing_memory> make_host_timing_memory(std::vector<protocol::mapped_region>& regions,
                                                       std::vector<std::int64_t> sets, double available_bytes) {
  return std::make_unique<host_timing_memory>(regions, std::move(sets), available_bytes);
}

}  // namespace msabench
