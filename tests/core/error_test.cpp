// SPDX-License-Identifier: Apache-2.0
#include "core/error.h"

#include <gtest/gtest.h>

namespace msabench {
namespace {

TEST(diagnostic, OneLineWithWhatIsThere) {
  EXPECT_EQ((diagnostic{"--n", "0", "is zero", "give 1 to 16M"}.line()), "--n 0: is zero; give 1 to 16M");
  EXPECT_EQ((diagnostic{"--n", "", "is missing", "give it"}.line()), "--n: is missing; give it");
  EXPECT_EQ((diagnostic{"--n", "0", "is zero", ""}.line()), "--n 0: is zero");
  EXPECT_EQ((diagnostic{"", "", "failed", ""}.line()), "failed");
}

TEST(diagnostic, NothingBreaksTheLine) {
  EXPECT_EQ((diagnostic{"f", "a\nb\r\t\x1b[31m\x7f", "p\nq", "r\ns"}.line()),
            "f a\\nb\\r\\t\\x1b[31m\\x7f: p\\nq; r\\ns");
  EXPECT_EQ(one_line("a\xe2\x80\xa8z\xe2\x80\xaey\xc2\x85", 80), "a\\u2028z\\u202ey\\x85");
}

TEST(diagnostic, BytesThatAreNotUtf8AreEscaped) {
  EXPECT_EQ(one_line("\xff", 80), "\\xff");
  EXPECT_EQ(one_line("gr\xc3\xbc\xc3\x9f", 80), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(one_line("\xc3", 80), "\\xc3");                             // truncated
  EXPECT_EQ(one_line("\xc0\xaf", 80), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(one_line("\xe0\x80\xaf", 80), "\\xe0\\x80\\xaf");           // overlong
  EXPECT_EQ(one_line("\xed\xa0\x80", 80), "\\xed\\xa0\\x80");           // surrogate
  EXPECT_EQ(one_line("\xf4\x90\x80\x80", 80), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
  EXPECT_EQ(one_line("\xf0\x9f\x98\x80", 80), "\xf0\x9f\x98\x80");
  EXPECT_EQ(one_line(std::string_view("a\0b", 3), 80), "a\\x00b");
}

TEST(diagnostic, LongValuesAreCutAtCharacters) {
  EXPECT_EQ(one_line(std::string(80, 'x'), 80), std::string(80, 'x'));
  EXPECT_EQ(one_line(std::string(81, 'x'), 80), std::string(77, 'x') + "...");
  std::string umlauts;
  for (int i = 0; i < 100; ++i) umlauts += "\xc3\xbc";
  EXPECT_EQ(one_line(umlauts, 80), umlauts.substr(0, 2 * 77) + "...");
  EXPECT_EQ((diagnostic{"f", std::string(1 << 20, 'x'), "p", ""}.line()), "f " + std::string(77, 'x') + "...: p");
  EXPECT_EQ(one_line("abcdef", 2), "...");
}

TEST(errors, CarryTheirDiagnostic) {
  try {
    bad_input("--x", "1", "is odd", "give 2");
    FAIL();
  } catch (const usage_error& e) {
    EXPECT_STREQ(e.what(), "--x 1: is odd; give 2");
    EXPECT_EQ(e.what_is_wrong().field, "--x");
    EXPECT_EQ(e.what_is_wrong().remedy, "give 2");
  }
  EXPECT_STREQ(suite_error("a\nb").what(), "a\\nb");
}

}  // namespace
}  // namespace msabench
