// SPDX-License-Identifier: Apache-2.0
// The scratch memory of one plan: dirty before every launch, with bands on both sides that show what was written outside.
// On the CPU there are pages without access beyond them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace msabench {

class scratch_memory {
 public:
  virtual ~scratch_memory() = default;
  // alignment is a power of two; the address is a multiple of it and of nothing larger, so that a plugin that needs
  // more than it says is seen. False: there is not so much memory. Of no bytes until then.
  virtual bool allocate(std::uint64_t bytes, std::uint32_t alignment) = 0;
  // The same size at another address; nothing else comes to lie at the old one until this ends. False: no memory.
  virtual bool move_elsewhere() = 0;
  // That move_elsewhere() takes before it gives the old ones back.
  virtual std::uint64_t move_bytes() const = 0;
  virtual void* data() const = 0;  // null for 0 bytes
  // Fills it with the poison of this launch, and the bands.
  virtual void make_dirty(int launch, std::uint64_t seed) = 0;
  // Empty, or where the bands were written: "workspace, 12 bytes past its end".
  virtual std::string damage() const = 0;
};

class workspace final : public scratch_memory {
 public:
  static constexpr std::uint64_t band_bytes = 4096;
  // Address space that allocate() maps for so many bytes.
  static std::uint64_t mapped_bytes(std::uint64_t bytes, std::uint32_t alignment);

  workspace() = default;  // of no bytes
  workspace(workspace&& other) noexcept;
  workspace& operator=(workspace&& other) noexcept;
  ~workspace() override;

  bool allocate(std::uint64_t bytes, std::uint32_t alignment) override;
  // The old one stays reserved, without access and without memory.
  bool move_elsewhere() override;
  std::uint64_t move_bytes() const override { return mapping_bytes_; }  // of address space
  void* data() const override { return data_; }
  void make_dirty(int launch, std::uint64_t seed) override;
  std::string damage() const override;

 private:
  std::byte* mapping_ = nullptr;
  std::uint64_t mapping_bytes_ = 0;
  std::byte *data_ = nullptr, *begin_ = nullptr, *end_ = nullptr;  // begin_, end_: what may be touched, bands included
  std::uint64_t bytes_ = 0;
  std::uint32_t alignment_ = 1;
  std::vector<std::byte*> left_;  // mappings of the same size that nobody may touch
};

}  // namespace msabench
