// SPDX-License-Identifier: Apache-2.0
// Attention as fast kernels compute it: in one pass with a running maximum, in splits that are put together, with short
// operands, in other orders, over tiles of rows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/common/declare.h"
#include "kernels/common/lengths.h"
#include "kernels/common/storage.h"
#include "kernels/naive/attend.h"
#include "kernels/naive/dot.h"
#include "kernels/variants/rounding.h"
#include "kernels/variants/variant.h"

namespace msabench::variants {
namespace {

constexpr float none = -std::numeric_limits<float>::infinity();
constexpr float log2_e = 1.44269504f;

enum class weights { exact, nearest, truncated };  // to the type of q

struct form {
  weights p = weights::exact;
  bool sums_rounded = false;       // the denominator adds what was rounded
  std::int32_t splits = 1;         // parts of a row's blocks that are computed apart
  bool short_partials = false;     // their outputs are stored in the type of q
  bool reversed = false;           // from the last block to the first
  std::int32_t step = 128;         // keys that are taken together
  bool in_base2 = false;           // exp2 of scores that were scaled by log2(e) as well
  bool normalised_by_lse = false;  // the weights of a second pass are exp2(score - lse), and nothing is divided
  std::int32_t tile_rows = 1;      // rows that compute the blocks of all of them, and mask
  bool short_scores = false;       // scores are stored in the type of q
  bool prescaled = false;          // q times the scale is rounded to its type
  bool tf32 = false;               // operands are rounded to tf32
};

/// A thread's memory; sized by the problem, so that only the first launch allocates.
struct memory {
  std::vector<float> keys, values, query, scores, sum, partial;  // [block][d] .., [splits][d + 1]
  std::vector<std::int32_t> own, all;
};

memory& of_thread(const attend_call& call, const form& f) {
  static thread_local memory m;
  const auto block = static_cast<std::size_t>(call.block), d = static_cast<std::size_t>(call.d);
  const auto blocks = static_cast<std::size_t>(call.capacity) * static_cast<std::size_t>(f.tile_rows);
  const auto grow = [](auto& v, std::size_t count) {
    if (v.size() < count) v.resize(count);
  };
  grow(m.keys, block * d);
  grow(m.values, block * d);
  grow(m.query, d);
  grow(m.scores, block);
  grow(m.sum, d);
  grow(m.partial, static_cast<std::size_t>(f.splits) * (d + 1));
  grow(m.own, static_cast<std::size_t>(call.capacity));
  grow(m.all, blocks);
  return m;
}

/// One query head of one row. The exponential and the logarithm are of the base that the scores are in.
class head_of_row {
 public:
  head_of_row(const form& f, const stages& stage, const attend_call& call, memory& m, const row_place& place,
              std::int32_t kv_head)
      : f_(f), stage_(stage), call_(call), m_(m), place_(place), kv_head_(kv_head) {}

  void compute(std::int64_t row, std::int64_t head, std::int32_t own, std::int32_t all) {
    own_ = own;
    load_query(row, head);
    float* const lse =
        call_.lse == nullptr ? nullptr : call_.lse + row * call_.lse_row_stride + head * call_.lse_head_stride;
    void* const out =
        call_.out + (row * call_.out_row_stride + head * call_.out_head_stride) * bytes_of(call_.out_type);
    const float total = f_.normalised_by_lse ? by_lse(all) : by_splits(all);
    store_row(m_.sum.data(), call_.d, call_.out_type, out);
    if (lse != nullptr) *lse = f_.in_base2 ? total / log2_e : total;
  }

 private:
  float exponential(float x) const { return f_.in_base2 ? std::exp2(x) : std::exp(x); }
  // In double, as the declared error is absolute.
  float logarithm(float x) const {
    return static_cast<float>(f_.in_base2 ? std::log2(static_cast<double>(x)) : std::log(static_cast<double>(x)));
  }
  float* query() { return m_.query.data(); }
  float* partial(std::int32_t split) { return m_.partial.data() + std::int64_t{split} * (call_.d + 1); }

  void load_query(std::int64_t row, std::int64_t head) {
    load_row(call_.q + (row * call_.q_row_stride + head * call_.q_head_stride) * bytes_of(call_.q_type), call_.q_type,
             call_.d, query());
    scale_ = f_.in_base2 ? call_.scale * log2_e : call_.scale;
    for (std::int32_t c = 0; c < call_.d; ++c) {
      if (f_.prescaled) query()[c] = nearest(call_.q_type, query()[c] * scale_);
      if (f_.tf32) query()[c] = tf32(query()[c]);
    }
    if (f_.prescaled) scale_ = 1;
  }

  /// Keys of a block that are loaded: with tiles of rows those of all of them, of which this row masks some.
  std::int32_t load(std::int64_t block) {
    const std::int32_t visible = stage_.visible_keys(place_, block, call_.block);
    std::int32_t count = visible;
    if (f_.tile_rows > 1)
      count = static_cast<std::int32_t>(std::clamp<std::int64_t>(place_.length - block * call_.block, 0, call_.block));
    const tile shape{m_.keys.data(), count, call_.d, block, 0, 1};
    load_tile(stage_, call_.keys, place_, kv_head_, call_.block, shape, m_.keys.data());
    load_tile(stage_, call_.values, place_, kv_head_, call_.block, shape, m_.values.data());
    for (std::int64_t i = 0; f_.tf32 && i < std::int64_t{count} * call_.d; ++i) {
      m_.keys[static_cast<std::size_t>(i)] = tf32(m_.keys[static_cast<std::size_t>(i)]);
      m_.values[static_cast<std::size_t>(i)] = tf32(m_.values[static_cast<std::size_t>(i)]);
    }
    const bool own = std::find(m_.own.begin(), m_.own.begin() + own_, block) != m_.own.begin() + own_;
    for (std::int32_t i = 0; i < count; ++i) {
      const float score = dot(query(), m_.keys.data() + std::int64_t{i} * call_.d, call_.d) * scale_;
      m_.scores[static_cast<std::size_t>(i)] = !own || i >= visible ? none
                                               : f_.short_scores    ? nearest(call_.q_type, score)
                                                                    : score;
    }
    return count;
  }

  float rounded(float weight) const {
    if (f_.tf32 && f_.p != weights::exact) return tf32(weight);
    return f_.p == weights::nearest     ? nearest(call_.q_type, weight)
           : f_.p == weights::truncated ? truncated(call_.q_type, weight)
                                        : weight;
  }

  struct running {
    float maximum = none, weight = 0;
    float* values;
  };

  /// Keys first .. end-1 of the block in memory.
  void add(std::int32_t first, std::int32_t end, running& so_far) {
    const float* const scores = m_.scores.data();
    float maximum = so_far.maximum;
    for (std::int32_t i = first; i < end; ++i) maximum = std::max(maximum, scores[i]);
    if (maximum == none) return;
    const float kept = so_far.maximum == none ? 0 : exponential(so_far.maximum - maximum);
    float weight = 0;
    for (std::int32_t c = 0; c < call_.d; ++c) so_far.values[c] *= kept;
    for (std::int32_t i = first; i < end; ++i) {
      const float exact_weight = exponential(scores[i] - maximum), p = rounded(exact_weight);
      weight += f_.sums_rounded ? p : exact_weight;
      // Masked keys are multiplied by 0, as a tile does.
      for (std::int32_t c = 0; c < call_.d; ++c)
        so_far.values[c] += p * m_.values[static_cast<std::size_t>(std::int64_t{i} * call_.d + c)];
    }
    so_far.weight = so_far.weight * kept + weight;
    so_far.maximum = maximum;
  }

  std::int64_t block_at(std::int32_t i, std::int32_t all) const {
    return m_.all[static_cast<std::size_t>(f_.reversed ? all - 1 - i : i)];
  }

  /// The output goes to m_.sum.
  float by_splits(std::int32_t all) {
    float maximum = none;
    for (std::int32_t split = 0; split < f_.splits; ++split) {
      running part{none, 0, partial(split)};
      std::fill(part.values, part.values + call_.d, 0.0f);
      const auto from = static_cast<std::int32_t>(std::int64_t{all} * split / f_.splits),
                 to = static_cast<std::int32_t>(std::int64_t{all} * (split + 1) / f_.splits);
      for (std::int32_t i = from; i < to; ++i) {
        const std::int32_t count = load(block_at(i, all));
        for (std::int32_t first = 0; first < count; first += f_.step)
          add(first, std::min(count, first + f_.step), part);
      }
      float& lse = part.values[call_.d];
      lse = part.maximum == none ? none : part.maximum + logarithm(part.weight);
      maximum = std::max(maximum, lse);
      for (std::int32_t c = 0; c < call_.d && lse != none; ++c) {
        part.values[c] /= part.weight;
        if (f_.short_partials) part.values[c] = nearest(call_.q_type, part.values[c]);
      }
    }
    return put_together(maximum);
  }

  float put_together(float maximum) {
    std::fill(m_.sum.begin(), m_.sum.begin() + call_.d, 0.0f);
    if (maximum == none) return none;
    float weight = 0;
    for (std::int32_t split = 0; split < f_.splits; ++split) {
      const float* const part = partial(split);
      if (part[call_.d] == none) continue;
      const float w = exponential(part[call_.d] - maximum);
      weight += w;
      for (std::int32_t c = 0; c < call_.d; ++c) m_.sum[static_cast<std::size_t>(c)] += w * part[c];
    }
    for (std::int32_t c = 0; c < call_.d; ++c) m_.sum[static_cast<std::size_t>(c)] /= weight;
    return maximum + logarithm(weight);
  }

  /// A pass for the log-sum-exp, and one for the values.
  float by_lse(std::int32_t all) {
    std::fill(m_.sum.begin(), m_.sum.begin() + call_.d, 0.0f);
    float maximum = none, weight = 0;
    for (std::int32_t i = 0; i < all; ++i) {
      const std::int32_t count = load(block_at(i, all));
      float next = maximum, block_weight = 0;
      for (std::int32_t k = 0; k < count; ++k) next = std::max(next, m_.scores[static_cast<std::size_t>(k)]);
      if (next == none) continue;
      for (std::int32_t k = 0; k < count; ++k)
        block_weight += exponential(m_.scores[static_cast<std::size_t>(k)] - next);
      weight = (maximum == none ? 0 : weight * exponential(maximum - next)) + block_weight;
      maximum = next;
    }
    if (maximum == none) return none;
    const float lse = maximum + logarithm(weight);
    for (std::int32_t i = 0; i < all; ++i) {
      const std::int32_t count = load(block_at(i, all));
      for (std::int32_t k = 0; k < count; ++k) {
        const float p = rounded(exponential(m_.scores[static_cast<std::size_t>(k)] - lse));
        for (std::int32_t c = 0; c < call_.d; ++c)
          m_.sum[static_cast<std::size_t>(c)] += p * m_.values[static_cast<std::size_t>(std::int64_t{k} * call_.d + c)];
      }
    }
    return lse;
  }

  const form& f_;
  const stages& stage_;
  const attend_call& call_;
  memory& m_;
  row_place place_;
  std::int32_t kv_head_;
  std::int32_t own_ = 0;
  float scale_ = 1;
};

std::int32_t blocks_of(const stages& stage, const attend_call& call, const row_place& place, std::int64_t row,
                       std::int32_t kv_head, std::int32_t* blocks) {
  if (call.ids == nullptr) return stage.all_blocks(place, call.block, blocks, call.capacity);
  return stage.row_blocks(place, call.ids + row * call.id_row_stride + kv_head * call.id_head_stride, call.topk,
                          call.block, blocks, call.capacity);
}

/// The blocks of all rows of a row's tile, ascending, into m.all; those of the row itself are in m.own.
std::int32_t blocks_of_tile(const stages& stage, const attend_call& call, const row_place& place, std::int64_t row,
                            std::int32_t kv_head, std::int32_t tile_rows, std::int32_t own, memory& m) {
  if (tile_rows == 1 || call.rows.kv_lens == nullptr) {
    std::copy(m.own.begin(), m.own.begin() + own, m.all.begin());
    return own;
  }
  const std::int64_t start = call.rows.cu_seqlens_q[place.sequence], end = call.rows.cu_seqlens_q[place.sequence + 1];
  const std::int64_t first = start + (row - start) / tile_rows * tile_rows;
  std::int32_t count = 0;
  for (std::int64_t other = first; other < std::min(end, first + tile_rows); ++other)
    count += blocks_of(stage, call, call.rows.place(other), other, kv_head, m.all.data() + count);
  std::sort(m.all.begin(), m.all.begin() + count);
  return static_cast<std::int32_t>(std::unique(m.all.begin(), m.all.begin() + count) - m.all.begin());
}

template <const form& F>
void attend_row_as(const stages& stage, const attend_call& call, std::int64_t row, std::int32_t kv_head, void*) {
  memory& m = of_thread(call, F);
  const row_place place = call.rows.kv_lens == nullptr ? stage.segment_place(call.rows, row) : call.rows.place(row);
  const std::int32_t own = blocks_of(stage, call, place, row, kv_head, m.own.data());
  const std::int32_t all = blocks_of_tile(stage, call, place, row, kv_head, F.tile_rows, own, m);
  head_of_row head(F, stage, call, m, place, kv_head);
  for (std::int32_t member = 0; member < call.group; ++member)
    head.compute(row, stage.query_head(kv_head, member, call.kv_heads, call.group), own, all);
}

bool attends(const msabench_problem& p) { return is_attention(p.op); }
bool in_16_bits(const msabench_problem& p) { return attends(p) && p.q.bits == 16; }
/// Scaled operands are rounded already.
bool in_16_bits_unscaled(const msabench_problem& p) { return in_16_bits(p) && p.kv_scale == 0; }
bool in_fp32_unscaled(const msabench_problem& p) {
  return attends(p) && same_type(p.q, fp32_type) && same_type(p.kv, fp32_type) && p.kv_scale == 0;
}

template <const form& F>
void declare(const msabench_problem& p, msabench_numerics& n) {
  // One key after the other, and a factor whenever the maximum rises.
  n.chain_out = n.chain_row_sum = 0;
  const msabench_dtype shorter = F.tf32 ? msabench_dtype{2, 19, 1} : p.q;
  if (F.p != weights::exact) n.p_operand = shorter;
  if (F.p == weights::truncated) n.truncated |= 8;
  n.lse_from_rounded_p = F.sums_rounded ? 1 : 0;
  if (F.short_partials) n.partial_store = p.q;
  if (F.short_scores) n.score_store = p.q;
  if (F.prescaled || F.tf32) n.operand = shorter;
  if (F.prescaled) n.rounded_operands = 1;
  if (F.tf32) {
    n.v_operand = shorter;
    n.rounded_operands = 2;
  }
}

template <const form& F>
void change(stages& s) {
  s.attend_row = attend_row_as<F>;
}

using enum weights;
constexpr form p_nearest{.p = nearest}, p_nearest_summed{.p = nearest, .sums_rounded = true},
    p_truncated{.p = truncated}, p_truncated_summed{.p = truncated, .sums_rounded = true}, one_pass{},
    split2{.splits = 2}, split7{.splits = 7}, split64{.splits = 64}, split3_short{.splits = 3, .short_partials = true},
    split64_short{.splits = 64, .short_partials = true}, backwards{.reversed = true}, steps16{.step = 16},
    backwards_p{.p = nearest, .reversed = true, .step = 32}, base2{.in_base2 = true},
    base2_p{.p = nearest, .in_base2 = true}, by_lse{.in_base2 = true, .normalised_by_lse = true},
    by_lse_p{.p = nearest, .in_base2 = true, .normalised_by_lse = true}, short_scores{.short_scores = true},
    prescaled{.prescaled = true}, prescaled_base2{.p = nearest, .in_base2 = true, .prescaled = true},
    union4{.tile_rows = 4}, union8{.p = nearest, .tile_rows = 8}, tf32_all{.p = nearest, .tf32 = true},
    coarsest{.p = truncated,
             .sums_rounded = true,
             .splits = 64,
             .short_partials = true,
             .short_scores = true,
             .prescaled = true};

template <const form& F>
constexpr variant of(const char* name, const char* what, bool (*takes)(const msabench_problem&)) {
  return {name, what, change<F>, takes, declare<F>};
}

constexpr variant variants[] = {
    of<one_pass>("one-pass", "one pass with a running maximum, fp32", attends),
    of<p_nearest>("p-nearest", "weights rounded to the type of q; sums of exact ones", in_16_bits),
    of<p_nearest_summed>("p-nearest-summed", "weights rounded to the type of q; sums of the rounded ones", in_16_bits),
    of<p_truncated>("p-truncated", "weights truncated to the type of q; sums of exact ones", in_16_bits),
    of<p_truncated_summed>("p-truncated-summed", "weights truncated to the type of q; sums of the truncated ones",
                           in_16_bits),
    of<split2>("splits-2", "two splits, fp32 partial results", attends),
    of<split7>("splits-7", "seven splits, fp32 partial results, some of them empty", attends),
    of<split64>("splits-64", "64 splits, more than there are blocks, fp32 partial results", attends),
    of<split3_short>("splits-3-short", "three splits, partial results in the type of q", in_16_bits),
    of<split64_short>("splits-64-short", "64 splits, partial results in the type of q", in_16_bits),
    of<backwards>("reversed", "from the last block to the first", attends),
    of<steps16>("steps-16", "16 keys at a time", attends),
    of<backwards_p>("reversed-32", "from the last block to the first, 32 keys at a time, weights in the type of q",
                    in_16_bits),
    of<base2>("exp2", "exp2, log2(e) folded into the scale", attends),
    of<base2_p>("exp2-p", "exp2, log2(e) folded into the scale, weights in the type of q", in_16_bits),
    of<by_lse>("exp2-lse", "two passes, weights exp2(m - lse), nothing divided", attends),
    of<by_lse_p>("exp2-lse-p", "two passes, weights exp2(m - lse) in the type of q, nothing divided", in_16_bits),
    of<short_scores>("scores-short", "scores stored in the type of q (score16)", in_16_bits),
    of<prescaled>("prescaled", "q times the scale rounded to its type (prescaled_q)", in_16_bits_unscaled),
    of<prescaled_base2>("prescaled-exp2",
                        "q times scale and log2(e) rounded to its type, exp2, weights in the type of q",
                        in_16_bits_unscaled),
    of<union4>("union-4", "tiles of 4 rows that compute the blocks of all of them and mask", attends),
    of<union8>("union-8", "tiles of 8 rows that compute the blocks of all of them and mask, weights in the type of q",
               in_16_bits),
    of<tf32_all>("tf32", "operands of both products rounded to tf32", in_fp32_unscaled),
    of<coarsest>("coarsest", "weights truncated and summed so, 64 short splits, short scores, q prescaled",
                 in_16_bits_unscaled),
};

}  // namespace

std::span<const variant> attention_variants() { return variants; }

}  // namespace msabench::variants
