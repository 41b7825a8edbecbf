// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/small_norm_rope.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "tests/kernels/small_lengths.h"

namespace msabench::plugin_test {
namespace {

constexpr msabench_slot x_slots[] = {MSABENCH_Q, MSABENCH_K, MSABENCH_Q_IDX, MSABENCH_K_IDX};
constexpr msabench_slot weight_slots[] = {MSABENCH_Q_NORM, MSABENCH_K_NORM, MSABENCH_Q_IDX_NORM, MSABENCH_K_IDX_NORM};
constexpr msabench_slot y_slots[] = {MSABENCH_Q_ROPE, MSABENCH_K_ROPE, MSABENCH_Q_IDX_ROPE, MSABENCH_K_IDX_ROPE};

}  // namespace

std::int32_t small_norm_rope::heads(std::size_t tensor) const {
  const std::int32_t counts[] = {shape.hq, shape.hkv, shape.hi, 1};
  return counts[tensor];
}

std::int32_t small_norm_rope::dim(std::size_t tensor) const { return tensor < 2 ? shape.d : shape.di; }

// k_idx has no axis of heads.
double small_norm_rope::get(const buffer& b, std::size_t tensor, std::int64_t row, std::int64_t head,
                            std::int64_t c) const {
  return tensor == 3 ? b.get({row, c}) : b.get({row, head, c});
}

small_norm_rope::small_norm_rope(norm_rope_shape given)
    : shape(std::move(given)), problem(empty_problem(MSABENCH_OP_QK_NORM_ROPE)) {
  const auto batch = static_cast<std::int64_t>(shape.sequences.size());
  small_lengths made(shape.sequences);
  cu_seqlens_q = std::move(made.cu_seqlens_q);
  kv_lens = std::move(made.kv_lens);
  tokens_ = made.tokens;
  const std::int64_t longest = made.longest;
  problem.hq = shape.hq;
  problem.hkv = shape.hkv;
  problem.hi = shape.hi;
  problem.d = shape.d;
  problem.di = shape.di;
  problem.rope_dims = shape.rope_dims;
  problem.norm_eps = 1e-6;
  problem.batch = batch;
  problem.total_q = tokens_;
  problem.max_kv_len = longest;
  problem.q = problem.kv = problem.q_idx = problem.k_idx = shape.type;

  std::mt19937 random(3);
  const auto drawn = [&] { return static_cast<double>(random() % 257) / 64 - 2; };
  const std::int64_t rows = tokens_ + shape.spare_rows;
  for (std::size_t t = 0; t < 4; ++t) {
    const std::int64_t h = heads(t), n = dim(t), head_stride = n + shape.gap, row_stride = h * head_stride + shape.gap;
    const auto tensor = [&] {
      return t == 3 ? buffer(shape.type, {rows, n}, {row_stride, 1})
                    : buffer(shape.type, {rows, h, n}, {row_stride, head_stride, 1});
    };
    x[t] = tensor();
    y[t] = tensor();
    weight[t] = buffer(shape.type, {n});
    for (std::int64_t c = 0; c < n; ++c) weight[t].set({c}, drawn() / 4);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t head = 0; head < h; ++head)
        for (std::int64_t c = 0; c < n; ++c) {
          // Heads of different size, small ones among them.
          const double value = drawn() * (head % 2 == 0 ? 1 : 0x1p-9);
          t == 3 ? x[t].set({row, c}, value) : x[t].set({row, head, c}, value);
        }
  }
  cos_sin = buffer(fp32_type, {longest, shape.rope_dims});
  for (std::int64_t p = 0; p < longest; ++p)
    for (std::int64_t c = 0; c < shape.rope_dims / 2; ++c) {
      const double angle = drawn();
      cos_sin.set({p, c}, std::cos(angle));
      cos_sin.set({p, shape.rope_dims / 2 + c}, std::sin(angle));
    }
}

arguments small_norm_rope::args() const {
  arguments given;
  for (std::size_t t = 0; t < 4; ++t) {
    given.put(x_slots[t], x[t]);
    given.put(weight_slots[t], weight[t]);
    given.put(y_slots[t], y[t]);
  }
  given.put(MSABENCH_COS_SIN, cos_sin);
  given.put(MSABENCH_CU_SEQLENS_Q, cu_seqlens_q);
  given.put(MSABENCH_KV_LENS, kv_lens);
  return given;
}

std::int64_t small_norm_rope::position(std::int64_t row) const {
  std::int64_t b = 0;
  while (cu_seqlens_q.get({b + 1}) <= static_cast<double>(row)) ++b;
  return static_cast<std::int64_t>(kv_lens.get({b}) - cu_seqlens_q.get({b + 1})) + row;
}

std::vector<double> small_norm_rope::expected(std::size_t tensor, std::int64_t row, std::int64_t head) const {
  const std::int64_t n = dim(tensor), half = shape.rope_dims / 2, at = position(row);
  std::vector<double> normed, result;
  double squares = 0;
  for (std::int64_t c = 0; c < n; ++c) squares += std::pow(get(x[tensor], tensor, row, head, c), 2);
  const double rms = std::sqrt(squares / static_cast<double>(n) + problem.norm_eps);
  for (std::int64_t c = 0; c < n; ++c)
    normed.push_back(get(x[tensor], tensor, row, head, c) / rms * (1 + weight[tensor].get({c})));
  result = normed;
  for (std::int64_t c = 0; c < half; ++c) {
    const double cosine = cos_sin.get({at, c}), sine = cos_sin.get({at, half + c});
    const double first = normed[static_cast<std::size_t>(c)], second = normed[static_cast<std::size_t>(c + half)];
    result[static_cast<std::size_t>(c)] = first * cosine - second * sine;
    result[static_cast<std::size_t>(c + half)] = second * cosine + first * sine;
  }
  return result;
}

std::optional<std::string> small_norm_rope::fault_of(std::size_t tensor, std::int64_t row, std::int64_t head) const {
  const double u_out = std::ldexp(1.0, shape.type.bits == 32 ? -20 : shape.type.code == fp16_type.code ? -11 : -8);
  // Padding rows are written, with whatever they like.
  if (position(row) < 0) {
    const bool untouched = tensor == 3 ? y[tensor].untouched({row, 0}) : y[tensor].untouched({row, head, 0});
    return untouched ? std::optional<std::string>("padding row not written") : std::nullopt;
  }
  const auto want = expected(tensor, row, head);
  for (std::int64_t c = 0; c < dim(tensor); ++c) {
    const double got = get(y[tensor], tensor, row, head, c), due = want[static_cast<std::size_t>(c)];
    if (!(std::abs(got - due) <= u_out * std::abs(due) + 2e-5))
      return "channel " + std::to_string(c) + " is " + std::to_string(got) + " instead of " + std::to_string(due);
  }
  return std::nullopt;
}

std::optional<std::string> small_norm_rope::fault() const {
  for (std::size_t t = 0; t < 4; ++t) {
    if (!y[t].guards_intact()) return "guard bands written";
    for (std::int64_t row = 0; row < y[t].shape()[0]; ++row)
      for (std::int64_t head = 0; head < heads(t); ++head) {
        const std::string where =
            "row " + std::to_string(row) + " tensor " + std::to_string(t) + " head " + std::to_string(head) + ": ";
        const bool untouched = t == 3 ? y[t].untouched({row, 0}) : y[t].untouched({row, head, 0});
        if (row >= tokens_ && !untouched) return where + "past T, but written";
        if (row >= tokens_) continue;
        if (const auto found = fault_of(t, row, head)) return where + *found;
      }
  }
  return std::nullopt;
}

}  // namespace msabench::plugin_test
