// SPDX-License-Identifier: Apache-2.0
#include "conformance/lists.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "conformance/cost.h"
#include "conformance/shards.h"
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

TEST(case_list_text, marks_what_every_shard_runs) {
  const auto list = expand_list(
      "mine", "select/m3/q1.n1K/fp32/select.gap\nevery_shard  select/m3/q1.n1K/fp32/select.step\ninclude inner\n",
      [](std::string_view) { return std::string("every_shard select/m3/q1.n1K/fp32/select.gap\n"); });
  EXPECT_EQ(list.names.size(), 2U);
  EXPECT_EQ(list.every_shard.size(), 2U);
  EXPECT_NE(refusal("every_shard all\n", no_lists).find("mine:1"), std::string::npos);
}

std::string withdrawal_refusal(std::string_view text) {
  try {
    read_withdrawn(text);
  } catch (const usage_error& e) {
    return e.what();
  }
  return "";
}

TEST(withdrawn, is_read_line_by_line) {
  const auto all = read_withdrawn("# none yet\n\nselect/m3/q1.n1K/fp32/select.gap \t its gap is no gap # since 1.2\n");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0], (withdrawn_case{"select/m3/q1.n1K/fp32/select.gap", "its gap is no gap"}));
  const std::string gap = "select/m3/q1.n1K/fp32/select.gap";
  EXPECT_NE(withdrawal_refusal("\n" + gap + "\n").find("withdrawn:2: " + gap + " has no reason"), std::string::npos);
  EXPECT_NE(withdrawal_refusal(gap + " x\n" + gap + " y\n").find("withdrawn:2"), std::string::npos);
  EXPECT_NE(withdrawal_refusal(gap + "/s0 seeds do not count\n").find("withdrawn:1"), std::string::npos);
  EXPECT_NE(withdrawal_refusal("every_shard " + gap + "\n").find("withdrawn:1"), std::string::npos);
}

TEST(withdrawn, leaves_the_list_and_is_told) {
  auto list = load_list("smoke");
  const auto before = list;
  const std::string wrong = "select/m3/rag.holes/fp32/select.gap";
  withdraw(list, {{wrong, "wrong"}, {"select/m3/q1.n1K/fp32/select.gap", "of no level"}});
  EXPECT_EQ(list.names.size() + 1, before.names.size());
  EXPECT_FALSE(list.every_shard.contains(wrong));
  EXPECT_NE(list.sha256, before.sha256);
  for (const auto& c : choose(list, {})) EXPECT_NE(name_without_seed(c), wrong);
  case_selection wanted;
  wanted.shard_count = 3;  // told in every shard
  EXPECT_EQ(withdrawn_of(list, wanted), (std::vector<withdrawn_case>{{wrong, "wrong"}}));
  wanted.operators = {"attend"};
  EXPECT_TRUE(withdrawn_of(list, wanted).empty());
}

// A line that names no case of any level withdraws nothing, and hides that a name was misspelt.
TEST(withdrawn, names_cases_of_a_level) {
  EXPECT_EQ(load_list(levels().back()).withdrawn.size(), withdrawn_cases().size());
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

// Every case of the list is in some shard, in one only but for those that all run, and no shard has much more to do.
TEST(choose, shards_make_the_list) {
  const auto core = load_list("core");
  const auto whole = choose(core, {});
  double heaviest = 0, on_all = 0;
  for (const auto& c : whole) {
    heaviest = std::max(heaviest, expected_work(c));
    if (core.every_shard.contains(name_without_seed(c))) on_all += expected_work(c);
  }
  for (const std::int64_t count : {2, 3, 7}) {
    std::map<std::string, std::int64_t> times;
    double most = 0, all = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      case_selection part;
      part.shard_index = i;
      part.shard_count = count;
      double work = 0;
      for (const auto& c : choose(core, part)) {
        ++times[name_without_seed(c)];
        work += expected_work(c);
      }
      all += work;
      most = std::max(most, work);
    }
    EXPECT_EQ(times.size(), whole.size());
    for (const auto& [case_name, n] : times)
      EXPECT_EQ(n, core.every_shard.contains(case_name) ? count : 1) << case_name;
    // Nothing can split the heaviest case.
    EXPECT_LE(most, std::max(1.05 * all / static_cast<double>(count), heaviest + on_all)) << count;
  }
}

TEST(choose, each_shard_has_a_sensitive_case_of_each_operator) {
  for (const auto& level : levels()) {
    std::set<op> marked;
    for (const auto& each : load_list(level).every_shard) {
      const auto c = parse_case(each + "/s0");
      EXPECT_FALSE(targets_of(c).empty()) << each;
      EXPECT_LE(cost_triples(c), 1'000'000) << each;
      marked.insert(c.operation);
    }
    std::set<op> all;
    for (const auto& c : choose(load_list(level), {})) all.insert(c.operation);
    EXPECT_EQ(marked, all) << level;
  }
  case_selection last;
  last.shard_count = 1000;  // more than there are cases
  last.shard_index = 999;
  EXPECT_EQ(choose(load_list("core"), last).size(), load_list("core").every_shard.size());
}

TEST(assign_shards, goes_by_work_and_place_alone) {
  const double work[] = {1, 8, 4, 4, 1};
  EXPECT_EQ(assign_shards(work, 2), (std::vector<std::int64_t>{0, 0, 1, 1, 1}));
  EXPECT_EQ(assign_shards(work, 1), std::vector<std::int64_t>(5, 0));
  EXPECT_EQ(assign_shards({}, 3), std::vector<std::int64_t>{});
}

TEST(choose, takes_what_any_of_its_filters_matches) {
  const auto chosen_by = [](const std::vector<std::string>& filters) {
    case_selection wanted;
    wanted.filters = filters;
    return choose(load_list("smoke"), wanted).size();
  };
  const auto one = chosen_by({"select/*"}), other = chosen_by({"combine/*"});
  ASSERT_GT(one, 0U);
  ASSERT_GT(other, 0U);
  EXPECT_EQ(chosen_by({"select/*", "combine/*"}), one + other);
  EXPECT_EQ(chosen_by({"select/*", "nothing", "select/*"}), one);
}

TEST(choose, filters_by_operator_glob_and_seed) {
  case_selection wanted;
  wanted.operators = {"select"};
  wanted.filters = {"*tie17*"};
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
    EXPECT_NE(std::string(e.what()).find("smoke, core, full"), std::string::npos);
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
  EXPECT_GE(core.names.size(), 200U);
  for (const auto& each : smoke.names)
    EXPECT_NE(std::find(core.names.begin(), core.names.end(), each), core.names.end()) << each;
  EXPECT_LE(expensive_cases().size(), 10U);
  std::size_t expensive = 0;
  std::int64_t oracle = 0, implementation = 0;
  for (const auto& c : choose(core, {})) {
    const std::int64_t cost = cost_triples(c);
    if (expensive_cases().contains(name(c))) {
      ++expensive;
    } else {
      EXPECT_LE(cost, 4'000'000) << name(c);
      EXPECT_LE(implementation_triples(c), 16'000'000) << name(c);
    }
    oracle += cost;
    implementation += implementation_triples(c);
  }
  EXPECT_EQ(expensive, expensive_cases().size());
  EXPECT_LE(oracle, 1'000'000'000);
  EXPECT_LE(implementation, 1'500'000'000);
}

// Under a race checker a launch takes a hundred times as long.
TEST(sanitize_list, is_small_and_has_every_operator) {
  const auto core = load_list("core");
  const auto cases = choose(load_list("sanitize"), {});
  EXPECT_LE(cases.size(), 20U);
  std::set<op> operators, of_core;
  std::set<std::pair<op, page_layout>> layouts;
  std::set<op> decode, ragged;
  for (const auto& c : cases) {
    EXPECT_NE(std::ranges::find(core.names, name_without_seed(c)), core.names.end()) << name(c);
    EXPECT_LE(implementation_triples(c), 1'000'000) << name(c);
    operators.insert(c.operation);
    layouts.insert({c.operation, c.layout});
    (name(c).find("/q1.") != std::string::npos ? decode : ragged).insert(c.operation);
  }
  for (const auto& c : choose(core, {})) of_core.insert(c.operation);
  EXPECT_EQ(operators, of_core);
  for (const op o : {op::attend, op::dense, op::score, op::index, op::msa})
    for (const auto l : {page_layout::contiguous, page_layout::paged}) EXPECT_TRUE(layouts.contains({o, l})) << name(o);
  for (const op o : {op::attend, op::dense, op::msa}) EXPECT_TRUE(decode.contains(o) && ragged.contains(o)) << name(o);
}

// A night, not a week: about ten minutes of oracle and launches on two cores beyond `core`.
TEST(full_list, keeps_the_cost_rules) {
  const auto core = load_list("core"), full = load_list("full");
  for (const auto& each : core.names)
    EXPECT_NE(std::find(full.names.begin(), full.names.end(), each), full.names.end()) << each;
  EXPECT_GT(full.names.size(), core.names.size());
  std::int64_t oracle = 0, implementation = 0;
  for (const auto& c : choose(full, {})) {
    EXPECT_LE(cost_triples(c), 70'000'000) << name(c);
    EXPECT_LE(implementation_triples(c), 210'000'000) << name(c);
    oracle += cost_triples(c);
    implementation += implementation_triples(c);
  }
  EXPECT_LE(oracle, 2'500'000'000);
  EXPECT_LE(implementation, 7'500'000'000);
}

TEST(core_list, every_case_with_rows_has_target_faults) {
  for (const auto& c : choose(load_list("full"), {})) {
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
          for (const char* lengths : {"q1.n1", "q1.n100", "q3.n4K", "g1x2x2", "g9x8x8_1x2x4"}) {
            if (is_vision(o) != (*lengths == 'g') || (is_vision(o) && std::string_view(shape).starts_with("h2x1")))
              continue;
            const std::string family = std::string(f.name) + (v.empty() ? "" : "." + std::string(v));
            const bool no_cache = o == op::combine || o == op::qk_norm_rope || is_vision(o);
            const auto c =
                parse_case(std::string(name(o)) + "/" + shape + "/" + lengths + "/" +
                           (o == op::select                                                        ? "fp32/"
                            : no_cache                                                             ? "bf16/"
                            : (o == op::attend_backward || o == op::dense_backward || o == op::kl) ? "bf16.contig/"
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
