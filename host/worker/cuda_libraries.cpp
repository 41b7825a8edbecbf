// SPDX-License-Identifier: Apache-2.0
#include "host/worker/cuda_libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

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

std::vector<std::string> chosen_folders() {
  std::vector<std::string> folders;
  if (const char* given = std::getenv("MSABENCH_CUDA_LIBS")) add_folders(given, folders);
  return folders;
}

std::vector<std::string> toolkit_folders() {
  std::vector<std::string> folders;
  if (const char* home = std::getenv("CUDA_HOME")) folders.push_back(fmt::format("{}/lib64", home));
  folders.emplace_back("/usr/local/cuda/lib64");
  return folders;
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

// The file behind a handle: of a library on the loader's path only its name was known.
std::string file_of(void* handle, const std::string& otherwise) {
  link_map* map = nullptr;
  const bool told = ::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map != nullptr;
  return told && map->l_name != nullptr && *map->l_name != '\0' ? map->l_name : otherwise;
}

class library_search {
 public:
  library_search(const std::string& name, const std::vector<int>& majors) : name_(name), majors_(majors) {}

  void on_loaders_path(const std::string& place) {
    if (found_.handle != nullptr) return note(place, "not looked at");
    note(place, "");
    for (const int major : majors_)
      if (open(fmt::format("{}.{}", name_, major), place)) return;
  }

  void in_folders(const std::string& place, std::vector<std::string> (*folders)()) {
    if (found_.handle != nullptr) return note(place, "not looked at");
    const auto all = folders();
    note(place, all.empty() ? "none" : fmt::format("{}", fmt::join(all, ":")));
    for (const auto& folder : all)
      for (const int major : majors_) {
        const std::string path = fmt::format("{}/{}.{}", folder, name_, major);
        std::error_code ignored;
        if (std::filesystem::exists(path, ignored) && open(path, place)) return;
      }
  }

  found_library take() { return std::move(found_); }

 private:
  void note(const std::string& place, const std::string& what) {
    found_.searched += fmt::format("{}{}{}", found_.searched.empty() ? "" : ", ", place,
                                   what.empty() ? "" : fmt::format(" ({})", what));
  }

  bool open(const std::string& path, const std::string& place) {
    found_.handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (found_.handle == nullptr) return false;
    found_.path = file_of(found_.handle, path);
    found_.place = place;
    return true;
  }

  const std::string& name_;
  const std::vector<int>& majors_;
  found_library found_;
};

}  // namespace

// compute-sanitizer sets this in the processes that it instruments.
bool under_sanitizer() { return std::getenv("NV_SANITIZER_INJECTION_PORT_BASE") != nullptr; }

found_library open_cuda_library(const std::string& name, const std::vector<int>& majors) {
  library_search search(name, majors);
  search.in_folders("$MSABENCH_CUDA_LIBS", chosen_folders);
  search.on_loaders_path("the loader's path");
  search.in_folders("the toolkit", toolkit_folders);
  search.in_folders("python3's nvidia packages", python_folders);
  return search.take();
}

}  // namespace msabench
