// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/implementation.h"

#include <algorithm>
#include <cstdint>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/common/implementation.h"
#include "kernels/common/storage.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/divergence.h"
#include "kernels/cpu/operators.h"

namespace msabench::cpu {
namespace {

/// A sum of so many terms: chains of chain_terms, added one after the other.
std::int64_t product_chain(std::int64_t terms) {
  return std::min<std::int64_t>(terms, chain_terms) + ceil_div(terms, chain_terms);
}

/// Sums over `keys` keys of a row at the most, in tiles and chunks of them.
void declare_sums(std::int64_t keys, std::int64_t tiles, msabench_numerics& to) {
  const std::int64_t lanes = vector_lanes();
  // Fewer tiles make shorter chunks, and not more of them than this.
  const std::int64_t chunk = std::min(chunk_tiles(tiles), tiles), chunks = std::min(most_chunks, ceil_div(tiles, 4));
  const auto chain = [keys](std::int64_t additions) {
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(additions, 1, std::max<std::int64_t>(keys, 1)));
  };
  to.chain_out = chain(tile_keys + chunk + chunks);
  to.chain_row_sum = chain(tile_keys / lanes + lanes + chunk + chunks);
}

msabench_numerics training_numerics(const msabench_problem& p) {
  msabench_numerics declared = fp32_numerics(p);
  const bool is_kl = p.op == MSABENCH_OP_KL;
  const gradient_chains chains = is_kl ? chains_of_kl(p) : chains_of_backward(p);
  // A key of k is added to by all query heads, one of k_idx by all index heads.
  // Rows of its own sequence only.
  const std::int64_t rows = std::min(p.total_q, p.max_q_len) * (is_kl ? p.hkv : p.hq / p.hkv);
  const std::int64_t selected = reads_all_keys(p) ? p.max_kv_len : std::int64_t{p.topk} * p.block;
  const std::int64_t keys = std::max<std::int64_t>(1, std::min(selected, p.max_kv_len));
  declared.chain_dq = static_cast<std::uint32_t>(std::min(chains.dq, keys));
  declared.chain_dkv = static_cast<std::uint32_t>(std::min(chains.dkv, std::max<std::int64_t>(1, rows)));
  const std::int32_t products = is_kl ? std::max(p.d, p.di) : p.d;
  declared.chain_score = static_cast<std::uint32_t>(std::min<std::int64_t>(product_chain(products) + 1, products + 2));
  if (is_kl) declared.chain_row_sum = static_cast<std::uint32_t>(std::min(normaliser_chain(), keys));
  return declared;
}

msabench_numerics numerics(const msabench_problem& p) {
  msabench_numerics declared = fp32_numerics(p);
  const bool reads_all = reads_all_keys(p), attends = is_attention(p.op);
  if (trains(p.op)) return training_numerics(p);
  if (!attends && !is_index_branch(p.op)) return declared;
  const std::int64_t selected = std::min<std::int64_t>(std::int64_t{p.topk} * p.block, p.max_kv_len);
  const bool joined = reads_all || p.block < least_block_tile;
  const std::int64_t keys = reads_all ? p.max_kv_len : selected;
  const std::int64_t block_tiles = std::min<std::int64_t>(p.topk, max_blocks(p)) * ceil_div(p.block, tile_keys);
  declare_sums(keys, joined ? ceil_div(keys, tile_keys) : block_tiles, declared);
  if (!attends) declared.chain_out = 0;
  const std::int32_t products = p.op == MSABENCH_OP_MSA ? std::max(p.d, p.di) : attends ? p.d : p.di;
  declared.chain_score = static_cast<std::uint32_t>(std::min<std::int64_t>(product_chain(products) + 1, products + 2));
  return declared;
}

double scratch_bytes(const msabench_problem& problem, int threads) {
  switch (problem.op) {
    case MSABENCH_OP_SELECT:
      return select_scratch_bytes(problem, threads);
    case MSABENCH_OP_SCORE:
      return score_scratch_bytes(problem, threads);
    case MSABENCH_OP_INDEX:
      return index_scratch_bytes(problem, threads);
    case MSABENCH_OP_MSA:
      return msa_scratch_bytes(problem, threads);
    case MSABENCH_OP_ATTEND_BACKWARD:
    case MSABENCH_OP_DENSE_BACKWARD:
      return backward_scratch_bytes(problem, threads);
    case MSABENCH_OP_KL:
      return kl_scratch_bytes(problem, threads);
    case MSABENCH_OP_COMBINE:
      return combine_scratch_bytes(problem, threads);
    case MSABENCH_OP_QK_NORM_ROPE:
      return norm_rope_scratch_bytes(problem, threads);
    case MSABENCH_OP_ROPE3D:
      return rope3d_scratch_bytes(problem, threads);
    case MSABENCH_OP_VIT3D:
      return vit3d_scratch_bytes(problem, threads);
    default:
      return attend_scratch_bytes(problem, threads);
  }
}

}  // namespace

const kernels::implementation fast_kernels = {
    .name = "cpu",
    .description =
        "vectors and tiles on the CPU: qk_norm_rope, score, select, index, attend, dense, msa, combine, "
        "attend_backward, dense_backward, kl, rope3d, vit_attend and vit3d",
    .stores = is_float_storage,
    .storage_types = float_storage_types,
    .profile = canonical_profile,
    .numerics = numerics,
    .scratch_bytes = scratch_bytes,
    .select = select,
    .attend = attend,
    .dense = attend,
    .vit_attend = attend,
    .rope3d = rope3d,
    .vit3d = vit3d,
    .msa = msa,
    .score = score,
    .index = index,
    .combine = combine,
    .norm_rope = norm_rope,
    .attend_backward = attend_backward,
    .dense_backward = attend_backward,
    .kl = kl,
};

}  // namespace msabench::cpu
