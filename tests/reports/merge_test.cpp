// SPDX-License-Identifier: Apache-2.0
#include "reports/merge.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "core/error.h"
#include "core/files.h"
#include "core/hashes.h"
#include "reports/report_json.h"
#include "tests/reports/sample_runs.h"

namespace msabench {
namespace {

// Shard `index` of two of the clean run: its case of that number.
named_run shard(std::int64_t index) {
  named_run one{"s" + std::to_string(index) + ".json", clean_run()};
  one.run.cases = {one.run.cases.at(static_cast<std::size_t>(index))};
  one.run.shard_index = index;
  one.run.shard_count = 2;
  return one;
}

// The first case of the clean run, with another verdict.
named_run judged(const std::string& source, verdict v) {
  named_run one{source, clean_run()};
  one.run.cases.resize(1);
  one.run.cases[0].decided = v;
  one.run.cases[0].kind = v == verdict::fail ? fail_kind::numeric : fail_kind::none;
  return one;
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const usage_error& e) {
    return e.what();
  }
  ADD_FAILURE() << "was taken";
  return {};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(merge_runs, unites_shards) {
  auto second = shard(1);
  second.run.start_utc = "2026-01-30T12:00:00Z";
  const auto merged = merge_runs({shard(0), second});
  const run_record& run = merged.run;
  EXPECT_EQ(run.cases.size(), 2U);
  EXPECT_EQ(run.cases[1].name, clean_run().cases[1].name);
  EXPECT_EQ(run.shard_count, 1);
  EXPECT_EQ(run.start_utc, second.run.start_utc);
  EXPECT_TRUE(run.parts.empty());
  EXPECT_TRUE(merged.disagreements.empty());
  ASSERT_EQ(run.merged_from.size(), 2U);
  EXPECT_EQ(run.merged_from[1], (merged_source{"s1.json", second.run.start_utc, second.run.argv, 1, 2, 1, false}));
  EXPECT_EQ(exit_code_of(run), 0);
}

TEST(merge_runs, tells_the_shard_that_nobody_has_run) {
  const auto merged = merge_runs({shard(1)});
  ASSERT_EQ(merged.run.parts.size(), 1U);
  EXPECT_EQ(title_of(merged.run.parts[0]), "conform smoke, shard 0 of 2");
  EXPECT_EQ(merged.run.parts[0].state, part_state::not_run);
  EXPECT_EQ(exit_code_of(merged.run), 2);
  // What is merged can be merged again.
  const auto whole = merge_runs({{"merged.json", merged.run}, shard(0)});
  EXPECT_TRUE(whole.run.parts.empty());
  EXPECT_EQ(whole.run.merged_from.size(), 2U);
  EXPECT_EQ(exit_code_of(whole.run), 0);
}

TEST(merge_runs, an_interrupted_run_is_made_whole_by_a_whole_one_only) {
  named_run cut{"cut.json", partial_run()};
  const auto open = merge_runs({cut, cut});
  ASSERT_EQ(open.run.parts.size(), 1U);
  EXPECT_EQ(exit_code_of(open.run), 2);
  const auto whole = merge_runs({cut, {"whole.json", clean_run()}});
  EXPECT_EQ(whole.run.cases.size(), 2U);
  EXPECT_FALSE(whole.run.partial);
  EXPECT_EQ(exit_code_of(whole.run), 0);
}

TEST(merge_runs, a_whole_run_of_one_selection_says_nothing_of_another) {
  auto part = shard(0), cut = shard(1);
  for (auto* each : {&part, &cut}) each->run.shard_index = 0, each->run.shard_count = 1;
  part.run.argv = {"msabench", "check", "--filter", "attend/*"};
  cut.run.argv = {"msabench", "check", "--filter=dense/*"};
  cut.run.partial = true;
  const auto merged = merge_runs({part, cut});
  ASSERT_EQ(merged.run.parts.size(), 1U);
  EXPECT_EQ(title_of(merged.run.parts[0]), "conform smoke, --filter dense/*, shard 0 of 1");
  EXPECT_EQ(exit_code_of(merged.run), 2);
  auto whole = cut;
  whole.run.partial = false;
  EXPECT_EQ(exit_code_of(merge_runs({part, cut, whole}).run), 0);
  EXPECT_EQ(exit_code_of(merge_runs({part, cut, {"all.json", clean_run()}}).run), 0);
  // Words of one option, and what lies beside the level.
  part.run.argv = {"msabench", "check", "--op", "attend", "score"};
  cut.run.argv = {"msabench", "check", "--op", "attend", "dense"};
  EXPECT_EQ(exit_code_of(merge_runs({part, cut}).run), 2);
  cut.run.argv = {"msabench", "check", "--recorded", "folder"};
  EXPECT_EQ(exit_code_of(merge_runs({part, cut}).run), 2);
}

TEST(merge_runs, the_worse_verdict_stands_and_that_is_told) {
  constexpr verdict order[] = {verdict::pass,        verdict::quality_warning, verdict::waived,
                               verdict::unsupported, verdict::insensitive,     verdict::fail,
                               verdict::suite_error};
  for (std::size_t i = 0; i + 1 < std::size(order); ++i)
    for (const bool swapped : {false, true}) {
      const auto better = judged("a.json", order[i]), worse = judged("b.json", order[i + 1]);
      const auto merged = swapped ? merge_runs({worse, better}) : merge_runs({better, worse});
      ASSERT_EQ(merged.run.cases.size(), 1U);
      EXPECT_EQ(merged.run.cases[0].decided, order[i + 1]);
      ASSERT_EQ(merged.disagreements.size(), 1U);
      EXPECT_TRUE(has(merged.disagreements[0], std::string(name(order[i])))) << merged.disagreements[0];
      EXPECT_TRUE(has(merged.disagreements[0], " in a.json")) << merged.disagreements[0];
      EXPECT_TRUE(has(merged.run.cases[0].remarks.back(), "reports disagree"));
    }
  EXPECT_TRUE(merge_runs({judged("a", verdict::pass), judged("b", verdict::pass)}).disagreements.empty());
  auto other_kind = judged("b", verdict::fail);
  other_kind.run.cases[0].kind = fail_kind::nondeterministic;
  EXPECT_EQ(merge_runs({judged("a", verdict::fail), other_kind}).disagreements.size(), 1U);
}

TEST(merge_runs, refuses_what_differs) {
  const std::pair<const char*, std::function<void(run_record&)>> differences[] = {
      {"the suite's version", [](run_record& r) { r.suite_version = "9"; }},
      {"the suite's commit", [](run_record& r) { r.suite_commit = "fedcba"; }},
      {"with local changes", [](run_record& r) { r.suite_dirty = true; }},
      {"list smoke", [](run_record& r) { r.lists["smoke"] = sha256_hex("other"); }},
      {"the implementation is", [](run_record& r) { r.implementation.name = "other"; }},
      {"the implementation's version", [](run_record& r) { r.implementation.version = "other"; }},
      {"SHA-256 of the implementation", [](run_record& r) { r.implementation.sha256 = sha256_hex("other"); }},
      {"the device is Other CPU", [](run_record& r) { r.environment["cpu"] = "Other CPU"; }},
      {"the device is NVIDIA", [](run_record& r) { r.environment["device"] = "NVIDIA H200"; }},
      {"the level", [](run_record& r) { r.level = "core"; }},
      {"the seed", [](run_record& r) { r.seed = 1; }},
      {"random cases", [](run_record& r) { r.fuzz = fuzz_record{}; }},
      {"is another problem there", [](run_record& r) { r.cases[0].definition_sha256 = sha256_hex("other"); }},
  };
  for (const auto& [what, change] : differences) {
    named_run other{"other.json", clean_run()};
    change(other.run);
    const auto line = refusal([&] { merge_runs({{"first.json", clean_run()}, other}); });
    EXPECT_TRUE(line.starts_with("REPORT other.json: ")) << line;
    EXPECT_TRUE(has(line, what)) << line;
  }
}

class parts : public testing::Test {
 protected:
  static part_line line(const std::string& item, part_state state, const std::string& of = "naive") {
    const auto run = clean_run();
    return {"parts.jsonl:1",
            {"sanitize", item, of, of == "suite" ? "" : run.implementation.sha256, state, "why", 1},
            run.suite_commit,
            "Some CPU | 2 GHz",
            false};
  }
  static merged_run with(const std::vector<part_line>& lines) {
    auto merged = merge_runs({{"clean.json", clean_run()}});
    add_parts(merged, lines);
    return merged;
  }
};

TEST_F(parts, decide_the_exit_code) {
  EXPECT_EQ(exit_code_of(with({line("memcheck", part_state::passed)}).run), 0);
  EXPECT_EQ(exit_code_of(with({line("memcheck", part_state::passed), line("racecheck", part_state::not_run)}).run), 2);
  EXPECT_EQ(exit_code_of(with({line("memcheck", part_state::failed), line("racecheck", part_state::not_run)}).run), 1);
  EXPECT_EQ(exit_code_of(with({line("memcheck", part_state::passed), line("racecheck", part_state::incomplete)}).run),
            2);
}

TEST_F(parts, a_failure_stands_and_what_has_run_goes_before_what_has_not) {
  using enum part_state;
  for (const auto& [first, second, kept] : {std::tuple{passed, failed, failed},
                                            {failed, passed, failed},
                                            {not_run, passed, passed},
                                            {passed, not_run, passed},
                                            {failed, not_run, failed},
                                            {not_run, incomplete, incomplete},
                                            {incomplete, not_run, incomplete},
                                            {incomplete, passed, passed},
                                            {passed, incomplete, passed},
                                            {incomplete, failed, failed},
                                            {not_run, not_run, not_run}}) {
    const auto merged = with({line("memcheck", first), line("memcheck", second)});
    ASSERT_EQ(merged.run.parts.size(), 1U);
    EXPECT_EQ(merged.run.parts[0].state, kept);
    const bool differ = (first == passed && second == failed) || (first == failed && second == passed);
    EXPECT_EQ(merged.disagreements.size(), differ ? 1U : 0U);
  }
}

TEST_F(parts, of_the_implementation_and_of_the_suite_only) {
  auto foreign = line("memcheck", part_state::failed, "other");
  foreign.part.sha256 = sha256_hex("other");
  auto shard_line = line("core shard 0 of 4", part_state::passed);
  shard_line.part.part = "conform";
  const auto merged =
      with({foreign, shard_line, line("memcheck of the worker's kernels", part_state::passed, "suite")});
  ASSERT_EQ(merged.run.parts.size(), 1U);
  EXPECT_EQ(merged.run.parts[0].of, "suite");
}

TEST_F(parts, of_another_commit_or_device_are_refused) {
  auto other = line("memcheck", part_state::passed);
  other.commit = "fedcba";
  EXPECT_TRUE(has(refusal([&] { with({other}); }), "--parts parts.jsonl:1: the suite's commit is fedcba"));
  other = line("memcheck", part_state::passed);
  other.dirty = true;
  EXPECT_TRUE(has(refusal([&] { with({other}); }), "with local changes"));
  other = line("memcheck", part_state::passed);
  other.device = "NVIDIA H100";
  EXPECT_TRUE(has(refusal([&] { with({other}); }), "the device is NVIDIA H100"));
  other.device.clear();  // nothing ran, so nobody knows where
  EXPECT_EQ(with({other}).run.parts.size(), 1U);
}

TEST_F(parts, are_read_line_by_line) {
  std::string pattern = testing::TempDir() + "msabench_parts_XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const auto path = std::filesystem::path(pattern) / "parts.jsonl";
  const std::string good = R"({"part":"perf","item":"decode","of":"x","sha256":"","commit":"c","dirty":true,)"
                           R"("device":"d","state":"not-run","seconds":7,"detail":"busy \" \\"})";
  write_file_atomically("test", path, good + "\n\n" + good);
  const auto lines = read_part_lines(path);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[1].source, path.string() + ":3");
  EXPECT_EQ(lines[1].part.detail, "busy \" \\");
  EXPECT_EQ(lines[1].part.state, part_state::not_run);
  EXPECT_EQ(lines[1].part.seconds, 7);
  EXPECT_EQ(lines[1].commit + lines[1].device, "cd");
  EXPECT_TRUE(lines[1].dirty);
  for (const char* bad : {"{", "[]", "{}", R"({"part":"perf","item":"decode","of":"x","sha256":"","state":"passed"})",
                          R"({"part":"perf","item":"decode","of":"x","sha256":"","commit":"c","state":"ok"})"}) {
    write_file_atomically("test", path, good + "\n" + bad + "\n");
    EXPECT_TRUE(has(refusal([&] { read_part_lines(path); }), "parts.jsonl:2")) << bad;
  }
  std::filesystem::remove_all(pattern);
}

}  // namespace
}  // namespace msabench
