// SPDX-License-Identifier: Apache-2.0
// Memory of the worker for timed runs: the input sets of a group, alike in contents and disjoint in place, made from the
// regions that the host filled. Where a group has one set only, that is the host's memory itself.
#pragma once

#include <cstdint>
#include <vector>

#include "host/protocol_tensors.h"

namespace msabench {

class timing_memory {
 public:
  // `sets[i]` copies of region i; 1: none. environment_error if the machine has not the memory.
  timing_memory(std::vector<protocol::mapped_region>& regions, std::vector<std::int64_t> sets);
  ~timing_memory();
  timing_memory(const timing_memory&) = delete;

  std::byte* base(int region, std::int64_t set) const;
  // Whether the copy still holds what the host wrote; true where it is the host's own.
  bool unchanged(int region, std::int64_t set) const;
  // Of what the host wrote, as it is now in the copy.
  std::uint64_t checksum_of(int region, std::int64_t set) const;
  // Contents of a copy into the host's region; nothing to do where it is the host's own.
  void download(int region, std::int64_t set);
  // Bytes that were copied.
  std::uint64_t copied_bytes() const { return copied_; }

 private:
  struct clone {
    std::byte *mapping = nullptr, *data = nullptr;
    std::uint64_t mapped_bytes = 0;
  };
  void make(std::size_t region, std::int64_t set);

  std::vector<protocol::mapped_region>& regions_;
  std::vector<std::vector<clone>> clones_;  // per region; empty: the host's own
  std::uint64_t copied_ = 0;
};

}  // namespace msabench
