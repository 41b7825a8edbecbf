// SPDX-License-Identifier: Apache-2.0
// Timed runs of one and of two implementations: samples, turns, outputs, and what a failing side leaves of the others.
#include "host/timing.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "tests/host/small_case.h"

using namespace msabench;
using namespace msabench::host_test;

namespace {

constexpr std::uint64_t small_probe = 64 << 20;

// Sides of one case, one for each plugin, on the same inputs.
class timed_case {
 public:
  explicit timed_case(std::vector<std::string> plugins, std::string_view case_name = attend_name)
      : definition_(parse_case(case_name)) {
    std::vector<implementation_ref> refs;
    executor_options options;
    options.threads = 2;
    for (const std::string& p : plugins) refs.push_back(plugin(p));
    const auto asked = worker_of("naive");
    const agreement agreed = negotiate(*asked, make_problem(definition_));
    sets_.push_back(make_inputs(definition_, agreed.agreed));
    for (std::size_t i = 1; i < plugins.size(); ++i)
      sets_.push_back(with_other_outputs(definition_, sets_[0], agreed.agreed));
    for (std::size_t i = 0; i < plugins.size(); ++i) sides.push_back(timed_side{.implementation = static_cast<int>(i)});
    executor_ = make_timing_executor(refs, options, small_probe);
  }

  timed_observation run(const run_spec& how) {
    for (std::size_t i = 0; i < sides.size(); ++i) sides[i].set = &sets_[i];
    return executor_->run(sides, how);
  }

  std::vector<timed_side> sides;

 private:
  case_spec definition_;
  std::vector<input_set> sets_;
  std::unique_ptr<timing_executor> executor_;
};

run_spec ten_samples(std::int32_t rounds_of_sets = 3) {
  run_spec how;
  how.timing.enabled = true;
  how.timing.cold_sets = rounds_of_sets;
  how.timing.budget_s = 5;
  how.timing.relative_half_width = 1e9;  // ten samples, however they scatter
  how.timing.probes = false;
  return how;
}

const violation* find_in(const side_observation& s, violation::kind what) { return find(s.seen, what); }

}  // namespace

TEST(timing, has_raw_samples_and_the_machine_beside_them) {
  timed_case one({"naive"});
  const timed_observation seen = one.run(ten_samples());
  ASSERT_EQ(seen.sides.size(), 1u);
  const side_observation& side = seen.sides[0];
  EXPECT_EQ(side.seen.result, outcome::completed) << side.seen.message;
  ASSERT_EQ(side.seen.timing.size(), 1u);
  const samples& raw = side.seen.timing[0];
  EXPECT_EQ(raw.time_us.size(), 10u);
  for (const double t : raw.time_us) EXPECT_GT(t, 0);
  EXPECT_EQ(raw.at_s.size(), 10u);
  EXPECT_TRUE(std::is_sorted(raw.at_s.begin(), raw.at_s.end()));
  EXPECT_EQ(raw.order, std::vector<std::int32_t>(10, 0));
  EXPECT_EQ(raw.others.size(), 10u);
  EXPECT_EQ(raw.steal.size(), 10u);
  EXPECT_EQ(raw.load.size(), 10u);
  EXPECT_TRUE(seen.conditions_known);
  EXPECT_FALSE(seen.budget_ended);
  EXPECT_FALSE(seen.ended);
  EXPECT_GE(side.launches, 13);  // three to warm up
}

TEST(timing, outputs_of_every_input_set_are_looked_at) {
  timed_case one({"naive"});
  const timed_observation seen = one.run(ten_samples(4));
  EXPECT_EQ(seen.sides[0].outputs_seen, 4);
  ASSERT_EQ(seen.sides[0].seen.launches.size(), 1u);  // they are all the same
  const observation usual = run_case(*worker_of("naive"), two_launches());
  EXPECT_EQ(seen.sides[0].seen.launches[0].outputs_sha256, usual.launches.at(0).outputs_sha256);
  EXPECT_EQ(one.run(ten_samples(0)).sides[0].outputs_seen, 1);  // hot
}

TEST(timing, sides_take_turns) {
  timed_case two({"naive", "example_cpp"});
  const timed_observation seen = two.run(ten_samples());
  const auto &a = seen.sides[0].seen.timing.at(0), &b = seen.sides[1].seen.timing.at(0);
  ASSERT_EQ(a.at_s.size(), b.at_s.size());
  for (std::size_t i = 0; i < a.at_s.size(); ++i) {
    EXPECT_LT(a.at_s[i], b.at_s[i]);
    if (i + 1 < a.at_s.size()) {
      EXPECT_LT(b.at_s[i], a.at_s[i + 1]);
    }
  }
  EXPECT_EQ(b.order.front(), 1);
  EXPECT_EQ(seen.sides[0].outputs_seen, seen.sides[1].outputs_seen);
  EXPECT_GE(seen.sides[0].outputs_seen, 3);  // two launches a round, three rounds
}

TEST(timing, a_lead_in_is_launched_and_not_counted) {
  timed_case one({"naive"});
  one.sides[0].lead_in = true;
  const timed_observation seen = one.run(ten_samples());
  EXPECT_EQ(seen.sides[0].seen.timing[0].time_us.size(), 10u);
  EXPECT_EQ(seen.sides[0].launches, 3 + 20);
  EXPECT_EQ(seen.sides[0].outputs_seen, 6);
}

TEST(timing, limits_are_measured_in_between) {
  timed_case one({"naive"});
  run_spec how = ten_samples();
  how.timing.probes = true;
  const timed_observation seen = one.run(how);
  EXPECT_GE(seen.probes.flops_per_s.size(), 5u);
  EXPECT_EQ(seen.probes.flops_per_s.size(), seen.probes.bytes_per_s.size());
  EXPECT_EQ(seen.probes.read_bytes, small_probe);
  for (const double x : seen.probes.flops_per_s) EXPECT_GT(x, 1e8);
  for (const double x : seen.probes.bytes_per_s) EXPECT_GT(x, 1e8);
  EXPECT_NE(seen.probes.source.find("multiply-adds"), std::string::npos);
  EXPECT_EQ(seen.probes.types, (std::vector<std::string>{"fp32", "bf16", "fp16", "e4m3"}));
  EXPECT_TRUE(seen.on.name.empty());
}

TEST(timing, limits_alone) {
  timed_case none({"naive"});
  none.sides.clear();
  run_spec how;
  how.timing.enabled = true;
  EXPECT_GE(none.run(how).probes.flops_per_s.size(), 5u);
}

TEST(timing, budget_ends_it) {
  timed_case one({"naive"});
  run_spec how = ten_samples();
  how.timing.relative_half_width = 0;
  how.timing.budget_s = 0.3;
  const timed_observation seen = one.run(how);
  EXPECT_TRUE(seen.budget_ended || seen.sides[0].seen.timing[0].time_us.size() >= 4000);
  EXPECT_LT(seen.seconds, 1);
}

TEST(timing, what_the_budget_has_no_time_for_is_left_out) {
  timed_case one({"naive"});
  run_spec how = ten_samples();
  how.timing.budget_s = 1e-9;
  const timed_observation seen = one.run(how);
  EXPECT_TRUE(seen.budget_ended);
  EXPECT_FALSE(seen.sides[0].left_out.empty());
  EXPECT_TRUE(seen.sides[0].seen.timing[0].time_us.empty());
  EXPECT_EQ(seen.sides[0].seen.result, outcome::completed);
  EXPECT_EQ(seen.sides[0].launches, 0);
  EXPECT_TRUE(one.run(ten_samples()).sides[0].left_out.empty());
}

TEST(timing, on_a_cpu_nothing_is_launched_back_to_back) {
  timed_case one({"naive"});
  one.sides[0].back_to_back = true;
  run_spec how = ten_samples();
  how.timing.back_to_back_s = how.timing.back_to_back_budget_s = 0.1;
  const timed_observation seen = one.run(how);
  EXPECT_TRUE(seen.sides[0].in_a_row.runs.empty());
  EXPECT_TRUE(seen.sides[0].in_a_row.reason.empty());
}

TEST(timing, a_group_has_the_input_sets_that_a_side_needs_at_least) {
  timed_case one({"naive"});
  one.sides[0].least_sets = 5;
  EXPECT_EQ(one.run(ten_samples(2)).sides[0].outputs_seen, 5);
  EXPECT_EQ(one.run(ten_samples(7)).sides[0].outputs_seen, 7);
}

TEST(timing, wrong_answers_while_timed_are_seen) {
  timed_case one({"wrong_later"});
  const timed_observation seen = one.run(ten_samples(4));
  const observation right = run_case(*worker_of("naive"), two_launches());
  ASSERT_FALSE(seen.sides[0].seen.launches.empty());
  EXPECT_TRUE(std::ranges::none_of(seen.sides[0].seen.launches, [&](const launch& l) {
    return l.outputs_sha256 == right.launches.at(0).outputs_sha256;
  }));
}

TEST(timing, a_failing_side_drops_out) {
  timed_case two({"naive", "fails_later"});
  const timed_observation seen = two.run(ten_samples());
  EXPECT_EQ(seen.sides[0].seen.result, outcome::completed);
  EXPECT_EQ(seen.sides[0].seen.timing.at(0).time_us.size(), 10u);
  EXPECT_EQ(seen.sides[1].seen.result, outcome::error_status);
  EXPECT_EQ(seen.sides[1].seen.entry, "run");
  EXPECT_EQ(seen.sides[1].outputs_seen, 0);
}

TEST(timing, a_crash_is_that_of_the_side_that_ran) {
  timed_case two({"naive", "crash_later"});
  const timed_observation seen = two.run(ten_samples());
  EXPECT_TRUE(seen.ended);
  EXPECT_EQ(seen.ended_in, 1);
  EXPECT_EQ(seen.sides[1].seen.result, outcome::crashed);
  EXPECT_NE(seen.end.find("signal 11"), std::string::npos) << seen.end;
  EXPECT_EQ(seen.sides[0].seen.result, outcome::completed);
  // The next run has a worker of its own.
  two.sides.pop_back();
  EXPECT_EQ(two.run(ten_samples()).sides[0].seen.timing.at(0).time_us.size(), 10u);
}

TEST(timing, a_hang_is_ended) {
  timed_case one({"hang_run"});
  run_spec how = ten_samples();
  how.timeout_s = 2;
  const timed_observation seen = one.run(how);
  EXPECT_TRUE(seen.ended);
  EXPECT_EQ(seen.sides[0].seen.result, outcome::timed_out);
}

TEST(timing, what_is_written_outside_is_seen) {
  timed_case behind({"write_behind"}), inputs({"change_input"});
  EXPECT_NE(find_in(behind.run(ten_samples()).sides[0], violation::kind::out_of_bounds), nullptr);
  EXPECT_NE(find_in(inputs.run(ten_samples()).sides[0], violation::kind::input_modified), nullptr);
  EXPECT_NE(find_in(inputs.run(ten_samples(0)).sides[0], violation::kind::input_modified), nullptr);
}

TEST(timing, whoever_writes_into_the_socket_is_ended) {
  timed_case one({"writes_garbage"});
  const timed_observation seen = one.run(ten_samples());
  EXPECT_TRUE(seen.ended);
  EXPECT_EQ(seen.sides[0].seen.result, outcome::crashed);
}

TEST(conditions, are_read_from_the_system) {
  const auto now = read_cpus();
  ASSERT_TRUE(now);
  EXPECT_GT(now->busy_s, 0);
  EXPECT_GT(now->idle_s, 0);
}

TEST(conditions, are_read_from_its_text) {
  const auto folder = std::filesystem::temp_directory_path() / ("msabench_conditions." + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  std::ofstream(folder / "stat") << "cpu  100 20 30 1000 50 4 6 70 0 0\ncpu0 1 1 1 1\nprocs_running 7\n";
  std::ofstream(folder / "cpuinfo") << "cpu MHz\t\t: 2000.5\ncpu MHz\t\t: 3000.5\n";
  const auto seen = read_cpus(folder);
  ASSERT_TRUE(seen);
  EXPECT_NEAR(seen->busy_s * ticks, 160, 1e-9);
  EXPECT_NEAR(seen->idle_s * ticks, 1050, 1e-9);
  EXPECT_NEAR(seen->steal_s * ticks, 70, 1e-9);
  EXPECT_EQ(seen->load, 7);
  EXPECT_NEAR(seen->mhz, 2500.5, 1e-9);
  std::ofstream(folder / "stat") << "nothing\n";
  EXPECT_FALSE(read_cpus(folder));
  std::filesystem::create_directories(folder / "index0");
  std::filesystem::create_directories(folder / "index3");
  std::ofstream(folder / "index0" / "size") << "48K\n";
  std::ofstream(folder / "index3" / "size") << "30M\n";
  EXPECT_EQ(last_level_cache_bytes(folder), std::uint64_t{30} << 20);
  EXPECT_FALSE(last_level_cache_bytes(folder / "index7"));
  std::filesystem::remove_all(folder);
}

TEST(conditions, shares_are_of_all_cpus) {
  const cpu_reading first{10, 100, 1, 0, 0}, second{14, 105, 2, 3, 0};
  const cpu_usage u = usage_between(first, second, 1);
  EXPECT_DOUBLE_EQ(u.cpu_seconds, 10);
  EXPECT_DOUBLE_EQ(u.others, 0.3);
  EXPECT_DOUBLE_EQ(u.steal, 0.1);
  EXPECT_EQ(u.load, 3);
  EXPECT_EQ(usage_between(first, second, 9).others, 0);
  EXPECT_EQ(usage_between(first, first, 0).cpu_seconds, 0);
}
