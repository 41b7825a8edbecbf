// SPDX-License-Identifier: Apache-2.0
#include "reference/vit_attend.h"

#include "core/error.h"

namespace msabench::reference {

std::vector<attend_row> vit_attend(const vit_attend_inputs& in, std::span<const std::int64_t> rows,
                                   const score_error& err) {
  if (in.p.hq != in.p.hkv) throw suite_error("vit_attend: every query head has a key head of its own");
  if (in.p.paged()) throw suite_error("vit_attend: there are no pages of patches");
  if (in.cu_segments.desc.shape.size() != 1 || in.cu_segments.desc.shape[0] < 1)
    throw suite_error("vit_attend: cu_segments must be [S+1]");
  const row_map places(in.cu_segments, {});
  for (const tensor_view* t : {&in.q, &in.k, &in.v})
    if (t->desc.shape.empty() || t->desc.shape[0] < places.total_rows())
      throw suite_error("vit_attend: q, k and v must hold every token of cu_segments");
  const tensor_view no_table;
  const attention_context c("vit_attend", in.p, in.q, in.k, in.v, no_table, in.cu_segments);
  return attend_rows(c, places, rows, err,
                     [](const group_place& at, std::vector<std::int64_t>&) { return key_list(at.place.kv_len); });
}

}  // namespace msabench::reference
