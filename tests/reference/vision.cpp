// SPDX-License-Identifier: Apache-2.0
#include "vision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "batch.h"

namespace msabench::reference::testing {

vision::vision(const vision_spec& spec) : spec_(spec) {
  p_.hq = p_.hkv = spec_.heads;
  p_.d = spec_.d;
  p_.vit_window = spec_.window;
  p_.rope_theta = spec_.theta;
  for (const auto& [t, h, w] : spec_.items) tokens_ += std::int64_t{t} * h * w;
  const std::int64_t line = std::int64_t{spec_.heads} * spec_.d;
  for (auto* bytes : {&q_, &k_, &v_}) bytes->resize(static_cast<std::size_t>(tokens_ * line * size_bytes(spec_.type)));
  std::int64_t token = 0;
  for (const auto& [t, h, w] : spec_.items)
    for (std::int64_t i = 0; i < std::int64_t{t} * h * w; ++i, ++token)
      for (std::int64_t c = 0; c < line; ++c) {
        // The sides of the item stand for the item itself, so that a permutation moves its values along.
        const auto index = static_cast<std::uint64_t>((((i * 64 + t) * 64 + h) * 64 + w) * 4096 + c);
        const auto at = token * line + c;
        store(q_.data(), spec_.type, at, spec_.query_size * hashed_normal(spec_.seed, 1, index));
        store(k_.data(), spec_.type, at, hashed_normal(spec_.seed, 2, index));
        store(v_.data(), spec_.type, at, hashed_normal(spec_.seed, 3, index));
      }
}

tensor_view vision::view(const std::vector<std::byte>& bytes) const {
  return {bytes.data(), packed(spec_.type, {tokens_, spec_.heads, spec_.d})};
}

std::vector<std::int64_t> vision::all_rows() const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(tokens_));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
  return rows;
}

plain_place place_by_division(const vision_spec& spec, std::int64_t token) {
  plain_place at;
  for (const auto& [t, h, w] : spec.items) {
    const std::int64_t patch = std::int64_t{h} * w, window = spec.window == 0 ? t : spec.window, m = spec.merge;
    if (token >= t * patch) {
      token -= t * patch;
      at.first += t * patch;
      at.segment += (t + window - 1) / window;
      ++at.item;
      continue;
    }
    const std::int64_t frame = token / patch, inside = token % patch, segment = frame / window;
    const std::int64_t block = inside / (m * m), of_block = inside % (m * m), columns = w / m;
    at.segment += segment;
    at.first += segment * window * patch;
    at.tokens = std::min(window, t - segment * window) * patch;
    at.position = {frame % window, block / columns * m + of_block / m, block % columns * m + of_block % m};
    return at;
  }
  ADD_FAILURE() << "no token " << token;
  return at;
}

std::vector<long double> plain_rotation(const vision_spec& spec, const tensor_view& x, std::int64_t token,
                                        std::int64_t head) {
  std::vector<long double> y;
  for (std::int64_t c = 0; c < spec.d; ++c) y.push_back(x.at(token, head, c));
  const auto position = place_by_division(spec, token).position;
  const std::int64_t axis = 2 * (spec.d / 3 / 2), half = 3 * axis / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const std::int64_t of_axis = i % (axis / 2);
    const long double frequency =
        std::pow(static_cast<long double>(spec.theta != 0 ? spec.theta : 1e4), -2.0L * of_axis / axis);
    const long double angle = static_cast<long double>(position[static_cast<std::size_t>(i / (axis / 2))]) * frequency;
    const long double low = x.at(token, head, i), high = x.at(token, head, i + half);
    y[static_cast<std::size_t>(i)] = low * std::cos(angle) - high * std::sin(angle);
    y[static_cast<std::size_t>(i + half)] = high * std::cos(angle) + low * std::sin(angle);
  }
  return y;
}

attend_row plain_attention(const std::vector<long double>& q, const std::vector<std::vector<long double>>& k,
                           const std::vector<std::vector<long double>>& v, long double scale, const score_error& err) {
  using real = long double;
  const std::size_t n = k.size(), d = q.size();
  std::vector<real> score(n), size(n), squares(n), weight(n), eta(n), e(n);
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t c = 0; c < d; ++c) {
      const real product = scale * q[c] * k[j][c];
      score[j] += product, size[j] += std::abs(product), squares[j] += product * product;
    }
  const real m = *std::ranges::max_element(score);
  real sum = 0, eta_bar = 0, weight_squares = 0;
  for (const real s : score) sum += std::exp(s - m);
  for (std::size_t j = 0; j < n; ++j) {
    const real s = std::abs(score[j]);
    weight[j] = std::exp(score[j] - m) / sum;
    eta[j] = std::expm1(err.per_magnitude * size[j] + err.per_score * s + err.constant +
                        err.per_size * (std::abs(score[j] - m) + std::abs(m)));
    e[j] = std::sqrt((err.var_score + err.var_size) * s * s + err.var_products * squares[j] + err.var_constant);
    eta_bar += weight[j] * eta[j], weight_squares += weight[j] * weight[j];
  }
  attend_row r;
  r.n = static_cast<std::int64_t>(n);
  r.m = static_cast<double>(m), r.lse = static_cast<double>(m + std::log(sum));
  r.eta_bar = static_cast<double>(eta_bar), r.n_eff = static_cast<double>(1 / weight_squares);
  for (std::size_t c = 0; c < d; ++c) {
    real o = 0, a = 0, dev = 0, q2 = 0, e1 = 0, e2 = 0, x = 0;
    for (std::size_t j = 0; j < n; ++j) o += weight[j] * v[j][c];
    for (std::size_t j = 0; j < n; ++j) {
      const real value = std::abs(v[j][c]), u = std::abs(v[j][c] - o), w = weight[j];
      a += w * value, dev += w * u, q2 += w * w * value * value, e1 += w * eta[j] * u;
      e2 += w * w * e[j] * e[j] * u * u, x += std::max(value, u);
    }
    const auto put = [](std::vector<double>& to, real value) { to.push_back(static_cast<double>(value)); };
    put(r.out, o), put(r.a, a), put(r.dev, dev), put(r.q2, q2), put(r.e1, e1), put(r.e2, e2), put(r.x, x);
  }
  return r;
}

void expect_near_row(const attend_row& got, const attend_row& want, double tolerance) {
  const std::string where = "row " + std::to_string(got.row) + " head " + std::to_string(got.head);
  EXPECT_EQ(got.n, want.n) << where;
  EXPECT_NEAR(got.m, want.m, tolerance * (1 + std::abs(want.m))) << where;
  EXPECT_NEAR(got.lse, want.lse, tolerance * (1 + std::abs(want.lse))) << where;
  EXPECT_NEAR(got.eta_bar, want.eta_bar, tolerance * want.eta_bar) << where;
  EXPECT_NEAR(got.n_eff, want.n_eff, tolerance * want.n_eff) << where;
  ASSERT_EQ(got.out.size(), want.out.size()) << where;
  for (std::size_t c = 0; c < want.out.size(); ++c) {
    // o and what is measured from it cancel down from the size of A.
    const double size = want.a[c];
    EXPECT_NEAR(got.out[c], want.out[c], tolerance * size) << where << " channel " << c;
    EXPECT_NEAR(got.a[c], want.a[c], tolerance * size) << where << " channel " << c;
    EXPECT_NEAR(got.dev[c], want.dev[c], tolerance * size) << where << " channel " << c;
    EXPECT_NEAR(got.q2[c], want.q2[c], tolerance * want.q2[c]) << where << " channel " << c;
    EXPECT_NEAR(got.e1[c], want.e1[c], tolerance * (want.e1[c] + want.eta_bar * size)) << where << " channel " << c;
    EXPECT_NEAR(got.x[c], want.x[c], tolerance * want.x[c]) << where << " channel " << c;
    EXPECT_NEAR(got.e2[c], want.e2[c], tolerance * (want.e2[c] + size * size)) << where << " channel " << c;
  }
}

}  // namespace msabench::reference::testing
