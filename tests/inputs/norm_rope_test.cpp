// SPDX-License-Identifier: Apache-2.0
// Heads of tokens, their weights and the table of angles: what each variant promises, shapes and bounds.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

std::string named(const std::string& variant, const std::string& rest = "", const std::string& type = "fp16") {
  return "qk_norm_rope/h4x2.d32.di24.b16.k2.l1.i0/rag.draft/" + type + "/tokens." + variant + rest + "/s3";
}

TEST(norm_rope_inputs, shapes_are_those_of_this_call) {
  const made_case m(named("random"));
  EXPECT_EQ(m.view(slot::q).desc.shape, (std::vector<std::int64_t>{36, 4, 32}));
  EXPECT_EQ(m.view(slot::k).desc.shape, (std::vector<std::int64_t>{36, 2, 32}));
  EXPECT_EQ(m.view(slot::k_idx).desc.shape, (std::vector<std::int64_t>{36, 24}));
  EXPECT_EQ(m.view(slot::k_idx_norm).desc.shape, (std::vector<std::int64_t>{24}));
  EXPECT_EQ(m.view(slot::cos_sin).desc.shape, (std::vector<std::int64_t>{2179, 12}));
  EXPECT_EQ(m.view(slot::cos_sin).desc.type, fp32);
  EXPECT_DOUBLE_EQ(m.p.norm_eps, 1e-6);
  EXPECT_EQ(made_case(named("random", "/rope24")).view(slot::cos_sin).desc.shape[1], 24);
  EXPECT_EQ(made_case(named("random", "/rope0")).view(slot::cos_sin).desc.shape[1], 0);
  EXPECT_GT(made_case(named("random", "/slack")).view(slot::q).desc.shape[0], 36);
}

TEST(norm_rope_inputs, angles_are_points_of_the_unit_circle_all_different) {
  const made_case m(named("random"));
  const tensor_view& table = m.view(slot::cos_sin);
  std::set<std::pair<double, double>> seen;
  int quadrants[4] = {};
  for (std::int64_t p = 0; p < table.desc.shape[0]; ++p)
    for (std::int64_t i = 0; i < 6; ++i) {
      const double c = table.at(p, i), s = table.at(p, 6 + i);
      EXPECT_NEAR(c * c + s * s, 1, 4 * 0x1p-24);
      ++quadrants[(c < 0 ? 2 : 0) + (s < 0 ? 1 : 0)];
      seen.emplace(c, s);
    }
  for (const int count : quadrants) EXPECT_GT(count, 2179 * 6 / 5);
  EXPECT_GT(seen.size(), 2179 * 6 * 8 / 10);
}

TEST(norm_rope_inputs, a_large_table_holds_what_the_call_reads_and_its_neighbours) {
  const made_case m("qk_norm_rope/m3/q3.n1M/bf16/tokens.random/s0");
  const tensor_view& table = m.view(slot::cos_sin);
  ASSERT_EQ(table.desc.shape[0], 1 << 20);
  const auto filled = [&](std::int64_t p) { return table.at(p, 0) != 0 || table.at(p, 40) != 0; };
  for (const std::int64_t p : {(1 << 20) - 4, (1 << 20) - 3, (1 << 20) - 1, 0, 2}) EXPECT_TRUE(filled(p)) << p;
  EXPECT_FALSE(filled(500000));
  EXPECT_LT(m.set.bytes(), 8u << 20);
}

TEST(norm_rope_inputs, every_element_is_finite_and_every_variant_what_it_says) {
  for (const char* variant : {"random", "small", "subnormal", "outlier"})
    for (const char* type : {"bf16", "fp16", "fp32"})
      for (const char* rest : {"", "/stride"}) {
        const made_case m(named(variant, rest, type));
        const tensor_view& q = m.view(slot::q);
        for (std::int64_t row = 0; row < 36; ++row)
          for (std::int64_t head = 0; head < 4; ++head) {
            double squares = 0, largest = 0;
            for (std::int64_t c = 0; c < 32; ++c) {
              const double x = q.at(row, head, c);
              ASSERT_TRUE(std::isfinite(x));
              squares += x * x / 32;
              largest = std::max(largest, std::abs(x));
              if (std::string_view(variant) == "subnormal") {
                EXPECT_EQ(x * 0x1p24, std::round(x * 0x1p24));
              }
            }
            if (std::string_view(variant) == "small") {
              EXPECT_TRUE(squares > 1e-7 && squares < 1e-5) << squares;
            }
            if (std::string_view(variant) == "subnormal") {
              EXPECT_LT(largest, 4 * 0x1p-24);
            }
          }
        for (std::int64_t c = 0; c < 24; ++c) {
          const double w = m.view(slot::k_idx_norm).at(c);
          EXPECT_TRUE(std::abs(w) < 1) << w;
          if (std::string_view(variant) == "subnormal") {
            EXPECT_NEAR(w, -0.9, 0.08);
          }
        }
      }
  const made_case m(named("outlier", "", "fp32"));
  double marked = 0, others = 0;
  for (std::int64_t row = 0; row < 32; ++row)
    for (std::int64_t c = 0; c < 32; ++c) (c == row ? marked : others) += std::abs(m.view(slot::q).at(row, 0, c));
  EXPECT_GT(marked, 2 * others);
}

}  // namespace
}  // namespace msabench
