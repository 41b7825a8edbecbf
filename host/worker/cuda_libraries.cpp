// SPDX-License-Identifier: Apache-2.0
#include "host/worker/cuda_libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace msabench {
namespace {

void add_folders(std::string_view with_colons, std::vector<std::string>& to) {
  while (!with_colons.empty()) {
    const auto end = with_colons.find(':');
    if (const auto folder = with_colons.substr(0, end); !folder.empty()) to.emplace_back(folder);
    with_colons = end == std::string_view::npos ? "" : with_colons.substr(end + 1);
  }
}

// lib folders of python3's packages nvidia.*, as it finds them; nothing without python3.
std::vector<std::string> python_folders() {
  constexpr const char* ask =
      "python3 -c 'import nvidia, os; [print(r) for p in nvidia.__path__ for r, _, f in os.walk(p) if "
      "r.endswith(\"lib\")]' "
      "2>/dev/null";
  std::vector<std::string> folders;
  FILE* const pipe = ::popen(ask, "re");
  if (pipe == nullptr) return folders;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr) {
    std::string folder(line.data());
    while (!folder.empty() && (folder.back() == '\n' || folder.back() == '\r')) folder.pop_back();
    if (!folder.empty()) folders.push_back(std::move(folder));
  }
  ::pclose(pipe);
  return folders;
}

}  // namespace

found_library open_cuda_library(const std::string& name, const std::vector<int>& majors) {
  found_library found;
  const auto open = [&](const std::string& path) {
    found.tried.push_back(path);
    found.handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (found.handle != nullptr) found.path = path;
    return found.handle != nullptr;
  };
  const auto in_folders = [&](const std::vector<std::string>& folders) {
    for (const auto& folder : folders)
      for (const int major : majors) {
        const std::string path = fmt::format("{}/{}.{}", folder, name, major);
        std::error_code ignored;
        if (std::filesystem::exists(path, ignored) && open(path)) return true;
      }
    return false;
  };
  std::vector<std::string> chosen, toolkit;
  if (const char* given = std::getenv("MSABENCH_CUDA_LIBS")) add_folders(given, chosen);
  if (in_folders(chosen)) return found;
  for (const int major : majors)
    if (open(fmt::format("{}.{}", name, major))) return found;
  if (const char* home = std::getenv("CUDA_HOME")) toolkit.push_back(fmt::format("{}/lib64", home));
  toolkit.emplace_back("/usr/local/cuda/lib64");
  if (in_folders(toolkit)) return found;
  in_folders(python_folders());
  return found;
}

}  // namespace msabench
