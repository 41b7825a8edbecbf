// SPDX-License-Identifier: Apache-2.0
// What attention of the case would have handed to its backward pass: out, rounded to its type, and lse in fp32, of the
// queries, keys and values as stored; and a gradient d_out that is independent of them, or of family carry: there it is
// 1, -1 and one 1 and a rest, which sums in 16 bits lose. exp and log are made of operations that round alike
// everywhere, so that the tensors are the same on every machine.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/tensor_view.h"
#include "inputs/families/family.h"
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

// d_out of family carry. Queries are zero, so that a key weighs 1/n for a row of n keys, and dv is a sum over rows and
// heads of d_out / n. Of rows whose n is a power of two, 1/n is exact in every format; other rows have d_out 0.
//   heads: the first half of each group's heads has 1, the last of them 1 and a rest, the other half -1
//   all:   the first half of the rows of a sequence, for a KV head, the last of them and the other half likewise
// Signs alternate by channel and by KV head. The rest is the last digit of 1 in the storage type of 16 bits.
class carried_gradient {
 public:
  carried_gradient(const fill_job& job, const selection& chosen)
      : job_(job), chosen_(chosen), p_(job.set.agreed), by_row_(job.definition.variant == "all") {
    roles_.assign(static_cast<std::size_t>(job.rows.total_q() * p_.hkv), role::none);
    for (std::int64_t b = 0; by_row_ && b < job.rows.size(); ++b)
      for (std::int64_t head = 0; head < p_.hkv; ++head) share_out(b, head);
  }

  // Query heads of one row, packed [Hq][d].
  void write(std::int64_t row, std::byte* to) const {
    for (std::int64_t head = 0; head < p_.hq; ++head) {
      const std::int64_t kv_head = head / p_.group();
      const double value = value_of(role_of(row, kv_head, head % p_.group()));
      for (std::int64_t c = 0; c < p_.d; ++c)
        store(to, p_.out, head * p_.d + c, (c + kv_head) % 2 == 0 ? value : -value);
    }
  }

 private:
  enum class role { none, plus, rest, minus };
  static role role_in(std::int64_t i, std::int64_t count) {
    const std::int64_t half = count / 2;
    return i + 1 == half ? role::rest : i < half ? role::plus : i >= count - half ? role::minus : role::none;
  }

  bool counts(std::int64_t row, std::int64_t kv_head) const {
    const std::int64_t position = job_.rows.rows()[static_cast<std::size_t>(row)].position;
    std::int64_t keys = 0;
    for (const std::int64_t block : chosen_.blocks(row, kv_head))
      keys += std::clamp<std::int64_t>(position + 1 - block * p_.block, 0, p_.block);
    return std::has_single_bit(static_cast<std::uint64_t>(keys));
  }

  void share_out(std::int64_t sequence, std::int64_t kv_head) {
    std::vector<std::int64_t> rows;
    for (std::int64_t row = job_.rows.first_row(sequence); row < job_.rows.first_row(sequence + 1); ++row)
      if (counts(row, kv_head)) rows.push_back(row);
    for (std::size_t i = 0; i < rows.size(); ++i)
      roles_[cell(rows[i], kv_head)] = role_in(static_cast<std::int64_t>(i), std::ssize(rows));
  }

  std::size_t cell(std::int64_t row, std::int64_t kv_head) const {
    return static_cast<std::size_t>(row * p_.hkv + kv_head);
  }
  role role_of(std::int64_t row, std::int64_t kv_head, std::int64_t member) const {
    if (by_row_) return roles_[cell(row, kv_head)];
    return counts(row, kv_head) ? role_in(member, p_.group()) : role::none;
  }
  double value_of(role of) const {
    switch (of) {
      case role::plus:
        return 1;
      case role::rest:
        return p_.out == fp16 ? 1 + 0x1p-10 : 1 + 0x1p-7;
      case role::minus:
        return -1;
      case role::none:
        break;
    }
    return 0;
  }

  const fill_job& job_;
  const selection& chosen_;
  const problem& p_;
  bool by_row_;
  std::vector<role> roles_;  // [T][Hkv]; of variant all
};

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

  // All query heads of one KV head at one row. Each key and value is widened once for all of them.
  void fill(std::int64_t row, std::int64_t kv_head) const {
    const std::vector<std::int64_t> keys = keys_of(row, kv_head);
    const auto group = static_cast<std::size_t>(p_.group()), d = static_cast<std::size_t>(p_.d);
    const double scale = p_.softmax_scale != 0 ? p_.softmax_scale : 1 / std::sqrt(static_cast<double>(p_.d));
    std::vector<double> line(d), queries(d * group);  // [d][G], so that the dots of all heads go on at the same time
    for (std::size_t g = 0; g < group; ++g) {
      load(q_, row, head_of(kv_head, g), line);
      for (std::size_t c = 0; c < d; ++c) queries[c * group + g] = line[c];
    }
    std::vector<double> scores(keys.size() * group);
    std::vector<double> largest(group, -std::numeric_limits<double>::infinity()), sums(group), means(group * d);
    for (std::size_t j = 0; j < keys.size(); ++j) {
      load(k_, keys[j], kv_head, line);
      double* const dots = &scores[j * group];
      for (std::size_t c = 0; c < d; ++c)
        for (std::size_t g = 0; g < group; ++g) dots[g] += queries[c * group + g] * line[c];
      for (std::size_t g = 0; g < group; ++g) largest[g] = std::max(largest[g], dots[g] *= scale);
    }
    for (std::size_t j = 0; j < keys.size(); ++j) {
      load(v_, keys[j], kv_head, line);
      for (std::size_t g = 0; g < group; ++g) {
        const double weight = exp_of(scores[j * group + g] - largest[g]);
        double* const mean = &means[g * d];
        for (std::size_t c = 0; c < d; ++c) mean[c] += weight * line[c];
        sums[g] += weight;
      }
    }
    const auto &o = out_.desc.strides, &l = lse_.desc.strides;
    for (std::size_t g = 0; g < group; ++g) {
      const std::int64_t head = head_of(kv_head, g);
      for (std::size_t c = 0; c < d; ++c)
        store(out_.region->data(), out_.desc.type, row * o[0] + head * o[1] + static_cast<std::int64_t>(c),
              keys.empty() ? 0 : means[g * d + c] / sums[g]);
      store(lse_.region->data(), fp32, row * l[0] + head * l[1],
            keys.empty() ? largest[g] : largest[g] + log_of(sums[g]));
    }
  }

 private:
  std::int64_t head_of(std::int64_t kv_head, std::size_t member) const {
    return kv_head * p_.group() + static_cast<std::int64_t>(member);
  }

  // Rows of k and v that the row attends to.
  std::vector<std::int64_t> keys_of(std::int64_t row, std::int64_t kv_head) const {
    const batch_row& place = job_.rows.rows()[static_cast<std::size_t>(row)];
    std::vector<std::int64_t> keys;
    for (const std::int64_t block : chosen_.blocks(row, kv_head))
      for (std::int64_t j = block * p_.block; j < std::min((block + 1) * p_.block, place.position + 1); ++j)
        keys.push_back(job_.rows.first_key(place.sequence) + j);
    return keys;
  }

  void load(const tensor_view& from, std::int64_t line, std::int64_t head, std::vector<double>& to) const {
    widen(from.data, from.desc.type, from.offset(line, head), p_.d, to.data());
  }

  const fill_job& job_;
  const selection& chosen_;
  const problem& p_;
  tensor_view q_, k_, v_;
  buffer &out_, &lse_;
};

void fill_backward(const fill_job& job, const selection& chosen) {
  fill_attention(job, chosen);
  if (job.definition.family == "carry") {
    const carried_gradient values(job, chosen);
    fill_queries(job, slot::d_out, 1, [&](std::int64_t row, std::byte* packed) { values.write(row, packed); });
  } else {
    fill_queries(job, slot::d_out, 1, {});
  }
  buffer &out = job.input(slot::out), &lse = job.input(slot::lse);
  if (!out.region) return;
  for (buffer* b : {&out, &lse}) prepare_whole(*b, job.definition.seed);
  if (job.forward == forward_results::left_to_caller) return;
  const forward_pass forward(job, chosen);
  const std::int64_t rows = job.rows.total_q(), heads = job.set.agreed.hkv;
  const bool much = cost_triples(job.definition) > 10'000;
#pragma omp parallel for schedule(dynamic) collapse(2) if (much)
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < heads; ++head) forward.fill(row, head);
}

}  // namespace

void fill_attend_backward(const fill_job& job) {
  const case_spec& c = job.definition;
  const selection chosen(c, job.set.agreed, job.rows, attend_family_of(c).shares_blocks_variant == c.variant);
  fill_backward(job, chosen);
  fill_ids(job, chosen);
}

void fill_dense_backward(const fill_job& job) {
  fill_backward(job, selection(job.definition, job.set.agreed, job.rows, false));
}

}  // namespace msabench
