// SPDX-License-Identifier: Apache-2.0
#include "conformance/lists.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "conformance/targets.h"
#include "core/error.h"

namespace msabench {
namespace {

std::string no_lists(std::string_view) { return ""; }
std::string circle(std::string_view name) { return name == "a" ? "include b\n" : "include a\n"; }
std::string nested(std::string_view name) {
  return name == "inner" ? "# inner\nselect/m3/q1.n1K/fp32/select.gap\n" : "";
}

std::string refusal(std::string_view text, std::string (*resolve)(std::string_view)) {
  try {
    expand_list("mine", text, resolve);
  } catch (const usage_error& e) {
    return e.what();
  }
  return "";
}

TEST(case_list_text, nests_and_keeps_order_once) {
  const auto list = expand_list(
      "mine", "attend/m3/q1.n1K/bf16.paged/random # why\n\ninclude inner\nselect/m3/q1.n1K/fp32/select.gap\n", nested);
  EXPECT_EQ(list.names,
            (std::vector<std::string>{"attend/m3/q1.n1K/bf16.paged/random", "select/m3/q1.n1K/fp32/select.gap"}));
}

TEST(case_list_text, refuses_with_list_and_line) {
  EXPECT_NE(refusal("\nattend/m3\n", no_lists).find("mine:2"), std::string::npos);
  EXPECT_NE(refusal("include nowhere\n", no_lists).find("nowhere"), std::string::npos);
  EXPECT_NE(refusal("include a\n", circle).find("circle"), std::string::npos);
}

TEST(glob, matches_across_slashes) {
  EXPECT_TRUE(glob_matches("*", "attend/m3/x"));
  EXPECT_TRUE(glob_matches("attend/*/s0", "attend/m3/x/s0"));
  EXPECT_TRUE(glob_matches("a?tend*", "attend"));
  EXPECT_FALSE(glob_matches("attend", "attend/m3"));
  EXPECT_FALSE(glob_matches("*needle*", "attend/m3/random/s0"));
  EXPECT_FALSE(glob_matches("", "a"));
  const std::string stars = "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b";
  EXPECT_FALSE(glob_matches(stars, std::string(5000, 'a')));
}

TEST(choose, shards_partition_the_list) {
  const auto core = load_list("core");
  std::set<std::string> seen;
  for (std::int64_t i = 0; i < 3; ++i) {
    selection part;
    part.shard_index = i;
    part.shard_count = 3;
    for (const auto& c : choose(core, part)) EXPECT_TRUE(seen.insert(name(c)).second);
  }
  EXPECT_EQ(seen.size(), core.names.size());
}

TEST(choose, filters_by_operator_glob_and_seed) {
  selection wanted;
  wanted.operators = {"select"};
  wanted.filter = "*tie17*";
  wanted.seed = 7;
  const auto cases = choose(load_list("core"), wanted);
  ASSERT_FALSE(cases.empty());
  for (const auto& c : cases) {
    EXPECT_EQ(c.operation, op::select);
    EXPECT_EQ(c.variant, "tie17");
    EXPECT_EQ(c.seed, 7U);
  }
}

TEST(load_list, names_the_levels) {
  try {
    load_list("corr");
    FAIL();
  } catch (const usage_error& e) {
    EXPECT_NE(std::string(e.what()).find("smoke, core"), std::string::npos);
  }
}

// What a single row of a million keys costs, which no shorter case shows; ten at most.
const std::set<std::string>& expensive_cases() {
  static const std::set<std::string> all = {"dense/m3/q1.n1M/bf16.paged/needle/s0",
                                            "msa/m3/q1.n1M/bf16.paged/needle/s0"};
  return all;
}

// The cost rules: what a list costs is decided when it is written, not when it is run.
TEST(core_list, keeps_the_cost_rules) {
  const auto core = load_list("core"), smoke = load_list("smoke");
  EXPECT_GE(core.names.size(), 60U);
  for (const auto& each : smoke.names)
    EXPECT_NE(std::find(core.names.begin(), core.names.end(), each), core.names.end()) << each;
  EXPECT_LE(expensive_cases().size(), 10U);
  std::size_t expensive = 0;
  std::int64_t oracle = 0, implementation = 0;
  for (const auto& c : choose(core, {})) {
    const std::int64_t cost = cost_triples(c), launches = c.options.rep ? 29 : 3;
    if (expensive_cases().contains(name(c))) {
      ++expensive;
    } else {
      EXPECT_LE(cost, 4'000'000) << name(c);
      EXPECT_LE(cost * launches, 16'000'000) << name(c);
    }
    oracle += cost;
    implementation += cost * launches;
  }
  EXPECT_EQ(expensive, expensive_cases().size());
  EXPECT_LE(oracle, 1'000'000'000);
  EXPECT_LE(implementation, 1'500'000'000);
}

TEST(core_list, every_case_with_rows_has_target_faults) {
  for (const auto& c : choose(load_list("core"), {})) {
    if (cost_triples(c) == 0) continue;
    EXPECT_FALSE(targets_of(c).empty()) << name(c);
  }
}

// Any case that can be named, not only those of the lists: without a target it would pass unseen.
TEST(targets, no_case_with_rows_is_without) {
  for (const auto& f : families())
    for (const op o : f.operators)
      for (const auto v : f.variants)
        for (const char* shape : {"m3", "h2x1.d64.b32.k1.l0.i0", "h2x1.d64.b32.k1.l1.i0", "h2x2.d64.b32.k4.l0.i4"})
          for (const char* lengths : {"q1.n1", "q1.n100", "q3.n4K"}) {
            const std::string family = std::string(f.name) + (v.empty() ? "" : "." + std::string(v));
            const auto c = parse_case(std::string(name(o)) + "/" + shape + "/" + lengths + "/" +
                                      (o == op::select                               ? "fp32/"
                                       : (o == op::combine || o == op::qk_norm_rope) ? "bf16/"
                                                                                     : "bf16.paged/") +
                                      family + "/s0");
            EXPECT_FALSE(targets_of(c).empty()) << name(c);
          }
  EXPECT_TRUE(targets_of(parse_case("attend/m3/rag.idle/bf16.paged/random/s0")).empty());
}

// 20 launches, and a second plan at the same time, of every operator, layout and type, each cheap.
TEST(core_list, repeats_every_operator_layout_and_type) {
  std::set<std::string> all, repeated;
  for (const auto& c : choose(load_list("core"), {})) {
    const std::string name_of = name(c);
    std::string kind(name(c.operation));
    kind += "/" + std::string(name(c.type)) + "." + std::to_string(static_cast<int>(c.layout));
    all.insert(kind);
    if (!c.options.rep) continue;
    repeated.insert(kind);
    EXPECT_LE(cost_triples(c), 200'000) << name_of;
  }
  for (const auto& kind : all) EXPECT_TRUE(repeated.contains(kind)) << kind;
}

TEST(core_list, covers_every_family_and_variant) {
  std::set<std::string> seen;
  for (const auto& c : choose(load_list("core"), {})) seen.insert(c.family + "." + c.variant);
  for (const auto& f : families())
    for (const auto v : f.variants)
      EXPECT_TRUE(seen.contains(std::string(f.name) + "." + std::string(v))) << f.name << "." << v;
}

}  // namespace
}  // namespace msabench
