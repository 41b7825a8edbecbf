// SPDX-License-Identifier: Apache-2.0
#include "reference/gradient.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "batch.h"
#include "reference/gradient_sums.h"

namespace msabench::reference {
namespace {

gradient one_element(double value, double magnitude, double error, double fine_error, double spread, std::int64_t terms,
                     std::int64_t declared, double u_m) {
  gradient g(1, 1, 1);
  g.value[0] = value, g.magnitude[0] = magnitude, g.error[0] = error, g.fine_error[0] = fine_error;
  g.spread[0] = spread;
  g.set_chain(0, terms, declared, u_m);
  return g;
}

TEST(gradient, limit_is_made_of_its_four_parts) {
  const gradient g = one_element(-2, 10, 0.25, 0.0625, 0, 64, 0, 0x1p-10);
  const sum_error err{0x1p-10, 0, 0, 0x1p-8, 0x1p-20, 0x1p-12};
  const double gamma = 0x1p-4 / (1 - 0x1p-4);
  const auto limit = limit_of(g, 0, err);
  EXPECT_EQ(limit.store, 2 * 0x1p-8);
  EXPECT_EQ(limit.weights, 0.25);
  EXPECT_EQ(limit.additions, 10 * gamma);
  EXPECT_EQ(limit.underflow, 0x1p-20);
  EXPECT_DOUBLE_EQ(limit.total(), 1.02 * (2 * 0x1p-8 + 0.25 + 10 * gamma + 0x1p-20));
  EXPECT_DOUBLE_EQ(fine_limit(g, 0, err), 1.02 * (2 * 0x1p-12 + 0.0625 + 10 * gamma + 0x1p-20));
}

TEST(gradient, expected_square_is_made_of_its_four_parts) {
  const gradient g = one_element(-2, 10, 0.25, 0.0625, 0.5, 64, 0, 0x1p-10);
  const sum_error err{0x1p-10, 0, 0, 0x1p-8, 0x1p-6, 0x1p-12};
  const double arithmetic = fine_limit(g, 0, err) / 16;
  EXPECT_DOUBLE_EQ(expected_square(g, 0, err), 0x1p-14 / 3 + 0.5 + arithmetic * arithmetic + 0x1p-12 / 3);
}

TEST(gradient, chains_are_declared_but_never_longer_than_the_terms) {
  EXPECT_EQ(one_element(0, 0, 0, 0, 0, 100, 0, 0x1p-10).roundoff[0], chain_roundoff(100, 0x1p-10));
  EXPECT_EQ(one_element(0, 0, 0, 0, 0, 100, 7, 0x1p-10).roundoff[0], chain_roundoff(7, 0x1p-10));
  EXPECT_EQ(one_element(0, 0, 0, 0, 0, 5, 7, 0x1p-10).roundoff[0], chain_roundoff(5, 0x1p-10));
  EXPECT_EQ(one_element(0, 0, 0, 0, 0, 5, 7, 0x1p-10).chain[0], 5);
}

TEST(gradient, chain_roundoff_bounds_nothing_from_one_half_on) {
  EXPECT_EQ(chain_roundoff(0, 0x1p-24), 0);
  EXPECT_DOUBLE_EQ(chain_roundoff(130, 0x1p-23), 130 * 0x1p-23 / (1 - 130 * 0x1p-23));
  EXPECT_EQ(chain_roundoff(255, 0x1p-9), 255.0 / 257);
  EXPECT_EQ(chain_roundoff(256, 0x1p-9), std::numeric_limits<double>::infinity());
  const gradient nothing = one_element(0, 0, 0, 0, 0, 256, 0, 0x1p-9),
                 something = one_element(1, 1, 0, 0, 0, 256, 0, 0x1p-9);
  EXPECT_EQ(limit_of(nothing, 0, {}).total(), 0);
  EXPECT_EQ(limit_of(something, 0, {}).total(), std::numeric_limits<double>::infinity());
}

TEST(gradient, theta_sums_its_terms_and_eta_follows) {
  const weight_error err{0x1p-4, 0x1p-5, 0x1p-6, 0x1p-7, 0};
  EXPECT_EQ(theta_of(err, -2, 3, -5), 3 * 0x1p-4 + 2 * 0x1p-5 + 0x1p-6 + 7 * 0x1p-7);
  EXPECT_EQ(eta_of(0), 0);
  EXPECT_DOUBLE_EQ(eta_of(0x1p-4), std::expm1(0x1p-4));
  EXPECT_EQ(eta_of(1e9), 1e100);
}

TEST(gradient_sums, add_up_lines_over_tiles) {
  constexpr std::int64_t channels = 11, terms = 300;
  const auto number = [](std::uint64_t stream, std::int64_t i) {
    return testing::hashed_normal(3, stream, static_cast<std::uint64_t>(i));
  };
  std::vector<double> data(terms * channels);
  for (std::int64_t i = 0; i < std::ssize(data); ++i) data[static_cast<std::size_t>(i)] = number(1, i);
  const tensor_view x{data.data(), packed(fp64, {terms, channels})};
  widened_tile tile;
  tile.reset(channels);
  gradient_sums sums;
  sums.reset(2, tile.width());
  mean_sums means;
  means.reset(2, tile.width());
  weight_columns weights;
  for (std::int64_t first = 0; first < terms; first += tile_keys) {
    const std::int64_t n = std::min(tile_keys, terms - first);
    for (std::int64_t i = 0; i < n; ++i) tile.set(i, x, x.offset(first + i));
    for (std::int64_t line = 0; line < 2; ++line) {
      for (std::int64_t i = 0; i < n; ++i) {
        const double w = number(2 + static_cast<std::uint64_t>(line), first + i);
        weights.set(i, w, std::abs(w) + 1, std::abs(w) + 2, w * w);
      }
      sums.set(line, tile, n, weights.view());
      means.set(line, tile, n, weights.value.data());
    }
    sums.end_tile();
    means.end_tile();
  }
  gradient g(3, 1, channels);
  for (std::int64_t line = 0; line < 2; ++line) {
    sums.finish(line, -0.5, g, static_cast<std::size_t>(2 - line));
    for (std::int64_t c = 0; c < channels; ++c) {
      std::array<long double, 5> want{};
      for (std::int64_t i = 0; i < terms; ++i) {
        const long double w = number(2 + static_cast<std::uint64_t>(line), i), y = number(1, i * channels + c);
        want[0] += w * y, want[1] += std::abs(w * y), want[2] += (std::abs(w) + 1) * std::abs(y);
        want[3] += (std::abs(w) + 2) * std::abs(y), want[4] += w * w * y * y;
      }
      const std::size_t at = g.element(2 - line, 0, c);
      EXPECT_NEAR(g.value[at], static_cast<double>(-0.5L * want[0]), 1e-12);
      EXPECT_NEAR(g.magnitude[at], static_cast<double>(0.5L * want[1]), 1e-12);
      EXPECT_NEAR(g.error[at], static_cast<double>(0.5L * want[2]), 1e-12);
      EXPECT_NEAR(g.fine_error[at], static_cast<double>(0.5L * want[3]), 1e-12);
      EXPECT_NEAR(g.spread[at], static_cast<double>(0.25L * want[4]), 1e-12);
      EXPECT_NEAR(means.total()[static_cast<std::size_t>(line * tile.width() + c)], static_cast<double>(want[0]),
                  1e-12);
      EXPECT_EQ(g.value[g.element(0, 0, c)], 0);
    }
  }
}

}  // namespace
}  // namespace msabench::reference
