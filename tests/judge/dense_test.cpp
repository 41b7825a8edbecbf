// SPDX-License-Identifier: Apache-2.0
// `dense` is judged as `attend` is, over every visible key.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attend_world.h"

namespace msabench::judge::test {
namespace {

using keys_of_row = std::vector<std::int64_t>;

attend_shape dense(std::vector<sequence> sequences, std::int32_t d = 16, std::int32_t block = 8) {
  return {.d = d, .block = block, .topk = 2, .sequences = std::move(sequences), .dense = true};
}

variant editing(std::function<void(std::int64_t, keys_of_row&)> edit) {
  variant v;
  v.edit_keys = [edit = std::move(edit)](std::int64_t row, std::int64_t, keys_of_row& keys) { edit(row, keys); };
  return v;
}

std::string named(attend_world& w, const variant& v) {
  w.run(v);
  const auto k3 = find_check(checks_of(w), "K3");
  EXPECT_FALSE(k3.passed);
  return k3.named;
}

TEST(dense, honest_implementations_pass) {
  for (const double sharpness : {0.3, 1.0, 4.0})
    for (const variant& how : {variant{}, variant{.reversed = true}, variant{.p = bf16}, variant{.splits = 7}}) {
      attend_world w(dense({{20, 45}, {3, 3}, {1, 300}, {1, 0}, {5, 2}}));
      w.fill_random(3, sharpness);
      w.run(how);
      const auto checks = checks_of(w);
      EXPECT_TRUE(passes(checks)) << told(checks);
    }
}

TEST(dense, a_row_of_selected_blocks_only_fails) {
  attend_world w(dense({{4, 300}}));
  w.fill_random(1);
  w.run(editing([](std::int64_t row, keys_of_row& keys) {
    if (row == 2) std::erase_if(keys, [](auto k) { return k / 8 == 11; });
  }));
  const auto checks = checks_of(w);
  EXPECT_FALSE(find_check(checks, "K2").passed) << told(checks);
  EXPECT_EQ(find_check(checks, "K2").worst.index[0], 2);
}

TEST(dense, codes_name_keys_and_blocks) {
  attend_world keys(dense({{8, 320}}, 64), "key_code");
  keys.fill_key_code(38);
  EXPECT_EQ(named(keys, editing([](std::int64_t row, keys_of_row& k) {
                    if (row == 5) std::erase(k, 307);
                  })),
            "key 307 (block 38, offset 3) dropped");
  EXPECT_EQ(named(keys, editing([](std::int64_t, keys_of_row& k) { k.push_back(307); })),
            "key 307 (block 38, offset 3) counted twice");
  attend_world next(dense({{8, 320}}, 64), "key_code");
  next.fill_key_code(39);
  EXPECT_EQ(named(next, editing([&](std::int64_t row, keys_of_row& k) {
                    if (row == 3) k.push_back(next.position(row) + 1);
                  })),
            "key 316 (block 39, offset 4) attended though past the row's position");
  attend_world blocks(dense({{8, 320}}, 64), "block_code");
  blocks.fill_block_code();
  EXPECT_EQ(
      named(blocks, editing([](std::int64_t, keys_of_row& k) { std::erase_if(k, [](auto j) { return j / 8 == 3; }); })),
      "block 3 dropped");
}

TEST(dense, empty_rows_are_held_to_zero) {
  attend_world w(dense({{3, 2}, {1, 20}}));
  w.fill_random(1);
  w.run({});
  EXPECT_TRUE(passes(checks_of(w)));
  w.out.set(w.out.view().offset(0, 0, 3), 0x1p-100);
  EXPECT_EQ(find_check(checks_of(w), "K0").kind, fail_kind::numeric);
}

TEST(dense, a_declaration_that_would_do_is_told) {
  attend_world w(dense({{4, 300}}));
  w.fill_random(5);
  w.declared.p_operand = fp32;
  w.run({.p = bf16});
  const auto k1 = find_check(checks_of(w), "K1");
  ASSERT_FALSE(k1.passed);
  EXPECT_EQ(k1.cure.rfind("p_operand", 0), 0U) << k1.cure;
}

TEST(dense, faults_are_seen_as_they_are_on_attend) {
  attend_world random(dense({{1, 2000}, {1, 1500}}, 128, 128));
  random.fill_random(4);
  for (const auto fault : {perturbation::drop_block, perturbation::double_block, perturbation::neighbour_head_v})
    EXPECT_GT(seen(random, fault), 4) << name(fault);
  // Nothing visible is left out, so nothing can take a block's place.
  EXPECT_EQ(seen(random, perturbation::swap_block), 0);
  attend_world keys(dense({{1, 5000}}, 128, 128), "key_code");
  keys.fill_key_code(30);
  keys.delivers.lse = lse_form::none;
  EXPECT_GT(seen(keys, perturbation::drop_key), 4);
  EXPECT_GT(seen(keys, perturbation::double_key), 4);
  attend_world blocks(dense({{1, 5000}}, 128, 128), "block_code");
  blocks.fill_block_code();
  EXPECT_GT(seen(blocks, perturbation::drop_block), 4);
}

}  // namespace
}  // namespace msabench::judge::test
