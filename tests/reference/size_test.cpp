// SPDX-License-Identifier: Apache-2.0
// The reference at the sizes that it is made for: its memory, and its results against the formulas in long double.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "m3_problem.h"
#include "reference/select.h"

namespace msabench::reference {
namespace {

using testing::m3_problem;
using testing::m3_shape;

constexpr std::int64_t million = 1 << 20;
constexpr double gigabyte = 1e9;
constexpr score_error every_term{1e-3, 2e-4, 1e-5, 3e-5, 1e-6, 2e-6, 3e-6, 4e-6};

// One of the four KV groups of M3, whose memory is that of the whole: groups of long rows come one after the other.
m3_shape one_group(std::int64_t kv_len) { return {.q_len = 1, .kv_len = kv_len, .hq = 16, .hkv = 1}; }

using real = long double;

struct plain_key {
  std::int64_t position;
  real score, magnitude, squares, weight, eta, e;
};

// Keys of the only row at the given positions, their scores and errors, for query head h of the only KV group.
std::vector<plain_key> plain_keys(const dense_inputs& in, const std::vector<std::int64_t>& positions, std::int64_t h,
                                  const score_error& err, attend_row& r) {
  std::vector<plain_key> keys;
  const std::int64_t d = in.p.d, page_size = in.p.page_size;
  const real scale = 1 / std::sqrt(static_cast<real>(d));
  std::vector<double> query, line(static_cast<std::size_t>(d));
  for (std::int64_t c = 0; c < d; ++c) query.push_back(in.q.at(0, h, c));
  real m = -INFINITY, sum = 0, eta_bar = 0, squares = 0;
  for (const std::int64_t j : positions) {
    plain_key key{j, 0, 0, 0, 0, 0, 0};
    const std::int64_t at = in.k.offset(in.block_table.int_at(0, j / page_size), 0, j % page_size);
    widen(in.k.data, in.k.desc.type, at, d, line.data());
    for (std::int64_t c = 0; c < d; ++c) {
      const real product = real{query[static_cast<std::size_t>(c)]} * line[static_cast<std::size_t>(c)];
      key.score += product;
      key.magnitude += std::abs(product);
      key.squares += product * product;
    }
    key.score *= scale, key.magnitude *= scale, key.squares *= scale * scale;
    m = std::max(m, key.score);
    keys.push_back(key);
  }
  for (const auto& key : keys) sum += std::exp(key.score - m);
  for (auto& key : keys) {
    const real size = std::abs(key.score);
    key.weight = std::exp(key.score - m) / sum;
    key.eta = std::expm1(err.per_magnitude * key.magnitude + err.per_score * size + err.constant +
                         err.per_size * (std::abs(key.score - m) + std::abs(m)));
    key.e = std::sqrt((err.var_score + err.var_size) * size * size + err.var_products * key.squares + err.var_constant);
    eta_bar += key.weight * key.eta;
    squares += key.weight * key.weight;
  }
  r.m = static_cast<double>(m), r.lse = static_cast<double>(m + std::log(sum));
  r.eta_bar = static_cast<double>(eta_bar), r.n_eff = static_cast<double>(1 / squares);
  return keys;
}

void expect_plain_channel(const dense_inputs& in, const std::vector<plain_key>& keys, const attend_row& got,
                          const attend_row& want, std::int64_t channel) {
  const auto value = [&](std::int64_t j) {
    return real{in.v.at(in.block_table.int_at(0, j / in.p.page_size), 0, j % in.p.page_size, channel)};
  };
  real o = 0, a = 0, dev = 0, q2 = 0, e1 = 0, e2 = 0, x = 0, e_squares = 0;
  for (const auto& key : keys) o += key.weight * value(key.position);
  for (const auto& key : keys) {
    const real v = value(key.position), u = std::abs(v - o);
    a += key.weight * std::abs(v);
    dev += key.weight * u;
    q2 += key.weight * key.weight * v * v;
    e1 += key.weight * key.eta * u;
    e2 += key.weight * key.weight * key.e * key.e * u * u;
    e_squares += key.weight * key.weight * key.e * key.e;
    x += std::max(std::abs(v), u);
  }
  const auto c = static_cast<std::size_t>(channel);
  const auto near = [&](double value_got, real value_want, real size, const char* what) {
    EXPECT_NEAR(value_got, static_cast<double>(value_want), static_cast<double>(1e-12L * size)) << what;
  };
  near(got.out[c], o, a, "out");
  near(got.a[c], a, a, "A");
  near(got.dev[c], dev, dev + a, "D");
  near(got.q2[c], q2, q2, "Q");
  near(got.e1[c], e1, e1 + want.eta_bar * a, "e1");
  near(std::sqrt(got.e2[c]), std::sqrt(e2), std::sqrt(e2) + std::sqrt(e_squares) * a, "sqrt e2");
  near(got.x[c], x, x, "x");
}

// One head of the only row, at some channels.
void expect_plain(const dense_inputs& in, const std::vector<std::int64_t>& positions,
                  const std::vector<attend_row>& rows) {
  const std::int64_t head = 5;
  const attend_row& got = rows[head];
  attend_row want;
  const auto keys = plain_keys(in, positions, head, every_term, want);
  ASSERT_EQ(got.n, std::ssize(positions));
  EXPECT_NEAR(got.m, want.m, 1e-12 * (1 + std::abs(want.m)));
  EXPECT_NEAR(got.lse, want.lse, 1e-12 * (1 + std::abs(want.lse)));
  EXPECT_NEAR(got.eta_bar, want.eta_bar, 1e-12 * want.eta_bar);
  EXPECT_NEAR(got.n_eff, want.n_eff, 1e-12 * want.n_eff);
  for (const std::int64_t channel : {0, 77, 127}) expect_plain_channel(in, keys, got, want, channel);
}

// Block scores of the only row for the only index head.
std::vector<double> plain_block_scores(const msa_inputs& in) {
  std::vector<double> query, scores, line(static_cast<std::size_t>(in.p.di));
  for (std::int64_t c = 0; c < in.p.di; ++c) query.push_back(in.q_idx.at(0, 0, c));
  for (std::int64_t j = 0; j < in.kv_lens.int_at(0); ++j) {
    const std::int64_t at = in.k_idx.offset(in.block_table_idx.int_at(0, j / in.p.page_size), j % in.p.page_size);
    widen(in.k_idx.data, in.k_idx.desc.type, at, in.p.di, line.data());
    real dot = 0;
    for (std::int64_t c = 0; c < in.p.di; ++c)
      dot += real{query[static_cast<std::size_t>(c)]} * line[static_cast<std::size_t>(c)];
    if (j % in.p.block == 0) scores.push_back(-INFINITY);
    scores.back() = std::max(scores.back(), static_cast<double>(dot / std::sqrt(static_cast<real>(in.p.di))));
  }
  return scores;
}

bool same_bits(const std::vector<attend_row>& a, const std::vector<attend_row>& b) {
  const auto bits = [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  };
  return std::ranges::equal(a, b, [&](const attend_row& x, const attend_row& y) {
    const auto channels = {&attend_row::out, &attend_row::a,  &attend_row::dev, &attend_row::q2,
                           &attend_row::e1,  &attend_row::e2, &attend_row::x};
    return x.n == y.n && bits(x.m, y.m) && bits(x.lse, y.lse) && bits(x.eta_bar, y.eta_bar) && bits(x.n_eff, y.n_eff) &&
           std::ranges::all_of(channels, [&](auto gauge) { return std::ranges::equal(x.*gauge, y.*gauge, bits); });
  });
}

// What `work` took beside what was held before.
template <class Work>
double peak_growth(const Work& work) {
  testing::reset_peak();
  const std::int64_t before = testing::resident_bytes();
  work();
  return static_cast<double>(testing::peak_bytes() - before);
}

TEST(reference_size, dense_at_a_million_keys_is_within_its_memory_and_equals_the_formulas) {
  const m3_problem problem(one_group(million));
  const dense_inputs in = problem.for_dense();
  std::vector<attend_row> rows;
  const double growth = peak_growth([&] { rows = dense(in, problem.all_rows(), every_term); });
  // Four times the keys and values of this group, and once its memory.
  EXPECT_LE(4 * static_cast<double>(problem.cache_bytes()) + growth, 6 * gigabyte);
  // It can't be less than three doubles for each of 16 heads and 2^20 keys: a growth that was not seen is no success.
  EXPECT_GE(growth, 3 * 8 * 16 * static_cast<double>(million));

  std::vector<std::int64_t> positions(static_cast<std::size_t>(million));
  std::iota(positions.begin(), positions.end(), 0);
  expect_plain(in, positions, rows);
}

TEST(reference_size, msa_at_a_million_keys_is_within_its_memory_and_equals_the_formulas) {
  const m3_problem problem(one_group(million));
  const msa_inputs in = problem.for_msa();
  msa_rows rows;
  const double growth =
      peak_growth([&] { rows = msa(in, problem.all_rows(), {.per_magnitude = 1e-6}, every_term, every_term); });
  // As if the other three groups took as much once more.
  EXPECT_LE(
      4 * static_cast<double>(problem.cache_bytes()) + static_cast<double>(problem.index_cache_bytes()) + 4 * growth,
      6 * gigabyte);

  const auto scores = plain_block_scores(in);
  ASSERT_EQ(rows.index[0].scores.value.size(), scores.size());
  for (std::size_t b = 0; b < scores.size(); ++b) EXPECT_NEAR(rows.index[0].scores.value[b], scores[b], 1e-13) << b;
  const auto ids = select_row(scores, std::ssize(scores), in.p.topk, in.p.local_blocks, in.p.init_blocks);
  EXPECT_EQ(rows.index[0].ids, ids);
  std::vector<std::int64_t> positions;
  for (const std::int64_t b : ids)
    for (std::int64_t j = 0; j < in.p.block; ++j) positions.push_back(b * in.p.block + j);
  expect_plain(problem.for_dense(), positions, rows.attend);
}

TEST(reference_size, attend_takes_no_more_than_its_results) {
  const m3_problem problem({.q_len = 512, .kv_len = 512});
  std::vector<attend_row> rows;
  const double growth = peak_growth([&] { rows = attend(problem.for_attend(), problem.all_rows(), every_term); });
  const double results = static_cast<double>(rows.size()) * (sizeof(attend_row) + 7 * (128 * sizeof(double) + 16));
  EXPECT_LE(growth, 1.1 * results + 0.05 * gigabyte);  // and a few arrays of 16 heads x 512 keys for each thread
  EXPECT_LE(growth * 2048 / 512, 6 * gigabyte);
  EXPECT_GE(growth, 0.5 * results);  // less where the process held freed memory before
}

TEST(reference_size, threads_change_no_bit) {
  const m3_problem one_token(one_group(32 * 1024 + 777)), tokens({.q_len = 16, .kv_len = 3000, .hq = 32, .hkv = 2});
  std::vector<std::vector<attend_row>> want;
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    std::vector<std::vector<attend_row>> got{
        dense(one_token.for_dense(), one_token.all_rows(), every_term),
        dense(tokens.for_dense(), tokens.all_rows(), every_term),
        attend(tokens.for_attend(), tokens.all_rows(), every_term),
        msa(one_token.for_msa(), one_token.all_rows(), {.per_magnitude = 1e-6}, every_term, every_term).attend,
    };
    if (want.empty()) want = got;
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], want[i])) << i << " " << threads;
  }
  omp_set_num_threads(omp_get_num_procs());
}

}  // namespace
}  // namespace msabench::reference
