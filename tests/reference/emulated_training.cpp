// SPDX-License-Identifier: Apache-2.0
#include "emulated_training.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace msabench::reference::testing {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
float scale_of(double asked, std::int32_t dim) {
  return static_cast<float>(asked != 0 ? asked : 1 / std::sqrt(static_cast<double>(dim)));
}
float rounded(float x, dtype type) { return static_cast<float>(round_to(x, type)); }

// P or dS as a matrix operand. Toward zero: what rounds away from it goes back to the neighbour.
float operand(float x, const emulation& how) {
  const float near = rounded(x, how.operand);
  if (!how.truncates || std::abs(near) <= std::abs(x)) return near;
  return static_cast<float>(near - std::copysign(ulp_of(x, how.operand), near));
}

// Sums in fp32, in any order.
class kernel {
 public:
  explicit kernel(const emulation& how) : how_(how), random_(how.order) {}

  float sum(std::vector<float> terms) {
    std::ranges::shuffle(terms, random_);
    float total = 0;
    for (const float x : terms) total += x;
    return total;
  }
  float dot(const stored& a, std::int64_t a_at, const stored& b, std::int64_t b_at, std::int64_t channels) {
    std::vector<float> terms;
    for (std::int64_t c = 0; c < channels; ++c)
      terms.push_back(static_cast<float>(a[a_at + c]) * static_cast<float>(b[b_at + c]));
    return sum(std::move(terms));
  }
  float exponential(float x) const {
    const float p = std::exp(x);
    return how_.flushes && p < std::numeric_limits<float>::min() ? 0 : p;
  }
  // Softmax with a normaliser of its own.
  std::vector<float> softmax(const std::vector<float>& scores, float& lse) {
    const float m = *std::ranges::max_element(scores);
    std::vector<float> p;
    for (const float s : scores) p.push_back(exponential(s - m));
    const float total = sum(p);
    lse = m + std::log(total);
    for (float& x : p) x /= total;
    return p;
  }

 private:
  emulation how_;
  std::mt19937_64 random_;
};

// What is added up in one gradient line: weight times row `from` of a tensor.
struct line_term {
  float weight;
  std::int64_t from;
};
void add_up(kernel& k, const std::vector<line_term>& terms, const stored& x, std::int64_t channels, float scale,
            dtype grad, double* to) {
  for (std::int64_t c = 0; c < channels; ++c) {
    std::vector<float> products;
    for (const line_term& t : terms) products.push_back(t.weight * static_cast<float>(x[t.from + c]));
    to[c] = rounded(scale * k.sum(std::move(products)), grad);
  }
}

// o rounded to its type and lse in fp32, as handed to a backward pass.
struct forward {
  stored out;
  std::vector<float> lse;
};
forward run_forward(const training_batch& b, bool all, dtype type) {
  forward result{stored(type, {b.rows(), b.p.hq, b.p.d}), std::vector<float>(index(b.rows() * b.p.hq))};
  const auto exact =
      attention_backward("emulation",
                         {b.p, b.q.view(), b.k.view(), b.v.view(), all ? tensor_view{} : b.attend().ids, b.d_out.view(),
                          b.attend().cu_seqlens_q, b.attend().kv_lens, b.attend().cu_seqlens_kv},
                         {});
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t head = 0; head < b.p.hq; ++head) {
      const double lse = exact.lse[index(row * b.p.hq + head)];
      result.lse[index(row * b.p.hq + head)] = static_cast<float>(lse);
      const double scale = b.p.softmax_scale != 0 ? b.p.softmax_scale : 1 / std::sqrt(static_cast<double>(b.p.d));
      std::vector<double> o(index(b.p.d));
      const std::int64_t group = head / b.p.group();
      for (const std::int64_t j : b.read_keys(row, group, all)) {
        double s = 0;
        for (std::int64_t c = 0; c < b.p.d; ++c)
          s += b.q[(row * b.p.hq + head) * b.p.d + c] * b.k[(j * b.p.hkv + group) * b.p.d + c];
        for (std::int64_t c = 0; c < b.p.d; ++c)
          o[index(c)] += std::exp(scale * s - lse) * b.v[(j * b.p.hkv + group) * b.p.d + c];
      }
      for (std::int64_t c = 0; c < b.p.d; ++c) result.out.set((row * b.p.hq + head) * b.p.d + c, o[index(c)]);
    }
  return result;
}

}  // namespace

emulated_backward run_backward(const training_batch& b, bool all, const emulation& how) {
  kernel k(how);
  const std::int64_t d = b.p.d, group_size = b.p.group();
  const float scale = scale_of(b.p.softmax_scale, b.p.d);
  const forward handed = run_forward(b, all, how.out);
  emulated_backward result;
  result.dq.resize(index(b.rows() * b.p.hq * d));
  result.dk.resize(index(b.keys() * b.p.hkv * d));
  result.dv = result.dk;
  std::vector<std::vector<line_term>> of_dk(index(b.keys() * b.p.hkv)), of_dv = of_dk;
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t head = 0; head < b.p.hq; ++head) {
      const std::int64_t group = head / group_size, at = (row * b.p.hq + head) * d;
      const std::int64_t neighbour = group * group_size + (head + 1) % group_size;
      auto keys = b.read_keys(row, group, all);
      if (how.fault == training_fault::missing_key && row % 8 == 0 && keys.size() > 1) keys.pop_back();
      const std::int64_t d_at = how.fault == training_fault::d_of_neighbour_head ? (row * b.p.hq + neighbour) * d : at;
      const float big_d = how.fault == training_fault::no_d ? 0 : k.dot(b.d_out, d_at, handed.out, d_at, d);
      std::vector<line_term> terms;
      for (const std::int64_t j : keys) {
        const std::int64_t key = j * b.p.hkv + group;
        const float s = k.dot(b.q, at, b.k, key * d, d) * scale;
        const float p = k.exponential(s - handed.lse[index(row * b.p.hq + head)]);
        const float ds = operand(p * (k.dot(b.d_out, at, b.v, key * d, d) - big_d), how);
        terms.push_back({ds, key * d});
        if (how.fault == training_fault::missing_head && head % group_size == group_size - 1) continue;
        of_dk[index(key)].push_back({ds, at});
        of_dv[index(key)].push_back({operand(p, how), at});
      }
      add_up(k, terms, b.k, d, scale, how.grad, result.dq.data() + at);
    }
  for (std::size_t key = 0; key < of_dk.size(); ++key) {
    add_up(k, of_dk[key], b.q, d, scale, how.grad, result.dk.data() + key * index(d));
    add_up(k, of_dv[key], b.d_out, d, 1, how.grad, result.dv.data() + key * index(d));
  }
  return result;
}

emulated_kl run_kl(const training_batch& b, const emulation& how) {
  kernel k(how);
  const float scale = scale_of(b.p.softmax_scale, b.p.d), index_scale = scale_of(b.p.index_scale, b.p.di);
  std::int64_t rows = b.rows();
  if (how.fault == training_fault::mean_over_t_minus_1) --rows;
  if (how.fault == training_fault::mean_over_full_rows)
    for (std::int64_t row = 0; row < b.rows(); ++row)
      if (b.read_keys(row, 0, true).empty()) --rows;
  const float c = static_cast<float>(b.p.kl_coeff / static_cast<double>(rows * b.p.hkv));
  emulated_kl result;
  result.dq_idx.resize(index(b.rows() * b.p.hi * b.p.di));
  result.dk_idx.resize(index(b.keys() * b.p.di));
  std::vector<std::vector<line_term>> of_keys(index(b.keys()));
  std::vector<float> losses;
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t group = 0; group < b.p.hkv; ++group) {
      const auto keys = b.read_keys(row, group, b.p.kl_warm_up != 0);
      if (keys.empty()) continue;
      const std::int64_t q_at = (row * b.p.hi + group) * b.p.di;
      const std::int64_t heads = b.p.group() - (how.fault == training_fault::missing_head ? 1 : 0);
      std::vector<std::vector<float>> scores(index(heads));
      std::vector<float> index_scores, teacher(keys.size()), logits(keys.size());
      float lse = 0;
      for (const std::int64_t j : keys) {
        for (std::int64_t h = 0; h < heads; ++h)
          scores[index(h)].push_back(scale * k.dot(b.q, (row * b.p.hq + group * b.p.group() + h) * b.p.d, b.k,
                                                   (j * b.p.hkv + group) * b.p.d, b.p.d));
        if (!how.prescaled_index) {
          index_scores.push_back(index_scale * k.dot(b.q_idx, q_at, b.k_idx, j * b.p.di, b.p.di));
          continue;
        }
        std::vector<float> products;
        for (std::int64_t i = 0; i < b.p.di; ++i)
          products.push_back(rounded(index_scale * static_cast<float>(b.q_idx[q_at + i]), bf16) *
                             static_cast<float>(b.k_idx[j * b.p.di + i]));
        index_scores.push_back(k.sum(std::move(products)));
      }
      for (const auto& head : scores) {
        const auto p = k.softmax(head, lse);
        for (std::size_t j = 0; j < p.size(); ++j) {
          teacher[j] += p[j] / static_cast<float>(heads);
          logits[j] += head[j] / static_cast<float>(heads);
        }
      }
      if (how.fault == training_fault::mean_of_logits) teacher = k.softmax(logits, lse);
      const auto student = k.softmax(index_scores, lse);
      std::vector<line_term> terms;
      std::vector<float> row_loss;
      for (std::size_t j = 0; j < keys.size(); ++j) {
        if (teacher[j] > 0) row_loss.push_back(teacher[j] * (std::log(teacher[j]) - (index_scores[j] - lse)));
        const float ds = operand(c * (student[j] - teacher[j]), how);
        terms.push_back({ds, keys[j] * b.p.di});
        of_keys[index(keys[j])].push_back({ds, q_at});
      }
      losses.push_back(c * k.sum(std::move(row_loss)));
      add_up(k, terms, b.k_idx, b.p.di, index_scale, how.grad, result.dq_idx.data() + q_at);
    }
  for (std::size_t key = 0; key < of_keys.size(); ++key)
    add_up(k, of_keys[key], b.q_idx, b.p.di, index_scale, how.grad, result.dk_idx.data() + key * index(b.p.di));
  result.loss = k.sum(std::move(losses));
  return result;
}

limit_use use_of(const gradient& want, const std::vector<double>& got, const sum_error& err, double roundoff,
                 double exp_error, double largest_lse) {
  limit_use use;
  double squares = 0, along = 0, norm = 0, bound_along = 0, expected_along = 0;
  std::size_t judged = 0;
  std::vector<double> arithmetic;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double g = want.value[i], off = std::abs(got[i] - g), limit = limit_of(want, i, err).total();
    if (want.chain[i / index(want.channels)] == 0) {
      if (got[i] != 0) use.worst = std::numeric_limits<double>::infinity();
      continue;
    }
    if (off > 0) use.worst = std::max(use.worst, limit > 0 ? off / limit : std::numeric_limits<double>::infinity());
    const double s2 = expected_square(want, i, err);
    squares += off * off / s2;
    ++judged;
    arithmetic.push_back(std::pow(fine_limit(want, i, err) / 16, 2) / s2);
    along += got[i] * g;
    norm += g * g;
    bound_along += limit * std::abs(g);
    expected_along += s2 * g * g;
  }
  use.pooled = std::sqrt(squares / static_cast<double>(judged));
  std::ranges::sort(arithmetic);
  use.arithmetic = arithmetic[arithmetic.size() / 2];
  use.scale_off = std::abs(along / norm - 1);
  use.scale_limit = std::min(bound_along / norm, 2 * roundoff + 2 * exp_error + 4 * 0x1p-24 * largest_lse +
                                                     6 * std::sqrt(expected_along) / norm);
  return use;
}

}  // namespace msabench::reference::testing
