// SPDX-License-Identifier: Apache-2.0
// CUDA kernels as a plugin for CPUs.
#include "kernels/cuda/implementation.h"

namespace {

using namespace msabench;

const kernels::implementation& interpreted() {
  static const kernels::implementation& real = cuda::portable_kernels;
  static const kernels::implementation here = [] {
    kernels::implementation all = real;
    all.name = "cuda_interpreted";
    all.description = "the CUDA kernels, their PTX interpreted on a CPU";
    all.device = 1;
    all.profile = [](const msabench_problem& problem) {
      msabench_profile p = real.profile(problem);
      p.graph_safe = 0;  // there are no graphs
      return p;
    };
    return all;
  }();
  return here;
}

}  // namespace

const msabench_plugin* msabench_plugin_get(const msabench_host* host) { return kernels::plugin(host, interpreted()); }
