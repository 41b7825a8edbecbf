// SPDX-License-Identifier: Apache-2.0
#include "core/generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/hashes.h"
#include "core/philox.h"

namespace msabench {
namespace {

TEST(philox, KnownAnswersOfTheAuthors) {
  using words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

const stream published("attend/m3/q1.n1M/bf16.paged/random", "k", 0);

TEST(generator, PublishedStream) {
  const std::uint32_t words[] = {0x8a001bdc, 0xe2bd6f3d, 0x3dd68690, 0x7b805108};
  const std::uint16_t bits[] = {0xbf7a, 0x3f1a, 0x3eac, 0xbfaa};
  std::uint16_t filled[4] = {};
  published.fill_normal(filled, bf16, 0, 4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(published.word(i), words[i]);
    EXPECT_EQ(bf16_from_double(published.normal(i)), bits[i]);
    EXPECT_EQ(filled[i], bits[i]);
  }
  EXPECT_EQ(published.normal_step(0), 0x8a + 0x00 + 0x1b + 0xdc - 510);
}

TEST(generator, KeyAndCounterAsDocumented) {
  const std::uint64_t seed = 0x0123456789abcdef;
  const stream s("score/m3/q4.n2K/bf16/random", "q_idx", seed);
  const std::uint64_t key = fnv1a64("score/m3/q4.n2K/bf16/random|q_idx");
  for (const std::uint64_t i :
       {std::uint64_t{0}, std::uint64_t{6}, (std::uint64_t{1} << 34) + 3, std::uint64_t{5} << 40}) {
    const std::uint64_t block = i / 4;
    const auto expected = philox4x32_10(
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0x89abcdef, 0x01234567},
        {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
    EXPECT_EQ(s.word(i), expected[i % 4]) << i;
  }
}

TEST(generator, SlotsNamesAndSeedsDiffer) {
  const std::uint32_t first = stream("a", "k", 0).word(0);
  EXPECT_NE(first, stream("a", "v", 0).word(0));
  EXPECT_NE(first, stream("b", "k", 0).word(0));
  EXPECT_NE(first, stream("a", "k", 1).word(0));
  EXPECT_NE(first, stream("a", "k", std::uint64_t{1} << 32).word(0));
}

TEST(generator, BulkWordsEqualSingleOnesFromAnyStart) {
  for (const std::uint64_t first :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1023}, (std::uint64_t{1} << 34) - 70}) {
    for (const std::uint64_t count : {0, 1, 3, 64, 1021, 1022, 5000}) {
      std::vector<std::uint32_t> words(count + 1, 0xdeadbeef);
      published.fill_words(words.data(), first, count);
      for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(words[i], published.word(first + i)) << first << ' ' << i;
      ASSERT_EQ(words[count], 0xdeadbeef);
    }
  }
}

TEST(generator, BulkElementsEqualRoundedSingleOnes) {
  for (const dtype type : {bf16, fp16, fp32, fp64, e4m3}) {
    // The last two leave float's range and reach the subnormals of every small format.
    for (const double scale : {1.0, 0.0625, 64.0, 0x1p-12, 0x1p-120, 0x1p-130, 0x1p120}) {
      for (const std::uint64_t count : {100, 3000}) {
        const auto bytes = static_cast<std::size_t>(size_bytes(type));
        std::vector<unsigned char> bulk(count * bytes + 2, 0xa5), single(count * bytes + 2, 0xa5);
        published.fill_normal(bulk.data() + 1, type, 7, count, scale);
        for (std::uint64_t i = 0; i < count; ++i)
          store(single.data() + 1, type, static_cast<std::int64_t>(i), published.normal(7 + i) * scale);
        ASSERT_EQ(bulk, single) << name(type) << ' ' << scale;
      }
    }
  }
}

TEST(generator, ScaleMustBeAPowerOfTwo) {
  std::uint16_t element = 0;
  for (const double scale : {3.0, 0.0, -1.0, 0.1, HUGE_VAL})
    EXPECT_THROW(published.fill_normal(&element, bf16, 0, 1, scale), suite_error);
}

TEST(generator, MomentsOfANormal) {
  constexpr std::uint64_t n = 1 << 20;
  std::vector<double> x(n);
  published.fill_normal(x.data(), fp64, 0, n);
  double sum = 0, squares = 0, fourth = 0;
  for (const double v : x) {
    ASSERT_LE(std::fabs(v), 510.0 / 128);
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
  }
  // Four independent uniform bytes: variance 4 (256^2 - 1)/12 steps^2; excess kurtosis -1.2/4. Limits are 5 standard
  // errors.
  const double variance = (65536.0 - 1) / 3 / 16384;
  EXPECT_NEAR(sum / n, 0, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(squares / n / variance, 1, 5 * std::sqrt(1.7 / n));
  EXPECT_NEAR(fourth / n / (variance * variance), 2.7, 0.03);
}

}  // namespace
}  // namespace msabench
