// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/hidden_libraries.h"

#include <dlfcn.h>

#include <cstring>
#include <utility>

namespace {

std::string& hidden_name() {
  static std::string name;
  return name;
}

}  // namespace

// Before the C library's own in the order in which plugins look names up, since it is the program's.
extern "C" __attribute__((visibility("default"))) void* dlopen(const char* file, int mode) noexcept {
  using open_function = void* (*)(const char*, int);
  static const auto usual = reinterpret_cast<open_function>(::dlsym(RTLD_NEXT, "dlopen"));
  const bool is_hidden = file != nullptr && !hidden_name().empty() && std::strstr(file, hidden_name().c_str());
  return is_hidden ? nullptr : usual(file, mode);
}

namespace msabench::plugin_test {

hidden_libraries::hidden_libraries(std::string name) { hidden_name() = std::move(name); }
hidden_libraries::~hidden_libraries() { hidden_name().clear(); }

}  // namespace msabench::plugin_test
