// SPDX-License-Identifier: Apache-2.0
// What attention of the case would have handed to its backward pass: out, rounded to its type, and lse in fp32, of the
// queries, keys and values as stored; and a gradient d_out that is independent of them. exp and log are made of
// operations that round alike everywhere, so that the tensors are the same on every machine.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/tensor_view.h"
#include "inputs/operators.h"
#include "inputs/selection.h"
#include "inputs/token_fill.h"

namespace msabench {

namespace {

// ln 2, of which the first part times any exponent is exact.
constexpr double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;

double exp_of(double x) {
  if (x < -700) return 0;
  const double k = std::floor(x * 0x1.71547652b82fep+0 + 0.5);
  const double r = (x - k * ln2_high) - k * ln2_low;
  double sum = 1;
  for (int n = 14; n > 0; --n) sum = 1 + r * sum / n;
  return std::ldexp(sum, static_cast<int>(k));
}

double log_of(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < 0.7071) {
    mantissa *= 2;
    --exponent;
  }
  const double t = (mantissa - 1) / (mantissa + 1);
  double sum = 0;
  for (int n = 23; n > 0; n -= 2) sum = sum * t * t + 1.0 / n;
  return exponent * ln2_high + (exponent * ln2_low + 2 * t * sum);
}

class forward_pass {
 public:
  forward_pass(const fill_job& job, const selection& chosen)
      : job_(job),
        chosen_(chosen),
        p_(job.set.agreed),
        q_(job.input(slot::q).view()),
        k_(job.input(slot::k).view()),
        v_(job.input(slot::v).view()),
        out_(job.input(slot::out)),
        lse_(job.input(slot::lse)) {}

  // All query heads of one KV head at one row.
  void fill(std::int64_t row, std::int64_t kv_head) const {
    const std::vector<std::int64_t> keys = keys_of(row, kv_head);
    for (std::int64_t head = kv_head * p_.group(); head < (kv_head + 1) * p_.group(); ++head)
      fill_head(row, head, kv_head, keys);
  }

 private:
  // Rows of k and v that the row attends to.
  std::vector<std::int64_t> keys_of(std::int64_t row, std::int64_t kv_head) const {
    const batch_row& place = job_.rows.rows()[static_cast<std::size_t>(row)];
    std::vector<std::int64_t> keys;
    for (const std::int64_t block : chosen_.blocks(row, kv_head))
      for (std::int64_t j = block * p_.block; j < std::min((block + 1) * p_.block, place.position + 1); ++j)
        keys.push_back(job_.rows.first_key(place.sequence) + j);
    return keys;
  }

  std::vector<double> loaded(const tensor_view& from, std::int64_t line, std::int64_t head) const {
    std::vector<double> values(static_cast<std::size_t>(p_.d));
    widen(from.data, from.desc.type, from.offset(line, head), p_.d, values.data());
    return values;
  }

  void fill_head(std::int64_t row, std::int64_t head, std::int64_t kv_head,
                 const std::vector<std::int64_t>& keys) const {
    const auto query = loaded(q_, row, head);
    const double scale = p_.softmax_scale != 0 ? p_.softmax_scale : 1 / std::sqrt(static_cast<double>(p_.d));
    std::vector<double> scores;
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const std::int64_t key : keys) {
      const auto k = loaded(k_, key, kv_head);
      double dot = 0;
      for (std::size_t c = 0; c < k.size(); ++c) dot += query[c] * k[c];
      scores.push_back(scale * dot);
      largest = std::max(largest, scores.back());
    }
    std::vector<double> mean(query.size());
    for (std::size_t j = 0; j < keys.size(); ++j) {
      const double weight = exp_of(scores[j] - largest);
      const auto v = loaded(v_, keys[j], kv_head);
      for (std::size_t c = 0; c < v.size(); ++c) mean[c] += weight * v[c];
      sum += weight;
    }
    const auto& o = out_.desc.strides;
    for (std::size_t c = 0; c < mean.size(); ++c)
      store(out_.region->data(), out_.desc.type, row * o[0] + head * o[1] + static_cast<std::int64_t>(c),
            keys.empty() ? 0 : mean[c] / sum);
    const auto& l = lse_.desc.strides;
    store(lse_.region->data(), fp32, row * l[0] + head * l[1], keys.empty() ? largest : largest + log_of(sum));
  }

  const fill_job& job_;
  const selection& chosen_;
  const problem& p_;
  tensor_view q_, k_, v_;
  buffer &out_, &lse_;
};

void fill_backward(const fill_job& job, const selection& chosen) {
  fill_attention(job, chosen);
  fill_queries(job, slot::d_out, 1, [](std::int64_t, std::byte*) {});
  buffer &out = job.input(slot::out), &lse = job.input(slot::lse);
  if (!out.region) return;
  for (buffer* b : {&out, &lse}) prepare_whole(*b, job.definition.seed);
  const forward_pass forward(job, chosen);
  const std::int64_t rows = job.rows.total_q(), heads = job.set.agreed.hkv;
  const bool much = cost_triples(job.definition) > 10'000;
#pragma omp parallel for schedule(dynamic) collapse(2) if (much)
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < heads; ++head) forward.fill(row, head);
}

}  // namespace

void fill_attend_backward(const fill_job& job) {
  const selection chosen(job.definition, job.set.agreed, job.rows, false);
  fill_backward(job, chosen);
  fill_ids(job, chosen);
}

void fill_dense_backward(const fill_job& job) {
  fill_backward(job, selection(job.definition, job.set.agreed, job.rows, false));
}

}  // namespace msabench
