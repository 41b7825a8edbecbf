// SPDX-License-Identifier: Apache-2.0
#include "kernels/cudnn/graph.h"
#include "kernels/cudnn/implementation.h"

const msabench_plugin* msabench_plugin_get(const msabench_host* host) {
  return msabench::kernels::plugin(host, msabench::cudnn::cudnn_kernels);
}
