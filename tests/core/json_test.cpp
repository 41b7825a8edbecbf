// SPDX-License-Identifier: Apache-2.0
#include "core/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/core/thrown.h"

namespace msabench {
namespace {

constexpr double inf_value = std::numeric_limits<double>::infinity();

TEST(json_numbers, NonFiniteOnesAreNullAndTagged) {
  nlohmann::json obj = nlohmann::json::object();
  put_number(obj, "a", 1.5);
  put_number(obj, "b", inf_value);
  put_number(obj, "c", -inf_value);
  put_number(obj, "d", std::nan(""));
  EXPECT_EQ(obj.dump(), R"({"a":1.5,"b":null,"b_tag":"inf","c":null,"c_tag":"-inf","d":null,"d_tag":"nan"})");
  EXPECT_EQ(get_number(obj, "a"), 1.5);
  EXPECT_EQ(get_number(obj, "b"), inf_value);
  EXPECT_EQ(get_number(obj, "c"), -inf_value);
  EXPECT_TRUE(std::isnan(get_number(obj, "d")));
  put_number(obj, "b", 2);
  EXPECT_FALSE(obj.contains("b_tag"));
  EXPECT_THROW(get_number(obj, "missing"), suite_error);
  EXPECT_THROW(get_number({{"x", nullptr}}, "x"), suite_error);
  EXPECT_THROW(get_number({{"x", nullptr}, {"x_tag", "big"}}, "x"), suite_error);
  EXPECT_THROW(get_number({{"x", "1"}}, "x"), suite_error);
  EXPECT_TRUE(finite_or_tag(inf_value).is_null());
  EXPECT_EQ(finite_or_tag(0.5), 0.5);
}

std::string parse_refusal(std::string_view text, const json_limits& limits = {}) {
  return thrown_line([&] { parse_json("--file", "x.json", text, limits); });
}

TEST(json_parsing, TakesJson) {
  EXPECT_EQ(parse_json("f", R"( {"a": [1, {"a": 2}], "b": {"a": null}} )").dump(),
            R"({"a":[1,{"a":2}],"b":{"a":null}})");
  EXPECT_EQ(parse_json("f", "3"), 3);
}

TEST(json_parsing, RefusesWhatIsNot) {
  for (const char* text : {"", "{", "{]", "nul", "[1,]", "1 2", "{\"a\":1}x", "{'a':1}", "[NaN]", "\"\xff\"", "[1e999]",
                           "\xff\xfe", "\"\\ud800\""}) {
    const std::string line = parse_refusal(text);
    EXPECT_EQ(line.rfind("--file x.json: is not valid JSON: ", 0), 0u) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_EQ(line.find("json.exception"), std::string::npos) << line;
  }
}

TEST(json_parsing, RefusesRepeatedKeys) {
  EXPECT_EQ(parse_refusal(R"({"a":1,"b":2,"a":3})"),
            "--file x.json: has the key \"a\" twice in one object; give plain JSON");
  EXPECT_EQ(parse_refusal(R"({"b":[{"a":1,"\u0061":3}]})"),
            "--file x.json: has the key \"a\" twice in one object; give plain JSON");
  EXPECT_EQ(parse_refusal(R"([{"a":1},{"a":{"a":2}}])"), "nothing thrown");
}

TEST(json_parsing, RefusesDepthAndLength) {
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_EQ(parse_refusal(nested(64)), "nothing thrown");
  EXPECT_EQ(parse_refusal(nested(65)), "--file x.json: is nested deeper than 64 levels; give plain JSON");
  EXPECT_EQ(parse_refusal(std::string(10'000'000, '[')),
            "--file x.json: is nested deeper than 64 levels; give plain JSON");
  std::string objects;
  for (int i = 0; i < 100; ++i) objects += "{\"a\":";
  EXPECT_EQ(parse_refusal(objects), "--file x.json: is nested deeper than 64 levels; give plain JSON");
  EXPECT_EQ(parse_refusal("[1,2,3]", {.max_bytes = 6}), "--file x.json: is longer than 6 bytes; give less");
  EXPECT_EQ(parse_refusal("[1,2,3]", {.max_bytes = 7}), "nothing thrown");
}

}  // namespace
}  // namespace msabench
