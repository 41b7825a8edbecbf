// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/small_kl.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <utility>

namespace msabench::plugin_test {
namespace {

// Errors of scores of fp32 of order 1 to 10, in sums of a few hundred terms.
const double open_of_weights = std::ldexp(1.0, -16);

double relative_error_of(msabench_dtype type) {
  if (type.bits == 32) return 0;
  return std::ldexp(1.0, type.code == bf16_type.code ? -8 : -11);
}

double scale_of(double asked, std::int32_t dim) { return asked != 0 ? asked : 1 / std::sqrt(static_cast<double>(dim)); }

/// exp(x) / sum, and its logarithm.
void normalise(const std::vector<double>& scores, std::vector<double>& weights, std::vector<double>& logs) {
  const double m = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double s : scores) sum += std::exp(s - m);
  for (const double s : scores) {
    logs.push_back(s - m - std::log(sum));
    weights.push_back(std::exp(logs.back()));
  }
}

}  // namespace

/// Values, and sums of magnitudes that errors of the weights are multiplied by.
struct small_kl::gradients {
  double loss = 0, loss_size = 0;
  std::vector<double> dq_idx, dq_size, dk_idx, dk_size;
};

small_kl::small_kl(attend_shape given, kl_stage stage, unsigned seed)
    : main([&] {
        given.page_layout = given.page_size = 0;
        given.dense = false;
        return small_attend(given, seed);
      }()),
      problem(main.problem) {
  const attend_shape& shape = main.shape;
  problem.op = MSABENCH_OP_KL;
  problem.hi = shape.hkv;
  problem.di = stage.di;
  problem.q_idx = problem.k_idx = shape.type;
  problem.grad = fp32_type;
  problem.kl_warm_up = stage.warm_up ? 1 : 0;
  problem.kl_coeff = stage.coeff;
  // Under padded strides these have gaps, too.
  const std::int64_t gap = shape.padded_strides ? 8 : 0, rows = main.q.shape()[0], keys = main.k.shape()[0];
  const auto heads = [&](msabench_dtype type, std::int64_t lines, std::int64_t count, std::int64_t width) {
    return buffer(type, {lines, count, width}, {count * (width + gap) + gap, width + gap, 1});
  };
  q_idx = heads(shape.type, rows, shape.hkv, stage.di);
  dq_idx = heads(fp32_type, rows, shape.hkv, stage.di);
  k_idx = buffer(shape.type, {keys, stage.di}, {stage.di + gap, 1});
  dk_idx = buffer(fp32_type, {keys, stage.di}, {stage.di + gap, 1});
  dq = heads(fp32_type, rows, shape.hq, shape.d);
  dk = heads(fp32_type, keys, shape.hkv, shape.d);
  loss = buffer(fp64_type, {1});
  std::mt19937 random(seed + 200);
  const auto value = [&random] { return static_cast<double>(random() % 2001) / 1000.0 - 1.0; };
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < shape.hkv; ++head)
      for (std::int64_t c = 0; c < stage.di; ++c) q_idx.set({row, head, c}, stage.index_size * value());
  for (std::int64_t key = 0; key < keys; ++key)
    for (std::int64_t c = 0; c < stage.di; ++c) k_idx.set({key, c}, value());
}

arguments small_kl::args() const {
  arguments given;
  given.put(MSABENCH_Q, main.q);
  given.put(MSABENCH_K, main.k);
  given.put(MSABENCH_Q_IDX, q_idx);
  given.put(MSABENCH_K_IDX, k_idx);
  if (problem.kl_warm_up == 0) given.put(MSABENCH_IDS, main.ids);
  given.put(MSABENCH_CU_SEQLENS_Q, main.cu_seqlens_q);
  given.put(MSABENCH_KV_LENS, main.kv_lens);
  given.put(MSABENCH_CU_SEQLENS_KV, main.cu_seqlens_kv);
  given.put(MSABENCH_LOSS, loss);
  given.put(MSABENCH_DQ_IDX, dq_idx);
  given.put(MSABENCH_DK_IDX, dk_idx);
  given.put(MSABENCH_DQ, dq);
  given.put(MSABENCH_DK, dk);
  return given;
}

double small_kl::factor() const {
  return problem.kl_coeff / (static_cast<double>(std::max<std::int64_t>(main.tokens(), 1)) * problem.hkv);
}

std::vector<std::int64_t> small_kl::keys_of(std::int64_t row, std::int64_t kv_head) const {
  std::int64_t b = 0;
  while (main.cu_seqlens_q.get({b + 1}) <= static_cast<double>(row)) ++b;
  const auto length = static_cast<std::int64_t>(main.kv_lens.get({b}));
  const auto position = length - static_cast<std::int64_t>(main.cu_seqlens_q.get({b + 1})) + row;
  std::set<double> blocks;
  for (std::int32_t slot = 0; slot < main.shape.topk; ++slot) blocks.insert(main.ids.get({row, kv_head, slot}));
  std::vector<std::int64_t> keys;
  for (std::int64_t j = 0; j <= position && j < length; ++j)
    if (problem.kl_warm_up != 0 || blocks.contains(static_cast<double>(j / main.shape.block)))
      keys.push_back(static_cast<std::int64_t>(main.cu_seqlens_kv.get({b})) + j);
  return keys;
}

small_kl::softmax small_kl::student(std::int64_t row, std::int64_t kv_head,
                                    const std::vector<std::int64_t>& keys) const {
  std::vector<double> scores;
  for (const std::int64_t key : keys) {
    double sum = 0;
    for (std::int64_t c = 0; c < problem.di; ++c) sum += q_idx.get({row, kv_head, c}) * k_idx.get({key, c});
    scores.push_back(scale_of(problem.index_scale, problem.di) * sum);
  }
  softmax all;
  normalise(scores, all.weights, all.logs);
  return all;
}

std::vector<double> small_kl::teacher(std::int64_t row, std::int64_t kv_head,
                                      const std::vector<std::int64_t>& keys) const {
  const std::int32_t group = problem.hq / problem.hkv;
  std::vector<double> mean(keys.size());
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    std::vector<double> scores, weights, logs;
    for (const std::int64_t key : keys) {
      double sum = 0;
      for (std::int64_t c = 0; c < problem.d; ++c) sum += main.q.get({row, head, c}) * main.k.get({key, kv_head, c});
      scores.push_back(scale_of(problem.softmax_scale, problem.d) * sum);
    }
    normalise(scores, weights, logs);
    for (std::size_t j = 0; j < keys.size(); ++j) mean[j] += weights[j] / group;
  }
  return mean;
}

void small_kl::add_row(std::int64_t row, std::int64_t kv_head, gradients& to) const {
  const auto keys = keys_of(row, kv_head);
  if (keys.empty()) return;
  const auto p = teacher(row, kv_head, keys);
  const softmax of_student = student(row, kv_head, keys);
  const double index_scale = scale_of(problem.index_scale, problem.di);
  for (std::size_t j = 0; j < keys.size(); ++j) {
    const double ratio = p[j] == 0 ? 0 : std::log(p[j]) - of_student.logs[j];
    const double ds = factor() * (of_student.weights[j] - p[j]);
    const double open = std::abs(factor()) * (of_student.weights[j] + p[j]);
    to.loss += factor() * p[j] * ratio;
    to.loss_size += std::abs(factor()) * p[j] * (std::abs(ratio) + 1 + std::abs(of_student.logs[j]));
    for (std::int64_t c = 0; c < problem.di; ++c) {
      const double k = k_idx.get({keys[j], c}), q = q_idx.get({row, kv_head, c});
      const auto of_row = static_cast<std::size_t>((row * problem.hkv + kv_head) * problem.di + c);
      const auto of_key = static_cast<std::size_t>(keys[j] * problem.di + c);
      to.dq_idx[of_row] += index_scale * ds * k;
      to.dq_size[of_row] += std::abs(index_scale * open * k);
      to.dk_idx[of_key] += index_scale * ds * q;
      to.dk_size[of_key] += std::abs(index_scale * open * q);
    }
  }
}

double small_kl::expected_loss() const {
  double sum = 0;
  for (std::int64_t row = 0; row < main.tokens(); ++row)
    for (std::int64_t kv_head = 0; kv_head < problem.hkv; ++kv_head) {
      const auto keys = keys_of(row, kv_head);
      if (keys.empty()) continue;
      const auto p = teacher(row, kv_head, keys);
      const softmax of_student = student(row, kv_head, keys);
      for (std::size_t j = 0; j < keys.size(); ++j)
        if (p[j] > 0) sum += p[j] * (std::log(p[j]) - of_student.logs[j]);
    }
  return factor() * sum;
}

std::optional<std::string> small_kl::gradient_fault(const gradients& want) const {
  const double of_store = relative_error_of(problem.grad);
  const auto is_right = [&](double got, double wanted, double size) {
    return std::abs(got - wanted) <= of_store * std::abs(wanted) + open_of_weights * size;
  };
  for (std::int64_t row = 0; row < dq_idx.shape()[0]; ++row)
    for (std::int64_t head = 0; head < problem.hkv; ++head)
      for (std::int64_t c = 0; c < problem.di; ++c) {
        const std::string where = "dq_idx row " + std::to_string(row) + " head " + std::to_string(head);
        if (row >= main.tokens()) {
          if (!dq_idx.untouched({row, head, c})) return where + ": past T, but written";
          continue;
        }
        const auto at = static_cast<std::size_t>((row * problem.hkv + head) * problem.di + c);
        if (!is_right(dq_idx.get({row, head, c}), want.dq_idx[at], want.dq_size[at])) return where;
      }
  for (std::int64_t key = 0; key < dk_idx.shape()[0]; ++key)
    for (std::int64_t c = 0; c < problem.di; ++c) {
      const auto at = static_cast<std::size_t>(key * problem.di + c);
      if (!is_right(dk_idx.get({key, c}), want.dk_idx[at], want.dk_size[at]))
        return "dk_idx key " + std::to_string(key);
    }
  return std::nullopt;
}

std::optional<std::string> small_kl::fault() const {
  for (const buffer* b : {&loss, &dq_idx, &dk_idx, &dq, &dk})
    if (!b->guards_intact()) return "guard bands written";
  gradients want;
  for (auto* of_row : {&want.dq_idx, &want.dq_size})
    of_row->resize(static_cast<std::size_t>(main.tokens() * problem.hkv * problem.di));
  for (auto* of_key : {&want.dk_idx, &want.dk_size})
    of_key->resize(static_cast<std::size_t>(dk_idx.shape()[0] * problem.di));
  for (std::int64_t row = 0; row < main.tokens(); ++row)
    for (std::int64_t kv_head = 0; kv_head < problem.hkv; ++kv_head) add_row(row, kv_head, want);
  if (!(std::abs(loss.get({0}) - want.loss) <= open_of_weights * want.loss_size))
    return "loss " + std::to_string(loss.get({0})) + ", expected " + std::to_string(want.loss);
  if (auto wrong = gradient_fault(want)) return wrong;
  for (const auto& [name, b, lines] : {std::tuple{"dq", &dq, main.tokens()}, std::tuple{"dk", &dk, dk.shape()[0]}})
    for (std::int64_t line = 0; line < lines; ++line)
      for (std::int64_t head = 0; head < b->shape()[1]; ++head)
        for (std::int64_t c = 0; c < b->shape()[2]; ++c)
          if (const double got = b->get({line, head, c}); got != 0 || std::signbit(got))
            return std::string(name) + " line " + std::to_string(line) + ": not zero";
  return std::nullopt;
}

}  // namespace msabench::plugin_test
