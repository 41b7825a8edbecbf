// SPDX-License-Identifier: Apache-2.0
#include "reference/attend_backward.h"

#include "core/error.h"

namespace msabench::reference {

backward_result attend_backward(const attend_backward_inputs& in, const backward_error& err) {
  if (in.ids.desc.shape.empty()) throw suite_error("attend_backward: ids are missing");
  return attention_backward("attend_backward",
                            {in.p, in.q, in.k, in.v, in.ids, in.d_out, in.cu_seqlens_q, in.kv_lens, in.cu_seqlens_kv},
                            err);
}

}  // namespace msabench::reference
