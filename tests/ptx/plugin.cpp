// SPDX-License-Identifier: Apache-2.0
// CUDA kernels as a plugin for CPUs.
#include "kernels/cuda/implementation.h"
#ifdef MSABENCH_PTX_SM90
#include "kernels/cuda_sm90/implementation.h"
#endif

namespace {

using namespace msabench;

const kernels::implementation& interpreted() {
#ifdef MSABENCH_PTX_SM90
  static const kernels::implementation& real = cuda_sm90::hopper_kernels();
  static constexpr const char* name = "cuda_sm90_interpreted";
#else
  static const kernels::implementation& real = cuda::portable_kernels;
  static constexpr const char* name = "cuda_interpreted";
#endif
  static const kernels::implementation here = [] {
    kernels::implementation all = real;
    all.name = name;
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
