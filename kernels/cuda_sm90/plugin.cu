// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_sm90/implementation.h"

const msabench_plugin* msabench_plugin_get(const msabench_host* host) {
  return msabench::kernels::plugin(host, msabench::cuda_sm90::hopper_kernels());
}
