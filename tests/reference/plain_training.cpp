// SPDX-License-Identifier: Apache-2.0
// The plain formulas of training_batch.h: nothing here but loops over rows, heads, keys and channels.
#include <algorithm>
#include <cmath>

#include "training_batch.h"

namespace msabench::reference::testing {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

struct score {
  real s = 0, magnitude = 0;
};
score product(const stored& a, std::int64_t a_at, const stored& b, std::int64_t b_at, std::int64_t channels,
              real scale) {
  score x;
  for (std::int64_t c = 0; c < channels; ++c) {
    const real term = scale * a[a_at + c] * b[b_at + c];
    x.s += term;
    x.magnitude += std::abs(term);
  }
  return x;
}

struct softmax {
  std::vector<real> p, ln, theta, error;
  real lse = 0;
};
softmax weights_of(const std::vector<score>& scores, const weight_error& err, const normaliser_error& normaliser) {
  softmax x;
  real m = scores[0].s, sum = 0, inherited = 0, eta_bar = 0;
  for (const auto& each : scores) m = std::max(m, each.s);
  for (const auto& each : scores) sum += std::exp(each.s - m);
  x.lse = m + std::log(sum);
  const auto theta = [&](const score& each) {
    return err.per_magnitude * each.magnitude + err.per_score * std::abs(each.s) + err.constant +
           err.per_size * (std::abs(each.s) + std::abs(x.lse));
  };
  for (const auto& each : scores) eta_bar += std::exp(each.s - m) / sum * std::expm1(theta(each));
  if (normaliser.share != 0) {
    const std::int64_t n = std::ssize(scores);
    const std::int64_t chain = normaliser.chain != 0
                                   ? std::min(n, normaliser.chain)
                                   : std::min<std::int64_t>(n, std::min<std::int64_t>(n, 128) + (n + 127) / 128);
    const real ku = static_cast<real>(chain) * normaliser.roundoff;
    inherited = normaliser.share * (std::log1p(eta_bar) + ku / (1 - ku) + normaliser.log);
  }
  for (const auto& each : scores) {
    x.p.push_back(std::exp(each.s - m) / sum);
    x.ln.push_back(each.s - x.lse);
    x.theta.push_back(theta(each) + inherited);
    x.error.push_back(x.p.back() * std::expm1(x.theta.back()) + err.underflow);
  }
  return x;
}

real scale_of(double asked, std::int32_t dim) { return asked != 0 ? real{asked} : 1 / std::sqrt(real{1.0} * dim); }

// One term w x of an element.
struct term {
  real w, error, fine, square, size;
};
void add(plain_gradient& g, std::int64_t at, const term& t, real x, real scale) {
  const std::size_t i = index(at);
  g.value[i] += scale * t.w * x;
  g.magnitude[i] += scale * std::abs(t.w * x);
  g.error[i] += scale * t.error * std::abs(x);
  g.fine_error[i] += scale * t.fine * std::abs(x);
  g.spread[i] += scale * scale * t.square * x * x;
  g.size[i] += scale * t.size * std::abs(x);
}

struct head_row {
  const training_batch& b;
  std::int64_t row, head, group;
  std::vector<std::int64_t> keys;

  std::vector<score> scores() const {
    std::vector<score> all;
    for (const std::int64_t j : keys)
      all.push_back(product(b.q, (row * b.p.hq + head) * b.p.d, b.k, (j * b.p.hkv + group) * b.p.d, b.p.d,
                            scale_of(b.p.softmax_scale, b.p.d)));
    return all;
  }
};

void differentiate(const head_row& at, const backward_error& err, plain_backward_result& result) {
  const training_batch& b = at.b;
  const std::int64_t d = b.p.d, q_at = (at.row * b.p.hq + at.head) * d;
  const real scale = scale_of(b.p.softmax_scale, b.p.d), fine = err.sums.fine;
  const softmax soft = weights_of(at.scores(), err.weight, {});
  result.lse[index(at.row * b.p.hq + at.head)] = soft.lse;
  const auto key_at = [&](std::size_t j) { return (at.keys[j] * b.p.hkv + at.group) * d; };

  real big_d = 0, z = 0, z2 = 0;
  for (std::int64_t c = 0; c < d; ++c) {
    real o = 0;
    for (std::size_t j = 0; j < at.keys.size(); ++j) o += soft.p[j] * b.v[key_at(j) + c];
    const real x = b.d_out[q_at + c] * o;
    big_d += x, z += std::abs(x), z2 += x * x;
  }
  std::vector<real> mean_key(index(d));
  for (std::size_t j = 0; j < at.keys.size(); ++j) {
    const real p = soft.p[j], eta = std::expm1(soft.theta[j]);
    const score dp = product(b.d_out, q_at, b.v, key_at(j), d, 1);
    const real away = dp.s - big_d;
    const auto error = [&](real u_ds, real u_out) {
      const real gamma = err.products, from_p = p * (1 + eta) + err.weight.underflow;
      return p * (eta + u_ds + 2 * fine) * std::abs(away) + err.weight.underflow * (1 + u_ds) * std::abs(away) +
             from_p * (1 + u_ds) * (gamma * dp.magnitude + (u_out + gamma) * z) + err.omega_ds;
    };
    const real ds = p * away;
    const term common{ds, error(err.u_ds, err.u_out), error(fine, fine),
                      (err.u_ds * ds * err.u_ds * ds + real{err.omega_ds} * err.omega_ds) / 3, p * (dp.magnitude + z)};
    term with_d = common;
    with_d.square += real{err.u_out} * err.u_out / 3 * p * p * z2;
    const real p_error = p * eta + err.weight.underflow + err.omega_p;
    const term of_p{p, p_error + err.u_p * p, p_error + fine * p,
                    (err.u_p * p * err.u_p * p + real{err.omega_p} * err.omega_p) / 3, p};
    for (std::int64_t c = 0; c < d; ++c) {
      add(result.dq, q_at + c, common, b.k[key_at(j) + c], scale);
      add(result.dk, key_at(j) + c, with_d, b.q[q_at + c], scale);
      add(result.dv, key_at(j) + c, of_p, b.d_out[q_at + c], 1);
      mean_key[index(c)] += p * b.k[key_at(j) + c];
    }
  }
  for (std::int64_t c = 0; c < d; ++c)
    result.dq.spread[index(q_at + c)] +=
        scale * scale * err.u_out * err.u_out / 3 * z2 * mean_key[index(c)] * mean_key[index(c)];
}

struct student_row {
  std::vector<softmax> heads;
  softmax index_branch;
  std::vector<std::int64_t> keys;
};
student_row softmaxes(const training_batch& b, std::int64_t row, std::int64_t group, const kl_error& err) {
  student_row x;
  x.keys = b.read_keys(row, group, b.p.kl_warm_up != 0);
  if (x.keys.empty()) return x;
  for (std::int64_t head = group * b.p.group(); head < (group + 1) * b.p.group(); ++head)
    x.heads.push_back(weights_of(head_row{b, row, head, group, x.keys}.scores(), err.weight, err.normaliser));
  std::vector<score> scores;
  for (const std::int64_t j : x.keys)
    scores.push_back(product(b.q_idx, (row * b.p.hi + group) * b.p.di, b.k_idx, j * b.p.di, b.p.di,
                             scale_of(b.p.index_scale, b.p.di)));
  x.index_branch = weights_of(scores, err.index_weight, err.normaliser);
  return x;
}

}  // namespace

plain_backward_result plain_backward(const training_batch& b, bool all, const backward_error& err) {
  const std::size_t per_key = index(b.keys() * b.p.hkv * b.p.d);
  plain_backward_result result{
      plain_gradient(index(b.rows() * b.p.hq * b.p.d)), plain_gradient(per_key), plain_gradient(per_key), {}};
  result.lse.assign(index(b.rows() * b.p.hq), -HUGE_VALL);
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t head = 0; head < b.p.hq; ++head) {
      const std::int64_t group = head / b.p.group();
      const head_row at{b, row, head, group, b.read_keys(row, group, all)};
      if (!at.keys.empty()) differentiate(at, err, result);
    }
  return result;
}

plain_kl_result plain_kl(const training_batch& b, const kl_error& err) {
  plain_kl_result result{
      0, 0, 0, 0, plain_gradient(index(b.rows() * b.p.hi * b.p.di)), plain_gradient(index(b.keys() * b.p.di))};
  const real c = real{b.p.kl_coeff} / static_cast<real>(std::max<std::int64_t>(b.rows(), 1) * b.p.hkv);
  const real fine = err.sums.fine, heads = b.p.group(), scale = scale_of(b.p.index_scale, b.p.di);
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t group = 0; group < b.p.hkv; ++group) {
      const student_row at = softmaxes(b, row, group, err);
      for (std::size_t j = 0; j < at.keys.size(); ++j) {
        real p = 0, error = 0;
        for (const softmax& head : at.heads) p += head.p[j] / heads, error += head.error[j] / heads;
        error += err.mean * p;
        const softmax& own = at.index_branch;
        // Beyond the range of long double a term is 0 to any accuracy.
        const real ln = p > 0 ? std::log(p) : 0, ratio = p > 0 ? ln - own.ln[j] : 0;
        result.loss += c * p * ratio;
        result.teacher += c * error * (std::abs(ratio) + 1);
        result.student += c * p * (own.theta[j] + 2 * fine * std::abs(ln));
        result.magnitude += c * p * std::abs(ratio);
        const real away = own.p[j] - p, ds = c * away, main = c * (own.error[j] + error);
        const term t{ds, main + c * (err.u_ds + fine) * std::abs(away) + err.omega_ds,
                     main + c * 2 * fine * std::abs(away) + err.omega_ds,
                     (err.u_ds * ds * err.u_ds * ds + real{err.omega_ds} * err.omega_ds) / 3, c * (own.p[j] + p)};
        const std::int64_t q_at = (row * b.p.hi + group) * b.p.di, k_at = at.keys[j] * b.p.di;
        for (std::int64_t i = 0; i < b.p.di; ++i) {
          add(result.dq_idx, q_at + i, t, b.k_idx[k_at + i], scale);
          add(result.dk_idx, k_at + i, t, b.q_idx[q_at + i], scale);
        }
      }
    }
  return result;
}

real plain_objective(const training_batch& b, bool all) {
  real sum = 0;
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t head = 0; head < b.p.hq; ++head) {
      const std::int64_t group = head / b.p.group();
      const head_row at{b, row, head, group, b.read_keys(row, group, all)};
      if (at.keys.empty()) continue;
      const softmax soft = weights_of(at.scores(), {}, {});
      for (std::size_t j = 0; j < at.keys.size(); ++j)
        sum += soft.p[j] *
               product(b.d_out, (row * b.p.hq + head) * b.p.d, b.v, (at.keys[j] * b.p.hkv + group) * b.p.d, b.p.d, 1).s;
    }
  return sum;
}

real plain_loss(const training_batch& b) { return plain_kl(b, {}).loss; }

}  // namespace msabench::reference::testing
