// SPDX-License-Identifier: Apache-2.0
#include "reference/tile_kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "batch.h"
#include "reference/pairwise.h"

namespace msabench::reference {
namespace {

constexpr std::int64_t keys = 100, width = 24;

std::vector<double> numbers(std::uint64_t stream, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(testing::hashed_normal(11, stream, static_cast<std::uint64_t>(i)) / 3);
  return values;
}

struct tile_results {
  std::vector<double> dot = std::vector<double>(keys), magnitude = dot, squares = dot;
  std::array<double, lanes> mean{}, size{}, square{}, dev{}, e1{}, e2{}, x{};
};

tile_results run() {
  tile_results r;
  const auto tile = numbers(1, keys * width), query = numbers(2, width), values = numbers(3, keys * lanes);
  auto weight = numbers(4, keys), weight1 = numbers(5, keys), weight2 = numbers(6, keys);
  score_tile(tile.data(), keys, width, query.data(), r.dot.data(), r.magnitude.data(), r.squares.data());
  moments_tile(values.data(), keys, weight.data(), {r.mean.data(), r.size.data(), r.square.data()});
  spreads_tile(values.data(), keys, weight.data(), weight1.data(), weight2.data(), r.mean.data(),
               {r.dev.data(), r.e1.data(), r.e2.data(), r.x.data()});
  return r;
}

TEST(tile_kernels, sums_are_those_of_their_definitions) {
  const tile_results r = run();
  const auto tile = numbers(1, keys * width), query = numbers(2, width), values = numbers(3, keys * lanes);
  const auto weight = numbers(4, keys), weight1 = numbers(5, keys), weight2 = numbers(6, keys);
  for (std::size_t j = 0; j < keys; ++j) {
    double dot = 0, magnitude = 0, squares = 0;
    for (std::size_t c = 0; c < width; ++c) {
      const double product = tile[j * width + c] * query[c];
      dot += product, magnitude += std::abs(product), squares += product * product;
    }
    EXPECT_NEAR(r.dot[j], dot, 1e-13);
    EXPECT_NEAR(r.magnitude[j], magnitude, 1e-13);
    EXPECT_NEAR(r.squares[j], squares, 1e-13);
  }
  for (std::size_t c = 0; c < lanes; ++c) {
    double mean = 0, size = 0, square = 0, dev = 0, e1 = 0, e2 = 0, x = 0;
    for (std::size_t j = 0; j < keys; ++j) {
      const double v = values[j * lanes + c], u = std::abs(v - r.mean[c]);
      mean += weight[j] * v, size += std::abs(weight[j] * v), square += std::pow(weight[j] * v, 2);
      dev += weight[j] * u, e1 += weight1[j] * u, e2 += std::pow(weight2[j] * u, 2), x += std::max(std::abs(v), u);
    }
    EXPECT_NEAR(r.mean[c], mean, 1e-13);
    EXPECT_NEAR(r.size[c], size, 1e-13);
    EXPECT_NEAR(r.square[c], square, 1e-13);
    EXPECT_NEAR(r.dev[c], dev, 1e-13);
    EXPECT_NEAR(r.e1[c], e1, 1e-13);
    EXPECT_NEAR(r.e2[c], e2, 1e-13);
    EXPECT_NEAR(r.x[c], x, 1e-12);
  }
}

TEST(tile_kernels, squares_do_not_change_the_other_sums) {
  const tile_results r = run();
  const auto tile = numbers(1, keys * width), query = numbers(2, width);
  std::vector<double> dot(keys), magnitude(keys);
  score_tile(tile.data(), keys, width, query.data(), dot.data(), magnitude.data(), nullptr);
  EXPECT_EQ(dot, r.dot);
  EXPECT_EQ(magnitude, r.magnitude);
}

// The same bits whatever vectors the machine has: every clone, sanitized builds and other processors are held to one
// number.
TEST(tile_kernels, bits_are_the_same_on_every_machine) {
  const tile_results r = run();
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](const auto& values) {
    for (const double x : values) hash = (hash ^ std::bit_cast<std::uint64_t>(x)) * 0x100000001b3;
  };
  add(r.dot), add(r.magnitude), add(r.squares), add(r.mean), add(r.size), add(r.square);
  add(r.dev), add(r.e1), add(r.e2), add(r.x);
  EXPECT_EQ(hash, 12589243895400368978u);
}

struct gradient_results {
  std::array<double, lanes> mean{}, value{}, magnitude{}, error{}, fine_error{}, spread{};
};

gradient_results run_gradient() {
  gradient_results r;
  const auto x = numbers(3, keys * lanes);
  const auto w = numbers(4, keys), e = numbers(5, keys), f = numbers(6, keys), t = numbers(7, keys);
  mean_tile(x.data(), keys, w.data(), r.mean.data());
  gradient_tile(x.data(), keys, {w.data(), e.data(), f.data(), t.data()},
                {r.value.data(), r.magnitude.data(), r.error.data(), r.fine_error.data(), r.spread.data()});
  return r;
}

TEST(tile_kernels, gradient_sums_are_those_of_their_definitions) {
  const gradient_results r = run_gradient();
  const auto x = numbers(3, keys * lanes);
  const auto w = numbers(4, keys), e = numbers(5, keys), f = numbers(6, keys), t = numbers(7, keys);
  for (std::size_t c = 0; c < lanes; ++c) {
    double value = 0, magnitude = 0, error = 0, fine_error = 0, spread = 0;
    for (std::size_t j = 0; j < keys; ++j) {
      const double each = x[j * lanes + c];
      value += w[j] * each, magnitude += std::abs(w[j] * each), error += e[j] * std::abs(each);
      fine_error += f[j] * std::abs(each), spread += t[j] * each * each;
    }
    EXPECT_NEAR(r.mean[c], value, 1e-13);
    EXPECT_NEAR(r.value[c], value, 1e-13);
    EXPECT_NEAR(r.magnitude[c], magnitude, 1e-13);
    EXPECT_NEAR(r.error[c], error, 1e-13);
    EXPECT_NEAR(r.fine_error[c], fine_error, 1e-13);
    EXPECT_NEAR(r.spread[c], spread, 1e-13);
  }
}

TEST(tile_kernels, bits_of_gradients_are_the_same_on_every_machine) {
  const gradient_results r = run_gradient();
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const auto* values : {&r.mean, &r.value, &r.magnitude, &r.error, &r.fine_error, &r.spread})
    for (const double x : *values) hash = (hash ^ std::bit_cast<std::uint64_t>(x)) * 0x100000001b3;
  EXPECT_EQ(hash, 17504039769412438800u);
}

TEST(pairwise, sums_of_any_length_are_exact_on_integers) {
  for (const std::size_t count : {0, 1, 127, 128, 129, 256, 257, 1000, 5000}) {
    std::vector<double> values(count);
    std::iota(values.begin(), values.end(), 1.0);
    EXPECT_EQ(pairwise_sum(values), static_cast<double>(count * (count + 1) / 2));
    pairwise_vectors vectors;
    vectors.reset(2);
    for (const double x : values) vectors.add(std::array{x, -2 * x});
    const auto total = vectors.total();
    ASSERT_EQ(total.size(), 2u);
    EXPECT_EQ(total[0], static_cast<double>(count * (count + 1) / 2));
    EXPECT_EQ(total[1], -2 * total[0]);
  }
}

TEST(pairwise, error_grows_with_the_logarithm) {
  // A running sum of a million times 0.1 is off by about 1e-6.
  std::vector<double> values(1 << 20, 0.1);
  EXPECT_NEAR(pairwise_sum(values), 0.1 * (1 << 20), 1e-9);
  pairwise_vectors vectors;
  vectors.reset(1);
  for (const double x : values) vectors.add(std::span(&x, 1));
  EXPECT_NEAR(vectors.total()[0], 0.1 * (1 << 20), 1e-9);
}

TEST(pairwise, reset_forgets) {
  pairwise_vectors vectors;
  vectors.reset(1);
  vectors.add(std::array{5.0});
  vectors.add(std::array{5.0});
  vectors.reset(3);
  vectors.add(std::array{1.0, 2.0, 3.0});
  EXPECT_EQ(vectors.total()[2], 3.0);
  EXPECT_EQ(vectors.total()[0], 1.0);
}

}  // namespace
}  // namespace msabench::reference
