// SPDX-License-Identifier: Apache-2.0
// Libraries that kernels are composed of, opened at run time: nothing links them, and a plugin without one still says so.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

namespace msabench::kernels {

struct found_library {
  void* handle = nullptr;          ///< for dlsym; stays open. nullptr: nowhere
  std::string path;                ///< as it was opened
  std::vector<std::string> tried;  ///< where it was looked for, in order, and why a file there could not be opened
};

/// Who finds the symbols of a library: those who ask its handle, or every library that asks for the name later.
enum class symbol_scope { handle, process };

/// "libcublas.so" in one of the major versions, the first that is found: in $MSABENCH_CUDA_LIBS (folders with colons),
/// on the loader's path, in the toolkit ($CUDA_HOME/lib64, /usr/local/cuda/lib64), and in python3's nvidia packages, in
/// this order.
found_library open_library(const std::string& name, std::initializer_list<int> majors, symbol_scope scope);

/// `libcublas: not found in ...; name its folder in MSABENCH_CUDA_LIBS`, short enough for last_error.
std::string not_found(const std::string& name, const found_library& library);

}  // namespace msabench::kernels
