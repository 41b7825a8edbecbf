// SPDX-License-Identifier: Apache-2.0
#include "inputs/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/environment_error.h"
#include "core/error.h"

namespace msabench {

namespace {

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// More than any process can address: a sum of such sizes can't wrap around.
constexpr std::uint64_t max_region_bytes = std::uint64_t{1} << 46;

std::uint64_t whole_pages(const char* what, std::uint64_t bytes) {
  if (bytes > max_region_bytes)
    throw suite_error(fmt::format("shared memory: {} of {} bytes is too large", what, bytes));
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

[[noreturn]] void fail(const char* step, std::uint64_t bytes) {
  const int error = errno;
  throw environment_error({"shared memory", fmt::format("{} bytes", bytes),
                           fmt::format("{} failed: {}", step, std::strerror(error)),
                           "raise the limits on memory and open files (`ulimit -a`), or take a smaller case"});
}

// Address space for guard, memory, guard, all without access; then the memory itself in the middle.
std::byte* map_between_guards(int fd, std::uint64_t bytes, std::uint64_t guard_bytes) {
  const std::uint64_t reserved = bytes + 2 * guard_bytes;
  void* const base = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) fail("reserving address space", reserved);
  std::byte* const data = static_cast<std::byte*>(base) + guard_bytes;
  if (bytes > 0 &&
      mmap(data, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(base, reserved);
    errno = error;
    fail("mapping", bytes);
  }
  return data;
}

}  // namespace

shared_region shared_region::create(const std::string& name, std::uint64_t bytes, std::uint64_t guard_bytes) {
  shared_region region;
  region.bytes_ = whole_pages("a region", bytes == 0 ? 1 : bytes);
  region.guard_bytes_ = whole_pages("a guard", guard_bytes == 0 ? 1 : guard_bytes);
  region.fd_ = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (region.fd_ < 0) fail("memfd_create", region.bytes_);
  if (ftruncate(region.fd_, static_cast<off_t>(region.bytes_)) != 0) fail("ftruncate", region.bytes_);
  region.data_ = map_between_guards(region.fd_, region.bytes_, region.guard_bytes_);
  return region;
}

shared_region shared_region::attach(int fd, std::uint64_t bytes, std::uint64_t guard_bytes) {
  shared_region region;
  region.fd_ = fd;
  region.bytes_ = whole_pages("a region", bytes == 0 ? 1 : bytes);
  region.guard_bytes_ = whole_pages("a guard", guard_bytes == 0 ? 1 : guard_bytes);
  struct stat file{};
  if (fstat(fd, &file) != 0) fail("fstat", region.bytes_);
  // A mapping past the end of its file would raise SIGBUS at the first touch.
  if (static_cast<std::uint64_t>(file.st_size) < region.bytes_)
    throw suite_error(
        fmt::format("shared memory: a region of {} bytes was announced, {} are there", region.bytes_, file.st_size));
  region.data_ = map_between_guards(fd, region.bytes_, region.guard_bytes_);
  return region;
}

void shared_region::move_elsewhere() {
  std::byte* const data = map_between_guards(fd_, bytes_, guard_bytes_);
  left_.push_back(std::exchange(data_, data));
  if (mmap(left_.back(), bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
      MAP_FAILED)
    fail("reserving address space", bytes_);
}

shared_region::shared_region(shared_region&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      guard_bytes_(std::exchange(other.guard_bytes_, 0)),
      fd_(std::exchange(other.fd_, -1)),
      left_(std::move(other.left_)) {}

shared_region& shared_region::operator=(shared_region&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(guard_bytes_, other.guard_bytes_);
  std::swap(fd_, other.fd_);
  std::swap(left_, other.left_);
  return *this;
}

shared_region::~shared_region() {
  if (data_ != nullptr) left_.push_back(data_);
  for (std::byte* data : left_) munmap(data - guard_bytes_, bytes_ + 2 * guard_bytes_);
  if (fd_ >= 0) close(fd_);
}

}  // namespace msabench
