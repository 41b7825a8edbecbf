// SPDX-License-Identifier: Apache-2.0
#include "judge/detectability.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "select_world.h"

namespace msabench::judge::test {
namespace {

std::vector<std::size_t> sampled(const attend_world& w) {
  const auto s = w.subject();
  return rows_to_perturb({s.inputs.at(slot::cu_seqlens_q), s.inputs.at(slot::kv_lens)}, w.all_rows(), s.agreed);
}

TEST(sampling, is_within_eight_and_spread) {
  EXPECT_TRUE(sampled(attend_world({.sequences = {{0, 5}}})).empty());
  EXPECT_EQ(sampled(attend_world({.sequences = {{3, 5}}})), (std::vector<std::size_t>{0, 1, 2}));
  const auto many = sampled(attend_world({.sequences = {{100, 100}, {100, 120}}}));
  EXPECT_LE(many.size(), 8U);
  EXPECT_GE(many.size(), 7U);
  EXPECT_TRUE(std::ranges::is_sorted(many));
  EXPECT_EQ(many.front(), 0U);
  EXPECT_EQ(many.back(), 199U);
}

// One row among a hundred has a block to spare and a key after it.
TEST(sampling, finds_the_rows_on_which_faults_can_show) {
  std::vector<sequence> sequences(100, {1, 8});
  sequences[37] = {2, 100};
  const auto at = sampled(attend_world({.sequences = sequences}));
  EXPECT_NE(std::ranges::find(at, 37U), at.end());
  sequences[37] = {1, 100};
  sequences[81] = {2, 8};
  const auto apart = sampled(attend_world({.sequences = sequences}));
  EXPECT_NE(std::ranges::find(apart, 37U), apart.end());
  EXPECT_NE(std::ranges::find(apart, 81U), apart.end());
}

attend_world m3_size(const std::string& family = "random") {
  attend_world w({.hq = 4, .hkv = 2, .d = 128, .block = 128, .topk = 16, .sequences = {{1, 3969}, {1, 4000}}}, family);
  return w;
}

TEST(attend_detectability, gross_faults_are_seen_on_random_values_at_m3_size) {
  auto w = m3_size();
  w.fill_random(4);
  for (const auto fault : {perturbation::drop_block, perturbation::double_block, perturbation::swap_block,
                           perturbation::neighbour_head_v, perturbation::drop_heavy_key})
    EXPECT_GT(seen(w, fault), 4) << name(fault);
  // Invisible to K1 and K2.
  EXPECT_LT(seen(w, perturbation::accumulate_16bit), 4);
}

TEST(attend_detectability, without_lse_single_keys_are_not_seen_on_random_values) {
  auto w = m3_size();
  w.fill_random(4);
  w.delivers.lse = lse_form::none;
  EXPECT_LT(seen(w, perturbation::drop_key), 4);
}

TEST(attend_detectability, codes_see_keys_and_blocks) {
  auto blocks = m3_size("block_code");
  blocks.fill_block_code();
  for (const auto fault : {perturbation::drop_block, perturbation::double_block, perturbation::swap_block})
    EXPECT_GT(seen(blocks, fault), 4) << name(fault);
  auto keys = m3_size("key_code");
  keys.delivers.lse = lse_form::none;
  keys.fill_key_code(30);
  EXPECT_GT(seen(keys, perturbation::drop_key), 4);
  EXPECT_GT(seen(keys, perturbation::double_key), 4);
}

TEST(attend_detectability, carry_sees_narrow_accumulation_unless_it_is_declared) {
  auto w = m3_size("carry");
  w.fill_carry();
  EXPECT_GT(seen(w, perturbation::accumulate_16bit), 4);
  w.declared.pv_acc = fp8_acc;
  EXPECT_LT(seen(w, perturbation::accumulate_16bit), 4);
}

TEST(attend_detectability, a_fault_that_cannot_show_counts_zero) {
  attend_world w({.hq = 2, .hkv = 1, .sequences = {{1, 20}}});
  w.fill_random(1);
  EXPECT_EQ(seen(w, perturbation::neighbour_head_v), 0);
  EXPECT_EQ(seen(w, perturbation::key_past_diagonal), 0);
  EXPECT_EQ(seen(w, perturbation::swap_block), 0);
  EXPECT_EQ(seen(w, perturbation::swap_table_entries), 0);
}

TEST(attend_detectability, the_effect_equals_that_of_the_planted_fault) {
  attend_world w({.sequences = {{8, 200}}, .type = fp32});
  w.fill_random(4);
  w.targets = {perturbation::key_past_diagonal};
  const auto measured = expect(w.subject(), w.all_rows())->measure();
  variant v;
  v.edit_keys = [&](std::int64_t row, std::int64_t, std::vector<std::int64_t>& keys) {
    const auto next = w.position(row) + 1;
    if (next < w.kv_len(row) && next / w.shape.block == w.position(row) / w.shape.block) keys.push_back(next);
  };
  w.run(v);
  double worst = 0;
  for (const auto& c : checks_of(w))
    if (c.id == "K1" || c.id == "K2") worst = std::max(worst, c.value / c.limit);
  // The measure looks at one head per KV head, the checks at all of them.
  EXPECT_GE(worst, 0.9 * measured.value);
  EXPECT_LE(worst, 20 * measured.value);
  EXPECT_GT(measured.value, 4);
}

TEST(attend_detectability, is_the_minimum_over_the_targets) {
  auto w = m3_size();
  w.fill_random(4);
  w.targets = {perturbation::drop_block, perturbation::accumulate_16bit};
  const auto d = expect(w.subject(), w.all_rows())->measure();
  EXPECT_EQ(d.weakest_fault, "accumulate_16bit");
  EXPECT_EQ(d.value, d.by_fault[1].second);
  EXPECT_GT(d.by_fault[0].second, d.value);
}

TEST(attend_detectability, swapped_pages_are_seen) {
  // Blocks of 8 in pages of 8; the cache is paged so that tables exist.
  attend_world w({.sequences = {{1, 100}}});
  w.fill_random(4);
  w.agreed.layout = page_layout::paged;
  w.agreed.page_size = 8;
  const std::int64_t pages = 13;
  tensor k(bf16, {pages, 2, 8, 16}), v = k, table(i32, {1, pages});
  for (std::int64_t j = 0; j < 100; ++j)
    for (std::int64_t r = 0; r < 2; ++r)
      for (std::int64_t c = 0; c < 16; ++c) {
        const std::int64_t page = (j / 8) * 5 % pages;
        k.set(k.view().offset(page, r, j % 8, c), w.k.view().at(j, r, c));
        v.set(v.view().offset(page, r, j % 8, c), w.v.view().at(j, r, c));
        table.set_int(j / 8, static_cast<std::int32_t>(page));
      }
  auto s = w.subject();
  s.inputs[slot::k] = k.view();
  s.inputs[slot::v] = v.view();
  s.inputs[slot::block_table] = table.view();
  s.targets = {perturbation::swap_table_entries};
  const std::int64_t rows[] = {0};
  EXPECT_GT(expect(s, rows)->measure().value, 4);
}

select_world hard_scores() {
  std::vector<std::vector<double>> scores;
  for (int row = 0; row < 3; ++row)
    for (int h = 0; h < 2; ++h) {
      std::vector<double> s;
      for (int b = 0; b < 40; ++b) s.push_back(-100 + ((b * 7 + 11 * h + 5 * row) % 40));
      s.back() = -1000;  // the local block never wins by its score
      scores.push_back(s);
    }
  return {{40, 40, 40}, 2, 4, scores};
}

double seen(select_world& w, perturbation fault) {
  w.targets = {fault};
  const auto d = expect(w.subject(), w.all_rows())->measure();
  EXPECT_TRUE(std::isfinite(d.value));
  return d.value;
}

TEST(select_detectability, faults_that_change_the_set_are_unbounded) {
  auto w = hard_scores();
  for (const auto fault : {perturbation::drop_last_choice, perturbation::forget_local, perturbation::forced_extra,
                           perturbation::relu_scores, perturbation::shared_heads})
    EXPECT_EQ(seen(w, fault), unbounded_effect) << name(fault);
}

TEST(select_detectability, faults_that_change_nothing_count_zero) {
  auto w = hard_scores();
  for (const auto fault :
       {perturbation::nan_wins, perturbation::sentinel_collides, perturbation::neighbour_row, perturbation::rank_16bit})
    EXPECT_EQ(seen(w, fault), 0) << name(fault);
  select_world few({2}, 1, 4, {{1, 2}});
  EXPECT_EQ(seen(few, perturbation::forget_local), 0);
  EXPECT_EQ(seen(few, perturbation::drop_last_choice), unbounded_effect);
}

TEST(select_detectability, special_scores_expose_their_faults) {
  const double nan = std::nan(""), inf = INFINITY;
  select_world nans({6}, 1, 3, {{3, nan, 2, 1, 0, 0}});
  EXPECT_EQ(seen(nans, perturbation::nan_wins), unbounded_effect);
  select_world huge({6}, 1, 2, {{2e30, inf, 2, 1, 0, 0}});
  EXPECT_EQ(seen(huge, perturbation::sentinel_collides), unbounded_effect);
  select_world outlier({6}, 1, 3, {{1e6, 0.5, 2, 1, 0, 0}});
  EXPECT_EQ(seen(outlier, perturbation::rank_16bit), unbounded_effect);
  outlier.delivers.rank_step = 1.0F / 65535;
  EXPECT_LT(seen(outlier, perturbation::rank_16bit), 4);
}

TEST(select_detectability, ties_are_seen_where_the_low_id_is_promised) {
  select_world w({6}, 1, 3, {{1, 1, 1, 1, 1, 1}});
  EXPECT_EQ(seen(w, perturbation::drop_last_choice), 0);
  w.delivers.ties_low_id = true;
  EXPECT_EQ(seen(w, perturbation::drop_last_choice), unbounded_effect);
}

}  // namespace
}  // namespace msabench::judge::test
