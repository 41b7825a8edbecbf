// SPDX-License-Identifier: Apache-2.0
// NVIDIA's libraries, opened at run time: nothing links them, and a machine without one still does everything else.
#pragma once

#include <string>
#include <vector>

namespace msabench {

struct found_library {
  void* handle = nullptr;  // stays open; null: nowhere
  std::string path;        // as it was opened
  std::vector<std::string> tried;
};

// "libcublas.so" in major versions `majors`, newest first: in $MSABENCH_CUDA_LIBS (folders with colons), on the loader's
// path, in the toolkit ($CUDA_HOME, /usr/local/cuda), and in python3's nvidia packages, in this order.
found_library open_cuda_library(const std::string& name, const std::vector<int>& majors);

}  // namespace msabench
