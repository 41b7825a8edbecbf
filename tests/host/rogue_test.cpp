// SPDX-License-Identifier: Apache-2.0
// Plugins that attack the host itself: none takes it down, each is told from a fault of the suite.
#include <chrono>

#include "tests/host/small_case.h"

using namespace msabench;
using namespace msabench::host_test;

namespace {

observation run_rogue(const std::string& name, const run_spec& how = two_launches()) {
  return run_case(*worker_of(name), how);
}

}  // namespace

TEST(rogue, garbage_in_the_protocols_socket_is_a_crash) {
  for (const char* name : {"writes_garbage", "forges_done"}) {
    const observation seen = run_rogue(name);
    EXPECT_EQ(seen.result, outcome::crashed);
    EXPECT_EQ(seen.entry, "run");
    EXPECT_NE(seen.message.find("wrote into the protocol's socket"), std::string::npos) << seen.message;
  }
}

TEST(rogue, closing_the_socket_is_a_crash) {
  const observation seen = run_rogue("closes_everything");
  EXPECT_EQ(seen.result, outcome::crashed);
  EXPECT_EQ(seen.entry, "run");
  EXPECT_NE(seen.captured_output.find("the protocol's socket is closed"), std::string::npos) << seen.message;
}

TEST(rogue, a_flood_of_output_blocks_nothing_and_its_end_is_kept) {
  const observation seen = run_rogue("floods_output");
  EXPECT_EQ(seen.result, outcome::completed) << seen.message;
  EXPECT_LE(seen.captured_output.size(), 4200u);
  EXPECT_NE(seen.captured_output.find("line 99999"), std::string::npos);
  EXPECT_NE(seen.captured_output.find("\\xff\\x1b[2J the end"), std::string::npos);
}

TEST(rogue, a_flood_without_end_is_a_time_out) {
  const auto start = std::chrono::steady_clock::now();
  const observation seen = run_rogue("floods_for_ever", two_launches(1));
  EXPECT_EQ(seen.result, outcome::timed_out);
  EXPECT_NE(seen.captured_output.find("again\nagain"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(rogue, a_child_that_holds_the_socket_does_not_hide_the_crash) {
  const auto start = std::chrono::steady_clock::now();
  const observation seen = run_rogue("orphans", two_launches(60));
  EXPECT_EQ(seen.result, outcome::crashed);
  EXPECT_EQ(seen.message, "signal 11 (Segmentation fault)");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(rogue, writing_past_an_out_struct_is_a_violation) {
  const observation seen = run_rogue("overruns_answer");
  EXPECT_EQ(seen.result, outcome::completed);
  const violation* found = find(seen, violation::kind::struct_overrun);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->entry, "query");
}

TEST(rogue, answers_that_no_plugin_may_give) {
  EXPECT_EQ(run_rogue("null_plan").message, "plan returned OK and a NULL plan");
  EXPECT_EQ(run_rogue("odd_alignment").message, "alignment 48 is no power of two up to 4096");
  const observation endless = run_rogue("endless_workspace");
  EXPECT_EQ(endless.result, outcome::nonsense);
  EXPECT_EQ(endless.entry, "workspace");
}

TEST(rogue, a_workspace_larger_than_the_machine_is_no_resources) {
  const observation seen = run_rogue("huge_workspace");
  EXPECT_EQ(seen.result, outcome::error_status);
  EXPECT_EQ(seen.entry, "workspace");
  EXPECT_EQ(seen.status, 3);
  EXPECT_NE(seen.message.find("this machine has"), std::string::npos);
}

TEST(rogue, state_shared_by_two_plans_shows_when_they_overlap) {
  run_spec how = two_launches();
  const observation alone = run_rogue("shares_state", how);
  ASSERT_EQ(alone.launches.size(), 2u) << alone.message;
  EXPECT_EQ(alone.launches[1].same_as, 0);
  how.second_plan = true;
  const observation pair = run_rogue("shares_state", how);
  ASSERT_EQ(pair.launches.size(), 4u) << pair.message;
  EXPECT_NE(pair.launches[2].outputs_sha256, pair.launches[0].outputs_sha256);
  EXPECT_NE(pair.launches[3].outputs_sha256, pair.launches[0].outputs_sha256);
}

TEST(rogue, a_failure_beside_another_run_is_told_with_its_text) {
  run_spec how = two_launches();
  how.second_plan = true;
  const observation seen = run_rogue("fails_beside", how);
  EXPECT_EQ(seen.result, outcome::error_status);
  EXPECT_EQ(seen.status, 4);
  EXPECT_NE(seen.message.find("one too many"), std::string::npos) << seen.message;
  EXPECT_NE(seen.message.find("two plans"), std::string::npos) << seen.message;
}

TEST(rogue, damage_is_found_after_the_process_is_gone) {
  const observation seen = run_rogue("damages_and_crashes");
  EXPECT_EQ(seen.result, outcome::crashed);
  EXPECT_TRUE(find(seen, violation::kind::out_of_bounds));
  EXPECT_TRUE(find(seen, violation::kind::input_modified));
}

TEST(rogue, pointers_kept_from_an_earlier_launch_lead_nowhere) {
  for (const char* name : {"keeps_pointer", "keeps_workspace"}) {
    const observation seen = run_rogue(name);
    EXPECT_EQ(seen.result, outcome::crashed) << name;
    EXPECT_EQ(seen.entry, "run");
    EXPECT_EQ(seen.launches.size(), 1u) << "the first launch itself is right";
    EXPECT_NE(seen.message.find("signal 11"), std::string::npos) << seen.message;
    EXPECT_NE(seen.message.find("rule R1"), std::string::npos) << seen.message;
  }
}

TEST(rogue, a_text_that_does_not_outlive_its_call_is_told) {
  const observation seen = run_rogue("dangling_text");
#ifdef MSABENCH_SANITIZED
  // The sanitizer ends the process at the first look at such a text.
  EXPECT_EQ(seen.result, outcome::crashed);
  EXPECT_NE(seen.captured_output.find("AddressSanitizer"), std::string::npos) << seen.captured_output;
  return;
#endif
  EXPECT_EQ(seen.result, outcome::error_status);
  EXPECT_NE(seen.message.find("rule R7"), std::string::npos) << seen.message;
}

TEST(rogue, a_blocked_signal_is_a_violation) {
  const violation* found = nullptr;
  const observation seen = run_rogue("blocks_signal");
  found = find(seen, violation::kind::signal_handler);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->detail, "mask of SIGTERM");
}
