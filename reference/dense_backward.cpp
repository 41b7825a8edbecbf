// SPDX-License-Identifier: Apache-2.0
#include "reference/dense_backward.h"

namespace msabench::reference {

backward_result dense_backward(const dense_backward_inputs& in, const backward_error& err) {
  return attention_backward("dense_backward",
                            {in.p, in.q, in.k, in.v, {}, in.d_out, in.cu_seqlens_q, in.kv_lens, in.cu_seqlens_kv}, err);
}

}  // namespace msabench::reference
