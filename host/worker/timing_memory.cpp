// SPDX-License-Identifier: Apache-2.0
#include "host/worker/timing_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "core/environment_error.h"
#include "inputs/checksum.h"

namespace msabench {
namespace {

constexpr std::uint64_t huge_page = std::uint64_t{2} << 20;

std::uint64_t filled_bytes(const protocol::mapped_region& r) {
  std::uint64_t total = 0;
  for (const auto& [begin, end] : r.filled) total += end - begin;
  return total;
}

// A cache that is filled lies in huge pages where an engine runs; a sparse one would take the memory of a full one.
bool is_dense(const protocol::mapped_region& r) {
  return r.memory->bytes() >= huge_page && filled_bytes(r) >= r.memory->bytes() / 2;
}

void gather_into_huge_pages([[maybe_unused]] std::byte* data, [[maybe_unused]] std::uint64_t bytes) {
#ifdef MADV_COLLAPSE
  // Best effort: the contents are the same, and a kernel that can't do it says so.
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uint64_t skip = (huge_page - address % huge_page) % huge_page;
  if (bytes > skip + huge_page) ::madvise(data + skip, (bytes - skip) / huge_page * huge_page, MADV_COLLAPSE);
#endif
}

}  // namespace

timing_memory::timing_memory(std::vector<protocol::mapped_region>& regions, std::vector<std::int64_t> sets)
    : regions_(regions), clones_(regions.size()) {
  for (std::size_t r = 0; r < regions.size(); ++r) {
    if (sets[r] <= 1) {
      if (is_dense(regions[r])) gather_into_huge_pages(regions[r].memory->data(), regions[r].memory->bytes());
      continue;
    }
    for (std::int64_t s = 0; s < sets[r]; ++s) make(r, s);
  }
}

timing_memory::~timing_memory() {
  for (const auto& of_region : clones_)
    for (const clone& c : of_region) ::munmap(c.mapping, c.mapped_bytes);
}

void timing_memory::make(std::size_t region, std::int64_t set) {
  const protocol::mapped_region& from = regions_[region];
  const std::uint64_t bytes = from.memory->bytes(), guard = from.memory->guard_bytes();
  clone c;
  c.mapped_bytes = bytes + 2 * guard + huge_page;
  void* at = ::mmap(nullptr, c.mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const auto give_up = [&] {
    throw environment_error({"memory", fmt::format("{} bytes", bytes), "can't be had for another input set",
                             "take a smaller context or batch, --cache hot, or a machine with more memory"});
  };
  if (at == MAP_FAILED) give_up();
  c.mapping = static_cast<std::byte*>(at);
  c.data = c.mapping + guard;
  const bool dense = is_dense(from);
  if (dense) {
    const auto address = reinterpret_cast<std::uintptr_t>(c.data);
    c.data += (huge_page - address % huge_page) % huge_page;
  }
  clones_[region].push_back(c);
  if (::mprotect(c.data, bytes, PROT_READ | PROT_WRITE) != 0) give_up();
  if (dense) ::madvise(c.data, bytes, MADV_HUGEPAGE);
  // Poison in one of them is enough: its outputs differ then if it was read. In all of them it would often be most of
  // what is copied.
  std::vector<const protocol::byte_ranges*> copied = {&from.filled};
  if (set == 0) copied.push_back(&from.poisoned);
  for (const auto* ranges : copied)
    for (const auto& [begin, end] : *ranges) {
      std::memcpy(c.data + begin, from.memory->data() + begin, end - begin);
      copied_ += end - begin;
    }
  for (const auto& [begin, end] : from.unmapped) ::mprotect(c.data + begin, end - begin, PROT_NONE);
}

std::byte* timing_memory::base(int region, std::int64_t set) const {
  const auto r = static_cast<std::size_t>(region);
  return clones_[r].empty() ? regions_[r].memory->data() : clones_[r][static_cast<std::size_t>(set)].data;
}

bool timing_memory::unchanged(int region, std::int64_t set) const {
  const auto r = static_cast<std::size_t>(region);
  if (clones_[r].empty()) return true;
  const std::byte *const mine = base(region, set), *const own = regions_[r].memory->data();
  return std::ranges::all_of(regions_[r].filled, [&](const auto& range) {
    return std::memcmp(mine + range.first, own + range.first, range.second - range.first) == 0;
  });
}

std::uint64_t timing_memory::checksum_of(int region, std::int64_t set) const {
  const std::byte* const data = base(region, set);
  std::uint64_t sum = 0;
  for (const auto& [begin, end] : regions_[static_cast<std::size_t>(region)].filled)
    sum = checksum({data + begin, data + end}, sum);
  return sum;
}

void timing_memory::download(int region, std::int64_t set) {
  const auto r = static_cast<std::size_t>(region);
  if (clones_[r].empty()) return;
  for (const auto& [begin, end] : regions_[r].filled)
    std::memcpy(regions_[r].memory->data() + begin, base(region, set) + begin, end - begin);
}

}  // namespace msabench
