// SPDX-License-Identifier: Apache-2.0
#include "judge/error_size.h"

#include <gtest/gtest.h>

#include <cmath>

#include "attend_world.h"
#include "judge/attend_expectation.h"
#include "judge/limits.h"
#include "judge/recall.h"

namespace msabench::judge::test {
namespace {

// 40 rows x 4 heads over 32 keys of nearly equal weight: two groups of 80, by KV head.
attend_world many_rows(dtype type = bf16) {
  attend_world w({.sequences = {{40, 90}}, .type = type});
  w.fill_random(5, 0.3);
  w.declared.p_operand = type;
  return w;
}

bool has(const std::vector<check_result>& checks, const std::string& id) {
  return std::ranges::find(checks, id, &check_result::id) != checks.end();
}

TEST(error_size, honest_rounding_is_as_large_as_expected) {
  for (const unsigned seed : {1u, 2u, 3u, 4u}) {
    attend_world w = many_rows();
    w.fill_random(seed, 0.3);
    w.run({.p = bf16});
    const auto checks = checks_of(w);
    EXPECT_TRUE(passes(checks)) << told(checks);
    EXPECT_GT(find_check(checks, "K4b").value, 0.5) << told(checks);
    EXPECT_LT(find_check(checks, "K4b").value, usual_group_size) << told(checks);
    EXPECT_TRUE(find_check(checks, "K6a").passed) << told(checks);
    EXPECT_TRUE(find_check(checks, "K6b").passed) << told(checks);
  }
}

TEST(error_size, honest_kinds_stay_below_both_limits) {
  struct kind {
    variant how;
    void (*declare)(numerics&);
  };
  const kind kinds[] = {
      {{.p = bf16, .truncates_p = true}, [](numerics& n) { n.truncated = truncates_p; }},
      {{.p = bf16, .sum_of_rounded_p = true}, [](numerics& n) { n.lse_from_rounded_p = 1; }},
      {{.p = bf16, .truncates_out = true}, [](numerics& n) { n.truncated = truncates_out; }},
      {{.p = bf16, .partial = bf16, .splits = 3}, [](numerics& n) { n.partial_store = bf16; }},
      {{.p = bf16, .reversed = true}, [](numerics&) {}},
  };
  for (const auto& k : kinds)
    for (const double sharpness : {0.1, 1.0, 4.0}) {
      attend_world w = many_rows();
      w.fill_random(9, sharpness);
      k.declare(w.declared);
      w.run(k.how);
      const auto checks = checks_of(w);
      EXPECT_TRUE(passes(checks)) << told(checks);
      if (has(checks, "K4b")) {
        EXPECT_LE(find_check(checks, "K4b").value, usual_group_size) << told(checks);
      }
    }
}

TEST(error_size, weights_coarser_than_declared_fail_whole_groups) {
  attend_world w = many_rows(fp16);
  w.run({.p = bf16});  // 8 times the declared roundoff
  const auto checks = checks_of(w);
  const auto k4b = find_check(checks, "K4b");
  EXPECT_FALSE(k4b.passed) << told(checks);
  EXPECT_EQ(k4b.kind, fail_kind::numeric);
  EXPECT_GT(k4b.value, 3) << told(checks);
  EXPECT_EQ(k4b.limit, 1.25);
}

TEST(error_size, one_row_with_large_errors_fails_alone) {
  attend_world w = many_rows();
  w.run({.p = bf16});
  const auto in = attend_inputs_of(w.subject());
  const roundoffs r = resolve(w.agreed, w.declared);
  const auto row = reference::attend_head(in, 17, 2, score_error_of(r));
  for (std::int64_t c = 0; c < w.shape.d; ++c)
    w.out.set(w.out.view().offset(17, 2, c),
              row.out[static_cast<std::size_t>(c)] +
                  (c % 2 == 0 ? 5 : -5) * expected_error(r, row, static_cast<std::size_t>(c)));
  const auto checks = checks_of(w);
  const auto k4a = find_check(checks, "K4a");
  EXPECT_FALSE(k4a.passed) << told(checks);
  EXPECT_EQ((std::vector<std::int64_t>{k4a.worst.index[0], k4a.worst.index[1]}), (std::vector<std::int64_t>{17, 2}));
  EXPECT_NEAR(k4a.value, 5, 0.6);
  EXPECT_TRUE(find_check(checks, "K4b").passed) << told(checks);
}

TEST(error_size, errors_in_one_direction_show_as_bias) {
  attend_world w = many_rows();
  w.declared.truncated = truncates_out;
  w.run({.p = bf16, .truncates_out = true});
  const auto bias = find_check(checks_of(w), "K6b");
  EXPECT_FALSE(bias.gate);
  EXPECT_FALSE(bias.passed) << bias.value << " " << bias.limit;
  EXPECT_NE(bias.note.find("toward 0"), std::string::npos) << bias.note;
}

TEST(error_size, more_than_usual_is_a_quality_warning) {
  attend_world w({});
  check_result held, large;
  held.id = "K1";
  held.passed = true;
  large = held;
  large.id = "K4b";
  large.value = 0.95;
  large.limit = most_group_size;
  w.targets = {};
  EXPECT_EQ(decide(w.subject(), {}, {held, large}, {}).decided, verdict::quality_warning);
  large.value = 0.85;
  EXPECT_EQ(decide(w.subject(), {}, {held, large}, {}).decided, verdict::pass);
}

TEST(error_size, single_precision_has_none) {
  attend_world w = many_rows(fp32);
  w.run({});
  const auto checks = checks_of(w);
  EXPECT_FALSE(has(checks, "K4a"));
  EXPECT_FALSE(has(checks, "K4b"));
}

TEST(error_size, coded_values_have_none) {
  attend_world w({.sequences = {{40, 90}}}, "block_code");
  w.fill_block_code();
  w.run({});
  EXPECT_FALSE(has(checks_of(w), "K4a"));
}

TEST(error_size, few_channels_are_not_judged) {
  attend_world w({.d = 4});
  w.fill_random(1);
  w.run({});
  EXPECT_FALSE(has(checks_of(w), "K4a"));
}

TEST(error_size, sums_of_coarse_accumulators_are_not_judged) {
  attend_world w = many_rows();
  w.run({.p = bf16});
  const auto row = reference::attend_head(attend_inputs_of(w.subject()), 3, 1, {});
  std::vector<double> out(row.out);
  roundoffs r = resolve(w.agreed, w.declared);
  EXPECT_TRUE(size_of_errors(r, row, out));
  r.u_m_out = 0x1p-11;
  EXPECT_FALSE(size_of_errors(r, row, out));
}

TEST(finer_declaration, is_told_where_errors_are_those_of_one) {
  attend_world w = many_rows();
  w.run({});  // exact weights
  const auto told_so = find_check(checks_of(w), "K6a");
  EXPECT_FALSE(told_so.gate);
  EXPECT_FALSE(told_so.passed);
  EXPECT_NE(told_so.note.find("p_operand bf16 is declared"), std::string::npos) << told_so.note;

  w.declared.p_operand = fp32;
  EXPECT_TRUE(find_check(checks_of(w), "K6a").passed);
  w.declared.partial_store = bf16;
  EXPECT_NE(find_check(checks_of(w), "K6a").note.find("partial_store bf16"), std::string::npos);
  w.declared.partial_store = fp32;
  w.declared.truncated = truncates_out;
  EXPECT_NE(find_check(checks_of(w), "K6a").note.find("out_store bf16 truncated"), std::string::npos);
}

TEST(finer_declaration, of_sums_of_rounded_weights_is_told_by_lse) {
  for (const bool rounded : {true, false}) {
    attend_world w = many_rows();
    w.fill_random(5);
    w.declared.lse_from_rounded_p = 1;
    w.run({.p = bf16, .sum_of_rounded_p = rounded});
    const auto sums = find_check(checks_of(w), "K6l");
    EXPECT_FALSE(sums.gate);
    EXPECT_EQ(sums.passed, rounded) << sums.value;
    EXPECT_EQ(sums.note.starts_with("lse_from_rounded_p 1 is declared"), !rounded) << sums.note;
    w.declared.lse_from_rounded_p = 0;
    EXPECT_FALSE(has(checks_of(w), "K6l"));
  }
  // Four rows x heads are too few to tell.
  attend_world few({.sequences = {{1, 90}}});
  few.fill_random(5);
  few.declared.lse_from_rounded_p = 1;
  few.run({.p = bf16});
  EXPECT_FALSE(has(checks_of(few), "K6l"));
}

TEST(finer_declaration, of_truncated_operands_is_told) {
  attend_world w = many_rows();
  w.fill_random(5, 1);
  w.agreed.out = fp32;
  w.out = tensor(fp32, {w.rows(), w.shape.hq, w.shape.d});
  w.declared.out_store = w.declared.p_operand = fp32;
  w.declared.operand = bf16;
  w.declared.rounded_operands = 2;
  w.declared.truncated = truncates_operand;
  w.run({});
  const auto told_so = find_check(checks_of(w), "K6a");
  EXPECT_NE(told_so.note.find("operand bf16 truncated is declared"), std::string::npos) << told_so.note;
}

// A kernel that is coarser in one field than it declares, on data that tells that field.
struct overdeclared {
  std::string field;
  variant how;
  void (*declare)(numerics&) = [](numerics&) {};
  dtype type = fp32;
};

TEST(overdeclared, each_field_beyond_p_fails) {
  const overdeclared fields[] = {
      {"operand", {.operand = bf16}},
      {"v_operand", {.value = bf16}},
      {"score_store", {.score = bf16}},
      {"score_acc", {.score_accumulator = bf16}},
      {"pv_acc", {.accumulator = bf16}},
      {"partial_store", {.partial = bf16, .splits = 3}},
      {"exp_rel_error", {.exp_factor = 1 + 0x1p-10}},
      {"log_abs_error", {.lse_factor = 1 + 0x1p-10}},
      {"lse_from_rounded_p", {.p = bf16, .sum_of_rounded_p = true}, [](numerics&) {}, bf16},
      {"out truncated", {.truncates_out = true}, [](numerics& n) { n.p_operand = fp32; }, bf16},
  };
  for (const auto& f : fields) {
    attend_world w = many_rows(f.type);
    w.fill_random(5, 1);
    f.declare(w.declared);
    ASSERT_TRUE(broken_declarations(w.agreed, w.declared, w.delivers).empty()) << f.field;
    w.run({});
    EXPECT_TRUE(passes(checks_of(w))) << f.field << "\n" << told(checks_of(w));
    w.run(f.how);
    EXPECT_FALSE(passes(checks_of(w))) << f.field << "\n" << told(checks_of(w));
  }
}

TEST(overdeclared, weights_truncated_and_not_declared_so_fail_their_size) {
  attend_world w = many_rows();
  w.agreed.out = fp32;
  w.declared.out_store = fp32;
  w.out = tensor(fp32, {w.rows(), w.shape.hq, w.shape.d});
  w.run({.p = bf16});
  EXPECT_TRUE(passes(checks_of(w))) << told(checks_of(w));
  w.run({.p = bf16, .truncates_p = true});
  EXPECT_FALSE(passes(checks_of(w))) << told(checks_of(w));
}

TEST(recall, of_the_heaviest_blocks) {
  attend_world w({.sequences = {{4, 90}}});
  w.fill_random(2, 2);
  const auto in = attend_inputs_of(w.subject());
  const reference::row_map map(in.cu_seqlens_q, in.kv_lens);
  const std::int64_t rows[] = {1, 3};
  const recall judged(in, map, rows);
  ASSERT_FALSE(judged.empty());

  // I* by brute force, and the set that it shares with none of.
  reference::attend_inputs all = in;
  all.ids = {};
  tensor best = w.ids, none = w.ids, half = w.ids;
  double half_mass = 0;
  for (const auto row : rows)
    for (std::int64_t kv_head = 0; kv_head < 2; ++kv_head) {
      std::vector<std::pair<double, std::int64_t>> mass(12);
      for (std::size_t b = 0; b < mass.size(); ++b) mass[b].second = static_cast<std::int64_t>(b);
      for (std::int64_t head = 2 * kv_head; head < 2 * kv_head + 2; ++head)
        for (const auto& key : reference::attended_keys(all, row, head))
          mass[static_cast<std::size_t>(key.key / 8)].first += key.weight;
      std::ranges::sort(mass, std::greater<>{});
      for (std::int64_t i = 0; i < 4; ++i) {
        const auto at = w.ids.view().offset(row, kv_head, i);
        const auto taken = [&](std::int64_t rank) {
          return static_cast<std::int32_t>(mass[static_cast<std::size_t>(rank)].second);
        };
        best.set_int(at, taken(i));
        none.set_int(at, taken(i + 4));
        half.set_int(at, taken(i < 2 ? i : i + 4));
      }
      half_mass +=
          (mass[0].first + mass[1].first) / (mass[0].first + mass[1].first + mass[2].first + mass[3].first) / 4;
    }
  EXPECT_EQ(judged.check(best.view())[0].value, 1);
  EXPECT_EQ(judged.check(best.view())[1].value, 1);
  EXPECT_EQ(judged.check(none.view())[0].value, 0);
  EXPECT_EQ(judged.check(none.view())[1].value, 0);
  EXPECT_EQ(judged.check(half.view())[0].value, 0.5);
  EXPECT_NEAR(judged.check(half.view())[1].value, half_mass, 1e-12);
  EXPECT_FALSE(judged.check(half.view())[0].gate);
}

TEST(recall, needs_more_blocks_than_are_selected) {
  attend_world w({.sequences = {{4, 30}}});
  w.fill_random(2);
  const auto in = attend_inputs_of(w.subject());
  const reference::row_map map(in.cu_seqlens_q, in.kv_lens);
  EXPECT_TRUE(recall(in, map, w.all_rows()).empty());
}

}  // namespace
}  // namespace msabench::judge::test
