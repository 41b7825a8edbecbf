// SPDX-License-Identifier: Apache-2.0
// One problem as an implementation is asked for it: shapes, types and UPPER BOUNDS of lengths. Mirrors msabench_problem.
// Lengths themselves, block tables and ids are tensors (plugin rule R4).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "core/dtype.h"
#include "core/operator.h"
#include "core/profile.h"

namespace msabench {

enum class page_layout : std::int32_t { contiguous = 0, paged = 1, fused = 2 };

struct problem {
  op operation = op::attend;
  std::int32_t hq = 0, hkv = 0, d = 0, hi = 0, di = 0;
  std::int32_t block = 0, topk = 0, local_blocks = 0, init_blocks = 0;
  page_layout layout = page_layout::contiguous;
  std::int32_t page_size = 0;  // tokens; 0 when contiguous
  std::int32_t rope_dims = 0;
  std::int64_t batch = 0, total_q = 0, max_q_len = 0, max_kv_len = 0, total_kv = 0, pool_pages = 0;
  dtype q, kv, q_idx, k_idx, out, partial, grad;
  double softmax_scale = 0, index_scale = 0, norm_eps = 0, rope_theta = 0, kl_coeff = 0;
  std::int32_t kl_warm_up = 0, splits = 0, vit_window = 0, kv_scale = 0, idx_scale = 0;
  profile asked;

  std::int64_t max_blocks() const { return block > 0 ? (max_kv_len + block - 1) / block : 0; }
  std::int64_t max_pages() const { return page_size > 0 ? (max_kv_len + page_size - 1) / page_size : 0; }
  std::int32_t group() const { return hkv > 0 ? hq / hkv : 0; }  // G, query heads per KV head
  bool paged() const { return layout != page_layout::contiguous; }
};

void to_json(nlohmann::json& out, const problem& p);
void from_json(const nlohmann::json& in, problem& p);

}  // namespace msabench
