// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/libraries.h"

#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace msabench::kernels {
namespace {

std::vector<std::string> folders_of(const char* with_colons) {
  std::vector<std::string> folders;
  std::string folder;
  for (const char* at = with_colons; at != nullptr; ++at) {
    if (*at != ':' && *at != '\0') {
      folder += *at;
      continue;
    }
    if (!folder.empty()) folders.push_back(folder);
    folder.clear();
    if (*at == '\0') break;
  }
  return folders;
}

std::vector<std::string> toolkit_folders() {
  std::vector<std::string> folders;
  if (const char* home = std::getenv("CUDA_HOME")) folders.push_back(std::string(home) + "/lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  return folders;
}

/// lib folders of python3's packages nvidia.*, as it finds them; none without python3.
std::vector<std::string> python_folders() {
  constexpr const char* ask =
      "python3 -c 'import nvidia, os; [print(r) for p in nvidia.__path__ for r, _, f in os.walk(p) if "
      "r.endswith(\"lib\")]' 2>/dev/null";
  std::vector<std::string> folders;
  std::FILE* const pipe = ::popen(ask, "re");
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

class search {
 public:
  search(const std::string& name, std::initializer_list<int> majors, symbol_scope scope)
      : flags_(RTLD_NOW | (scope == symbol_scope::process ? RTLD_GLOBAL : RTLD_LOCAL)) {
    for (const int major : majors) files_.push_back(name + "." + std::to_string(major));
  }

  bool in_folders(const std::vector<std::string>& folders) {
    for (const auto& folder : folders) {
      found.tried.push_back(folder);
      for (const auto& file : files_) {
        const std::string path = folder + "/" + file;
        std::error_code ignored;
        if (!std::filesystem::exists(path, ignored)) continue;
        if (open(path)) return true;
        // Something is there that is not what its name says: whoever put it there wants to know.
        const char* const reason = ::dlerror();
        found.tried.back() += std::string(" (") + (reason == nullptr ? "can't be opened" : reason) + ")";
      }
    }
    return false;
  }

  bool on_the_loaders_path() {
    found.tried.emplace_back("the loader's path");
    for (const auto& file : files_)
      if (open(file)) return true;
    return false;
  }

  found_library found;

 private:
  bool open(const std::string& path) {
    found.handle = ::dlopen(path.c_str(), flags_);
    if (found.handle != nullptr) found.path = path;
    return found.handle != nullptr;
  }

  int flags_;
  std::vector<std::string> files_;
};

}  // namespace

found_library open_library(const std::string& name, std::initializer_list<int> majors, symbol_scope scope) {
  search library(name, majors, scope);
  bool is_open = library.in_folders(folders_of(std::getenv("MSABENCH_CUDA_LIBS")));
  if (!is_open) is_open = library.on_the_loaders_path();
  if (!is_open) is_open = library.in_folders(toolkit_folders());
  if (!is_open) library.in_folders(python_folders());
  return library.found;
}

std::string not_found(const std::string& name, const found_library& library) {
  constexpr std::size_t most = 400;  // of the 511 characters of last_error
  std::string places;
  for (const auto& place : library.tried) {
    if (places.size() + place.size() > most) {
      places += ", ...";
      break;
    }
    places += (places.empty() ? "" : ", ") + place;
  }
  return name + ": not found in " + places + "; name its folder in MSABENCH_CUDA_LIBS";
}

}  // namespace msabench::kernels
