// SPDX-License-Identifier: Apache-2.0
#include "perf/suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "host/timing.h"
#include "inputs/input_set.h"

namespace msabench {
namespace {

bool has(const suite_point& p, op o) {
  return std::ranges::any_of(p.cases, [o](const case_spec& c) { return c.operation == o; });
}

// A kernel on zeros needs less power and fewer bytes than one on data.
TEST(suite, no_input_that_is_timed_is_constant) {
  for (const char* name : {"decode", "prefill", "topk", "training", "vision"}) {
    suite_request r;
    r.suite = parse_suite(name);
    r.contexts = {300};
    r.shape = "h8x2.d64.b32.k4.l1.i0";
    if (r.suite == perf_suite::vision) {
      r.contexts = {1024};
      r.shape = "m3";
    }
    for (const auto& point : plan_suite(r))
      for (const auto& c : point.cases) {
        const input_set set = make_inputs(c, make_problem(c));
        for (const buffer& b : set.inputs) {
          if (b.desc.type == i32 || b.desc.elements() < 2) continue;
          std::set<double> values;
          // What nobody may read is NaN.
          for (std::int64_t i = 0; i < b.desc.span_elements() && values.size() <= 16; ++i)
            if (const double x = load(b.view().data, b.desc.type, i); x == x) values.insert(x);
          EXPECT_GT(values.size(), 16u) << msabench::name(c) << " " << msabench::name(b.where);
        }
      }
  }
}

TEST(suite, vision_has_segments_of_four_temporal_patches) {
  suite_request r;
  r.suite = parse_suite("vision");
  r.contexts = {8192, 1024};
  r.batch = 2;
  const auto points = plan_suite(r);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[1].phase, "vision");
  for (const op o : {op::vit3d, op::rope3d, op::vit_attend}) EXPECT_TRUE(has(points[1], o)) << name(o);
  for (const auto& p : points)
    for (const auto& c : p.cases) {
      const auto segments = sequences(c);
      const std::int64_t longest = std::min<std::int64_t>(p.context, 4096);
      ASSERT_EQ(std::ssize(segments), 2 * p.context / longest);
      for (const auto& s : segments) EXPECT_EQ(s.q_len, longest);
      // M3: 16 heads, d 80.
      const double pairs = 2 * static_cast<double>(p.context * longest);
      if (c.operation == op::vit_attend) {
        EXPECT_EQ(least_work(c, make_problem(c)).useful_flops, 4 * 80 * 16 * pairs) << name(c);
      }
      // q, k, v and the result; lse; three coordinates. Rotated q and k are read and written apart, or handed out beside.
      const double tensor = 2.0 * static_cast<double>(p.context) * 2 * 16 * 80,
                   rows = 2.0 * static_cast<double>(p.context);
      const double bytes = c.operation == op::vit_attend ? 4 * tensor + rows * 16 * 4
                           : c.operation == op::rope3d   ? 4 * tensor + rows * 3 * 4
                                                         : 6 * tensor + rows * (16 * 4 + 3 * 4);
      EXPECT_EQ(least_work(c, make_problem(c)).compulsory_bytes, bytes) << name(c);
    }
}

TEST(suite, decode_has_one_query_of_each_sequence) {
  suite_request r;
  r.contexts = {32768, 8192, 8192};
  r.batch = 3;
  const auto points = plan_suite(r);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].context, 8192);
  EXPECT_EQ(points[1].context, 32768);
  for (const auto& p : points) {
    EXPECT_EQ(p.phase, "decode");
    EXPECT_TRUE(has(p, op::attend));
    EXPECT_TRUE(has(p, op::select));
    for (const auto& c : p.cases) {
      EXPECT_EQ(sequences(c).size(), 3u);
      EXPECT_EQ(sequences(c)[0].q_len, 1);
      EXPECT_EQ(sequences(c)[0].kv_len, p.context);
    }
  }
}

TEST(suite, prefill_takes_all_or_the_last_tokens) {
  suite_request r;
  r.suite = perf_suite::prefill;
  r.contexts = {1024, 4096};
  r.chunk = 2048;
  const auto points = plan_suite(r);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].query_tokens, 1024);
  EXPECT_EQ(points[1].query_tokens, 2048);
  r.chunk = 0;
  EXPECT_EQ(plan_suite(r)[1].query_tokens, 4096);
}

TEST(suite, every_operator_whose_inputs_are_registered_is_there) {
  suite_request r;
  r.contexts = {1024};
  const auto points = plan_suite(r);
  for (const auto& f : families())
    for (const op o : {op::score, op::select, op::index, op::attend, op::dense, op::msa, op::qk_norm_rope, op::combine})
      if (std::ranges::find(f.operators, o) != f.operators.end()) {
        EXPECT_TRUE(has(points[0], o)) << name(o);
      }
}

TEST(suite, operators_can_be_chosen) {
  suite_request r;
  r.contexts = {1024};
  r.operators = {op::attend};
  const auto points = plan_suite(r);
  ASSERT_EQ(points[0].cases.size(), 1u);
  EXPECT_EQ(points[0].cases[0].operation, op::attend);
}

TEST(suite, words_are_refused_by_field) {
  const auto field = [](auto parse, const char* text) {
    try {
      parse(text);
    } catch (const usage_error& e) {
      return e.what_is_wrong().field;
    }
    return std::string();
  };
  EXPECT_EQ(field(parse_suite, "speed"), "--suite");
  EXPECT_EQ(field(parse_selection, "best"), "--selection");
  for (const auto s : {perf_suite::decode, perf_suite::prefill, perf_suite::crossover, perf_suite::layer})
    EXPECT_EQ(parse_suite(name(s)), s);
}

// Walks through launches of rounds as the worker does, and returns the smallest number of bytes that others touch between
// two uses of one set.
double walked_distance(const std::vector<std::pair<int, double>>& launches, std::int64_t rounds) {
  std::map<int, std::int64_t> per_round, next;
  std::map<std::pair<int, std::int64_t>, double> last_use;
  for (const auto& [group, bytes] : launches) ++per_round[group];
  double clock = 0, least = 1e300;
  for (std::int64_t round = 0; round < 3 * rounds + 3; ++round)
    for (const auto& [group, bytes] : launches) {
      const std::int64_t sets = sets_of_group(per_round[group], rounds);
      const std::int64_t set = next[group]++ % sets;
      if (const auto before = last_use.find({group, set}); before != last_use.end())
        least = std::min(least, clock - before->second);
      clock += bytes;
      last_use[{group, set}] = clock - bytes;
    }
  return least;
}

TEST(rotation, a_set_is_used_again_after_the_distance) {
  const std::vector<std::vector<std::pair<int, double>>> rounds_of = {
      {{0, 5}}, {{0, 5}, {0, 5}}, {{0, 5}, {0, 5}, {1, 1}, {1, 1}, {2, 100}}, {{0, 1}, {1, 1000}}};
  for (const auto& launches : rounds_of) {
    double round_bytes = 0;
    for (const auto& [group, bytes] : launches) round_bytes += bytes;
    for (const double distance : {1.0, 7.0, 50.0, 999.0, 12345.0}) {
      const std::int64_t rounds = rounds_until_reuse(round_bytes, distance);
      EXPECT_GE(walked_distance(launches, rounds), distance);
      // Not many more sets than needed: one round less would be too near.
      if (rounds > 1) {
        EXPECT_LT(walked_distance(launches, rounds - 1), distance);
      }
    }
  }
}

TEST(suite, a_whole_goes_by_chunks) {
  suite_request r;
  r.suite = parse_suite("prefill_whole");
  r.contexts = {2500, 1024};
  r.chunk = 1024;
  const auto points = plan_suite(r);
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[1].query_tokens, 1024);
  EXPECT_EQ(points[1].context, 2048);
  EXPECT_EQ(points[2].query_tokens, 452);
  EXPECT_EQ(points[2].context, 2500);
  for (const auto& p : points) {
    EXPECT_EQ(p.phase, "prefill");
    ASSERT_EQ(p.cases.size(), 2u);
    EXPECT_EQ(sequences(p.cases[0])[0], (sequence{p.query_tokens, p.context}));
  }
  r.chunk = 0;
  r.contexts = {1 << 20};
  EXPECT_EQ(plan_suite(r).size(), 128u);
}

TEST(suite, topk_goes_by_top_k_in_decode_and_prefill) {
  suite_request r;
  r.suite = parse_suite("topk");
  r.contexts = {4096, 16384};
  const auto points = plan_suite(r);
  ASSERT_EQ(points.size(), 12u);
  std::map<std::int64_t, int> seen;
  for (const auto& p : points) {
    ASSERT_EQ(p.cases.size(), 3u);
    for (const auto& c : p.cases) EXPECT_EQ(c.shape.topk, p.topk);
    EXPECT_EQ(p.query_tokens, p.phase == "decode" ? 1 : std::min<std::int64_t>(8192, p.context));
    ++seen[*p.topk];
  }
  EXPECT_EQ(seen, (std::map<std::int64_t, int>{{8, 4}, {16, 4}, {32, 4}}));
}

TEST(suite, gradients_can_have_the_storage_type) {
  suite_request r;
  r.suite = perf_suite::training;
  r.contexts = {256};
  const auto with_option = [&] {
    std::vector<std::string> names;
    const auto points = plan_suite(r);
    for (const auto& c : points.front().cases)
      if (c.options.grad16) names.emplace_back(msabench::name(c.operation));
    return names;
  };
  EXPECT_EQ(with_option(), std::vector<std::string>{});
  r.grad16 = true;
  EXPECT_EQ(with_option(), (std::vector<std::string>{"attend_backward", "dense_backward", "kl"}));
  const auto points = plan_suite(r);
  for (const auto& c : points.front().cases)
    EXPECT_EQ(make_problem(c).grad, trains(c.operation) ? bf16 : fp32) << msabench::name(c);
}

TEST(suite, scales_go_to_operators_that_have_them) {
  suite_request r;
  r.contexts = {8192};
  r.fp8 = scale_form::tensor;
  const auto points = plan_suite(r);
  for (const auto& c : points[0].cases) {
    const bool scaled = c.operation != op::select && c.operation != op::combine && c.operation != op::qk_norm_rope;
    EXPECT_EQ(c.options.fp8, scaled ? scale_form::tensor : scale_form::none) << msabench::name(c);
  }
}

TEST(suite, scales_of_the_index_branch_alone) {
  suite_request r;
  r.contexts = {8192};
  r.fp8_index = scale_form::token;
  const auto points = plan_suite(r);
  for (const auto& c : points[0].cases) {
    const problem p = make_problem(c);
    const bool indexes = c.operation == op::score || c.operation == op::index || c.operation == op::msa;
    EXPECT_EQ(p.k_idx, indexes ? e4m3 : bf16) << msabench::name(c);
    EXPECT_EQ(p.idx_scale, indexes ? 2 : 0) << msabench::name(c);
    EXPECT_EQ(p.kv, bf16) << msabench::name(c);
    EXPECT_EQ(p.kv_scale, 0) << msabench::name(c);
  }
}

TEST(least_work, knows_the_share_of_the_index_branch) {
  const auto of = [](const char* name) {
    const case_spec c = parse_case(name);
    return least_work(c, make_problem(c));
  };
  const perf_work index = of("index/m3/q64.n8K/bf16.paged/random/s0"), msa = of("msa/m3/q64.n8K/bf16.paged/random/s0"),
                  attend = of("attend/m3/q64.n8K/bf16.paged/random/s0");
  EXPECT_EQ(index.index_flops, index.useful_flops);
  EXPECT_EQ(msa.index_flops, index.useful_flops);
  EXPECT_EQ(msa.useful_flops - msa.index_flops, attend.useful_flops);
  EXPECT_EQ(attend.index_flops, 0);
}

TEST(rotation, hot_has_one_set) {
  EXPECT_EQ(sets_of_group(4, 0), 1);
  EXPECT_EQ(sets_of_group(4, 3), 12);
  EXPECT_EQ(rounds_until_reuse(1e9, 10), 1);
  EXPECT_GT(rounds_until_reuse(0, 10), 1000);
}

TEST(set_bytes, counts_caches_only_as_far_as_rows_read_them) {
  const auto attend = parse_case("attend/m3/q1.n128K/bf16.paged/random/s0");
  EXPECT_LT(set_bytes(attend, make_problem(attend)), 8e6);
  const auto score = parse_case("score/m3/q1.n128K/bf16.paged/random/s0");
  EXPECT_GT(set_bytes(score, make_problem(score)), 128 * 1024 * 128 * 2);
}

}  // namespace
}  // namespace msabench
