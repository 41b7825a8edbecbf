// SPDX-License-Identifier: Apache-2.0
// One planted fault each: rejected, by the check and with the name that the fault calls for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attend_world.h"

namespace msabench::judge::test {
namespace {

using keys_of_row = std::vector<std::int64_t>;

// 40 blocks of 8 keys, four selected; row 5 sees up to key 317 (block 39, offset 5).
attend_world coded(const std::string& family, std::int64_t coded_block = 38) {
  attend_world w({.hq = 4, .hkv = 2, .d = 64, .block = 8, .topk = 4, .sequences = {{8, 320}}}, family);
  family == "block_code" ? w.fill_block_code() : w.fill_key_code(coded_block);
  return w;
}

variant editing(std::function<void(std::int64_t, std::int64_t, keys_of_row&)> edit) {
  variant v;
  v.edit_keys = std::move(edit);
  return v;
}

std::vector<check_result> run(attend_world& w, const variant& v) {
  w.run(v);
  return checks_of(w);
}

TEST(fault, dropped_key_is_named_by_the_key_code) {
  auto w = coded("key_code");
  const auto checks = run(w, editing([](std::int64_t row, std::int64_t, keys_of_row& keys) {
                            if (row == 5) std::erase(keys, 307);
                          }));
  const auto k3 = find_check(checks, "K3");
  EXPECT_FALSE(k3.passed);
  EXPECT_EQ(k3.named, "key 307 (block 38, offset 3) dropped") << told(checks);
  EXPECT_EQ(k3.worst.index[0], 5);
  EXPECT_EQ(k3.worst.got, 0);
  EXPECT_EQ(k3.kind, fail_kind::numeric);
  EXPECT_EQ(k3.cure, "");
}

TEST(fault, doubled_key_is_named_by_the_key_code) {
  auto w = coded("key_code");
  const auto checks = run(w, editing([](std::int64_t row, std::int64_t kv_head, keys_of_row& keys) {
                            if (row == 5 && kv_head == 0) keys.push_back(307);
                          }));
  EXPECT_EQ(find_check(checks, "K3").named, "key 307 (block 38, offset 3) counted twice") << told(checks);
}

// KV head 1 selects blocks 34 to 37 and the row's own.
TEST(fault, key_of_an_unselected_block_is_named) {
  auto w = coded("key_code");
  const auto checks = run(w, editing([](std::int64_t row, std::int64_t kv_head, keys_of_row& keys) {
                            if (row == 5 && kv_head == 1) keys.push_back(307);
                          }));
  EXPECT_EQ(find_check(checks, "K3").named, "key 307 (block 38, offset 3) attended though not selected")
      << told(checks);
}

TEST(fault, dropped_block_is_named_by_the_block_code) {
  auto w = coded("block_code");
  const auto checks = run(w, editing([](std::int64_t row, std::int64_t kv_head, keys_of_row& keys) {
                            if (row == 2 && kv_head == 1) std::erase_if(keys, [](auto k) { return k / 8 == 37; });
                          }));
  const auto k3 = find_check(checks, "K3");
  EXPECT_EQ(k3.named, "block 37 dropped") << told(checks);
  EXPECT_EQ(k3.worst.index[0], 2);
  EXPECT_GE(k3.worst.index[1], 2);
}

TEST(fault, dropped_block_is_named_by_the_key_code) {
  auto w = coded("key_code");
  const auto checks = run(w, editing([](std::int64_t row, std::int64_t, keys_of_row& keys) {
                            if (row == 5) std::erase_if(keys, [](auto k) { return k / 8 == 38; });
                          }));
  EXPECT_EQ(find_check(checks, "K3").named, "block 38 dropped") << told(checks);
}

TEST(fault, doubled_block_is_named) {
  auto w = coded("block_code");
  const auto checks = run(w, editing([](std::int64_t row, std::int64_t, keys_of_row& keys) {
                            if (row != 4) return;
                            const auto copy = keys;
                            for (const auto k : copy)
                              if (k / 8 == 37) keys.push_back(k);
                          }));
  EXPECT_EQ(find_check(checks, "K3").named, "block 37 counted twice") << told(checks);
}

TEST(fault, swapped_block_is_named_with_both) {
  auto w = coded("block_code");
  const auto checks = run(w, editing([](std::int64_t row, std::int64_t, keys_of_row& keys) {
                            for (auto& k : keys)
                              if (row == 4 && k / 8 == 37) k -= 10 * 8;
                          }));
  EXPECT_EQ(find_check(checks, "K3").named, "block 37 dropped, block 27 attended though not selected") << told(checks);
}

TEST(fault, mask_off_by_one_is_named) {
  auto w = coded("key_code", 39);
  const auto checks = run(w, editing([&](std::int64_t row, std::int64_t, keys_of_row& keys) {
                            if (row == 3) keys.push_back(w.position(row) + 1);
                          }));
  EXPECT_EQ(find_check(checks, "K3").named, "key 316 (block 39, offset 4) attended though past the row's position")
      << told(checks);
}

TEST(fault, mask_that_hides_the_diagonal_is_named) {
  auto w = coded("key_code", 39);
  const auto checks = run(w, editing([&](std::int64_t row, std::int64_t, keys_of_row& keys) {
                            if (row == 3) std::erase(keys, w.position(row));
                          }));
  EXPECT_EQ(find_check(checks, "K3").named, "key 315 (block 39, offset 3) dropped") << told(checks);
}

TEST(fault, wrong_value_head_is_named) {
  auto w = coded("block_code");
  variant v;
  v.value_head = [](std::int64_t) { return 1; };
  const auto checks = run(w, v);
  EXPECT_EQ(find_check(checks, "K3").named, "V of KV head 1 instead of 0") << told(checks);
}

TEST(fault, aliased_channels_get_no_name) {
  // 80 blocks on 64 channels: block 71 shares its channel with block 7, and both are selected.
  attend_world w({.hq = 2, .hkv = 1, .d = 64, .block = 8, .topk = 4, .sequences = {{1, 640}}}, "block_code");
  w.fill_block_code();
  const std::int32_t chosen[] = {7, 71, 78, 79};
  for (int i = 0; i < 4; ++i) w.ids.set_int(i, chosen[i]);
  w.run(editing(
      [](std::int64_t, std::int64_t, keys_of_row& keys) { std::erase_if(keys, [](auto k) { return k / 8 == 71; }); }));
  const auto checks = checks_of(w);
  EXPECT_FALSE(find_check(checks, "K3").passed);
  EXPECT_EQ(find_check(checks, "K3").named, "") << told(checks);
}

TEST(fault, narrow_accumulation_shows_on_carry_only) {
  const variant narrow{.accumulator = bf16};
  attend_world w({.d = 32, .block = 128, .topk = 8, .sequences = {{1, 1024}}}, "carry");
  w.fill_carry();
  const auto checks = run(w, narrow);
  EXPECT_FALSE(find_check(checks, "K3").passed) << told(checks);
  EXPECT_GT(find_check(checks, "K3").value, 10 * find_check(checks, "K3").limit) << told(checks);
}

TEST(fault, coarse_declared_accumulator_is_not_observed_on_carry) {
  attend_world w({.d = 32, .block = 32, .topk = 8, .sequences = {{1, 256}}, .type = bf16}, "carry");
  w.fill_carry();
  w.declared.pv_acc = fp8_acc;
  w.run({});
  const auto k3 = find_check(checks_of(w), "K3");
  EXPECT_FALSE(k3.observed);
  EXPECT_FALSE(k3.passed);
}

TEST(fault, unwritten_row_breaks_the_contract) {
  attend_world w({});
  w.fill_random(1);
  w.run({});
  const auto whole = w.out.bytes;
  w.poison_outputs(1);
  const auto row_bytes = static_cast<std::ptrdiff_t>(w.shape.hq * w.shape.d * 2);
  auto partly = w.out.bytes;
  std::copy(whole.begin(), whole.end() - row_bytes, partly.begin());
  w.run({});
  w.out.bytes = partly;
  const auto checks = expect(w.subject(), w.all_rows())->check(w.outputs(), 1, 0);
  const auto k0 = find_check(checks, "K0");
  EXPECT_FALSE(k0.passed);
  EXPECT_EQ(k0.kind, fail_kind::contract);
  EXPECT_EQ(k0.value, w.shape.hq * w.shape.d);
  EXPECT_EQ(k0.worst.index, (std::vector<std::int64_t>{19, 0, 0}));
  // With the poison of another launch it is just a NaN.
  const auto stale = expect(w.subject(), w.all_rows())->check(w.outputs(), 0, 0);
  EXPECT_EQ(find_check(stale, "K0").kind, fail_kind::nonfinite);
}

TEST(fault, unwritten_row_is_seen_on_rows_that_the_oracle_does_not_sample) {
  attend_world w({});
  w.fill_random(1);
  w.run({});
  w.out.set(w.out.view().offset(7, 1, 3), std::nan(""));
  const std::int64_t rows[] = {0, 19};
  EXPECT_EQ(find_check(expect(w.subject(), rows)->check(w.outputs(), 0, 0), "K0").kind, fail_kind::nonfinite);
}

TEST(fault, infinity_is_not_finite) {
  attend_world w({});
  w.fill_random(1);
  w.run({});
  w.lse.set(5, INFINITY);
  const auto checks = checks_of(w);
  EXPECT_EQ(find_check(checks, "K0").kind, fail_kind::nonfinite);
  EXPECT_EQ(find_check(checks, "K2").kind, fail_kind::nonfinite);
}

TEST(fault, empty_rows_are_exactly_zero_and_minus_infinity) {
  attend_world w({.sequences = {{1, 0}, {2, 20}}});
  w.fill_random(1);
  w.run({});
  w.out.set(w.out.view().offset(0, 0, 3), 0x1p-100);
  auto checks = checks_of(w);
  EXPECT_EQ(find_check(checks, "K0").kind, fail_kind::numeric);
  w.run({});
  w.lse.set(0, -1e30);
  EXPECT_FALSE(find_check(checks_of(w), "K0").passed);
  w.out.set(w.out.view().offset(0, 0, 3), std::nan(""));
  EXPECT_EQ(find_check(checks_of(w), "K0").kind, fail_kind::nonfinite);
  w.delivers.empty_row = empty_form::undefined;
  EXPECT_TRUE(find_check(checks_of(w), "K0").passed);
}

TEST(fault, wrong_base_scale_and_head_fail_where_they_must) {
  attend_world w({});
  w.fill_random(1);
  auto checks = run(w, {.lse_factor = 1 / std::log(2.0)});
  EXPECT_TRUE(find_check(checks, "K1").passed);
  EXPECT_FALSE(find_check(checks, "K2").passed);
  checks = run(w, {.scale_factor = 1.01});
  EXPECT_FALSE(find_check(checks, "K2").passed);
  variant v;
  v.value_head = [](std::int64_t r) { return 1 - r; };
  checks = run(w, v);
  EXPECT_FALSE(find_check(checks, "K1").passed);
  EXPECT_TRUE(find_check(checks, "K2").passed);
}

// The sizes that verdicts are made for: 16 blocks of 128 keys.
TEST(fault, at_m3_size_a_key_fails_k2_and_a_block_k1) {
  attend_world w({.hq = 4, .hkv = 2, .d = 128, .block = 128, .topk = 16, .sequences = {{1, 4000}}});
  w.fill_random(4);
  auto checks = run(w, {.p = bf16});
  EXPECT_TRUE(passes(checks)) << told(checks);
  checks = run(w, editing([](std::int64_t, std::int64_t, keys_of_row& keys) { keys.erase(keys.begin() + 1000); }));
  EXPECT_FALSE(find_check(checks, "K2").passed) << told(checks);
  checks = run(w, editing([](std::int64_t, std::int64_t, keys_of_row& keys) {
                 keys.erase(keys.begin() + 640, keys.begin() + 768);
               }));
  EXPECT_FALSE(find_check(checks, "K1").passed) << told(checks);
  EXPECT_FALSE(find_check(checks, "K2").passed) << told(checks);
}

TEST(uncertain_rows, are_left_out_of_k1_and_counted) {
  attend_world w({.sequences = {{2, 45}}});
  w.fill_random(1, 1000);
  w.declared.score_store = bf16;
  w.run({});
  const auto checks = checks_of(w);
  const auto k1 = find_check(checks, "K1");
  EXPECT_NE(k1.note.find("left out"), std::string::npos) << told(checks);
}

}  // namespace
}  // namespace msabench::judge::test
