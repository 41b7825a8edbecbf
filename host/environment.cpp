// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "host/executor.h"
#include "host/implementation.h"

namespace msabench {
namespace {

std::string first_line(const char* path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

// The value of the first line "key : value"; empty if there is none.
std::string field_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

std::string cpu_model() {
  // x86 names the model; Arm gives numbers only.
  std::string model = field_of("/proc/cpuinfo", "model name");
  if (!model.empty()) return model;
  const std::string implementer = field_of("/proc/cpuinfo", "CPU implementer");
  if (implementer.empty()) return "unknown";
  return fmt::format("implementer {} part {}", implementer, field_of("/proc/cpuinfo", "CPU part"));
}

std::string operating_system() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("PRETTY_NAME=")) continue;
    line.erase(0, line.find('=') + 1);
    std::erase(line, '"');
    return line;
  }
  return "unknown";
}

constexpr std::string_view compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "gcc " __VERSION__;
#else
  return "unknown";
#endif
}

void put_load(nlohmann::json& out) {
  const std::string line = first_line("/proc/loadavg");
  double load = 0;
  if (std::from_chars(line.data(), line.data() + line.size(), load).ec == std::errc()) out["load_average_1min"] = load;
}

}  // namespace

double available_memory_bytes() {
  const std::string text = field_of("/proc/meminfo", "MemAvailable");
  double kibibytes = 0;
  std::from_chars(text.data(), text.data() + text.size(), kibibytes);
  return kibibytes * 1024;
}

nlohmann::json environment() {
  utsname system{};
  ::uname(&system);
  nlohmann::json out = {
      {"cpu", one_line(cpu_model(), 120)},
      {"architecture", one_line(system.machine, 40)},
      {"cores", ::sysconf(_SC_NPROCESSORS_ONLN)},
      {"cores_available", available_cores()},
      {"memory_bytes", static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE)},
      {"page_bytes", ::sysconf(_SC_PAGESIZE)},
      {"os", one_line(operating_system(), 120)},
      {"kernel", one_line(fmt::format("{} {}", system.sysname, system.release), 120)},
      {"compiler", one_line(compiler(), 120)},
      {"libc", fmt::format("glibc {}", ::gnu_get_libc_version())},
  };
  // Containers and virtual machines often show none.
  const std::string governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (!governor.empty()) out["cpu_governor"] = one_line(governor, 40);
  put_load(out);
  return out;
}

}  // namespace msabench
