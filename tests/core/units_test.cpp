// SPDX-License-Identifier: Apache-2.0
#include "core/units.h"

#include <gtest/gtest.h>

#include <clocale>
#include <limits>

#include "tests/core/thrown.h"

namespace msabench {
namespace {

TEST(sizes, ReadAndWritten) {
  EXPECT_EQ(parse_size("n", "1"), 1);
  EXPECT_EQ(parse_size("n", "128K"), 131072);
  EXPECT_EQ(parse_size("n", "1M"), 1048576);
  EXPECT_EQ(parse_size("n", "16M"), max_size);
  EXPECT_EQ(parse_size("n", "16384K"), max_size);
  EXPECT_EQ(parse_size("n", "16777216"), max_size);
  EXPECT_EQ(format_size(2047), "2047");
  EXPECT_EQ(format_size(2048), "2K");
  EXPECT_EQ(format_size(131072), "128K");
  EXPECT_EQ(format_size(3 << 20), "3M");
  EXPECT_EQ(format_size(1536 << 10), "1536K");
  EXPECT_EQ(format_size(0), "0");
  for (std::int64_t n = 1; n <= max_size; n += n < 70000 ? 1 : 4093) ASSERT_EQ(parse_size("n", format_size(n)), n);
}

TEST(sizes, Refused) {
  const std::string remedy = "; give 1 to 16M, digits with an optional K (1024) or M (1048576)";
  const auto line = [](std::string_view text) { return thrown_line([&] { parse_size("--n", text); }); };
  EXPECT_EQ(line(""), "--n: is empty" + remedy);
  EXPECT_EQ(line("0"), "--n 0: is zero" + remedy);
  EXPECT_EQ(line("0K"), "--n 0K: is zero" + remedy);
  EXPECT_EQ(line("-1"), "--n -1: is negative" + remedy);
  EXPECT_EQ(line("16777217"), "--n 16777217: is too large" + remedy);
  EXPECT_EQ(line("17M"), "--n 17M: is too large" + remedy);
  EXPECT_EQ(line("99999999999999999999999"), "--n 99999999999999999999999: is too large" + remedy);
  EXPECT_EQ(line("17592186044417K"), "--n 17592186044417K: is too large" + remedy);
  EXPECT_EQ(line("4k"), "--n 4k: has a suffix that is not K or M" + remedy);
  EXPECT_EQ(line("4G"), "--n 4G: has a suffix that is not K or M" + remedy);
  EXPECT_EQ(line("4KK"), "--n 4KK: has a suffix that is not K or M" + remedy);
  EXPECT_EQ(line("1.5K"), "--n 1.5K: has a suffix that is not K or M" + remedy);
  EXPECT_EQ(line("K"), "--n K: is not a size" + remedy);
  EXPECT_EQ(line("+4"), "--n +4: is not a size" + remedy);
  EXPECT_EQ(line(" 4"), "--n  4: is not a size" + remedy);
  EXPECT_EQ(line("004"), "--n 004: has a leading zero" + remedy);
  EXPECT_EQ(line("\xd9\xa4"), "--n \xd9\xa4: is not a size" + remedy);  // an Arabic four
}

TEST(sizes, CanonicalTextIsUnique) {
  for (const char* text : {"1", "2047", "2K", "128K", "1M", "16M", "1025K"}) EXPECT_TRUE(canonical_size(text)) << text;
  for (const char* text : {"1024", "1024K", "2048", "0", "", "01", "17M", "4k", "-1"})
    EXPECT_FALSE(canonical_size(text)) << text;
}

TEST(numbers, Uint64) {
  EXPECT_EQ(parse_uint64("seed", "0"), 0u);
  EXPECT_EQ(parse_uint64("seed", "18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  const auto line = [](std::string_view text) { return thrown_line([&] { parse_uint64("--seed", text); }); };
  const std::string remedy = "; give decimal digits, 0 to 18446744073709551615";
  EXPECT_EQ(line("18446744073709551616"), "--seed 18446744073709551616: is too large" + remedy);
  EXPECT_EQ(line("-1"), "--seed -1: is negative" + remedy);
  EXPECT_EQ(line(""), "--seed: is empty" + remedy);
  for (const char* text : {"+1", " 1", "1 ", "0x10", "1e3", "1.0", "one"})
    EXPECT_EQ(line(text), "--seed " + std::string(text) + ": is not a whole number" + remedy);
  EXPECT_EQ(line("00"), "--seed 00: has a leading zero" + remedy);
}

TEST(numbers, Seconds) {
  EXPECT_EQ(parse_seconds("t", "0.5"), 0.5);
  EXPECT_EQ(parse_seconds("t", ".25"), 0.25);
  EXPECT_EQ(parse_seconds("t", "1e3"), 1000);
  EXPECT_EQ(parse_seconds("t", "604800"), 604800);
  const auto line = [](std::string_view text) { return thrown_line([&] { parse_seconds("--timeout-s", text); }); };
  for (const char* text : {"0", "0.0", "604801", "1e999", "1e-999"})
    EXPECT_NE(line(text).find("is out of range"), std::string::npos) << text;
  for (const char* text : {"nan", "inf", "1s", "0x1", "+1", " 1", "1,5", "."})
    EXPECT_NE(line(text).find("is not a number of seconds"), std::string::npos) << text << line(text);
  EXPECT_NE(line("-1").find("is negative"), std::string::npos);
  EXPECT_NE(line("").find("is empty"), std::string::npos);
}

TEST(numbers, ForPeople) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(847), "847");
  EXPECT_EQ(format_count(999.7), "1.00 k");
  EXPECT_EQ(format_count(12.34), "12.3");
  EXPECT_EQ(format_count(12'340'000), "12.3 M");
  EXPECT_EQ(format_count(999'999), "1.00 M");
  EXPECT_EQ(format_count(-1.05e9), "-1.05 G");
  EXPECT_EQ(format_duration_s(0), "0 s");
  EXPECT_EQ(format_duration_s(8.12e-7), "812 ns");
  EXPECT_EQ(format_duration_s(1.234e-5), "12.3 us");
  EXPECT_EQ(format_duration_s(4.56e-3), "4.56 ms");
  EXPECT_EQ(format_duration_s(0.99999), "1.00 s");
  EXPECT_EQ(format_duration_s(7.89), "7.89 s");
  EXPECT_EQ(format_duration_s(59.99), "1 min 0 s");
  EXPECT_EQ(format_duration_s(200), "3 min 20 s");
  EXPECT_EQ(format_duration_s(7500), "2 h 05 min");
  EXPECT_EQ(format_duration_s(3599.9), "1 h 00 min");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(12.0 * (1 << 30)), "12.0 GiB");
  EXPECT_EQ(format_bytes(1023.9 * 1024), "1.00 MiB");
}

TEST(numbers, DoNotFollowTheLocale) {
  const char* set = nullptr;
  for (const char* locale : {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "C.UTF-8"})
    if (set == nullptr) set = std::setlocale(LC_ALL, locale);
  EXPECT_EQ(parse_seconds("t", "1.5"), 1.5);
  EXPECT_EQ(format_duration_s(1.5), "1.50 s");
  EXPECT_EQ(format_count(1234567), "1.23 M");
  std::setlocale(LC_ALL, "C");
}

}  // namespace
}  // namespace msabench
