// SPDX-License-Identifier: Apache-2.0
// What a speed run makes of what it is told, by executors that tell what a test wants.
#include "perf/measure.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "core/environment_error.h"
#include "core/error.h"

namespace msabench {
namespace {

class agreeable final : public executor {
 public:
  implementation_record info() override { return {"fake", "1", "", "", ""}; }
  observation query(const problem& p) override {
    observation seen;
    capability answer;
    numerics& n = answer.declared;
    n.operand = n.v_operand = n.score_acc = n.score_store = n.p_operand = n.pv_acc = n.partial_store = n.ds_operand =
        fp32;
    n.out_store = p.out;
    seen.answered = answer;
    if (refuses) {
      seen.answered.reset();
      seen.result = outcome::unsupported;
      seen.entry = "query";
      seen.message = "not today";
    }
    return seen;
  }
  observation execute(input_set&, const run_spec&) override {
    ++executed;
    observation seen;
    seen.result = outcome::unsupported;
    seen.message = "cannot run";
    return seen;
  }

  bool refuses = false;
  int executed = 0;
};

// Ten equal samples for every side, on a machine with the limits and the usage that are set.
class told final : public timing_executor {
 public:
  timed_observation run(std::span<const timed_side> sides, const run_spec& how) override {
    timed_observation seen;
    seen.probes.flops_per_s = {flops};
    seen.probes.bytes_per_s = {bytes};
    seen.probes.types = {"fp32", "bf16", "fp16"};
    seen.probes.source = "told";
    seen.conditions_known = true;
    seen.on = on;
    seen.probes.e4m3_flops_per_s = e4m3;
    if (sides.empty()) return seen;
    spec = how;
    asked.assign(sides.begin(), sides.end());
    seen.usage = usage(static_cast<int>(runs));
    seen.usage.cpu_seconds = 10;
    seen.interrupted = interrupts;
    seen.seconds = loop_s;
    std::this_thread::sleep_for(takes);
    ++runs;
    for (std::size_t i = 0; i < sides.size(); ++i) {
      side_observation side;
      samples s;
      s.time_us.assign(10, time_us);
      s.sm_mhz = sm_mhz;
      side.in_a_row = in_a_row;
      side.seen.timing = {s};
      if (sides[i].implementation == without_room) {
        side.seen.timing.clear();
        side.seen.result = outcome::error_status;
        side.seen.status = 3;  // MSABENCH_NO_RESOURCES
        side.seen.entry = refusing_entry;
        if (damages) side.seen.violations.push_back({violation::kind::input_modified, slot::q, "q", {}});
        side.seen.message = "552 GB are needed";
      }
      seen.sides.push_back(std::move(side));
    }
    return seen;
  }

  double flops = 1e11, bytes = 1e10, time_us = 1e4, loop_s = 0;
  std::chrono::milliseconds takes{};
  std::vector<double> e4m3, sm_mhz;
  back_to_back in_a_row;
  int without_room = -1;  // an implementation
  std::string refusing_entry = "plan";
  bool damages = false;
  timed_device on;
  std::vector<timed_side> asked;
  bool interrupts = false;
  std::size_t runs = 0;
  run_spec spec;
  std::function<cpu_usage(int)> usage = [](int) { return cpu_usage{}; };
};

struct world {
  world() {
    setup.what.contexts = {512};
    setup.what.shape = "h8x2.d64.b32.k4.l1.i0";
    setup.what.types = "fp32";
    setup.what.operators = {op::attend};
    setup.last_level_cache_bytes = 1 << 20;
    setup.watch = {[this]() -> std::optional<cpu_reading> {
                     return cpu_reading{at_s * busy_before, at_s * (1 - busy_before), 0, 0, 0};
                   },
                   [this](double s) { at_s += s; }, [] { return 0.0; }};
  }

  perf_run run() {
    perf_run out;
    out.implementations = {{"fake", "1", "", "", ""}};
    measure(setup, {{&asked}, {"fake"}, &timing, on_device}, {[](const perf_run&) {}, [](const perf_point&) {}}, out);
    return out;
  }
  // In turn with itself.
  perf_run run_against() {
    perf_run out;
    out.implementations = {{"fake", "1", "", "", ""}, {"other", "1", "", "", ""}};
    measure(setup, {{&asked, &asked}, {"fake", "other"}, &timing, on_device},
            {[](const perf_run&) {}, [](const perf_point&) {}}, out);
    return out;
  }
  static const perf_item& item(const perf_run& r) { return r.points.at(0).items.at(0); }

  agreeable asked;
  told timing;
  perf_setup setup;
  double at_s = 0, busy_before = 0;
  bool on_device = false;
};

cpu_usage with_others(double share) {
  cpu_usage u;
  u.others = share;
  return u;
}

TEST(measure, a_number_whose_outputs_nobody_saw_is_unverified) {
  world w;
  const perf_run r = w.run();
  EXPECT_EQ(world::item(r).state, item_state::unverified);
  ASSERT_TRUE(world::item(r).figures);
  EXPECT_EQ(world::item(r).time_us.median, 1e4);
  EXPECT_GT(*world::item(r).figures->efficiency, 0);
  EXPECT_EQ(exit_code_of(r), exit_code::partial);
  EXPECT_EQ(w.timing.runs, 1u);
}

TEST(measure, a_busy_point_is_measured_again_and_then_refused) {
  world w;
  w.timing.usage = [](int) { return with_others(0.4); };
  const perf_run r = w.run();
  EXPECT_EQ(w.timing.runs, 2u);
  EXPECT_EQ(world::item(r).state, item_state::busy);
  EXPECT_FALSE(world::item(r).figures);
  EXPECT_NE(world::item(r).reason.find("40.0 %"), std::string::npos);
  EXPECT_EQ(world::item(r).timing.time_us.size(), 10u);  // raw samples stay
  EXPECT_EQ(exit_code_of(r), exit_code::environment_refused);
}

TEST(measure, a_neighbour_that_leaves_is_forgiven) {
  world w;
  w.timing.usage = [](int n) { return with_others(n == 0 ? 0.4 : 0.0); };
  const perf_run r = w.run();
  EXPECT_EQ(w.timing.runs, 2u);
  EXPECT_NE(world::item(r).state, item_state::busy);
}

TEST(measure, a_busy_number_is_told_with_a_remark_where_asked) {
  world w;
  w.setup.tell_busy = true;
  w.busy_before = 0.9;
  w.timing.usage = [](int) { return with_others(0.4); };
  const perf_run r = w.run();
  EXPECT_EQ(w.timing.runs, 1u);
  EXPECT_TRUE(world::item(r).figures);
  ASSERT_FALSE(world::item(r).remarks.empty());
  EXPECT_NE(world::item(r).remarks.back().find("busy machine"), std::string::npos);
}

TEST(measure, a_busy_machine_is_refused_before_anything_is_timed) {
  world w;
  w.busy_before = 0.5;
  EXPECT_THROW(w.run(), environment_error);
  EXPECT_EQ(w.timing.runs, 0u);
}

TEST(measure, memory_is_refused_before_anything_is_timed) {
  world w;
  w.setup.available_memory_bytes = 1e4;
  EXPECT_THROW(w.run(), environment_error);
  EXPECT_EQ(w.timing.runs, 0u);
}

TEST(measure, faster_than_the_limits_has_no_efficiency) {
  world w;
  w.timing.time_us = 1e-3;
  const perf_run r = w.run();
  EXPECT_FALSE(world::item(r).figures->efficiency);
  EXPECT_NE(world::item(r).remarks.back().find("faster than the limits"), std::string::npos);
}

TEST(measure, unsupported_items_are_not_timed) {
  world w;
  w.asked.refuses = true;
  const perf_run r = w.run();
  EXPECT_EQ(w.timing.runs, 0u);
  EXPECT_EQ(world::item(r).state, item_state::unsupported);
  EXPECT_NE(world::item(r).reason.find("not today"), std::string::npos);
  EXPECT_EQ(exit_code_of(r), exit_code::nothing_verified);
}

TEST(measure, a_baseline_without_room_is_left_out_and_no_failure) {
  world w;
  w.timing.without_room = 1;
  const perf_run r = w.run_against();
  const auto& items = r.points.at(0).items;
  ASSERT_EQ(items.size(), 2u);
  EXPECT_TRUE(items[0].figures);
  EXPECT_EQ(items[1].state, item_state::not_run);
  EXPECT_NE(items[1].reason.find("552 GB"), std::string::npos);
  EXPECT_FALSE(items[1].figures);
  EXPECT_NE(exit_code_of(r), exit_code::failed);
  // run allocates nothing, and damage is damage.
  w.timing.refusing_entry = "run";
  EXPECT_EQ(w.run_against().points.at(0).items[1].state, item_state::failed);
  w.timing.refusing_entry = "plan";
  w.timing.damages = true;
  EXPECT_EQ(w.run_against().points.at(0).items[1].state, item_state::failed);
  w.timing.damages = false;
  // Of what is judged itself it is one.
  w.timing.without_room = 0;
  const perf_run own = w.run_against();
  EXPECT_EQ(own.points.at(0).items[0].state, item_state::failed);
  EXPECT_EQ(exit_code_of(own), exit_code::failed);
}

TEST(measure, an_interrupt_leaves_no_number) {
  world w;
  w.timing.interrupts = true;
  const perf_run r = w.run();
  EXPECT_TRUE(r.partial);
  EXPECT_EQ(world::item(r).state, item_state::not_run);
  EXPECT_EQ(exit_code_of(r), exit_code::partial);
}

TEST(measure, what_does_not_fit_the_budget_is_left_out) {
  world w;
  w.setup.budget_s = 1e-3;
  const perf_run r = w.run();
  EXPECT_EQ(w.timing.runs, 0u);
  EXPECT_EQ(world::item(r).state, item_state::not_run);
  EXPECT_NE(world::item(r).reason.find("budget"), std::string::npos);
}

TEST(measure, input_sets_rotate_beyond_twice_the_cache) {
  world w;
  const perf_run r = w.run();
  EXPECT_TRUE(r.points[0].cold);
  EXPECT_GE(r.points[0].reuse_distance_bytes, 2.0 * (1 << 20));
  EXPECT_EQ(w.timing.spec.timing.cold_sets, r.points[0].rounds_of_sets);
  w.setup.cold = false;
  EXPECT_FALSE(w.run().points[0].cold);
  EXPECT_EQ(w.timing.spec.timing.cold_sets, 0);
}

world on_a_gpu() {
  world w;
  w.on_device = true;
  w.timing.on = {"a GPU", 1 << 20, 1e9, "", ""};
  w.timing.in_a_row.runs = {{.time_us = 7000, .launches = 20}};
  return w;
}

TEST(measure, launches_back_to_back_are_a_figure_of_their_own) {
  world w = on_a_gpu();
  const perf_run r = w.run();
  EXPECT_EQ(world::item(r).time_us.median, 1e4);
  EXPECT_EQ(world::item(r).in_a_row.time_us(), 7000);
  EXPECT_TRUE(w.timing.asked.at(0).back_to_back);
  EXPECT_GE(w.timing.spec.timing.back_to_back_s, 0.1);
  EXPECT_GT(w.timing.spec.timing.back_to_back_budget_s, 0);
  const auto item = to_report_json(r)["points"][0]["items"][0];
  EXPECT_EQ(item["back_to_back_us"], 7000);
  EXPECT_EQ(item["back_to_back"]["runs"][0]["launches"], 20);
}

TEST(measure, on_a_cpu_there_is_nothing_back_to_back) {
  world w;
  const perf_run r = w.run();
  EXPECT_FALSE(w.timing.asked.at(0).back_to_back);
  EXPECT_EQ(w.timing.spec.timing.back_to_back_s, 0);
  const auto item = to_report_json(r)["points"][0]["items"][0];
  EXPECT_TRUE(item["back_to_back_us"].is_null());
  EXPECT_FALSE(item.contains("back_to_back"));
  EXPECT_FALSE(item.contains("low_clock_samples"));
}

TEST(measure, launches_back_to_back_have_input_sets_beyond_twice_the_cache) {
  world w = on_a_gpu();
  const perf_run r = w.run();
  const double sets = static_cast<double>(w.timing.asked.at(0).least_sets);
  EXPECT_GE(sets * world::item(r).work.compulsory_bytes, 2.0 * (1 << 20));
  w.setup.cold = false;
  w.run();
  EXPECT_EQ(w.timing.asked.at(0).least_sets, 1);
}

TEST(measure, without_memory_for_them_there_is_a_reason_instead) {
  world w = on_a_gpu();
  w.timing.on.free_bytes = 2e6;
  w.timing.in_a_row.runs.clear();
  const perf_run r = w.run();
  EXPECT_FALSE(w.timing.asked.at(0).back_to_back);
  EXPECT_NE(world::item(r).in_a_row.reason.find("input sets"), std::string::npos);
  EXPECT_TRUE(to_report_json(r)["points"][0]["items"][0]["back_to_back_us"].is_null());
  EXPECT_TRUE(world::item(r).figures);
}

TEST(measure, launches_that_read_more_than_twice_the_cache_follow_each_other_on_the_inputs_that_are_there) {
  world w = on_a_gpu();
  w.timing.on = {"a GPU", 1 << 10, 1, "", ""};  // no memory is left for other inputs
  const perf_run r = w.run();
  ASSERT_GT(world::item(r).work.compulsory_bytes, 2.0 * (1 << 10));
  EXPECT_TRUE(w.timing.asked.at(0).back_to_back) << world::item(r).in_a_row.reason;
  EXPECT_EQ(w.timing.asked.at(0).least_sets, 1);
}

TEST(measure, thousands_of_input_sets_are_too_many_for_launches_back_to_back) {
  world w = on_a_gpu();
  w.timing.on = {"a GPU", 1e12, 1e18, "", ""};
  const perf_run r = w.run();
  EXPECT_FALSE(w.timing.asked.at(0).back_to_back);
  EXPECT_NE(world::item(r).in_a_row.reason.find("input sets"), std::string::npos);
}

TEST(measure, products_in_e4m3_are_a_limit_of_their_own) {
  world w = on_a_gpu();
  EXPECT_EQ(w.run().ceilings.flops.count("e4m3"), 0u);
  w.timing.e4m3 = {1e12, 2e12, 3e12};
  const perf_run r = w.run();
  EXPECT_EQ(r.ceilings.flops.at("e4m3"), 2e12);
  EXPECT_EQ(r.ceilings.flops.at("bf16"), 1e11);
  EXPECT_EQ(r.points[0].ceilings.e4m3_samples.size(), 3u);
}

TEST(measure, samples_at_a_low_clock_are_flagged) {
  world w = on_a_gpu();
  w.timing.sm_mhz = {1980, 1980, 1200, 1980, 1980, 1980, 1980, 1980, 1980, 1300};
  const perf_run r = w.run();
  EXPECT_EQ(world::item(r).low_clock, (std::vector<std::int64_t>{2, 9}));
  EXPECT_EQ(to_report_json(r)["points"][0]["items"][0]["low_clock_samples"], nlohmann::json({2, 9}));
}

TEST(measure, a_disturbed_point_is_not_measured_again_without_time_for_it) {
  world w;
  w.timing.usage = [](int) { return with_others(0.4); };
  w.timing.loop_s = 1e6;
  const perf_run r = w.run();
  EXPECT_EQ(w.timing.runs, 1u);
  EXPECT_EQ(world::item(r).state, item_state::busy);
}

TEST(measure, a_whole_is_measured_from_both_ends_and_told_in_order) {
  world w;
  w.setup.what.suite = perf_suite::prefill_whole;
  w.setup.what.operators = {};
  w.setup.what.contexts = {320};
  w.setup.what.chunk = 64;
  const perf_run r = w.run();
  ASSERT_EQ(r.points.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(r.points[i].context, 64 * static_cast<std::int64_t>(i + 1));
  ASSERT_EQ(r.wholes.size(), 2u);
  EXPECT_EQ(r.wholes[0].time_us, 5e4);
  EXPECT_FALSE(r.wholes[0].verified);  // nobody saw outputs
  EXPECT_EQ(to_report_json(r)["wholes"][1]["gain_over_dense"], 1);
}

TEST(measure, chunks_that_fit_have_the_whole_budget_between_them) {
  world w;
  w.setup.what.suite = perf_suite::prefill_whole;
  w.setup.what.operators = {};
  w.setup.what.contexts = {128 * 64};
  w.setup.what.chunk = 64;
  w.setup.budget_s = 4;
  w.timing.takes = std::chrono::milliseconds(50);  // 6.4 s for all chunks, whatever the machine
  w.timing.time_us = 1e3;
  const perf_run r = w.run();
  ASSERT_GE(r.points.size(), 3u);
  ASSERT_LT(r.points.size(), 128u);
  EXPECT_EQ(r.points.front().context, 64);
  EXPECT_EQ(r.points.back().context, 128 * 64);
  EXPECT_TRUE(r.wholes[0].partial());
  ASSERT_TRUE(r.wholes[0].estimate);
  EXPECT_NEAR(r.wholes[0].estimate->time_us, 128 * 1e3, 1e-3);
  EXPECT_EQ(w.timing.spec.timing.min_samples, 3);
}

TEST(measure, chunks_that_the_budget_has_no_time_for_leave_no_sum) {
  world w;
  w.setup.what.suite = perf_suite::prefill_whole;
  w.setup.what.operators = {};
  w.setup.what.contexts = {320};
  w.setup.what.chunk = 64;
  w.setup.budget_s = 1e-3;
  const perf_run r = w.run();
  EXPECT_TRUE(r.points.empty());
  ASSERT_EQ(r.wholes.size(), 2u);
  EXPECT_TRUE(r.wholes[0].partial());
  EXPECT_FALSE(r.wholes[0].time_us);
  EXPECT_EQ(exit_code_of(r), exit_code::nothing_verified);
}

TEST(measure, a_large_gradient_without_a_forward_pass_is_not_run) {
  world w;
  w.setup.what.suite = perf_suite::training;
  w.setup.what.operators = {op::dense_backward};
  w.setup.what.contexts = {4096};
  w.setup.budget_s = 1e6;
  const perf_run r = w.run();
  EXPECT_EQ(w.asked.executed, 1);
  EXPECT_EQ(w.timing.runs, 0u);
  EXPECT_EQ(world::item(r).state, item_state::not_run);
  EXPECT_NE(world::item(r).reason.find("dense of fake: cannot run"), std::string::npos) << world::item(r).reason;
  // Of a small one the oracle makes it.
  w.setup.what.contexts = {256};
  EXPECT_EQ(world::item(w.run()).state, item_state::unverified);
  EXPECT_EQ(w.asked.executed, 1);
  EXPECT_EQ(w.timing.runs, 1u);
}

TEST(measure, limits_of_the_run_are_medians_of_its_points) {
  world w;
  w.setup.what.contexts = {256, 512};
  const perf_run r = w.run();
  ASSERT_TRUE(r.ceilings.known());
  EXPECT_EQ(r.ceilings.flops.at("fp32"), 1e11);
  EXPECT_EQ(r.ceilings.flops.at("bf16"), 1e11);
  EXPECT_EQ(r.ceilings.bytes_per_s, 1e10);
  const auto report = to_report_json(r);
  EXPECT_EQ(report["ceilings"]["flops"]["fp32"], 1e11);
  EXPECT_EQ(report["schema"], "msabench.perf/1");
}

}  // namespace
}  // namespace msabench
