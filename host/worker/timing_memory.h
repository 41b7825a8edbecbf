// SPDX-License-Identifier: Apache-2.0
// Memory of the worker for timed runs: the input sets of a group, alike in contents and disjoint in place, copied from
// the regions that the host filled.
//
// Copies lie in huge pages where the machine has them, as the caches of an engine and the memory of the probes do: on
// small pages reading alone can take half as long again. Where that would take far more memory than the contents (a
// cache of which little is filled, many times), small ones have to do, and sparse() says so.
#pragma once

#include <cstdint>
#include <vector>

#include "host/protocol_tensors.h"

namespace msabench {

class timing_memory {
 public:
  // `sets[i]` copies of region i, 1 at the least. A single one that is large beside `available_bytes` is the host's
  // region itself. environment_error if the machine has not the memory.
  timing_memory(std::vector<protocol::mapped_region>& regions, std::vector<std::int64_t> sets, double available_bytes);
  ~timing_memory();
  timing_memory(const timing_memory&) = delete;

  std::byte* base(int region, std::int64_t set) const;
  // Whether the copy still holds what the host wrote; true where it is the host's own.
  bool unchanged(int region, std::int64_t set) const;
  // Of what the host wrote, as it is now in the copy.
  std::uint64_t checksum_of(int region, std::int64_t set) const;
  // Contents of a copy into the host's region; nothing to do where it is the host's own.
  void download(int region, std::int64_t set);
  // Whether copies of this region lie in small pages for want of memory.
  bool sparse(int region) const { return sparse_[static_cast<std::size_t>(region)] != 0; }

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

}  // namespace msabench
