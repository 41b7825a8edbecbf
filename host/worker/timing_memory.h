// SPDX-License-Identifier: Apache-2.0
// Memory of the worker for timed runs: the input sets of a group, alike in contents and disjoint in place, copied from
// the regions that the host filled.
//
// Copies lie in huge pages where the machine has them, as the caches of an engine and the memory of the probes do: on
// small pages reading alone can take half as long again. Where that would take far more memory than the contents (a
// cache of which little is filled, many times), small ones have to do, and sparse() says so.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "host/protocol_tensors.h"
#include "host/worker/cuda_driver.h"

namespace msabench {

class timing_memory {
 public:
  virtual ~timing_memory() = default;
  timing_memory(const timing_memory&) = delete;

  // Of a device an address there.
  virtual std::byte* base(int region, std::int64_t set) const = 0;
  // Whether the copy still holds what the host wrote; true where it is the host's own.
  virtual bool unchanged(int region, std::int64_t set) = 0;
  // Of what the host wrote, as it is now in the copy.
  virtual std::uint64_t checksum_of(int region, std::int64_t set) = 0;
  // Contents of a copy into the host's region; nothing to do where it is the host's own.
  virtual void download(int region, std::int64_t set) = 0;
  // Whether copies of this region lie in small pages for want of memory.
  virtual bool sparse(int region) const = 0;

 protected:
  timing_memory() = default;
};

// `sets[i]` copies of region i, 1 at the least. On a CPU a single one that is large beside `available_bytes` is the host's
// region itself. environment_error if the machine, or the device, has not the memory.
std::unique_ptr<timing_memory> make_host_timing_memory(std::vector<protocol::mapped_region>& regions,
                                                       std::vector<std::int64_t> sets, double available_bytes);
std::unique_ptr<timing_memory> make_device_timing_memory(std::shared_ptr<cuda_device> device,
                                                         std::vector<protocol::mapped_region>& regions,
                                                         std::vector<std::int64_t> sets);

}  // namespace msabench
