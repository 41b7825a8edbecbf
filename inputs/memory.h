// SPDX-License-Identifier: Apache-2.0
// Memory that a foreign process can be handed: a sparse memfd, mapped between unmapped guard ranges. What the
// machine does not give (memory, descriptors) is an environment_error, never a null pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace msabench {

// A part of a region and what it holds. "Unchanged" is checked where it is filled or poisoned.
struct extent {
  enum class kind : std::int32_t { filled, poisoned, hole, unmapped };
  std::uint64_t begin = 0, end = 0;  // bytes from the region's start
  kind holds = kind::filled;
};

// Owns the mapping and the descriptor. Movable, not copyable.
class shared_region {
 public:
  // New memory, all hole (reads as zero). `bytes` is rounded up to pages; `guard_bytes` of address space without access
  // lie directly below and above.
  static shared_region create(const std::string& name, std::uint64_t bytes, std::uint64_t guard_bytes);
  // The same memory in another process: maps a descriptor that was received. Takes ownership of `fd`.
  static shared_region attach(int fd, std::uint64_t bytes, std::uint64_t guard_bytes);

  shared_region(shared_region&&) noexcept;
  shared_region& operator=(shared_region&&) noexcept;
  ~shared_region();

  // Maps the same memory at another address. The old one stays reserved without access, so that nothing else can come
  // to lie there, until the region ends. Unmapped extents come back as mapped ones.
  void move_elsewhere();

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t guard_bytes() const { return guard_bytes_; }
  int fd() const { return fd_; }

 private:
  shared_region() = default;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0, guard_bytes_ = 0;
  int fd_ = -1;
  std::vector<std::byte*> left_;  // where data() was before
};

}  // namespace msabench
