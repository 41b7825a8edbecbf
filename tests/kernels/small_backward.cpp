// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/small_backward.h"

#include <cmath>
#include <random>
#include <set>
#include <utility>

namespace msabench::plugin_test {
namespace {

double relative_error_of(msabench_dtype type) {
  return std::ldexp(1.0, type.code == bf16_type.code ? -8 : type.bits == 16 ? -11 : -24);
}

}  // namespace

/// Sums, and sums of magnitudes, of dq, dk and dv: [line][channel].
struct small_backward::gradients {
  struct one {
    std::vector<double> value, magnitude;
    void add(std::size_t at, double x, double size) {
      value[at] += x;
      magnitude[at] += size;
    }
  };
  one dq, dk, dv;
};

small_backward::small_backward(attend_shape given, unsigned seed)
    : forward([&] {
        given.page_layout = given.page_size = 0;
        return small_attend(given, seed);
      }()),
      problem(forward.problem) {
  problem.op = forward.shape.dense ? MSABENCH_OP_DENSE_BACKWARD : MSABENCH_OP_ATTEND_BACKWARD;
  problem.grad = fp32_type;
  // Under padded strides the gradients have gaps, too.
  const auto like = [&](const buffer& of, msabench_dtype type) {
    const std::int64_t gap = forward.shape.padded_strides ? 4 : 0, d = of.shape()[2] + gap;
    return buffer(type, of.shape(), {of.shape()[1] * d + gap, d, 1});
  };
  d_out = like(forward.out, forward.shape.type);
  dq = like(forward.out, fp32_type);
  dk = like(forward.k, fp32_type);
  dv = like(forward.v, fp32_type);
  std::mt19937 random(seed + 100);
  const auto& shape = d_out.shape();
  for (std::int64_t row = 0; row < shape[0]; ++row)
    for (std::int64_t head = 0; head < shape[1]; ++head)
      for (std::int64_t c = 0; c < shape[2]; ++c)
        d_out.set({row, head, c}, static_cast<double>(random() % 2001) / 1000.0 - 1.0);
  for (std::int64_t row = 0; row < forward.tokens(); ++row)
    for (std::int32_t head = 0; head < forward.shape.hq; ++head) {
      const expected_row of = forward.expected(row, head);
      forward.lse.set({row, head}, of.lse);
      for (std::int64_t c = 0; c < shape[2]; ++c) forward.out.set({row, head, c}, of.out[static_cast<std::size_t>(c)]);
    }
}

arguments small_backward::args() const {
  arguments given = forward.args();
  given.put(MSABENCH_D_OUT, d_out);
  given.put(MSABENCH_DQ, dq);
  given.put(MSABENCH_DK, dk);
  given.put(MSABENCH_DV, dv);
  return given;
}

void small_backward::add_head(std::int64_t row, std::int32_t head, gradients& to) const {
  const auto& s = forward.shape;
  const std::int64_t d = s.d;
  std::int64_t b = 0;
  while (forward.cu_seqlens_q.get({b + 1}) <= static_cast<double>(row)) ++b;
  const auto length = static_cast<std::int64_t>(forward.kv_lens.get({b}));
  const auto position = length - static_cast<std::int64_t>(forward.cu_seqlens_q.get({b + 1})) + row;
  const auto first = static_cast<std::int64_t>(forward.cu_seqlens_kv.get({b}));
  const std::int32_t kv_head = head / (s.hq / s.hkv);
  std::set<double> blocks;
  for (std::int32_t slot = 0; slot < s.topk; ++slot) blocks.insert(forward.ids.get({row, kv_head, slot}));
  const double scale = s.softmax_scale != 0 ? s.softmax_scale : 1 / std::sqrt(static_cast<double>(d));

  std::vector<std::int64_t> keys;
  std::vector<double> weights, d_weights;
  double sum = 0, delta = 0;
  for (std::int64_t j = 0; j <= position && j < length; ++j) {
    if (!s.dense && !blocks.contains(static_cast<double>(j / s.block))) continue;
    double score = 0, d_weight = 0;
    for (std::int64_t c = 0; c < d; ++c) {
      score += scale * forward.q.get({row, head, c}) * forward.k.get({first + j, kv_head, c});
      d_weight += d_out.get({row, head, c}) * forward.v.get({first + j, kv_head, c});
    }
    keys.push_back(first + j);
    weights.push_back(std::exp(score));
    d_weights.push_back(d_weight);
    sum += weights.back();
    delta += weights.back() * d_weight;
  }
  delta /= sum;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const double p = weights[i] / sum, ds = p * (d_weights[i] - delta);
    // What errors of P and D can do: a limit of this many roundings of what could be subtracted.
    const double open = p * (std::abs(d_weights[i]) + std::abs(delta) + static_cast<double>(d) / 4);
    for (std::int64_t c = 0; c < d; ++c) {
      const double k = forward.k.get({keys[i], kv_head, c}), q = forward.q.get({row, head, c});
      const auto of_row = static_cast<std::size_t>((row * s.hq + head) * d + c);
      const auto of_key = static_cast<std::size_t>((keys[i] * s.hkv + kv_head) * d + c);
      to.dq.add(of_row, scale * ds * k, std::abs(scale * open * k));
      to.dk.add(of_key, scale * ds * q, std::abs(scale * open * q));
      to.dv.add(of_key, p * d_out.get({row, head, c}), p * std::abs(d_out.get({row, head, c})));
    }
  }
}

small_backward::gradients small_backward::expected() const {
  gradients all;
  const auto size_of = [](const buffer& b) {
    return static_cast<std::size_t>(b.shape()[0] * b.shape()[1] * b.shape()[2]);
  };
  for (const auto& [one, of] : {std::pair{&all.dq, &dq}, std::pair{&all.dk, &dk}, std::pair{&all.dv, &dv}})
    one->value.resize(size_of(*of)), one->magnitude.resize(size_of(*of));
  for (std::int64_t row = 0; row < forward.tokens(); ++row)
    for (std::int32_t head = 0; head < forward.shape.hq; ++head) add_head(row, head, all);
  return all;
}

std::optional<std::string> small_backward::fault() const {
  for (const buffer* b : {&dq, &dk, &dv})
    if (!b->guards_intact()) return "guard bands written";
  const gradients want = expected();
  // o is rounded to its type before D is taken of it; everything else is fp32, with sums of a few hundred terms.
  const double of_out = relative_error_of(forward.shape.type), of_sums = std::ldexp(1.0, -15);
  const double of_store = problem.grad.bits == 16 ? relative_error_of(problem.grad) : 0;
  const struct {
    const char* name;
    const buffer& got;
    const gradients::one& want;
    std::int64_t lines;
    double open;
  } all[] = {{"dq row ", dq, want.dq, forward.tokens(), of_out + of_sums},
             {"dk key ", dk, want.dk, dk.shape()[0], of_out + of_sums},
             {"dv key ", dv, want.dv, dv.shape()[0], of_sums}};
  for (const auto& g : all)
    for (std::int64_t line = 0; line < g.got.shape()[0]; ++line)
      for (std::int64_t head = 0; head < g.got.shape()[1]; ++head)
        for (std::int64_t c = 0; c < g.got.shape()[2]; ++c) {
          const std::string where = g.name + std::to_string(line) + " head " + std::to_string(head);
          if (line >= g.lines) {
            if (!g.got.untouched({line, head, c})) return where + ": past T, but written";
            continue;
          }
          const auto at = static_cast<std::size_t>((line * g.got.shape()[1] + head) * g.got.shape()[2] + c);
          const double got = g.got.get({line, head, c}), wanted = g.want.value[at];
          if (!(std::abs(got - wanted) <= of_store * std::abs(wanted) + g.open * g.want.magnitude[at]))
            return where + " channel " + std::to_string(c) + ": " + std::to_string(got) + ", expected " +
                   std::to_string(wanted);
        }
  return std::nullopt;
}

}  // namespace msabench::plugin_test
