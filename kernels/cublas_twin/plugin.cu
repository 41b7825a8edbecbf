// SPDX-License-Identifier: Apache-2.0
#include "kernels/cublas_twin/implementation.h"

const msabench_plugin* msabench_plugin_get(const msabench_host* host) {
  return msabench::kernels::plugin(host, msabench::cublas_twin::twin_kernels);
}
