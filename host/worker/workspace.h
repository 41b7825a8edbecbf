// SPDX-License-Identifier: Apache-2.0
// The scratch memory of one plan on the CPU: dirty before every launch, with bands on both sides that show what was
// written outside and pages without access beyond them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace msabench {

class workspace {
 public:
  static constexpr std::uint64_t band_bytes = 4096;
  // Address space that allocate() maps for so many bytes.
  static std::uint64_t mapped_bytes(std::uint64_t bytes, std::uint32_t alignment);

  workspace() = default;  // of no bytes
  workspace(workspace&& other) noexcept;
  workspace& operator=(workspace&& other) noexcept;
  ~workspace();

  // alignment is a power of two; the address is a multiple of it and of nothing larger, so that a plugin that needs
  // more than it says is seen. False: the system has not so much memory.
  bool allocate(std::uint64_t bytes, std::uint32_t alignment);

  // The same size at another address; the old one stays reserved, without access and without memory, until this ends.
  // False: the system has not so much memory.
  bool move_elsewhere();
  // Address space that move_elsewhere() maps before it gives the old one back.
  std::uint64_t move_bytes() const { return mapping_bytes_; }

  void* data() const { return data_; }  // null for 0 bytes
  // Fills it with the poison of this launch, and the bands.
  void make_dirty(int launch, std::uint64_t seed);
  // Empty, or where the bands were written: "workspace, 12 bytes past its end".
  std::string damage() const;

 private:
  std::byte* mapping_ = nullptr;
  std::uint64_t mapping_bytes_ = 0;
  std::byte *data_ = nullptr, *begin_ = nullptr, *end_ = nullptr;  // begin_, end_: what may be touched, bands included
  std::uint64_t bytes_ = 0;
  std::uint32_t alignment_ = 1;
  std::vector<std::byte*> left_;  // mappings of the same size that nobody may touch
};

}  // namespace msabench
