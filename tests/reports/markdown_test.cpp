// SPDX-License-Identifier: Apache-2.0
#include "reports/markdown.h"

#include <gtest/gtest.h>

#include "tests/reports/sample_runs.h"

namespace msabench {
namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(markdown_escaped, leaves_nothing_to_interpret) {
  EXPECT_EQ(markdown_escaped("a|b*c_d`e[f]\\<g>&"), "a\\|b\\*c\\_d\\`e\\[f\\]\\\\&lt;g&gt;&amp;");
  EXPECT_EQ(markdown_escaped("# no title"), "\\# no title");
  EXPECT_EQ(markdown_escaped("two\nlines"), "two\\\\nlines");
}

TEST(markdown_code, outgrows_backticks_and_escapes_pipes) {
  EXPECT_EQ(markdown_code("a_b"), "`a_b`");
  EXPECT_EQ(markdown_code("a`b``c"), "```a`b``c```");
  EXPECT_EQ(markdown_code("`a"), "`` `a ``");
  EXPECT_EQ(markdown_code("a|b"), "`a\\|b`");
  EXPECT_EQ(markdown_code(""), "");
}

TEST(markdown, begins_with_how_the_run_ended) {
  EXPECT_TRUE(has(markdown_text(clean_run()), "**PASSED**: 2 of 2 cases verified and passed. Exit code 0."));
  EXPECT_TRUE(
      has(markdown_text(partial_run()), "**INCOMPLETE**: 1 of 1 cases verified and passed. The run was interrupted"));
  EXPECT_TRUE(has(markdown_text(partial_run()), "**Partial:**"));
  EXPECT_TRUE(has(markdown_text(insensitive_run()), "1 too insensitive to verify. Exit code 2."));
  EXPECT_TRUE(
      has(markdown_text(unsupported_run()), "**NOTHING VERIFIED**: 0 of 1 cases verified and passed, 1 unsupported."));
  EXPECT_TRUE(has(markdown_text(empty_run()), "**NOTHING VERIFIED**: No case was selected. Exit code 3."));
  EXPECT_TRUE(has(markdown_text(mixed_run()), "**SUITE ERROR**: The suite failed in 1 of 12 cases"));
  for (const auto& [name, run] : sample_runs()) {
    EXPECT_EQ(has(markdown_text(run), "PASSED"), name == "clean") << name;
    EXPECT_EQ(has(markdown_text(run), "**Partial:**"), run.partial) << name;
  }
}

TEST(markdown, shows_every_failing_case_with_reason_and_command) {
  const auto text = markdown_text(mixed_run());
  const auto from = text.find("## Failing cases"), to = text.find("## Quality warnings");
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  const auto section = text.substr(from, to - from);
  for (const auto& c : mixed_run().cases) {
    const bool failing = c.decided == verdict::fail || c.decided == verdict::broken_promise ||
                         c.decided == verdict::timeout || c.decided == verdict::crash ||
                         c.decided == verdict::device_lost || c.decided == verdict::xpass;
    EXPECT_EQ(has(section, "`" + c.name + "`"), failing) << c.name;
    EXPECT_EQ(has(section, "`" + c.repro + "`"), failing) << c.name;
  }
  for (const auto* part : {"fail (numeric)", "block 17 dropped", "row 3, head 1, channel 5", "got 0.0625, want 0.0829",
                           "limit 0.002 (10.2 x)", "would pass with: p\\_operand fp16", "reason of crash"})
    EXPECT_TRUE(has(section, part)) << part;
  EXPECT_FALSE(has(markdown_text(clean_run()), "## Failing cases"));
}

TEST(markdown, says_what_was_not_verified_and_not_observed) {
  const auto text = markdown_text(mixed_run());
  EXPECT_TRUE(has(text, "## Not verified"));
  EXPECT_TRUE(has(text, "| unsupported | 1 | reason of unsupported |"));
  EXPECT_TRUE(has(text, "| waived | 1 |"));
  EXPECT_TRUE(has(text, "| insensitive | 1 | attend/m3/q1.n1M/bf16.paged/random/s0: drop\\_key moves K1"));
  EXPECT_TRUE(has(text, "- K2: no lse emitted (1 case)"));
  EXPECT_TRUE(has(text, "Some CPU \\| 2 GHz"));
}

TEST(markdown, names_the_smallest_of_random_cases_that_fail_alike) {
  const auto text = markdown_text(random_run());
  EXPECT_TRUE(has(text, "| fail K1 | `" + random_run().cases[2].name + "` | `attend/m3/q1.n5_q3.n9/"));
  EXPECT_TRUE(has(text, "| random cases | for 1 min 0 s |")) << text;
  EXPECT_FALSE(has(markdown_text(clean_run()), "random cases"));
  EXPECT_FALSE(has(text, "attend/m3/q1.n1M/bf16.paged/random/s0"));
}

TEST(markdown, names_what_was_withdrawn) {
  EXPECT_TRUE(has(markdown_text(mixed_run()), "Not run, since withdrawn: 1 case."));
  EXPECT_TRUE(has(markdown_text(mixed_run()), "select/m3/q1.n1K/fp32/select.gap"));
}

}  // namespace
}  // namespace msabench
