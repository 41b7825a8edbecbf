// SPDX-License-Identifier: Apache-2.0
// What else a machine is doing while something is timed on it: CPU time of other processes, time that the hypervisor
// gave away, load and clock. Readings, and differences of readings; whether that is too much is not said here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace msabench {

// Sums over all CPUs since boot.
struct cpu_reading {
  double busy_s = 0;   // of every process and of interrupts
  double idle_s = 0;   // waiting for devices included
  double steal_s = 0;  // taken by the hypervisor
  double load = 0;     // processes that run or want to, now
  double mhz = 0;      // mean clock of the CPUs; 0 where the system does not tell
};
// Nothing where `proc` has no such files.
std::optional<cpu_reading> read_cpus(const std::filesystem::path& proc = "/proc");

// Between two readings. Shares are of the time of all CPUs together.
struct cpu_usage {
  double others = 0;  // busy with other than the `own_cpu_s` seconds that are accounted for
  double steal = 0;
  double load = 0, mhz = 0;  // of the later reading
  double cpu_seconds = 0;    // CPUs x elapsed time: the system counts in hundredths of a second, so little says little
};
cpu_usage usage_between(const cpu_reading& earlier, const cpu_reading& later, double own_cpu_s);

// CPU seconds of this process, all threads.
double own_cpu_seconds();

// Bytes of the largest cache that a CPU can use; nothing where the system does not tell.
std::optional<std::uint64_t> last_level_cache_bytes(
    const std::filesystem::path& cpu0_cache = "/sys/devices/system/cpu/cpu0/cache");

}  // namespace msabench
