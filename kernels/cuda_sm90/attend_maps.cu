// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "kernels/cuda_sm90/attend_tiles.cuh"

namespace msabench::cuda_sm90 {
namespace {

bool make_cache_map(CUtensorMap& map, const cache& c, const attend_call& call, std::int32_t rows_of_box) {
  if (same_type(c.type, e4m3_type)) return true;  // the copy engine has nothing to do with it
  const bool paged = c.block_table != nullptr;
  // Without any key there may be no memory; then nothing is read.
  const void* const base = c.data != nullptr ? c.data : call.q;
  return make_tensor_map(map, c.type, base,
                         {{head_columns, 0, 64},
                          {paged ? c.page_size : c.extent, c.token_stride * 2, rows_of_box},
                          {call.kv_heads, c.head_stride * 2, 1},
                          {paged ? c.extent : 1, paged ? c.page_stride * 2 : 16, 1}});
}

}  // namespace

bool make_attend_maps(attend_maps& maps, const attend_call& call) {
  maps.rows_of_box = call.keys.block_table == nullptr
                         ? block_keys
                         : static_cast<std::int32_t>(std::gcd(call.keys.page_size, std::int64_t{block_keys}));
  return make_tensor_map(maps.q, call.q_type, call.q,
                         {{head_columns, 0, 64},
                          {std::int64_t{call.kv_heads} * call.group, call.q_head_stride * 2, call.group},
                          {call.rows.row_bound, call.q_row_stride * 2, 1}}) &&
         make_cache_map(maps.k, call.keys, call, maps.rows_of_box) &&
         make_cache_map(maps.v, call.values, call, maps.rows_of_box);
}

}  // namespace msabench::cuda_sm90
