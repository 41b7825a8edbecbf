// SPDX-License-Identifier: Apache-2.0
#include "host/worker/workspace.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>
#include <span>
#include <utility>

#include "inputs/poison.h"

namespace msabench {
namespace {

constexpr std::uint64_t page = 65536;  // a multiple of every page size in use
constexpr std::byte band_value{0xA5};

}  // namespace

std::uint64_t workspace::mapped_bytes(std::uint64_t bytes, std::uint32_t alignment) {
  const std::uint64_t inner = bytes + 2 * band_bytes + 2 * std::uint64_t{alignment};
  return (inner + page - 1) / page * page + 2 * page;
}

workspace::workspace(workspace&& other) noexcept { *this = std::move(other); }

workspace& workspace::operator=(workspace&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(data_, other.data_);
  std::swap(begin_, other.begin_);
  std::swap(end_, other.end_);
  std::swap(bytes_, other.bytes_);
  std::swap(alignment_, other.alignment_);
  std::swap(left_, other.left_);
  return *this;
}

workspace::~workspace() {
  if (mapping_) left_.push_back(mapping_);
  for (std::byte* mapping : left_) ::munmap(mapping, mapping_bytes_);
}

bool workspace::allocate(std::uint64_t bytes, std::uint32_t alignment) {
  if (bytes == 0) return true;
  const std::uint64_t total = mapped_bytes(bytes, alignment);
  void* at = ::mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return false;
  mapping_ = static_cast<std::byte*>(at);
  mapping_bytes_ = total;
  begin_ = mapping_ + page;
  end_ = mapping_ + total - page;
  if (::mprotect(begin_, static_cast<std::size_t>(end_ - begin_), PROT_READ | PROT_WRITE) != 0) return false;
  auto address = reinterpret_cast<std::uintptr_t>(begin_) + band_bytes;
  address = (address + alignment - 1) / alignment * alignment;
  if (address / alignment % 2 == 0) address += alignment;
  data_ = begin_ + (address - reinterpret_cast<std::uintptr_t>(begin_));
  bytes_ = bytes;
  alignment_ = alignment;
  return true;
}

bool workspace::move_elsewhere() {
  if (!mapping_) return true;
  workspace other;
  if (!other.allocate(bytes_, alignment_)) return false;
  // A mapping in its place gives the memory back and keeps the addresses.
  if (::mmap(mapping_, mapping_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
      MAP_FAILED)
    return false;
  other.left_ = std::exchange(left_, {});
  other.left_.push_back(std::exchange(mapping_, nullptr));
  *this = std::move(other);
  return true;
}

void workspace::make_dirty(int launch, std::uint64_t seed) {
  if (!data_) return;
  std::memset(begin_, static_cast<int>(band_value), static_cast<std::size_t>(data_ - begin_));
  std::memset(data_ + bytes_, static_cast<int>(band_value), static_cast<std::size_t>(end_ - data_) - bytes_);
  // A NaN to whoever reads it as a float, a large number to whoever reads it as an index.
  fill_poison({data_, bytes_}, fp32, launch, seed);
}

std::string workspace::damage() const {
  if (!data_) return {};
  for (const std::byte* p = data_; p-- > begin_;)
    if (*p != band_value) return fmt::format("workspace, {} bytes before its start", data_ - p);
  for (const std::byte* p = data_ + bytes_; p < end_; ++p)
    if (*p != band_value) return fmt::format("workspace, {} bytes past its end", p - (data_ + bytes_));
  return {};
}

}  // namespace msabench
