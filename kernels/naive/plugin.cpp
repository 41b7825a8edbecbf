// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/glue.h"

const msabench_plugin* msabench_plugin_get(const msabench_host* host) {
  return msabench::naive::plugin(
      host, "naive",
      "plain fp32 loops on the CPU: qk_norm_rope, score, select, index, attend, dense, msa, combine, "
      "attend_backward, dense_backward, kl, rope3d, vit_attend and vit3d",
      msabench::naive::exact_stages);
}
