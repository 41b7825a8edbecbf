// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/error.h"

namespace msabench {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
const double nan = std::numeric_limits<double>::quiet_NaN();

std::uint32_t code_of(double x, dtype type) {
  std::uint32_t bits = 0;
  store(&bits, type, 0, x);
  return bits;
}

double value_of(std::uint32_t code, dtype type) { return load(&code, type, 0); }

// By the definition of the formats, in arithmetic that shares nothing with the library.
double value_by_definition(std::uint32_t code, int exponent_bits, int fraction_bits, bool has_infinity) {
  const double sign = code >> (exponent_bits + fraction_bits) ? -1 : 1;
  const std::uint32_t top = (1u << exponent_bits) - 1;
  const std::uint32_t exponent = code >> fraction_bits & top;
  const std::uint32_t fraction = code & ((1u << fraction_bits) - 1);
  if (has_infinity && exponent == top) return fraction ? nan : sign * inf;
  if (!has_infinity && exponent == top && fraction == (1u << fraction_bits) - 1) return nan;
  const int bias = static_cast<int>(top >> 1);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign *
         std::ldexp(fraction + std::ldexp(1.0, fraction_bits), static_cast<int>(exponent) - bias - fraction_bits);
}

struct small_format {
  dtype type;
  int exponent_bits, fraction_bits;
  bool has_infinity;
  std::uint32_t codes() const { return 2u << (exponent_bits + fraction_bits); }
  std::uint32_t sign() const { return 1u << (exponent_bits + fraction_bits); }
  std::uint32_t largest() const {
    return has_infinity ? (((1u << exponent_bits) - 1) << fraction_bits) - 1 : sign() - 2;
  }
};

void PrintTo(const small_format& f, std::ostream* out) { *out << name(f.type); }

class small_formats : public testing::TestWithParam<small_format> {};

INSTANTIATE_TEST_SUITE_P(all, small_formats,
                         testing::Values(small_format{bf16, 8, 7, true}, small_format{fp16, 5, 10, true},
                                         small_format{e4m3, 4, 3, false}),
                         [](const auto& param) { return std::string(name(param.param.type)); });

TEST_P(small_formats, EveryCodeLoadsByDefinitionAndComesBack) {
  const small_format& f = GetParam();
  for (std::uint32_t code = 0; code < f.codes(); ++code) {
    const double expected = value_by_definition(code, f.exponent_bits, f.fraction_bits, f.has_infinity);
    const double x = value_of(code, f.type);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(x)) << code;
      ASSERT_TRUE(std::isnan(value_of(code_of(x, f.type), f.type))) << code;
      ASSERT_TRUE(std::isnan(round_to(x, f.type))) << code;
      continue;
    }
    ASSERT_EQ(x, expected) << code;
    ASSERT_EQ(std::signbit(x), code >= f.sign()) << code;
    if (!f.has_infinity || std::isfinite(x)) {
      ASSERT_EQ(round_to(x, f.type), x) << code;
    }
    ASSERT_EQ(code_of(x, f.type), code);
  }
}

TEST_P(small_formats, EveryMidpointRoundsToEvenAndItsNeighboursToTheNearest) {
  const small_format& f = GetParam();
  for (std::uint32_t low = 0; low < f.largest(); ++low) {
    const double a = value_of(low, f.type), b = value_of(low + 1, f.type), middle = (a + b) / 2;
    const std::uint32_t even = low % 2 == 0 ? low : low + 1;
    ASSERT_EQ(code_of(middle, f.type), even) << low;
    ASSERT_EQ(code_of(-middle, f.type), even | f.sign()) << low;
    // One double away from the tie: an intermediate float would fall onto it and round a second time.
    ASSERT_EQ(code_of(std::nextafter(middle, 0), f.type), low) << low;
    ASSERT_EQ(code_of(std::nextafter(middle, inf), f.type), low + 1) << low;
    ASSERT_EQ(round_to(std::nextafter(middle, inf), f.type), b) << low;
    ASSERT_EQ(round_to(-middle, f.type), -value_of(even, f.type)) << low;
  }
}

TEST_P(small_formats, BulkWideningEqualsLoad) {
  const small_format& f = GetParam();
  const auto bytes = static_cast<std::size_t>(size_bytes(f.type));
  std::vector<unsigned char> stored(f.codes() * bytes + 1);
  unsigned char* unaligned = stored.data() + 1;
  for (std::uint32_t code = 0; code < f.codes(); ++code) std::memcpy(unaligned + code * bytes, &code, bytes);
  for (const std::int64_t first : {0, 1, 7}) {
    const std::int64_t count = f.codes() - 2 * first;
    std::vector<double> wide(static_cast<std::size_t>(count) + 1, 42.0);
    std::vector<float> narrow_floats(static_cast<std::size_t>(count) + 1, 42.0f);
    widen(unaligned, f.type, first, count, wide.data());
    widen(unaligned, f.type, first, count, narrow_floats.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const double x = load(unaligned, f.type, first + i);
      const auto at = static_cast<std::size_t>(i);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(wide[at]) && std::isnan(narrow_floats[at])) << i;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint64_t>(wide[at]), std::bit_cast<std::uint64_t>(x)) << i;
        ASSERT_EQ(narrow_floats[at], x) << i;
      }
    }
    EXPECT_EQ(wide.back(), 42.0);
    EXPECT_EQ(narrow_floats.back(), 42.0f);
  }
}

TEST_P(small_formats, UlpIsTheGapToTheNextValue) {
  const small_format& f = GetParam();
  for (std::uint32_t code = 0; code < f.largest(); ++code)
    ASSERT_EQ(ulp_of(-value_of(code, f.type), f.type), value_of(code + 1, f.type) - value_of(code, f.type)) << code;
  EXPECT_EQ(max_finite(f.type), value_of(f.largest(), f.type));
  EXPECT_EQ(smallest_subnormal(f.type), value_of(1, f.type));
  EXPECT_EQ(unit_roundoff(f.type), ulp_of(1.0, f.type) / 2);
  EXPECT_EQ(ulp_of(inf, f.type), ulp_of(max_finite(f.type), f.type));
  EXPECT_EQ(ulp_of(1e300, f.type), ulp_of(max_finite(f.type), f.type));
  EXPECT_TRUE(std::isnan(ulp_of(nan, f.type)));
}

TEST(dtype_rounding, OverflowBeginsAtTheMidpointAboveTheLargest) {
  for (const dtype type : {bf16, fp16, fp32, tf32, fp8_acc}) {
    const double edge = max_finite(type) + ulp_of(max_finite(type), type) / 2;
    EXPECT_EQ(round_to(std::nextafter(edge, 0), type), max_finite(type)) << name(type);
    EXPECT_EQ(round_to(edge, type), inf) << name(type);
    EXPECT_EQ(round_to(-edge, type), -inf) << name(type);
    EXPECT_EQ(round_to(std::numeric_limits<double>::max(), type), inf) << name(type);
    EXPECT_EQ(round_to(-inf, type), -inf) << name(type);
    EXPECT_TRUE(std::isnan(round_to(nan, type))) << name(type);
  }
}

TEST(dtype_rounding, E4m3HasNoInfinityAndDoesNotSaturate) {
  EXPECT_EQ(max_finite(e4m3), 448);
  EXPECT_EQ(round_to(464, e4m3), 448);
  EXPECT_TRUE(std::isnan(round_to(std::nextafter(464.0, inf), e4m3)));
  EXPECT_TRUE(std::isnan(round_to(inf, e4m3)));
  EXPECT_EQ(code_of(1e9, e4m3), 0x7fu);
  EXPECT_EQ(code_of(-inf, e4m3), 0xffu);
}

TEST(dtype_rounding, NaNKeepsItsSignAndStaysQuiet) {
  EXPECT_EQ(code_of(nan, bf16), 0x7fc0u);
  EXPECT_EQ(code_of(-nan, bf16), 0xffc0u);
  EXPECT_EQ(code_of(nan, fp16), 0x7e00u);
  EXPECT_EQ(code_of(nan, fp32), 0x7fc00000u);
}

TEST(dtype_rounding, DoubleRoundingTraps) {
  // 1 + 2^-8 is the tie between bf16's 1 and 1 + 2^-7; the 2^-40 above it vanishes in float, which would then tie to 1.
  EXPECT_EQ(round_to(1 + 0x1p-8 + 0x1p-40, bf16), 1 + 0x1p-7);
  EXPECT_EQ(static_cast<float>(1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-8f);
  EXPECT_EQ(round_to(1 + 0x1p-11 + 0x1p-40, fp16), 1 + 0x1p-10);
  EXPECT_EQ(round_to(1 + 0x1p-4 + 0x1p-40, e4m3), 1.125);
  EXPECT_EQ(round_to(1 + 0x1p-11 + 0x1p-40, tf32), 1 + 0x1p-10);
}

TEST(dtype_rounding, Fp32EqualsTheHardware) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    // Exponents from below fp32's subnormals to above its largest, low bits often near a tie.
    const std::uint64_t exponent = 1023 - 160 + random() % 300;
    std::uint64_t bits = (random() & 0x800fffffffffffffu) | exponent << 52;
    if (i % 2) bits = (bits & ~0x1fffffffull) | (0x10000000ull + random() % 3 - 1);
    const double x = std::bit_cast<double>(bits);
    ASSERT_EQ(code_of(x, fp32), std::bit_cast<std::uint32_t>(static_cast<float>(x))) << x;
    ASSERT_EQ(round_to(x, fp32), static_cast<double>(static_cast<float>(x))) << x;
  }
  EXPECT_EQ(max_finite(fp32), std::numeric_limits<float>::max());
  EXPECT_EQ(smallest_subnormal(fp32), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(ulp_of(1.0f, fp32), std::numeric_limits<float>::epsilon());
  EXPECT_EQ(round_to(-0.0, fp32), 0.0);
  EXPECT_TRUE(std::signbit(round_to(-0.0, fp32)));
  EXPECT_TRUE(std::signbit(round_to(-1e-300, bf16)));
}

TEST(dtype_rounding, Fp64IsTheIdentity) {
  for (const double x : {0.1, -inf, 5e-324, std::numeric_limits<double>::max()}) {
    EXPECT_EQ(round_to(x, fp64), x);
    double stored[2] = {};
    store(stored, fp64, 1, x);
    EXPECT_EQ(stored[1], x);
    EXPECT_EQ(load(stored, fp64, 1), x);
  }
  EXPECT_EQ(max_finite(fp64), std::numeric_limits<double>::max());
  EXPECT_EQ(smallest_subnormal(fp64), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(ulp_of(1.0, fp64), std::numeric_limits<double>::epsilon());
  EXPECT_EQ(ulp_of(5e-324, fp64), 5e-324);
}

TEST(dtype_rounding, I32RoundsToEvenAndSaturates) {
  EXPECT_EQ(round_to(2.5, i32), 2);
  EXPECT_EQ(round_to(3.5, i32), 4);
  EXPECT_EQ(round_to(-2.5, i32), -2);
  EXPECT_EQ(round_to(-2.6, i32), -3);
  EXPECT_EQ(round_to(1e20, i32), 2147483647);
  EXPECT_EQ(round_to(-inf, i32), -2147483648.0);
  std::int32_t ids[2] = {7, 7};
  store(ids, i32, 1, -1);
  EXPECT_EQ(ids[0], 7);
  EXPECT_EQ(ids[1], -1);
  EXPECT_EQ(load(ids, i32, 1), -1);
  EXPECT_THROW(store(ids, i32, 0, nan), suite_error);
}

TEST(dtype_words, RoundoffsOfTheErrorModel) {
  EXPECT_EQ(unit_roundoff(fp32), 0x1p-24);
  EXPECT_EQ(unit_roundoff(fp16), 0x1p-11);
  EXPECT_EQ(unit_roundoff(tf32), 0x1p-11);
  EXPECT_EQ(unit_roundoff(bf16), 0x1p-8);
  EXPECT_EQ(unit_roundoff(e4m3), 0x1p-4);
  EXPECT_EQ(unit_roundoff(fp8_acc), 0x1p-13);
  EXPECT_EQ(unit_roundoff(fp64), 0x1p-53);
  EXPECT_EQ(unit_roundoff(i32), 0);
}

TEST(dtype_words, NamesAndSizes) {
  for (const auto& [text, bytes] :
       {std::pair{"bf16", 2}, {"fp16", 2}, {"fp32", 4}, {"fp64", 8}, {"e4m3", 1}, {"i32", 4}}) {
    const std::optional<dtype> type = dtype_from_name(text);
    ASSERT_TRUE(type) << text;
    EXPECT_EQ(name(*type), text);
    EXPECT_EQ(size_bytes(*type), bytes);
    EXPECT_TRUE(is_stored(*type));
  }
  for (const char* text : {"tf32", "fp8acc"}) {
    const std::optional<dtype> type = dtype_from_name(text);
    ASSERT_TRUE(type) << text;
    EXPECT_EQ(name(*type), text);
    EXPECT_TRUE(known(*type));
    EXPECT_FALSE(is_stored(*type));
    EXPECT_THROW(size_bytes(*type), suite_error);
  }
  EXPECT_FALSE(dtype_from_name("bf1"));
  EXPECT_FALSE(dtype_from_name(""));
}

TEST(dtype_words, ForeignTriplesAreRefusedNotGuessed) {
  for (const dtype type : {dtype{}, dtype{4, 17, 1}, dtype{4, 16, 2}, dtype{200, 8, 1}, dtype{2, 16, 0}}) {
    EXPECT_FALSE(known(type));
    EXPECT_THROW(unit_roundoff(type), suite_error);
    EXPECT_THROW(max_finite(type), suite_error);
    EXPECT_THROW(round_to(1, type), suite_error);
    double x = 0;
    EXPECT_THROW(load(&x, type, 0), suite_error);
    EXPECT_THROW(store(&x, type, 0, 1), suite_error);
    EXPECT_THROW(widen(&x, type, 0, 1, &x), suite_error);
  }
  EXPECT_EQ(name(dtype{}), "none");
  EXPECT_EQ(name(dtype{4, 17, 1}), "unknown");
}

TEST(dtype_bulk, WideFormatsWiden) {
  std::vector<float> floats(200);
  std::vector<double> doubles(200);
  std::vector<std::int32_t> ints(200);
  for (std::size_t i = 0; i < 200; ++i) {
    floats[i] = static_cast<float>(i) * 0.37f - 20;
    doubles[i] = static_cast<double>(i) * 0.37 - 20;
    ints[i] = static_cast<std::int32_t>(i * 7919) - 5000;
  }
  std::vector<double> wide(150);
  widen(floats.data(), fp32, 3, 150, wide.data());
  for (std::size_t i = 0; i < 150; ++i) ASSERT_EQ(wide[i], floats[i + 3]);
  widen(doubles.data(), fp64, 3, 150, wide.data());
  for (std::size_t i = 0; i < 150; ++i) ASSERT_EQ(wide[i], doubles[i + 3]);
  widen(ints.data(), i32, 3, 150, wide.data());
  for (std::size_t i = 0; i < 150; ++i) ASSERT_EQ(wide[i], ints[i + 3]);
  std::vector<float> same(150);
  widen(floats.data(), fp32, 50, 150, same.data());
  for (std::size_t i = 0; i < 150; ++i) ASSERT_EQ(same[i], floats[i + 50]);
  EXPECT_THROW(widen(doubles.data(), fp64, 0, 1, same.data()), suite_error);
  EXPECT_THROW(widen(ints.data(), i32, 0, 1, same.data()), suite_error);
}

TEST(dtype_bulk, NarrowEqualsStore) {
  std::mt19937_64 random(2);
  std::vector<double> values(333);
  for (double& x : values)
    x = std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())), -60 - static_cast<int>(random() % 20));
  values[5] = inf;
  values[6] = -0.0;
  for (const dtype type : {bf16, fp16, fp32, fp64, e4m3}) {
    std::vector<unsigned char> bulk(340 * 8, 0xa5), single(340 * 8, 0xa5);
    narrow(values.data(), 333, bulk.data(), type, 4);
    for (std::int64_t i = 0; i < 333; ++i) store(single.data(), type, 4 + i, values[static_cast<std::size_t>(i)]);
    EXPECT_EQ(bulk, single) << name(type);
  }
}

}  // namespace
}  // namespace msabench
