// SPDX-License-Identifier: Apache-2.0
#include "reference/combine.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "batch.h"
#include "core/error.h"
#include "reference/attend.h"

namespace msabench::reference {
namespace {

using testing::batch;
using testing::batch_spec;
using testing::hashed_normal;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
using doubles = std::vector<double>;
using real = long double;

// P partial results in memory of their own: outputs and log-sum-exps by hashing unless set.
class partials {
 public:
  partials(std::int64_t p, std::int64_t t, std::int32_t hq, std::int32_t d, dtype out = fp64, dtype lse = fp64,
           double lse_size = 1)
      : out_(static_cast<std::size_t>(p * t * hq * d * size_bytes(out))),
        lse_(static_cast<std::size_t>(p * t * hq * size_bytes(lse))) {
    in.p.operation = op::combine;
    in.p.hq = hq, in.p.d = d, in.p.total_q = t, in.p.splits = static_cast<std::int32_t>(p);
    in.partial_out = {p == 0 ? nullptr : out_.data(), packed(out, {p, t, hq, d})};
    in.partial_lse = {p == 0 ? nullptr : lse_.data(), packed(lse, {p, t, hq})};
    for (std::int64_t i = 0; i < in.partial_out.desc.elements(); ++i)
      store(out_.data(), out, i, hashed_normal(5, 61, static_cast<std::uint64_t>(i)));
    for (std::int64_t i = 0; i < in.partial_lse.desc.elements(); ++i)
      store(lse_.data(), lse, i, lse_size * hashed_normal(5, 62, static_cast<std::uint64_t>(i)));
  }
  partials(const partials&) = delete;
  partials& operator=(const partials&) = delete;

  void set_lse(std::int64_t p, std::int64_t row, std::int64_t head, double x) {
    store(lse_.data(), in.partial_lse.desc.type, in.partial_lse.offset(p, row, head), x);
  }
  void set_out(std::int64_t p, std::int64_t row, std::int64_t head, std::int64_t c, double x) {
    store(out_.data(), in.partial_out.desc.type, in.partial_out.offset(p, row, head, c), x);
  }
  std::vector<std::int64_t> all_rows() const {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(in.partial_out.desc.shape[1]));
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
  std::vector<combine_row> combine_all() const { return combine(in, all_rows()); }

  combine_inputs in;

 private:
  std::vector<std::byte> out_, lse_;
};

// The contract's formula and the gauges in long double.
void expect_plain(const partials& parts, const combine_row& got, double tolerance) {
  const auto& in = parts.in;
  std::vector<std::int64_t> counted;
  real a = -inf, sum = 0;
  for (std::int64_t p = 0; p < in.partial_lse.desc.shape[0]; ++p) {
    const real lse = in.partial_lse.at(p, got.row, got.head);
    if (lse > -inf) counted.push_back(p);
    a = std::max(a, lse);
  }
  EXPECT_EQ(got.partials, std::ssize(counted));
  if (counted.empty()) return;
  const auto weight = [&](std::int64_t p) { return std::exp(in.partial_lse.at(p, got.row, got.head) - a); };
  for (const std::int64_t p : counted) sum += weight(p);
  const real lse = a + std::log(sum);
  EXPECT_EQ(got.a, static_cast<double>(a));
  EXPECT_NEAR(got.lse, static_cast<double>(lse), tolerance * std::max(1.0, std::abs(got.a)));
  for (std::int64_t c = 0; c < in.p.d; ++c) {
    real o = 0, magnitude = 0, exponents = 0, sizes = 0, distance = 0;
    for (const std::int64_t p : counted) {
      const real term = weight(p) / sum * in.partial_out.at(p, got.row, got.head, c);
      o += term;
      magnitude += std::abs(term);
      const real below = a - in.partial_lse.at(p, got.row, got.head);
      exponents += std::abs(term) * (below + std::abs(a));
      sizes += std::abs(static_cast<real>(in.partial_out.at(p, got.row, got.head, c)));
      distance += weight(p) / sum * below;
    }
    const auto at = static_cast<std::size_t>(c);
    const double size = static_cast<double>(magnitude);
    EXPECT_NEAR(got.out[at], static_cast<double>(o), tolerance * size);
    EXPECT_NEAR(got.magnitude[at], size, tolerance * size);
    EXPECT_NEAR(got.exponents[at], static_cast<double>(exponents), tolerance * static_cast<double>(exponents));
    EXPECT_NEAR(got.sizes[at], static_cast<double>(sizes), tolerance * static_cast<double>(sizes));
    EXPECT_NEAR(got.distance, static_cast<double>(distance), tolerance * std::max(1.0, std::abs(got.a)));
  }
}

void expect_nothing(const combine_row& r) {
  EXPECT_EQ(r.partials, 0);
  EXPECT_EQ(r.lse, -inf);
  EXPECT_EQ(r.a, 0);
  EXPECT_EQ(r.distance, 0);
  for (const auto* channels : {&r.out, &r.magnitude, &r.exponents, &r.sizes})
    EXPECT_EQ(*channels, doubles(r.out.size(), 0.0));
}

void expect_same_bits(const std::vector<combine_row>& got, const std::vector<combine_row>& want) {
  ASSERT_EQ(got.size(), want.size());
  const auto bits = [](const combine_row& r) {
    std::vector<std::uint64_t> all{static_cast<std::uint64_t>(r.row),      static_cast<std::uint64_t>(r.head),
                                   static_cast<std::uint64_t>(r.partials), std::bit_cast<std::uint64_t>(r.a),
                                   std::bit_cast<std::uint64_t>(r.lse),    std::bit_cast<std::uint64_t>(r.distance)};
    for (const auto* channels : {&r.out, &r.magnitude, &r.exponents, &r.sizes})
      for (const double x : *channels) all.push_back(std::bit_cast<std::uint64_t>(x));
    return all;
  };
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(bits(got[i]), bits(want[i])) << want[i].row;
}

TEST(combine, results_and_gauges_are_those_of_the_plain_formulas) {
  for (const dtype type : {bf16, fp16, fp32, fp64})
    for (const std::int64_t p : {1, 2, 3, 17, 64, 129, 300})
      for (const double lse_size : {0.1, 1.0, 50.0}) {
        const partials parts(p, 3, 2, 5, type, type == fp64 ? fp64 : fp32, lse_size);
        SCOPED_TRACE(p);
        for (const auto& row : parts.combine_all()) expect_plain(parts, row, 1e-13);
      }
}

TEST(combine, of_nothing_is_zero_and_minus_infinity) {
  const partials none(0, 3, 2, 5);
  const auto rows = none.combine_all();
  ASSERT_EQ(rows.size(), 6u);
  for (const auto& row : rows) {
    EXPECT_EQ(row.out.size(), 5u);
    expect_nothing(row);
  }
  EXPECT_TRUE(partials(2, 0, 2, 5).combine_all().empty());
}

TEST(combine, of_empty_partials_is_zero_and_minus_infinity) {
  partials parts(3, 2, 2, 4);
  for (std::int64_t p = 0; p < 3; ++p) {
    parts.set_lse(p, 1, 0, -inf);
    for (std::int64_t c = 0; c < 4; ++c) parts.set_out(p, 1, 0, c, nan);
  }
  const auto rows = parts.combine_all();
  expect_nothing(rows[2]);
  for (const std::size_t i : {0u, 1u, 3u}) expect_plain(parts, rows[i], 1e-13);
}

TEST(combine, empty_partials_contribute_nothing_whatever_they_hold) {
  partials parts(4, 1, 1, 3), fewer(2, 1, 1, 3);
  const double lse[] = {0.5, -1.25};
  for (std::int64_t i = 0; i < 2; ++i) {
    parts.set_lse(2 * i + 1, 0, 0, lse[i]);
    fewer.set_lse(i, 0, 0, lse[i]);
    parts.set_lse(2 * i, 0, 0, -inf);
    for (std::int64_t c = 0; c < 3; ++c) {
      parts.set_out(2 * i, 0, 0, c, c == 0 ? nan : inf);
      fewer.set_out(i, 0, 0, c, parts.in.partial_out.at(2 * i + 1, 0, 0, c));
    }
  }
  expect_same_bits(parts.combine_all(), fewer.combine_all());
}

TEST(combine, a_single_partial_is_returned_exactly) {
  partials parts(3, 1, 1, 8);
  parts.set_lse(0, 0, 0, -inf);
  parts.set_lse(2, 0, 0, -inf);
  parts.set_lse(1, 0, 0, 0.7);
  const auto row = parts.combine_all()[0];
  EXPECT_EQ(row.lse, 0.7);
  for (std::int64_t c = 0; c < 8; ++c)
    EXPECT_EQ(row.out[static_cast<std::size_t>(c)], parts.in.partial_out.at(1, 0, 0, c));
}

TEST(combine, weighs_by_mass_in_natural_logarithms) {
  partials parts(2, 1, 1, 1);
  parts.set_lse(0, 0, 0, 0);
  parts.set_lse(1, 0, 0, std::log(31.0));
  parts.set_out(0, 0, 0, 0, 32);
  parts.set_out(1, 0, 0, 0, 0);
  const auto row = parts.combine_all()[0];
  EXPECT_NEAR(row.out[0], 1, 1e-15);
  EXPECT_NEAR(row.lse, std::log(32.0), 1e-15);
}

TEST(combine, huge_and_tiny_log_sum_exps_neither_overflow_nor_vanish) {
  for (const double shift : {-1e4, -700.0, 700.0, 1e4}) {
    partials parts(3, 1, 1, 4), shifted(3, 1, 1, 4);
    for (std::int64_t p = 0; p < 3; ++p) {
      parts.set_lse(p, 0, 0, static_cast<double>(p) / 4);
      shifted.set_lse(p, 0, 0, static_cast<double>(p) / 4 + shift);
    }
    const auto want = parts.combine_all()[0], got = shifted.combine_all()[0];
    EXPECT_EQ(got.out, want.out);
    EXPECT_NEAR(got.lse, want.lse + shift, 1e-11);
  }
}

TEST(combine, log_sum_exps_that_are_no_such_thing_are_refused) {
  for (const double wrong : {inf, nan}) {
    partials parts(3, 2, 1, 4);
    parts.set_lse(1, 1, 0, wrong);
    EXPECT_THROW(parts.combine_all(), suite_error);
    EXPECT_EQ(combine(parts.in, std::vector<std::int64_t>{0}).size(), 1u);  // of rows that are not asked for
  }
}

// Gives each selected block of each (row, group) to one of `splits` attends and combines their results.
std::vector<combine_row> combine_attends(const batch_spec& spec, std::int64_t splits, std::uint64_t seed,
                                         std::vector<attend_row>& whole) {
  batch b(spec);
  whole = attend(b.inputs(), b.all_rows(), {});
  std::vector<std::vector<std::int32_t>> chosen;
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t group = 0; group < spec.hkv; ++group) {
      chosen.emplace_back();
      for (std::int64_t s = 0; s < spec.topk; ++s) chosen.back().push_back(b.id(row, group, s));
    }
  partials parts(splits, b.rows(), spec.hq, spec.d);
  for (std::int64_t split = 0; split < splits; ++split) {
    b.set_ids([&](std::int64_t row, std::int64_t group) {
      std::vector<std::int32_t> mine;
      for (const std::int32_t id : chosen[static_cast<std::size_t>(row * spec.hkv + group)]) {
        const auto draw = static_cast<std::uint64_t>((row * 64 + group) * 4096 + id + 1);
        if (std::lround(1000 * std::abs(hashed_normal(seed, 63, draw))) % splits == split) mine.push_back(id);
      }
      return mine;
    });
    for (const auto& part : attend(b.inputs(), b.all_rows(), {})) {
      parts.set_lse(split, part.row, part.head, part.lse);
      for (std::int64_t c = 0; c < spec.d; ++c)
        parts.set_out(split, part.row, part.head, c, part.n == 0 ? nan : part.out[static_cast<std::size_t>(c)]);
    }
  }
  return parts.combine_all();
}

TEST(combine, of_any_split_of_the_blocks_is_the_whole) {
  batch_spec spec;
  spec.sequences = {{0, 0}, {3, 3}, {1, 0}, {5, 149}, {2, 128}, {4, 2}, {2, 700}};
  spec.topk = 12;
  for (const double query_size : {1.0, 8.0})
    for (const std::int64_t splits : {1, 2, 3, 7, 12, 40}) {
      spec.query_size = query_size;
      std::vector<attend_row> whole;
      const auto got = combine_attends(spec, splits, static_cast<std::uint64_t>(splits), whole);
      ASSERT_EQ(got.size(), whole.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (whole[i].n == 0) {
          expect_nothing(got[i]);
          continue;
        }
        EXPECT_NEAR(got[i].lse, whole[i].lse, 1e-12 * std::max(1.0, std::abs(whole[i].m)));
        for (std::size_t c = 0; c < 16; ++c) EXPECT_NEAR(got[i].out[c], whole[i].out[c], 1e-12 * whole[i].a[c]);
      }
    }
}

TEST(combine, of_combined_parts_is_that_of_all_and_the_order_does_not_matter) {
  const partials all(8, 2, 2, 6, fp64, fp64, 3);
  partials halves(2, 2, 2, 6), reversed(8, 2, 2, 6, fp64, fp64, 3);
  for (std::int64_t half = 0; half < 2; ++half) {
    auto in = all.in;
    in.partial_out.data = static_cast<const double*>(in.partial_out.data) + in.partial_out.offset(4 * half);
    in.partial_lse.data = static_cast<const double*>(in.partial_lse.data) + in.partial_lse.offset(4 * half);
    in.partial_out.desc.shape[0] = in.partial_lse.desc.shape[0] = 4;
    for (const auto& row : combine(in, all.all_rows())) {
      halves.set_lse(half, row.row, row.head, row.lse);
      for (std::int64_t c = 0; c < 6; ++c)
        halves.set_out(half, row.row, row.head, c, row.out[static_cast<std::size_t>(c)]);
    }
  }
  for (std::int64_t p = 0; p < 8; ++p)
    for (std::int64_t row = 0; row < 2; ++row)
      for (std::int64_t h = 0; h < 2; ++h) {
        reversed.set_lse(p, row, h, all.in.partial_lse.at(7 - p, row, h));
        for (std::int64_t c = 0; c < 6; ++c) reversed.set_out(p, row, h, c, all.in.partial_out.at(7 - p, row, h, c));
      }
  const auto want = all.combine_all(), nested = halves.combine_all(), backwards = reversed.combine_all();
  for (std::size_t i = 0; i < want.size(); ++i)
    for (const auto* got : {&nested[i], &backwards[i]}) {
      EXPECT_NEAR(got->lse, want[i].lse, 1e-13);
      for (std::size_t c = 0; c < 6; ++c) EXPECT_NEAR(got->out[c], want[i].out[c], 1e-13);
    }
}

// Computed in fp32 in the plain way, and normalised by exp(LSE_p - LSE): both keep the limit that the gauges make.
TEST(combine, results_computed_in_fp32_keep_the_bound) {
  const double u = std::exp2(-24), c_e = std::exp2(-22);
  for (const std::int64_t p : {1, 2, 9, 64}) {
    const partials parts(p, 8, 4, 16, bf16, fp32, 6);
    const double gamma = static_cast<double>(p + 2) * u / (1 - static_cast<double>(p + 2) * u);
    for (const auto& row : parts.combine_all())
      for (const bool by_lse : {false, true}) {
        float a = -std::numeric_limits<float>::infinity(), sum = 0;
        const auto lse = [&](std::int64_t i) {
          return static_cast<float>(parts.in.partial_lse.at(i, row.row, row.head));
        };
        for (std::int64_t i = 0; i < p; ++i) a = std::max(a, lse(i));
        for (std::int64_t i = 0; i < p; ++i) sum += std::exp(lse(i) - a);
        const float total = a + std::log(sum);
        const double levels = std::abs(row.a) + std::abs(row.lse);
        EXPECT_LE(std::abs(total - row.lse), 2 * c_e + gamma + 4 * u * row.distance + 2 * u * levels);
        for (std::int64_t c = 0; c < 16; ++c) {
          float o = 0;
          for (std::int64_t i = 0; i < p; ++i)
            o += std::exp(lse(i) - (by_lse ? total : a)) *
                 static_cast<float>(parts.in.partial_out.at(i, row.row, row.head, c));
          if (!by_lse) o /= sum;
          const auto at = static_cast<std::size_t>(c);
          const double size = std::abs(row.out[at]), both = row.magnitude[at] + size;
          EXPECT_LE(std::abs(o - row.out[at]), u * size + both * (gamma + c_e) +
                                                   4 * u * (row.exponents[at] + std::abs(row.lse) * row.magnitude[at]) +
                                                   4 * u * (levels + row.distance) * size + c_e * size +
                                                   0x1p-126 * (row.sizes[at] + 4 * static_cast<double>(p) + 2));
        }
      }
  }
}

TEST(combine, strided_views_are_followed) {
  const partials parts(3, 4, 2, 5);
  doubles wide(static_cast<std::size_t>(4 * 3 * 2 * 8), nan), lse(static_cast<std::size_t>(2 * 3 * 4));
  auto in = parts.in;
  in.partial_out = {wide.data(), {fp64, {3, 4, 2, 5}, {16, 48, 8, 1}}};
  in.partial_lse = {lse.data(), {fp64, {3, 4, 2}, {4, 1, 12}}};
  for (std::int64_t p = 0; p < 3; ++p)
    for (std::int64_t row = 0; row < 4; ++row)
      for (std::int64_t h = 0; h < 2; ++h) {
        lse[static_cast<std::size_t>(in.partial_lse.offset(p, row, h))] = parts.in.partial_lse.at(p, row, h);
        for (std::int64_t c = 0; c < 5; ++c)
          wide[static_cast<std::size_t>(in.partial_out.offset(p, row, h, c))] = parts.in.partial_out.at(p, row, h, c);
      }
  expect_same_bits(combine(in, parts.all_rows()), parts.combine_all());
}

TEST(combine, wanted_rows_come_in_the_order_asked_for) {
  const partials parts(3, 4, 2, 5);
  const auto all = parts.combine_all();
  const auto got = combine(parts.in, std::vector<std::int64_t>{3, 0, 3});
  expect_same_bits(got, {all[6], all[7], all[0], all[1], all[6], all[7]});
}

TEST(combine, threads_and_repeats_change_no_bit) {
  const partials parts(64, 40, 16, 128, bf16, fp32);
  omp_set_num_threads(1);
  const auto one = parts.combine_all();
  for (const int threads : {1, 2, 3, 3}) {
    omp_set_num_threads(threads);
    expect_same_bits(parts.combine_all(), one);
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(combine, contradicting_shapes_and_rows_are_refused) {
  const partials parts(3, 4, 2, 5);
  EXPECT_THROW(combine(parts.in, std::vector<std::int64_t>{4}), suite_error);
  EXPECT_THROW(combine(parts.in, std::vector<std::int64_t>{-1}), suite_error);
  const auto refused = [&](auto change) {
    auto in = parts.in;
    change(in);
    EXPECT_THROW(combine(in, parts.all_rows()), suite_error);
  };
  refused([](auto& in) { in.p.hq = 3; });
  refused([](auto& in) { in.p.d = 6; });
  refused([](auto& in) { in.partial_lse.desc.shape[0] = 2; });
  refused([](auto& in) { in.partial_lse.desc.shape = {3, 4}; });
  refused([](auto& in) { in.partial_out.desc.strides[3] = 2; });
}

}  // namespace
}  // namespace msabench::reference
