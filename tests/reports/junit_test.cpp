// SPDX-License-Identifier: Apache-2.0
// How other parsers read the whole file is the matter of formats_test.py.
#include "reports/junit.h"

#include <gtest/gtest.h>

#include "tests/reports/sample_runs.h"

namespace msabench {
namespace {

TEST(xml_escaped, shows_what_xml_can_not_hold) {
  EXPECT_EQ(xml_escaped("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
  EXPECT_EQ(xml_escaped(std::string_view("\0\x08\x1f\x7f", 4)), "\\x00\\x08\\x1f\\x7f");
  EXPECT_EQ(xml_escaped("\xff\xc3("), "\\xff\\xc3(");
  EXPECT_EQ(xml_escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(xml_escaped("\xef\xbf\xbe|\xef\xbf\xbf"), "\\ufffe|\\uffff");
  EXPECT_EQ(xml_escaped("\xc3\xa9 \xf0\x9f\x98\x80\n"), "\xc3\xa9 \xf0\x9f\x98\x80\n");
  EXPECT_EQ(xml_escaped("]]>"), "]]&gt;");
}

TEST(junit, cases_keep_the_order_of_the_run) {
  const auto text = junit_text(mixed_run());
  std::size_t at = 0;
  for (const auto& c : mixed_run().cases) {
    const auto next = text.find("name=\"" + c.name + "\"", at);
    ASSERT_NE(next, std::string::npos) << c.name;
    at = next;
  }
}

TEST(junit, carries_what_reproduces_and_explains_a_failure) {
  const auto text = junit_text(mixed_run());
  EXPECT_NE(text.find("type=\"fail (numeric)\""), std::string::npos);
  EXPECT_NE(text.find("block 17 dropped"), std::string::npos);
  EXPECT_NE(text.find("would pass with: p_operand fp16"), std::string::npos);
  EXPECT_NE(text.find("reproduce: msabench repro attend/m3/q1.n128K/bf16.paged/block_code/s0 --impl naive"),
            std::string::npos);
  EXPECT_NE(text.find("not observed: K2: no lse emitted"), std::string::npos);
}

}  // namespace
}  // namespace msabench
