// SPDX-License-Identifier: Apache-2.0
// Honest ways to compute the other operators, and other forms of the same results.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/common/declare.h"
#include "kernels/common/storage.h"
#include "kernels/naive/select.h"
#include "kernels/variants/rounding.h"
#include "kernels/variants/variant.h"

namespace msabench::variants {
namespace {

constexpr float none = -std::numeric_limits<float>::infinity();

/// One product after the other, from the last to the first.
float maximum_of_running_sums(const float* query, float scale, const tile& keys, float* scores) {
  float maximum = none;
  for (std::int32_t i = 0; i < keys.count; ++i) {
    float sum = 0;
    for (std::int32_t c = keys.d - 1; c >= 0; --c)
      sum += query[c] * keys.rows[static_cast<std::int64_t>(i) * keys.d + c];
    scores[i] = sum * scale;
    maximum = scores[i] > maximum ? scores[i] : maximum;
  }
  return maximum;
}

void select_from_last_to_first(const selection_rule& rule, const row_place& place, const float* scores,
                               std::int32_t* candidates, std::int32_t* ids) {
  exact_stages.select_row(rule, place, scores, candidates, ids);
  std::reverse(ids, std::find(ids, ids + rule.topk, -1));
}

void select_by_score(const selection_rule& rule, const row_place& place, const float* scores, std::int32_t* candidates,
                     std::int32_t* ids) {
  exact_stages.select_row(rule, place, scores, candidates, ids);
  std::sort(ids, std::find(ids, ids + rule.topk, -1), [=](std::int32_t a, std::int32_t b) {
    const float score_a = rank_score(scores[a]), score_b = rank_score(scores[b]);
    return score_a != score_b ? score_a > score_b : a < b;
  });
}

bool selects(const msabench_problem& p) {
  return p.op == MSABENCH_OP_SELECT || p.op == MSABENCH_OP_INDEX || p.op == MSABENCH_OP_MSA;
}

void in_any_order(const msabench_problem&, msabench_profile& f) { f.in_id_order = f.out_id_order = MSABENCH_ORDER_ANY; }
void in_order_of_scores(const msabench_problem&, msabench_profile& f) {
  f.in_id_order = f.out_id_order = MSABENCH_ORDER_SCORE;
}

float weights_by_exp2(const float* lse, std::int64_t count, float* weights, float& maximum) {
  constexpr float log2_e = 1.44269504f;
  exact_stages.partial_weights(lse, count, weights, maximum);
  float sum = 0;
  for (std::int64_t p = 0; p < count; ++p)
    sum += weights[p] = lse[p] == none ? 0 : std::exp2((lse[p] - maximum) * log2_e);
  return sum;
}

void store_in_base2(const weighted_sum& row, float maximum, const output_row& to) {
  exact_stages.store(row, maximum, to);
  if (to.lse != nullptr) *to.lse = static_cast<float>(static_cast<double>(*to.lse) / std::log(2.0));
}

/// The rows that add to dK and dV come in turn from another one on in each block and launch, as with atomic additions.
std::int64_t row_of_this_turn(std::int64_t first, std::int64_t count, std::int64_t i) {
  static std::atomic<std::int64_t> turns{0};
  static thread_local std::int64_t turn = 0;
  if (i == 0) turn = turns++;
  return first + (count - 1 - i + turn) % count;
}

/// Of the launch under way; gradients of half a plan are in one type.
template <const msabench_dtype& Type>
void with_short_operands(stages& s) {
  s.score_gradient = [](float weight, float d_weight, float delta) {
    return nearest(Type, exact_stages.score_gradient(weight, d_weight, delta));
  };
  s.add_dv = [](float factor, const float* values, std::int32_t d, float* sum) {
    exact_stages.add_dv(nearest(Type, factor), values, d, sum);
  };
}

bool differentiates(const msabench_problem& p) { return is_attention_backward(p.op); }
bool differentiates_bf16(const msabench_problem& p) { return differentiates(p) && same_type(p.q, bf16_type); }
bool differentiates_fp16(const msabench_problem& p) { return differentiates(p) && same_type(p.q, fp16_type); }

void short_operands(const msabench_problem& p, msabench_numerics& n) { n.ds_operand = n.p_operand = p.q; }

bool rotates_bf16(const msabench_problem& p) { return p.op == MSABENCH_OP_QK_NORM_ROPE && same_type(p.q, bf16_type); }

constexpr variant variants[] = {
    {"scores-in-turn", "products of scores added one after the other, from the last to the first",
     [](stages& s) { s.block_maximum = maximum_of_running_sums; }, nullptr,
     [](const msabench_problem&, msabench_numerics& n) { n.chain_score = 0; }},
    {"ids-any-order", "ids in any order: from the last to the first",
     [](stages& s) { s.select_row = select_from_last_to_first; }, selects, nullptr, in_any_order},
    {"ids-by-score", "ids in the order of their scores", [](stages& s) { s.select_row = select_by_score; }, selects,
     nullptr, in_order_of_scores},
    {"lse-base2", "lse as logarithm to base 2", [](stages& s) { s.store = store_in_base2; },
     [](const msabench_problem& p) { return is_attention(p.op) || p.op == MSABENCH_OP_COMBINE; }, nullptr,
     [](const msabench_problem&, msabench_profile& f) { f.lse = MSABENCH_LSE_BASE2; }},
    {"combine-exp2", "weights of partial results by exp2", [](stages& s) { s.partial_weights = weights_by_exp2; },
     [](const msabench_problem& p) { return p.op == MSABENCH_OP_COMBINE; }, nullptr},
    {"norm-rounded", "rounded to storage between norm and rotation",
     [](stages& s) {
       s.norm_head = [](const float* x, const float* weight, float eps, std::int32_t dim, float* y) {
         exact_stages.norm_head(x, weight, eps, dim, y);
         for (std::int32_t c = 0; c < dim; ++c) y[c] = nearest(bf16_type, y[c]);
       };
     },
     rotates_bf16, nullptr, [](const msabench_problem&, msabench_profile& f) { f.round_after_norm = 1; }},
    {"gradients-bf16", "weights and gradients of scores rounded to bf16 as operands", with_short_operands<bf16_type>,
     differentiates_bf16, short_operands},
    {"gradients-fp16", "weights and gradients of scores rounded to fp16 as operands", with_short_operands<fp16_type>,
     differentiates_fp16, short_operands},
    {"atomics", "rows add to dK and dV in another order each time",
     [](stages& s) { s.gradient_row = row_of_this_turn; }, differentiates, nullptr,
     [](const msabench_problem&, msabench_profile& f) { f.repeatable = 0; }},
};

}  // namespace

std::span<const variant> other_variants() { return variants; }

}  // namespace msabench::variants
