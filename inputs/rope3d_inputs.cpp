// SPDX-License-Identifier: Apache-2.0
#include "inputs/operators.h"
#include "inputs/token_heads.h"

namespace msabench {

void fill_rope3d(const fill_job& job) {
  fill_token_heads(job, slot::q);
  fill_token_heads(job, slot::k);
}

}  // namespace msabench
