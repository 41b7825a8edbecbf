// SPDX-License-Identifier: Apache-2.0
// Partial results: what each variant promises, shapes and bounds.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// As made_case, for an operator without lengths.
struct made_partials {
  explicit made_partials(std::string_view name)
      : c(parse_case(name)), p(make_problem(c)), set(make_inputs(c, p)), in(set.views()) {}
  case_spec c;
  problem p;
  input_set set;
  std::map<slot, tensor_view> in;

  const std::vector<std::int64_t>& shape() const { return in.at(slot::partial_out).desc.shape; }
  double lse(std::int64_t part, std::int64_t row, std::int64_t head) const {
    return in.at(slot::partial_lse).at(part, row, head);
  }
  double value(std::int64_t part, std::int64_t row, std::int64_t head, std::int64_t c_index) const {
    return in.at(slot::partial_out).at(part, row, head, c_index);
  }
  std::int64_t without_keys(std::int64_t row, std::int64_t head) const {
    std::int64_t count = 0;
    for (std::int64_t part = 0; part < shape()[0]; ++part) count += lse(part, row, head) == -infinity;
    return count;
  }
};

const char* const every_variant[] = {"random", "skewed", "holes", "large", "tiny"};

std::string named(const std::string& variant, const std::string& rest) {
  return "combine/h4x2.d16.b16.k2.l1.i0/rag.draft/fp16/partials." + variant + rest + "/s3";
}

TEST(combine_inputs, parts_without_keys_hold_nan_and_only_they) {
  for (const char* variant : every_variant)
    for (const char* rest : {"/split5", "/split5/part16", "/split5/stride", "/split5/slack"}) {
      const made_partials m(named(variant, rest));
      for (std::int64_t part = 0; part < 5; ++part)
        for (std::int64_t row = 0; row < m.shape()[1]; ++row)
          for (std::int64_t head = 0; head < 4; ++head) {
            const double lse = m.lse(part, row, head);
            EXPECT_TRUE(std::isfinite(lse) || lse == -infinity);
            for (std::int64_t c = 0; c < 16; ++c)
              EXPECT_EQ(std::isnan(m.value(part, row, head, c)), lse == -infinity) << variant << rest;
          }
    }
}

TEST(combine_inputs, shapes_tell_what_bounds_do_not) {
  const made_partials exact(named("random", "/split5")), slack(named("random", "/split5/slack"));
  EXPECT_EQ(exact.shape(), (std::vector<std::int64_t>{5, 36, 4, 16}));
  EXPECT_EQ(slack.shape(), exact.shape());
  EXPECT_GT(slack.p.splits, 5);
  EXPECT_GT(slack.p.total_q, 36);
  EXPECT_EQ(slack.set.find(slot::out)->desc.shape[0], 36);
  EXPECT_EQ(exact.in.at(slot::partial_out).desc.type, fp32);
  EXPECT_EQ(made_partials(named("random", "/split5/part16")).in.at(slot::partial_out).desc.type, fp16);
  EXPECT_EQ(made_partials(named("random", "")).shape()[0], 0);
}

TEST(combine_inputs, random_parts_are_as_full_as_split_keys) {
  const made_partials m("combine/m3/q1.n9/bf16/partials.random/split4/s0");
  // 9 keys over 4 parts of 3: the last has none.
  for (std::int64_t head = 0; head < 64; ++head) {
    EXPECT_EQ(m.without_keys(0, head), 1);
    EXPECT_EQ(m.lse(3, 0, head), -infinity);
  }
  const made_partials padding("combine/m3.tp4/rag.holes/bf16/partials.random/split4/s0");
  EXPECT_EQ(padding.without_keys(0, 5), 4);
}

TEST(combine_inputs, masses_of_skewed_are_one_to_31) {
  const made_partials m(named("skewed", "/split5"));
  for (std::int64_t row = 0; row < 36; ++row) {
    double heaviest = -infinity, sum = 0;
    for (std::int64_t part = 0; part < 5; ++part) heaviest = std::max(heaviest, m.lse(part, row, 1));
    for (std::int64_t part = 0; part < 5; ++part) sum += std::exp(m.lse(part, row, 1) - heaviest);
    EXPECT_NEAR((sum - 1) / 4, 1 / 31.0, 1e-3);
  }
}

TEST(combine_inputs, holes_come_in_every_number) {
  const made_partials m(named("holes", "/split5"));
  EXPECT_EQ(m.without_keys(0, 0), 1);
  EXPECT_EQ(m.without_keys(14, 2), 4);
  EXPECT_EQ(m.without_keys(15, 3), 5);
}

TEST(combine_inputs, tiny_weights_are_all_that_odd_channels_have) {
  const made_partials m(named("tiny", "/split5"));
  bool below = false, above = false;
  for (std::int64_t row = 0; row < 36; ++row)
    for (std::int64_t part = 0; part < 5; ++part) {
      const bool heavy = part == (row + 2) % 5;
      const float weight = std::exp(static_cast<float>(m.lse(part, row, 2) - 0.5));
      if (heavy) {
        EXPECT_EQ(m.value(part, row, 2, 7), 0);
      }
      if (heavy) continue;
      below |= weight < 0x1p-126F;
      above |= weight >= 0x1p-126F;
    }
  EXPECT_TRUE(below && above);
}

TEST(combine_inputs, log_sum_exps_are_dyadic) {
  for (const char* variant : every_variant) {
    const made_partials m(named(variant, "/split5"));
    for (std::int64_t row = 0; row < 36; ++row)
      if (const double steps = m.lse(1, row, 0) * 512; std::isfinite(steps)) {
        EXPECT_EQ(steps, std::round(steps));
      }
  }
}

}  // namespace
}  // namespace msabench
