// SPDX-License-Identifier: Apache-2.0
// That none of K0 to K5 could be left out of the judge: each is the only one that catches some of these plugins, which
// pass without it. Prints the table of plugins by checks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "conformance/runner.h"
#include "core/verdict.h"

using namespace msabench;

namespace {

constexpr std::array<const char*, 6> checks = {"K0", "K1", "K2", "K3", "K4", "K5"};

constexpr const char *attend = "attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/random/s0",
                     *long_rows = "attend/m3.tp4/q1.n8K.x4/bf16.paged/random/s0",
                     *carry = "attend/m3.tp4/q1.n8K.x4/bf16.paged/carry.all/s0",
                     *select = "select/h8x2.d64.b32.k4.l1.i0/rag.small/fp32/select.random/s0",
                     *score = "score/h8x2.d64.b32.k4.l1.i0/rag.small/fp32.contig/random/s0",
                     *ties = "index/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/index_code.ties/s0",
                     *combine = "combine/h8x2.d64.b32.k4.l1.i0/rag.small/fp32/partials.holes/split4/s0",
                     *prologue = "qk_norm_rope/h8x2.d64.b32.k4.l1.i0/rag.small/fp32/tokens.random/s0";

// Faulty plugins of this folder, each with the smallest case that sees it.
struct planted {
  const char *plugin, *which;
};
constexpr std::array<planted, 28> faulty = {{{"write_before", select},
                                             {"write_behind", select},
                                             {"write_behind_workspace", select},
                                             {"change_input", select},
                                             {"unwritten", select},
                                             {"combine_nothing", combine},
                                             {"combine_leaks", combine},
                                             {"combine_undivided", combine},
                                             {"combine_forgets_part", combine},
                                             {"rope_without_one", prologue},
                                             {"rope_backwards", prologue},
                                             {"rope_interleaved", prologue},
                                             {"rope_position_after", prologue},
                                             {"rope_norm_across_heads", prologue},
                                             {"rope_main_norms", prologue},
                                             {"short_scores", score},
                                             {"unscaled_scores", score},
                                             {"mask_off_by_one", score},
                                             {"drop_key", attend},
                                             {"double_block", attend},
                                             {"claims_base2_lse", attend},
                                             {"short_lse", attend},
                                             {"merge_in_16bit", carry},
                                             {"accumulate_16bit", carry},
                                             {"short_weights_undeclared", long_rows},
                                             {"swap_block", select},
                                             {"ties_high", ties},
                                             {"wrong_index_head", ties}}};
static_assert(faulty.size() >= 20);

std::unique_ptr<executor> worker_of(const std::string& name) {
  const std::string folder = std::string(MSABENCH_BINARY_DIR) + (name == "naive" ? "/lib/msabench/" : "/test-plugins/");
  return make_worker_executor({name, folder + name + ".so", {}}, {2, 60});
}

case_record judged(executor& on, const std::string& which, const std::string& left_out) {
  runner_options options;
  options.left_out = left_out;
  return run_case(on, parse_case(which), options);
}

bool fails(const case_record& r) { return r.decided == verdict::fail || r.decided == verdict::broken_promise; }

bool would_pass(const case_record& r, const std::string& left_out) {
  return r.decided == verdict::insensitive && r.reason.starts_with(left_out + " was left out");
}

// Whether the check was there or not.
TEST(left_out, never_reads_as_passed) {
  const auto naive = worker_of("naive");
  for (const char* which : {attend, select, score, ties, combine, prologue}) {
    EXPECT_EQ(judged(*naive, which, "").decided, verdict::pass) << which;
    for (const char* check : checks) {
      const case_record r = judged(*naive, which, check);
      EXPECT_TRUE(would_pass(r, check)) << which << ": " << r.reason;
      EXPECT_EQ(r.remarks.back(), fmt::format("invalid as a verdict: judged without {}", check));
      for (const auto& c : r.checks) EXPECT_FALSE(c.id.starts_with(check)) << c.id;
      run_record run;
      run.cases.push_back(r);
      EXPECT_EQ(exit_code_of(run), exit_code::partial);
    }
  }
}

// The checks that a plugin fails on its case.
std::set<std::string> failed_by(const planted& fault) {
  const case_record r = judged(*worker_of(fault.plugin), fault.which, "");
  EXPECT_TRUE(fails(r)) << fault.plugin << " does not fail " << fault.which << ": " << r.reason;
  std::set<std::string> seen_by;
  for (const auto& c : r.checks)
    if (c.gate && c.observed && !c.passed) seen_by.insert(c.id.substr(0, 2));
  return seen_by;
}

// One failing check decides, so without it only those pass that fail no other; that one of them does is tried.
TEST(left_out, each_check_alone_catches_some_fault) {
  std::map<std::string, std::vector<planted>> caught_by_it_alone;
  fmt::print("checks that fail\n{:<26}", "");
  for (const char* check : checks) fmt::print("{:>4}", check);
  fmt::print("\n");
  for (const planted& fault : faulty) {
    const auto seen_by = failed_by(fault);
    fmt::print("{:<26}", fault.plugin);
    for (const char* check : checks) fmt::print("{:>4}", seen_by.contains(check) ? "x" : ".");
    fmt::print("\n");
    if (seen_by.size() == 1) caught_by_it_alone[*seen_by.begin()].push_back(fault);
  }
  for (const char* check : checks) {
    const auto& alone = caught_by_it_alone[check];
    EXPECT_TRUE(std::ranges::any_of(
        alone,
        [&](const planted& fault) { return would_pass(judged(*worker_of(fault.plugin), fault.which, check), check); }))
        << "nothing would be missed without " << check;
  }
}

}  // namespace
