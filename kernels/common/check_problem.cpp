// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/common/error.h"

namespace msabench::kernels {
namespace {

struct lower_bound_rule {
  const char* field;
  std::int64_t value, least;
};

msabench_status check_lower_bounds(std::initializer_list<lower_bound_rule> rules) {
  for (const auto& [field, value, least] : rules) {
    if (value < least) {
      return fail(MSABENCH_INVALID_PROBLEM, "%s %lld: must be at least %lld; correct the problem", field,
                  static_cast<long long>(value), static_cast<long long>(least));
    }
  }
  return MSABENCH_OK;
}

msabench_status check_type(const implementation& kernels, const char* field, msabench_dtype type,
                           bool multiplied = true) {
  const bool own_set = !multiplied && kernels.stores_unmultiplied != nullptr;
  if (own_set ? kernels.stores_unmultiplied(type) : kernels.stores(type)) return MSABENCH_OK;
  return fail(MSABENCH_UNSUPPORTED, "%s {%d,%d,%d}: %s has %s; use one of them", field, type.code, type.bits,
              type.lanes, kernels.name, kernels.storage_types);
}

bool has_scaled_e4m3(const implementation& kernels, msabench_dtype type) {
  return kernels.scaled_e4m3 && same_type(type, e4m3_type);
}

/// `scale` is the field of that name: which scales there are.
msabench_status check_scale(const implementation& kernels, const char* field, std::int32_t scale, msabench_dtype type) {
  if (scale == 0) return MSABENCH_OK;
  if (!has_scaled_e4m3(kernels, type)) {
    return fail(MSABENCH_UNSUPPORTED, "%s %d: %s has no scaled storage of this type; pass 0", field, scale,
                kernels.name);
  }
  if (scale == 1 || scale == 2) return MSABENCH_OK;
  return fail(MSABENCH_UNSUPPORTED, "%s %d: unknown; pass 0, 1 or 2", field, scale);
}

bool has_operator(const implementation& kernels, msabench_op op) {
  switch (op) {
    case MSABENCH_OP_SELECT:
      return kernels.select != nullptr;
    case MSABENCH_OP_ATTEND:
      return kernels.attend != nullptr;
    case MSABENCH_OP_SCORE:
      return kernels.score != nullptr;
    case MSABENCH_OP_INDEX:
      return kernels.index != nullptr;
    case MSABENCH_OP_DENSE:
      return kernels.dense != nullptr;
    case MSABENCH_OP_QK_NORM_ROPE:
      return kernels.norm_rope != nullptr;
    case MSABENCH_OP_COMBINE:
      return kernels.combine != nullptr;
    case MSABENCH_OP_MSA:
      return kernels.msa != nullptr;
    case MSABENCH_OP_ATTEND_BACKWARD:
      return kernels.attend_backward != nullptr;
    case MSABENCH_OP_DENSE_BACKWARD:
      return kernels.dense_backward != nullptr;
    case MSABENCH_OP_VIT_ATTEND:
      return kernels.vit_attend != nullptr;
    case MSABENCH_OP_ROPE3D:
      return kernels.rope3d != nullptr;
    case MSABENCH_OP_KL:
      return kernels.kl != nullptr;
    case MSABENCH_OP_VIT3D:
      return kernels.vit3d != nullptr;
    default:
      return false;
  }
}

msabench_status check_profile(const implementation& kernels, const msabench_problem& problem) {
  const msabench_profile& asked = problem.profile;
  if (asked.in_id_form < MSABENCH_FORM_EXACT || asked.in_id_form > MSABENCH_FORM_LENIENT) {
    return fail(MSABENCH_UNSUPPORTED, "profile.in_id_form %d: unknown; ask for 0, 1 or 2", asked.in_id_form);
  }
  const struct {
    const char* field;
    msabench_choice asked;
  } choices[] = {{"in_id_order", asked.in_id_order},
                 {"in_id_layout", asked.in_id_layout},
                 {"out_id_order", asked.out_id_order},
                 {"out_id_layout", asked.out_id_layout},
                 {"score_unit", asked.score_unit},
                 {"score_own", asked.score_own},
                 {"score_tail", asked.score_tail},
                 {"nan_score", asked.nan_score},
                 {"lse", asked.lse},
                 {"empty_row", asked.empty_row},
                 {"round_after_norm", asked.round_after_norm},
                 {"rotate_in_storage", asked.rotate_in_storage}};
  for (const auto& choice : choices) {
    if (choice.asked != 0) {
      return fail(MSABENCH_UNSUPPORTED, "profile.%s %d: %s has the canonical choice only; ask for 0", choice.field,
                  choice.asked, kernels.name);
    }
  }
  if (asked.rank_step != 0) {
    return fail(MSABENCH_UNSUPPORTED, "profile.rank_step: %s ranks exactly; ask for 0", kernels.name);
  }
  const msabench_profile given = kernels.profile(problem);
  const struct {
    const char* field;
    int asked, given;
  } promises[] = {{"ties_low_id", asked.ties_low_id, given.ties_low_id},
                  {"repeatable", asked.repeatable, given.repeatable},
                  {"batch_invariant", asked.batch_invariant, given.batch_invariant},
                  {"split_invariant", asked.split_invariant, given.split_invariant},
                  {"graph_safe", asked.graph_safe, given.graph_safe},
                  {"hardened", asked.hardened, given.hardened}};
  for (const auto& promise : promises) {
    if (promise.asked > promise.given) {
      return fail(MSABENCH_UNSUPPORTED, "profile.%s %d: not promised; ask for %d", promise.field, promise.asked,
                  promise.given);
    }
  }
  return MSABENCH_OK;
}

msabench_status check_batch(const msabench_problem& p) {
  return check_lower_bounds({{"hkv", p.hkv, 1},
                             {"batch", p.batch, 0},
                             {"total_q", p.total_q, 0},
                             {"max_q_len", p.max_q_len, 0},
                             {"max_kv_len", p.max_kv_len, 0}});
}

msabench_status check_selection(const msabench_problem& p) {
  const auto status = check_lower_bounds({{"block", p.block, 1},
                                          {"topk", p.topk, 1},
                                          {"local_blocks", p.local_blocks, 0},
                                          {"init_blocks", p.init_blocks, 0}});
  if (status != MSABENCH_OK) return status;
  const std::int64_t forced = std::int64_t{p.local_blocks} + p.init_blocks;
  if (forced > p.topk) {
    return fail(MSABENCH_INVALID_PROBLEM,
                "topk %d: local_blocks %d and init_blocks %d are forced and part of it; raise topk to %lld", p.topk,
                p.local_blocks, p.init_blocks, static_cast<long long>(forced));
  }
  return MSABENCH_OK;
}

msabench_status check_block_count(const msabench_problem& p) {
  if (max_blocks(p) <= std::numeric_limits<std::int32_t>::max()) return MSABENCH_OK;
  return fail(MSABENCH_UNSUPPORTED, "max_kv_len %lld: block ids pass 32 bits; use a larger block",
              static_cast<long long>(p.max_kv_len));
}

/// Where keys lie, of either branch.
msabench_status check_layout(const msabench_problem& p) {
  const auto status = check_lower_bounds({{"total_kv", p.total_kv, 0}, {"pool_pages", p.pool_pages, 0}});
  if (status != MSABENCH_OK) return status;
  if (p.page_layout < 0 || p.page_layout > 2) {
    return fail(MSABENCH_UNSUPPORTED, "page_layout %d: unknown; use 0, 1 or 2", p.page_layout);
  }
  if (p.page_layout == 0 && p.page_size != 0) {
    return fail(MSABENCH_INVALID_PROBLEM, "page_size %d: contiguous keys have no pages; pass 0", p.page_size);
  }
  if (p.page_layout != 0 && p.page_size < 1) {
    return fail(MSABENCH_INVALID_PROBLEM, "page_size %d: must be at least 1 when paged; correct the problem",
                p.page_size);
  }
  return MSABENCH_OK;
}

msabench_status check_index_branch(const implementation& kernels, const msabench_problem& p) {
  auto status = check_lower_bounds({{"hi", p.hi, 1}, {"di", p.di, 1}});
  if (status == MSABENCH_OK) status = check_layout(p);
  if (status != MSABENCH_OK) return status;
  if (p.hi != p.hkv) {
    return fail(MSABENCH_INVALID_PROBLEM, "hi %d: there is one index head per KV head; pass hkv %d", p.hi, p.hkv);
  }
  for (const auto& [field, type] : {std::pair{"q_idx", p.q_idx}, std::pair{"k_idx", p.k_idx}}) {
    const auto refused = has_scaled_e4m3(kernels, type) ? MSABENCH_OK : check_type(kernels, field, type);
    if (refused != MSABENCH_OK) return refused;
  }
  if (!same_type(p.q_idx, p.k_idx)) {
    return fail(MSABENCH_UNSUPPORTED, "k_idx {%d,%d,%d}: %s has index keys of the type of q_idx only; use that",
                p.k_idx.code, p.k_idx.bits, p.k_idx.lanes, kernels.name);
  }
  status = check_scale(kernels, "idx_scale", p.idx_scale, p.k_idx);
  if (status != MSABENCH_OK) return status;
  if (!std::isfinite(p.index_scale)) {
    return fail(MSABENCH_INVALID_PROBLEM, "index_scale: not a finite number; pass one, or 0 for 1 / sqrt(di)");
  }
  return MSABENCH_OK;
}

msabench_status check_attention(const implementation& kernels, const msabench_problem& p) {
  auto status = check_lower_bounds({{"hq", p.hq, 1}, {"d", p.d, 1}});
  if (status == MSABENCH_OK) status = check_layout(p);
  if (status != MSABENCH_OK) return status;
  if (p.hq % p.hkv != 0) {
    return fail(MSABENCH_INVALID_PROBLEM, "hq %d: no multiple of hkv %d; every group has as many query heads", p.hq,
                p.hkv);
  }
  const bool is_scaled = has_scaled_e4m3(kernels, p.kv), is_kl = p.op == MSABENCH_OP_KL;  // kl has no out
  for (const auto& [field, type] :
       {std::pair{"q", p.q}, std::pair{"kv", is_scaled ? p.q : p.kv}, std::pair{"out", is_kl ? p.q : p.out}}) {
    const auto refused = check_type(kernels, field, type);
    if (refused != MSABENCH_OK) return refused;
  }
  if (!same_type(p.q, p.kv) && !is_scaled) {
    return fail(MSABENCH_UNSUPPORTED, "kv {%d,%d,%d}: %s has keys and values of the type of q only; use that",
                p.kv.code, p.kv.bits, p.kv.lanes, kernels.name);
  }
  status = check_scale(kernels, "kv_scale", p.kv_scale, p.kv);
  if (status != MSABENCH_OK) return status;
  if (!std::isfinite(p.softmax_scale)) {
    return fail(MSABENCH_INVALID_PROBLEM, "softmax_scale: not a finite number; pass one, or 0 for 1 / sqrt(d)");
  }
  if (p.splits != 0 && p.splits != 1) {
    return fail(MSABENCH_UNSUPPORTED, "splits %d: %s chooses the parts of a row itself; pass 0 or 1", p.splits,
                kernels.name);
  }
  return MSABENCH_OK;
}

/// Batches of training are contiguous, without scales.
msabench_status check_gradients(const implementation& kernels, const msabench_problem& p) {
  if (p.page_layout != 0) {
    return fail(MSABENCH_UNSUPPORTED, "page_layout %d: training has contiguous batches; use 0", p.page_layout);
  }
  if (same_type(p.kv, e4m3_type)) return check_type(kernels, "kv", p.kv);
  if (p.op == MSABENCH_OP_KL && same_type(p.k_idx, e4m3_type)) return check_type(kernels, "k_idx", p.k_idx);
  return check_type(kernels, "grad", p.grad, false);
}

msabench_status check_stage(const msabench_problem& p) {
  if (p.kl_warm_up != 0 && p.kl_warm_up != 1) {
    return fail(MSABENCH_UNSUPPORTED, "kl_warm_up %d: unknown; pass 0 or 1", p.kl_warm_up);
  }
  if (!std::isfinite(p.kl_coeff)) {
    return fail(MSABENCH_INVALID_PROBLEM, "kl_coeff: not a finite number; pass one");
  }
  return MSABENCH_OK;
}

/// The host chooses the parts here, and the hint is how many there are at most.
msabench_status check_partials(const implementation& kernels, const msabench_problem& p) {
  auto status =
      check_lower_bounds({{"hq", p.hq, 1}, {"d", p.d, 1}, {"total_q", p.total_q, 0}, {"splits", p.splits, 0}});
  if (status == MSABENCH_OK) status = check_type(kernels, "partial", p.partial, false);
  return status == MSABENCH_OK ? check_type(kernels, "out", p.out, false) : status;
}

msabench_status check_rotation(const msabench_problem& p) {
  const std::int32_t most = std::min(p.d, p.di);
  if (p.rope_dims < 0 || p.rope_dims > most || p.rope_dims % 2 != 0) {
    return fail(MSABENCH_INVALID_PROBLEM, "rope_dims %d: pairs of dims, %d at most; correct the problem", p.rope_dims,
                most);
  }
  if (!std::isfinite(p.norm_eps) || p.norm_eps < 0) {
    return fail(MSABENCH_INVALID_PROBLEM, "norm_eps: no finite number from 0 up; correct the problem");
  }
  return MSABENCH_OK;
}

msabench_status check_prologue(const implementation& kernels, const msabench_problem& p) {
  auto status = check_batch(p);
  if (status == MSABENCH_OK)
    status = check_lower_bounds({{"hq", p.hq, 1}, {"hi", p.hi, 1}, {"d", p.d, 1}, {"di", p.di, 1}});
  if (status != MSABENCH_OK) return status;
  const std::pair<const char*, msabench_dtype> types[] = {
      {"q", p.q}, {"kv", p.kv}, {"q_idx", p.q_idx}, {"k_idx", p.k_idx}};
  for (const auto& [field, type] : types) {
    const auto refused = check_type(kernels, field, type, false);
    if (refused != MSABENCH_OK) return refused;
    if (!same_type(type, p.q)) {
      return fail(MSABENCH_UNSUPPORTED, "%s {%d,%d,%d}: %s has all heads of the type of q only; use that", field,
                  type.code, type.bits, type.lanes, kernels.name);
    }
  }
  return check_rotation(p);
}

/// There are no groups and no caches of a vision tower.
msabench_status check_vision(const msabench_problem& p) {
  if (p.hq != p.hkv) {
    return fail(MSABENCH_INVALID_PROBLEM, "hq %d: vision has as many query heads as KV heads; pass hkv %d", p.hq,
                p.hkv);
  }
  if (p.page_layout != 0) {
    return fail(MSABENCH_INVALID_PROBLEM, "page_layout %d: patches have no pages; pass 0", p.page_layout);
  }
  if (p.kv_scale != 0) {
    return fail(MSABENCH_INVALID_PROBLEM, "kv_scale %d: patches have no scales; pass 0", p.kv_scale);
  }
  return MSABENCH_OK;
}

/// What is asked of patches that are rotated.
msabench_status check_rotated_patches(const implementation& kernels, const msabench_problem& p) {
  auto status = check_batch(p);
  if (status == MSABENCH_OK)
    status = check_lower_bounds({{"hq", p.hq, 1}, {"d", p.d, 1}, {"vit_window", p.vit_window, 0}});
  if (status == MSABENCH_OK) status = check_vision(p);
  if (status == MSABENCH_OK) status = check_type(kernels, "q", p.q, p.op != MSABENCH_OP_ROPE3D);
  if (status != MSABENCH_OK) return status;
  if (!same_type(p.q, p.kv)) {
    return fail(MSABENCH_UNSUPPORTED, "kv {%d,%d,%d}: %s has keys of the type of q only; use that", p.kv.code,
                p.kv.bits, p.kv.lanes, kernels.name);
  }
  if (!std::isfinite(p.rope_theta) || p.rope_theta < 0) {
    return fail(MSABENCH_INVALID_PROBLEM, "rope_theta: no finite number from 0 up; pass one, or 0 for 1e4");
  }
  return MSABENCH_OK;
}

msabench_status check_operator(const implementation& kernels, const msabench_problem& p) {
  switch (p.op) {
    case MSABENCH_OP_QK_NORM_ROPE:
      return check_prologue(kernels, p);
    case MSABENCH_OP_COMBINE:
      return check_partials(kernels, p);
    case MSABENCH_OP_ROPE3D:
      return check_rotated_patches(kernels, p);
    default:
      break;
  }
  const bool reads_all = reads_all_keys(p), is_msa = p.op == MSABENCH_OP_MSA, is_kl = p.op == MSABENCH_OP_KL;
  const bool attends = is_attention(p.op) || trains(p.op);
  const bool indexes = is_msa || is_kl || p.op == MSABENCH_OP_SCORE || p.op == MSABENCH_OP_INDEX;
  auto status = p.op == MSABENCH_OP_VIT3D ? check_rotated_patches(kernels, p) : check_batch(p);
  if (status == MSABENCH_OK && p.op == MSABENCH_OP_VIT_ATTEND) status = check_vision(p);
  if (status == MSABENCH_OK && !reads_all) status = check_selection(p);
  if (status == MSABENCH_OK) status = check_block_count(p);
  if (status == MSABENCH_OK && attends) status = check_attention(kernels, p);
  if (status == MSABENCH_OK && trains(p.op)) status = check_gradients(kernels, p);
  if (status == MSABENCH_OK && indexes) status = check_index_branch(kernels, p);
  if (status == MSABENCH_OK && is_kl) status = check_stage(p);
  return status;
}

}  // namespace

std::int32_t block_size(const msabench_problem& p) {
  const bool has_blocks = p.op == MSABENCH_OP_KL && p.block > 0;
  return reads_all_keys(p) && !has_blocks ? dense_block : p.block;
}

std::int64_t max_blocks(const msabench_problem& p) {
  return p.max_kv_len / block_size(p) + (p.max_kv_len % block_size(p) != 0);
}

std::int64_t block_capacity(const msabench_problem& p) {
  return reads_all_keys(p) ? max_blocks(p) : std::min<std::int64_t>(p.topk, max_blocks(p));
}

msabench_status check_problem(const implementation& kernels, const msabench_problem* given, msabench_problem& to) {
  if (given == nullptr) return fail(MSABENCH_INVALID_PROBLEM, "problem null: nothing to plan; pass a problem");
  if (!read_struct(given, to)) {
    return fail(MSABENCH_UNSUPPORTED, "problem.struct_size %u: fields of a later version are set; leave them 0",
                given->struct_size);
  }
  if (!has_operator(kernels, to.op)) {
    return fail(MSABENCH_UNSUPPORTED, "op %d: %s does not have it; ask for an operator of its list", to.op,
                kernels.name);
  }
  if (to.reserved != 0) {
    return fail(MSABENCH_UNSUPPORTED, "reserved %u: unknown; pass 0", to.reserved);
  }
  auto status = check_operator(kernels, to);
  if (status == MSABENCH_OK) status = check_profile(kernels, to);
  const char* const refusal = status == MSABENCH_OK && kernels.refusal != nullptr ? kernels.refusal(to) : nullptr;
  return refusal == nullptr ? status : fail(MSABENCH_UNSUPPORTED, "%s", refusal);
}

}  // namespace msabench::kernels
