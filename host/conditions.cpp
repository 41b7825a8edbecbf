// SPDX-License-Identifier: Apache-2.0
#include "host/conditions.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace msabench {
namespace {

// The numbers of a line of words, whatever stands between them.
std::vector<double> numbers_of(std::string_view line) {
  std::vector<double> found;
  const char *at = line.data(), *end = at + line.size();
  while (at < end) {
    double x = 0;
    const auto [rest, error] = std::from_chars(at, end, x);
    if (error == std::errc()) found.push_back(x);
    at = error == std::errc() ? rest : at + 1;
  }
  return found;
}

double mean_mhz(const std::filesystem::path& proc) {
  std::ifstream file(proc / "cpuinfo");
  double sum = 0, count = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("cpu MHz")) continue;
    const auto numbers = numbers_of(line);
    if (numbers.empty()) continue;
    sum += numbers.back();
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

}  // namespace

std::optional<cpu_reading> read_cpus(const std::filesystem::path& proc) {
  std::ifstream file(proc / "stat");
  std::string line;
  if (!std::getline(file, line) || !line.starts_with("cpu ")) return std::nullopt;
  // user nice system idle iowait irq softirq steal; guests are counted in user and nice already.
  std::vector<double> ticks = numbers_of(line);
  if (ticks.size() < 4) return std::nullopt;
  ticks.resize(8, 0.0);
  const auto per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  cpu_reading now;
  now.busy_s = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / per_second;
  now.idle_s = (ticks[3] + ticks[4]) / per_second;
  now.steal_s = ticks[7] / per_second;
  for (std::string other; std::getline(file, other);)
    if (other.starts_with("procs_running"))
      if (const auto running = numbers_of(other); !running.empty()) now.load = running.front();
  now.mhz = mean_mhz(proc);
  return now;
}

cpu_usage usage_between(const cpu_reading& earlier, const cpu_reading& later, double own_cpu_s) {
  cpu_usage u;
  const double busy = later.busy_s - earlier.busy_s, steal = later.steal_s - earlier.steal_s;
  u.cpu_seconds = busy + steal + later.idle_s - earlier.idle_s;
  u.load = later.load;
  u.mhz = later.mhz;
  if (u.cpu_seconds <= 0) return u;
  u.others = std::clamp((busy - own_cpu_s) / u.cpu_seconds, 0.0, 1.0);
  u.steal = std::clamp(steal / u.cpu_seconds, 0.0, 1.0);
  return u;
}

double own_cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::optional<std::uint64_t> last_level_cache_bytes(const std::filesystem::path& cpu0_cache) {
  std::uint64_t largest = 0;
  for (int i = 0; i < 10; ++i) {
    std::string text;
    if (!std::getline(std::ifstream(cpu0_cache / ("index" + std::to_string(i)) / "size"), text)) continue;
    std::uint64_t size = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc()) continue;
    if (*rest == 'K') size <<= 10;
    if (*rest == 'M') size <<= 20;
    largest = std::max(largest, size);
  }
  return largest > 0 ? std::optional(largest) : std::nullopt;
}

}  // namespace msabench
