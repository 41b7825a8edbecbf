// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/implementation.h"

const msabench_plugin* msabench_plugin_get(const msabench_host* host) {
  return msabench::kernels::plugin(host, msabench::cpu::fast_kernels);
}
