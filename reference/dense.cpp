// SPDX-License-Identifier: Apache-2.0
#include "reference/dense.h"

namespace msabench::reference {

std::vector<attend_row> dense(const dense_inputs& in, std::span<const std::int64_t> rows, const score_error& err) {
  const attention_context c("dense", in.p, in.q, in.k, in.v, in.block_table, in.cu_seqlens_kv,
                            {in.q_scale, in.k_scale, in.v_scale});
  return attend_rows(
      c, row_map(in.cu_seqlens_q, in.kv_lens), rows, err,
      [](const group_place& at, std::vector<std::int64_t>&) { return key_list(visible_keys(at.place)); });
}

}  // namespace msabench::reference
