// SPDX-License-Identifier: Apache-2.0
// NVIDIA's libraries, opened at run time: nothing links them, and a machine without one still does everything else.
#pragma once

#include <string>
#include <vector>

namespace msabench {

struct found_library {
  void* handle = nullptr;  // stays open; null: nowhere
  std::string path;        // of the file, as the loader found it
  std::string place;       // which of the places below had it: "the loader's path"
  std::string searched;    // all of them, in their order, with what each came to here
};

// "libcublas.so" in major versions `majors`, newest first: in $MSABENCH_CUDA_LIBS (folders with colons), on the loader's
// path, in the toolkit ($CUDA_HOME, /usr/local/cuda), and in python3's nvidia packages, in this order.
found_library open_cuda_library(const std::string& name, const std::vector<int>& majors);

// compute-sanitizer instruments this process: products of large matrices would take minutes.
bool under_sanitizer();

}  // namespace msabench
