// SPDX-License-Identifier: Apache-2.0
#include "reference/msa.h"

#include <unordered_map>

#include "core/error.h"

namespace msabench::reference {

index_inputs index_part(const msa_inputs& in) {
  return {in.p,       in.q_idx,         in.k_idx,          in.q_idx_scale, in.k_idx_scale, in.cu_seqlens_q,
          in.kv_lens, in.cu_seqlens_kv, in.block_table_idx};
}

attend_inputs attend_part(const msa_inputs& in, const tensor_view& ids) {
  return {in.p,           in.q,       in.k,       in.v,      ids, in.cu_seqlens_q, in.kv_lens, in.cu_seqlens_kv,
          in.block_table, in.q_scale, in.k_scale, in.v_scale};
}

msa_rows msa(const msa_inputs& in, std::span<const std::int64_t> rows, const interval_model& model,
             const score_error& index_err, const score_error& err) {
  if (in.p.hi != in.p.hkv) throw suite_error("msa: there must be one index head for each KV head");
  const attention_context c("msa", in.p, in.q, in.k, in.v, in.block_table, in.cu_seqlens_kv,
                            {in.q_scale, in.k_scale, in.v_scale});
  msa_rows result;
  result.index = index(index_part(in), rows, model, index_err);

  std::unordered_map<std::int64_t, std::size_t> first_of_row;
  for (std::size_t i = 0; i < result.index.size(); i += static_cast<std::size_t>(in.p.hi))
    first_of_row.emplace(result.index[i].row, i);
  result.attend = attend_rows(
      c, row_map(in.cu_seqlens_q, in.kv_lens), rows, err, [&](const group_place& at, std::vector<std::int64_t>& keys) {
        const auto& chosen = result.index[first_of_row.at(at.row) + static_cast<std::size_t>(at.group)];
        find_block_keys(chosen.ids, at.place, in.p.block, keys);
        return key_list(keys);
      });
  return result;
}

}  // namespace msabench::reference
