// SPDX-License-Identifier: Apache-2.0
// Structs that travel as JSON: what goes out comes back, and what is wrong is named.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/back_to_back.h"
#include "core/error.h"
#include "core/json.h"
#include "core/numerics.h"
#include "core/problem.h"
#include "core/profile.h"
#include "core/run_spec.h"
#include "core/samples.h"

namespace msabench {
namespace {

using nlohmann::json;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

// Through text, as in the protocol.
template <class T>
T round_trip(const T& value) {
  return json::parse(json(value).dump()).template get<T>();
}

// The message of the refusal; fails the test if there is none.
template <class T>
std::string refusal(const json& in) {
  try {
    (void)in.get<T>();
  } catch (const usage_error& e) {
    return e.what();
  }
  ADD_FAILURE() << "accepted " << in.dump();
  return {};
}

// A value of `in`'s type that differs from it.
json another(const json& in) {
  if (in.is_boolean()) return !in.get<bool>();
  if (in.is_number_float()) return in.get<double>() + 0.5;
  return in.get<std::int64_t>() + 1;
}

profile unusual_profile() {
  profile p;
  p.in_id_order = id_order::local_last;
  p.in_id_layout = id_layout::htk;
  p.in_id_form = id_form::lenient;
  p.out_id_order = id_order::none;
  p.out_id_layout = id_layout::htk;
  p.unit = score_unit::raw;
  p.score_own = score_fill::sentinel;
  p.score_tail = score_fill::unwritten;
  p.nan_score = nan_policy::propagate;
  p.lse = lse_form::base2;
  p.empty_row = empty_form::undefined;
  p.rank_step = 1.0f / 65534;
  p.ties_low_id = p.graph_safe = p.rotate_in_storage = true;
  return p;
}

numerics unusual_numerics() {
  numerics n;
  n.operand = tf32;
  n.v_operand = bf16;
  n.score_acc = fp8_acc;
  n.score_store = fp16;
  n.p_operand = e4m3;
  n.pv_acc = fp32;
  n.partial_store = fp32;
  n.out_store = bf16;
  n.rounded_operands = 2;
  n.lse_from_rounded_p = 1;
  n.truncated = truncates_p | truncates_out;
  n.chain_score = 130;
  n.chain_out = 4294967295u;
  n.chain_row_sum = 17;
  n.exp_rel_error = 0x1p-18f;
  n.log_abs_error = 0.1f;
  return n;
}

TEST(profile_json, round_trips_with_words_for_enumerators) {
  const auto p = unusual_profile();
  const json out = p;
  EXPECT_EQ(out.at("in_id_order"), "local_last");
  EXPECT_EQ(out.at("in_id_form"), "lenient");
  EXPECT_EQ(out.at("score_unit"), "raw");
  EXPECT_EQ(out.at("lse"), "base2");
  EXPECT_EQ(round_trip(p), p);
  EXPECT_EQ(round_trip(profile{}), profile{});
  EXPECT_EQ(json(profile{}).at("in_id_order"), "ascending");
}

TEST(profile_json, every_key_is_read) {
  // A key that is written but not read would come back as its default.
  const json canonical = profile{};
  const json unusual = unusual_profile();
  for (const auto& [key, value] : canonical.items()) {
    json changed = canonical;
    changed[key] = value.is_string() ? unusual.at(key) : another(value);
    EXPECT_NE(changed.at(key), value) << key;
    EXPECT_FALSE(changed.get<profile>() == profile{}) << key;
  }
}

TEST(profile_json, refuses_unknown_words_and_wrong_types_by_name) {
  json in = profile{};
  in["in_id_order"] = "sorted";
  const auto message = refusal<profile>(in);
  EXPECT_NE(message.find("profile.in_id_order \"sorted\""), std::string::npos) << message;
  EXPECT_NE(message.find("ascending, score, local_last, any, none"), std::string::npos) << message;

  const json canonical = profile{};
  for (const auto& [key, value] : canonical.items()) {
    json wrong = canonical;
    wrong[key] = json::array();
    EXPECT_NE(refusal<profile>(wrong).find("profile." + key), std::string::npos);
  }
  EXPECT_NE(refusal<profile>(json::array()).find("profile"), std::string::npos);
}

TEST(profile_json, an_enumerator_without_a_word_goes_out_as_its_number_and_is_refused_on_the_way_in) {
  profile p;
  p.lse = static_cast<lse_form>(77);
  const json out = p;
  EXPECT_EQ(out.at("lse"), 77);
  EXPECT_NE(refusal<profile>(out).find("profile.lse 77"), std::string::npos);
}

TEST(profile_json, unknown_keys_are_ignored_and_absent_ones_are_canonical) {
  EXPECT_EQ(json({{"later_addition", 5}, {"lse", "none"}}).get<profile>().lse, lse_form::none);
  EXPECT_EQ(json::object().get<profile>(), profile{});
}

TEST(numerics_json, round_trips) {
  const auto n = unusual_numerics();
  EXPECT_EQ(round_trip(n), n);
  EXPECT_EQ(round_trip(numerics{}), numerics{});
  EXPECT_EQ(json(n).at("score_acc"), "fp8acc");
  EXPECT_EQ(json(n).at("ds_operand"), "none");
}

TEST(numerics_json, every_key_is_read) {
  const json canonical = numerics{};
  for (const auto& [key, value] : canonical.items()) {
    json changed = canonical;
    changed[key] = value.is_string() ? json("fp16") : another(value);
    EXPECT_FALSE(changed.get<numerics>() == numerics{}) << key;
  }
}

TEST(numerics_json, nonsense_of_foreign_code_survives_the_trip) {
  auto n = unusual_numerics();
  n.exp_rel_error = std::numeric_limits<float>::quiet_NaN();
  n.log_abs_error = -std::numeric_limits<float>::infinity();
  n.operand = {9, 3, 4};
  const auto back = round_trip(n);
  EXPECT_TRUE(std::isnan(back.exp_rel_error));
  EXPECT_EQ(back.log_abs_error, n.log_abs_error);
  EXPECT_EQ(back.operand, n.operand);
  EXPECT_TRUE(json(n).at("exp_rel_error").is_null());
}

TEST(numerics_json, refuses_values_out_of_range) {
  json in = numerics{};
  in["rounded_operands"] = 256;
  EXPECT_NE(refusal<numerics>(in).find("numerics.rounded_operands 256"), std::string::npos);
  in["rounded_operands"] = -1;
  EXPECT_NE(refusal<numerics>(in).find("outside 0 .. 255"), std::string::npos);
  in["rounded_operands"] = 1.0;
  EXPECT_NE(refusal<numerics>(in).find("is no integer"), std::string::npos);
  in = numerics{};
  in["pv_acc"] = "fp31";
  EXPECT_NE(refusal<numerics>(in).find("numerics.pv_acc \"fp31\""), std::string::npos);
  in = numerics{};
  in["exp_rel_error"] = 1e300;
  EXPECT_NE(refusal<numerics>(in).find("numerics.exp_rel_error"), std::string::npos);
  in["exp_rel_error"] = nullptr;
  EXPECT_NE(refusal<numerics>(in).find("numerics.exp_rel_error"), std::string::npos);
}

TEST(problem_json, round_trips_bounds_beyond_32_bits_and_inexact_scales) {
  problem p;
  p.operation = op::msa;
  p.hq = 64;
  p.hkv = 4;
  p.layout = page_layout::fused;
  p.max_kv_len = std::int64_t{1} << 40;
  p.pool_pages = std::numeric_limits<std::int64_t>::max();
  p.q = e4m3;
  p.kv = bf16;
  p.softmax_scale = 0.1;
  p.asked = unusual_profile();
  const json out = p;
  EXPECT_EQ(out.at("op"), "msa");
  EXPECT_EQ(out.at("page_layout"), "fused");
  EXPECT_EQ(out.at("q"), "e4m3");
  const auto back = round_trip(p);
  EXPECT_EQ(back.max_kv_len, p.max_kv_len);
  EXPECT_EQ(back.pool_pages, p.pool_pages);
  EXPECT_EQ(back.softmax_scale, 0.1);
  EXPECT_EQ(back.asked, p.asked);
  EXPECT_EQ(json(back), out);
}

TEST(problem_json, every_key_is_read) {
  const json canonical = problem{};
  for (const auto& [key, value] : canonical.items()) {
    json changed = canonical;
    if (key == "op") {
      changed[key] = "kl";
    } else if (key == "page_layout") {
      changed[key] = "paged";
    } else if (key == "profile") {
      changed[key] = unusual_profile();
    } else {
      changed[key] = value.is_string() ? json("fp16") : another(value);
    }
    EXPECT_EQ(json(changed.get<problem>()), changed) << key;
    EXPECT_NE(changed, canonical) << key;
  }
}

TEST(problem_json, refuses_what_is_no_problem) {
  EXPECT_NE(refusal<problem>(json::object()).find("problem.op: is missing"), std::string::npos);
  EXPECT_NE(refusal<problem>({{"op", "atend"}}).find("problem.op \"atend\""), std::string::npos);
  EXPECT_NE(refusal<problem>({{"op", 4}}).find("problem.op 4"), std::string::npos);
  EXPECT_NE(refusal<problem>({{"op", "attend"}, {"hq", 1.5}}).find("problem.hq 1.5"), std::string::npos);
  EXPECT_NE(refusal<problem>({{"op", "attend"}, {"hq", 2147483648u}}).find("problem.hq 2147483648"), std::string::npos);
  EXPECT_NE(refusal<problem>({{"op", "attend"}, {"page_layout", "Paged"}}).find("problem.page_layout"),
            std::string::npos);
  EXPECT_NE(refusal<problem>({{"op", "attend"}, {"profile", {{"lse", 1}}}}).find("profile.lse 1"), std::string::npos);
}

TEST(run_spec_json, round_trips_seeds_of_64_bits) {
  run_spec r;
  r.launches = 20;
  r.poison_seed = 18446744073709551615u;
  r.timeout_s = 0.1;
  r.timing.order = {0, 1, 0, 1};
  r.timing.relative_half_width = 0.003;
  EXPECT_EQ(json(r).at("poison_seed"), "18446744073709551615");
  const auto back = round_trip(r);
  EXPECT_EQ(back.poison_seed, r.poison_seed);
  EXPECT_EQ(json(back), json(r));
}

TEST(run_spec_json, every_key_is_read) {
  const json canonical = run_spec{};
  for (const auto& [key, value] : canonical.items()) {
    json changed = canonical;
    changed[key] = key == "timing" ? json({{"warmup", 9}}) : key == "poison_seed" ? json("7") : another(value);
    EXPECT_NE(json(changed.get<run_spec>()), canonical) << key;
  }
  const json timing = timing_spec{};
  for (const auto& [key, value] : timing.items()) {
    json changed = timing;
    changed[key] = key == "order" ? json({0, 1}) : another(value);
    EXPECT_EQ(json(changed.get<timing_spec>()), changed) << key;
  }
}

TEST(run_spec_json, refuses_wrong_types) {
  EXPECT_NE(refusal<run_spec>({{"launches", "2"}}).find("run_spec.launches"), std::string::npos);
  EXPECT_NE(refusal<run_spec>({{"poison_seed", 7}}).find("run_spec.poison_seed"), std::string::npos);
  EXPECT_NE(refusal<run_spec>({{"poison_seed", "-7"}}).find("run_spec.poison_seed"), std::string::npos);
  EXPECT_NE(refusal<run_spec>({{"timing", {{"order", {0, "a"}}}}}).find("timing.order \"a\""), std::string::npos);
}

TEST(device_json, round_trips_and_refuses) {
  EXPECT_EQ(round_trip(device{device_type::cuda, 3}), (device{device_type::cuda, 3}));
  EXPECT_NE(refusal<device>({{"type", "tpu"}}).find("device.type \"tpu\""), std::string::npos);
  EXPECT_NE(refusal<device>({{"id", 0}}).find("device.type"), std::string::npos);
}

TEST(samples_json, round_trips_and_keeps_what_is_not_finite) {
  samples s;
  s.time_us = {1.25, infinity, 0.1, nan_value};
  s.order = {0, 1, 0, 1};
  const json out = s;
  EXPECT_TRUE(out.at("time_us").at(1).is_null());
  EXPECT_TRUE(out.at("time_us").at(3).is_null());
  const auto back = round_trip(s);
  EXPECT_EQ(back.time_us.at(0), 1.25);
  EXPECT_EQ(back.time_us.at(1), infinity);
  EXPECT_EQ(back.time_us.at(2), 0.1);
  EXPECT_TRUE(std::isnan(back.time_us.at(3)));
  EXPECT_EQ(back.order, s.order);
  EXPECT_TRUE(round_trip(samples{}).empty());
  EXPECT_NE(refusal<samples>({{"time_us", {1, nullptr}}}).find("time_us"), std::string::npos);
}

back_to_back runs_of(std::vector<double> times_us) {
  back_to_back b;
  for (const double t : times_us) b.runs.push_back({.time_us = t, .enqueue_us = 3, .launches = 7, .sm_mhz = 1400});
  return b;
}

TEST(back_to_back_json, round_trips_every_number) {
  back_to_back b;
  b.runs = {{1.5, 2.5, 3, 4, 5, 6, 7, 8, 9}};
  b.reason = "none";
  const back_to_back back = round_trip(b);
  EXPECT_EQ(json(back), json(b));
  const json written = b;  // named: the loop's range would not keep a temporary alive
  for (const auto& [key, value] : written["runs"][0].items()) EXPECT_NE(value, 0) << key;
  EXPECT_NE(refusal<back_to_back>({{"runs", 3}}).find("runs 3"), std::string::npos);
  EXPECT_NE(refusal<back_to_back>(json::object()).find("runs"), std::string::npos);
}

TEST(back_to_back_json, its_time_is_the_median_of_the_runs) {
  EXPECT_FALSE(back_to_back{}.time_us());
  EXPECT_EQ(runs_of({9, 5}).time_us(), 7);
  EXPECT_EQ(runs_of({9, 5, 6}).time_us(), 6);
}

TEST(back_to_back_json, a_host_that_is_slower_than_the_device_is_told) {
  EXPECT_FALSE(back_to_back{}.by_enqueueing());
  EXPECT_FALSE(runs_of({4, 4}).by_enqueueing());
  EXPECT_TRUE(runs_of({4, 3.1}).by_enqueueing());
}

}  // namespace
}  // namespace msabench
