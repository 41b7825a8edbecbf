// SPDX-License-Identifier: Apache-2.0
// That none of K0 to K5 could be left out of the judge: each is the only one that catches some of these plugins, which
// pass without it. Prints the table of plugins by checks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "conformance/runner.h"
#include "core/verdict.h"

using namespace msabench;

namespace {

constexpr std::array<const char*, 6> checks = {"K0", "K1", "K2", "K3", "K4", "K5"};

// A list in small: each operator and family that a check is for.
constexpr std::array<const char*, 8> cases = {"attend/m3.tp4/q1.n8K.x4/bf16.paged/random/s0",
                                              "attend/m3.tp4/q1.n8K.x4/bf16.paged/carry.all/s0",
                                              "attend/m3.tp2/q1.n8K.x2/bf16.paged/key_code/s0",
                                              "select/h8x2.d64.b32.k4.l3.i1/rag.small/fp32/select.random/s0",
                                              "score/h8x2.d64.b32.k4.l1.i0/rag.small/fp32.contig/random/s0",
                                              "index/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/index_code.ties/s0",
                                              "combine/h8x2.d64.b32.k4.l1.i0/rag.small/fp32/partials.holes/split4/s0",
                                              "qk_norm_rope/h8x2.d64.b32.k4.l1.i0/rag.small/fp32/tokens.random/s0"};

// Faulty plugins of this folder, each seen by some check on these cases.
constexpr std::array<const char*, 28> faulty = {"write_before",
                                                "write_behind",
                                                "write_behind_workspace",
                                                "change_input",
                                                "unwritten",
                                                "combine_nothing",
                                                "combine_leaks",
                                                "combine_undivided",
                                                "combine_forgets_part",
                                                "rope_without_one",
                                                "rope_backwards",
                                                "rope_interleaved",
                                                "rope_position_after",
                                                "rope_norm_across_heads",
                                                "short_scores",
                                                "unscaled_scores",
                                                "mask_off_by_one",
                                                "rope_main_norms",
                                                "drop_key",
                                                "double_block",
                                                "claims_base2_lse",
                                                "short_lse",
                                                "merge_in_16bit",
                                                "accumulate_16bit",
                                                "short_weights_undeclared",
                                                "swap_block",
                                                "ties_high",
                                                "wrong_index_head"};

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

TEST(left_out, never_reads_as_passed) {
  const auto naive = worker_of("naive");
  for (const char* which : cases) {
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

// What a plugin fails, by check, and without which checks none of it fails.
struct row {
  std::map<std::string, int> failing_cases;
  std::set<std::string> passes_without;
};

row row_of(const char* plugin) {
  row found;
  const auto on = worker_of(plugin);
  std::vector<std::string> failed;
  for (const char* which : cases) {
    const case_record r = judged(*on, which, "");
    if (!fails(r)) continue;
    failed.emplace_back(which);
    std::set<std::string> seen_by;
    for (const auto& c : r.checks)
      if (c.gate && c.observed && !c.passed) seen_by.insert(c.id.substr(0, 2));
    for (const auto& check : seen_by) ++found.failing_cases[check];
  }
  EXPECT_FALSE(found.failing_cases.empty()) << plugin << " fails nothing";
  for (const char* check : checks) {
    bool passes = found.failing_cases.contains(check);  // what it does not fail fails without it too
    for (const auto& which : failed) passes = passes && would_pass(judged(*on, which, check), check);
    if (passes) found.passes_without.insert(check);
  }
  return found;
}

TEST(left_out, each_check_alone_catches_some_fault) {
  std::map<std::string, std::vector<std::string>> caught_by_it_alone;
  fmt::print("cases failed, by check; * nothing fails without it\n{:<26}", "");
  for (const char* check : checks) fmt::print("{:>6}", check);
  fmt::print("\n");
  for (const char* plugin : faulty) {
    const row r = row_of(plugin);
    fmt::print("{:<26}", plugin);
    for (const char* check : checks) {
      const auto count = r.failing_cases.find(check);
      const bool alone = r.passes_without.contains(check);
      fmt::print("{:>6}", count == r.failing_cases.end() ? "." : fmt::format("{}{}", count->second, alone ? "*" : ""));
      if (alone) caught_by_it_alone[check].emplace_back(plugin);
    }
    fmt::print("\n");
  }
  for (const char* check : checks)
    EXPECT_FALSE(caught_by_it_alone[check].empty()) << "nothing would be missed without " << check;
}

}  // namespace
