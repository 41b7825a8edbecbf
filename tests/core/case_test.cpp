// SPDX-License-Identifier: Apache-2.0
#include "core/case.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/operator_table.h"

namespace msabench {
namespace {

const char* const canonical_names[] = {
    "attend/m3/q1.n1M/bf16.paged/needle/s0",
    "attend/m3.tp4/rag.edges/bf16.contig/random.flat/s7",
    "attend/h8x2.d64.b32.k4.l1.i0/q33.n257.x3/fp32.fused/key_code.high/page64/scale0.05/stride/rep/"
    "s18446744073709551615",
    "attend/h6x3.d16.di24.b16.k5.l2.i1/rag.small/fp16.contig/random/lenient/s1",
    "select/m3/q1.n128K.x16/fp32/select.tie17/s0",
    "attend/pilot/q2047.n2047/bf16.paged/random/slack/s0",
    "msa/m3/q1.n8K/bf16.paged/planted/rep/fp8/s0",
    "msa/m3/q1.n8K/bf16.paged/random/rep/fp8idx/s0",
    "msa/m3/q1.n8K/bf16.paged/hot_flat.n60000/fp8idxtensor/s0",
    "attend/m3/q1.n8K/bf16.fused/needle/page64/pool128K/scale0.05/s0",
    "score/m3/q1.n8K/bf16.paged/special.nan/fp8tensor/s0",
    "attend/h8x2.d64.b32.k4.l1.i0/q1.n33_q0.n5_q4.n1K/bf16.paged/random/s0",
    "combine/m3/q0.n0_q0.n0/fp32/partials.holes/split2/s0",
};

TEST(case_name, parses_and_prints_the_same) {
  for (const std::string text : canonical_names) {
    const case_spec c = parse_case(text);
    EXPECT_EQ(name(c), text);
    EXPECT_EQ(parse_case(name(c)), c);
  }
}

TEST(case_name, every_shape_family_and_batch_round_trips) {
  for (const auto& shape : named_shapes())
    for (const auto& family : families())
      for (const auto variant : family.variants)
        for (const auto& batch : ragged_batches()) {
          case_spec c;
          c.operation = family.operators[0];
          c.shape = shape.shape;
          c.lengths.form = lengths_spec::kind::ragged;
          c.lengths.ragged_name = batch.name;
          c.type = c.operation == op::select ? fp32 : bf16;
          c.family = family.name;
          c.variant = variant;
          const bool planted = plants_selection(c);
          if (planted && std::ranges::any_of(sequences(c), [&](const sequence& s) {
                return s.q_len * c.shape.hi > planted_directions(c.shape.di);
              }))
            continue;
          EXPECT_EQ(parse_case(name(c)), c) << name(c);
        }
}

std::string refusal(const std::string& text) {
  try {
    parse_case(text);
  } catch (const usage_error& e) {
    return e.what();
  }
  return "";
}

TEST(case_name, refuses_with_the_part_and_the_remedy) {
  struct {
    const char* text;
    const char* says;
  } const bad[] = {
      {"", "no case name"},
      {"attend", "operator/shape"},
      {"attendd/m3/q1.n1M/bf16.paged/needle/s0", "unknown operator 'attendd'"},
      {"attend/m4/q1.n1M/bf16.paged/needle/s0", "m3, pilot"},
      {"attend/m3.tp3/q1.n1M/bf16.paged/needle/s0", "m3.tpN"},
      {"attend/m3/q1.n1024K/bf16.paged/needle/s0", "write attend/m3/q1.n1M/"},
      {"attend/m3/q1.n1024/bf16.paged/needle/s0", "write attend/m3/q1.n1K/"},
      {"attend/m3/q1.n-5/bf16.paged/needle/s0", "character"},
      {"attend/m3/q1.n17M/bf16.paged/needle/s0", "17M"},
      {"attend/m3/q1/bf16.paged/needle/s0", "qLEN.nLEN"},
      {"attend/m3/rag.nothing/bf16.paged/needle/s0", "1to300"},
      {"attend/m3/q1.n5_q1.n5/bf16.paged/needle/s0", "write attend/m3/q1.n5.x2/"},
      {"attend/m3/q4.n517_q1.n2600_q7.n1033/bf16.paged/needle/s0", "write attend/m3/rag.three/"},
      {"attend/m3/q1.n1024_q1.n5/bf16.paged/needle/s0", "write attend/m3/q1.n1K_q1.n5/"},
      {"attend/m3/q1.n5_/bf16.paged/needle/s0", "qLEN.nLEN_qLEN.nLEN"},
      {"attend/m3/q1.n5_q1.n6.x2/bf16.paged/needle/s0", "not understood"},
      {"attend/m3/q1.n5_q1.n00/bf16.paged/needle/s0", "00"},
      {"attend/m3/q0.n5/bf16.paged/needle/s0", "0"},
      {"attend/m3/q1.n1M/bf17.paged/needle/s0", "bf17"},
      {"attend/m3/q1.n1M/bf16/needle/s0", "TYPE.LAYOUT"},
      {"select/m3/q1.n1M/fp32.paged/select.gap/s0", "no cache"},
      {"attend/m3/q1.n1M/bf16.paged/select.gap/s0", "not for operator attend"},
      {"attend/m3/q1.n1M/bf16.paged/needle.x/s0", "no variant 'x'"},
      {"attend/m3/q1.n1M/bf16.paged/needle/page128/s0", "default"},
      {"attend/m3/q1.n1M/bf16.contig/needle/page64/s0", "paged layout"},
      {"attend/m3/q1.n1M/bf16.contig/needle/pool128K/s0", "paged layout"},
      {"attend/m3/q1.n1M/bf16.paged/needle/pool8K/s0", "twice"},
      {"attend/m3/q1.n1K/bf16.paged/needle/pool2M/s0", "1M"},
      {"attend/m3/q1.n1K/bf16.paged/needle/pool131072/s0", "128K"},
      {"attend/m3/q1.n1M/bf16.paged/needle/short/lenient/s0", "contradict"},
      {"attend/m3/q1.n1M/bf16.paged/needle/rep/stride/s0", "write attend/"},
      {"attend/m3/q1.n1M/bf16.paged/needle/bogus/s0", "unknown option"},
      {"vit_attend/m3/g2x2x2/bf16/random/bare/s0", "option bare"},
      {"attend/m3/q1.n1M/bf16.paged/needle/fp8/rep/s0", "write attend/"},
      {"select/m3/q1.n1M/fp32/select.gap/fp8/s0", "no scaled operands"},
      {"score/m3/q1.n1K/bf16.paged/special.inf/fp8/s0", "no infinity"},
      {"index/m3/q1.n1K/bf16.paged/random/fp8idx/s0", "for operator msa"},
      {"attend/m3/q1.n1K/bf16.paged/random/fp8idxtensor/s0", "for operator msa"},
      {"msa/m3/q1.n1K/bf16.paged/random/fp8/fp8idx/s0", "of the index branch too"},
      {"attend/m3/q1.n1M/bf16.paged/needle/scale00.5/s0", "write attend/"},
      {"attend/m3/q1.n1M/bf16.paged/needle/0", "no seed"},
      {"attend/m3/q1.n1M/bf16.paged/needle/s-1", "character"},
      {"attend/h8x3.d64.b32.k4.l1.i0/q1.n1K/bf16.paged/needle/s0", "multiple"},
      {"attend/h8x2.d64.b32.k4.l3.i2/q1.n1K/bf16.paged/needle/s0", "l + i > k"},
      {"attend/h8x2.d64.b32.k4.l1/q1.n1K/bf16.paged/needle/s0", "shape"},
      {"attend/h8x2.d64.hi2.b32.k4.l1.i0/q1.n1K/bf16.paged/needle/s0", "write attend/h8x2.d64.b32"},
  };
  for (const auto& b : bad) {
    const std::string line = refusal(b.text);
    EXPECT_NE(line.find(b.says), std::string::npos) << b.text << " -> " << line;
    EXPECT_EQ(line.find('\n'), std::string::npos);
  }
  EXPECT_NE(refusal(std::string(5000, 'a')), "");
  EXPECT_NE(refusal(std::string("attend/m3/\n")), "");
}

TEST(case_name, lengths_have_one_spelling) {
  const auto spelt = [](const std::vector<sequence>& batch) {
    case_spec c = parse_case("attend/m3/q1.n1K/fp32.contig/random/s0");
    c.lengths = lengths_of(batch);
    EXPECT_EQ(sequences(c), batch);
    EXPECT_EQ(parse_case(name(c)), c);
    return std::string(name(c));
  };
  EXPECT_EQ(spelt({{1, 5}}), "attend/m3/q1.n5/fp32.contig/random/s0");
  EXPECT_EQ(spelt({{1, 5}, {1, 5}}), "attend/m3/q1.n5.x2/fp32.contig/random/s0");
  EXPECT_EQ(spelt({{0, 5}, {0, 5}}), "attend/m3/q0.n5_q0.n5/fp32.contig/random/s0");
  EXPECT_EQ(spelt({{3, 1}, {1, 1 << 20}}), "attend/m3/q3.n1_q1.n1M/fp32.contig/random/s0");
  EXPECT_EQ(spelt({{0, 0}, {0, 129}, {0, 1}}), "attend/m3/rag.idle/fp32.contig/random/s0");
  EXPECT_THROW(lengths_of(std::vector<sequence>{{1, 0}}), suite_error);
  EXPECT_THROW(lengths_of({}), suite_error);
}

TEST(case_name, random_is_taken_for_any_operator_where_asked) {
  const auto parse = [](const std::string& text) { return parse_case(text, accepted_families::random_for_all); };
  for (const std::string text :
       {"kl/h6x3.d16.di24.b16.k5.l2.i1/q37.n201/fp32.contig/random/s0", "msa/m3/q8.n8/bf16.contig/random.flat/s1",
        "vit3d/m3/g10x4x6_1x2x4/bf16/random/s0", "rope3d/h2x2.d80.b16.k4.l1.i0/g1x2x2/fp32/random/s7",
        "vit_attend/h64x64.d128.b128.k16.l1.i0/g4x2x2/fp16/random.sharp/s0"})
    EXPECT_EQ(name(parse(text)), text);
  EXPECT_THROW(parse("kl/m3/q1.n1K/bf16.contig/needle/s0"), usage_error);
  const case_spec tower = parse("vit3d/m3/g10x4x6/bf16/random/s0");
  EXPECT_EQ(tower.shape.hq, 16);
  EXPECT_EQ(tower.shape.hkv, 16);
  EXPECT_EQ(tower.shape.d, 80);
  for (const char* text :
       {"vit3d/pilot/g2x2x2/bf16/random/s0", "vit3d/m3.tp4/g2x2x2/bf16/random/s0",
        "vit3d/h4x2.d80.b16.k4.l1.i0/g2x2x2/bf16/random/s0", "vit3d/h16x16.d80.b128.k16.l1.i0/g2x2x2/bf16/random/s0",
        "vit3d/m3/q1.n1K/bf16/random/s0", "vit3d/m3/g2x3x2/bf16/random/s0", "kl/m3/g2x2x2/bf16.contig/random/s0"})
    EXPECT_THROW(parse(text), usage_error) << text;
}

TEST(case_name, training_has_contiguous_batches) {
  for (const std::string operation : {"attend_backward", "dense_backward"}) {
    const std::string text = operation + "/m3/q4.n1000.x3/bf16.contig/random.flat/scale0.05/s3";
    EXPECT_EQ(name(parse_case(text)), text);
    EXPECT_NE(refusal(operation + "/m3/q4.n1000/bf16.paged/random/s0").find("contiguous"), std::string::npos);
    EXPECT_THROW(parse_case(operation + "/m3/q4.n1000/bf16.contig/needle/s0"), usage_error);
    EXPECT_THROW(parse_case(operation + "/m3/q4.n1000/bf16.contig/random/fp8/s0"), usage_error);
  }
  EXPECT_NO_THROW(parse_case("attend_backward/m3/q4.n1000/bf16.contig/random/lenient/s0"));
  EXPECT_THROW(parse_case("dense_backward/m3/q4.n1000/bf16.contig/random/lenient/s0"), usage_error);
}

TEST(case_name, stage_and_coefficient_are_those_of_kl) {
  for (const std::string options : {"", "/warm", "/coeff0", "/scale0.5/coeff0.25/rep/warm", "/lenient"}) {
    const std::string text = "kl/m3/q4.n1000/bf16.contig/random" + options + "/s0";
    EXPECT_EQ(name(parse_case(text)), text);
  }
  for (const std::string options : {"/coeff1", "/coeff0.50", "/coeff", "/coeff1e3", "/coeffinf", "/warm/lenient"})
    EXPECT_THROW(parse_case("kl/m3/q4.n1000/bf16.contig/random" + options + "/s0"), usage_error) << options;
  EXPECT_THROW(parse_case("attend/m3/q4.n1000/bf16.contig/random/coeff2/s0"), usage_error);
  EXPECT_THROW(parse_case("kl/m3/q4.n1000/bf16.paged/random/s0"), usage_error);
  const problem p = make_problem(parse_case("kl/h6x3.d64.di16.b16.k4.l1.i0/q4.n1000/bf16.contig/random/warm/s0"));
  EXPECT_EQ(p.kl_warm_up, 1);
  EXPECT_EQ(p.kl_coeff, 1);
  EXPECT_DOUBLE_EQ(p.index_scale, 0.25);
  const problem scaled = make_problem(parse_case("kl/m3/q4.n1000/bf16.contig/random/scale0.5/coeff0.25/s0"));
  EXPECT_EQ(scaled.kl_coeff, 0.25);
  EXPECT_EQ(scaled.softmax_scale, 0.5);
  EXPECT_EQ(scaled.index_scale, 0.5);
  EXPECT_EQ(make_problem(parse_case("attend/m3/q4.n1000/bf16.contig/random/s0")).kl_coeff, 0);
}

TEST(case_problem, holds_bounds_and_defaults) {
  const problem p = make_problem(parse_case("attend/m3/q4.n1000.x3/bf16.paged/random/s0"));
  EXPECT_EQ(p.batch, 3);
  EXPECT_EQ(p.total_q, 12);
  EXPECT_EQ(p.max_kv_len, 1000);
  EXPECT_EQ(p.max_blocks(), 8);
  EXPECT_EQ(p.page_size, 128);
  EXPECT_GE(p.pool_pages, 24 + 3);
  EXPECT_DOUBLE_EQ(p.softmax_scale, 1 / std::sqrt(128.0));
  const problem slack = make_problem(parse_case("attend/m3/q4.n1000.x3/bf16.paged/random/slack/s0"));
  EXPECT_GT(slack.batch, p.batch);
  EXPECT_GT(slack.total_q, p.total_q);
  EXPECT_GT(slack.max_kv_len, p.max_kv_len);
}

TEST(case_definition, hash_depends_on_every_part) {
  std::set<std::string> hashes;
  const std::string names[] = {
      "attend/m3/q1.n1K/bf16.paged/random/s0",       "attend/m3/q1.n1K/bf16.paged/random/s1",
      "attend/m3/q1.n1K/bf16.contig/random/s0",      "attend/m3/q1.n1K/fp32.paged/random/s0",
      "attend/m3/q1.n1K/bf16.paged/random.flat/s0",  "attend/m3/q1.n1K/bf16.paged/random/stride/s0",
      "attend/m3/q1.n1K/bf16.paged/random/slack/s0", "attend/m3/q1.n1K.x2/bf16.paged/random/s0",
      "attend/m3.tp4/q1.n1K/bf16.paged/random/s0",   "attend/m3/q1.n1K/bf16.paged/random/rep/s0"};
  for (const auto& n : names) hashes.insert(definition_sha256(parse_case(n)));
  EXPECT_EQ(hashes.size(), std::size(names));
  EXPECT_EQ(definition_sha256(parse_case(names[0])), definition_sha256(parse_case(names[0])));
}

TEST(case_cost, counts_selected_visible_keys) {
  // 4 rows at positions 996..999: own block 7, all 8 blocks visible (k = 16): pos + 1 keys each, 64 heads.
  EXPECT_EQ(cost_triples(parse_case("attend/m3/q4.n1000/bf16.paged/random/s0")), 64 * (997 + 998 + 999 + 1000));
  // 1M: 15 full blocks and the whole local one.
  EXPECT_EQ(cost_triples(parse_case("attend/m3/q1.n1M/bf16.paged/random/s0")), 64 * 2048);
  EXPECT_EQ(cost_triples(parse_case("select/m3/q1.n1M/fp32/select.gap/s0")), 4 * 8192);
}

TEST(operator_table, gives_every_slot_a_shape_and_a_type) {
  problem p = make_problem(parse_case("attend/m3/q4.n1000.x3/bf16.paged/random/s0"));
  for (const op o : all_ops)
    for (const auto layout : {page_layout::contiguous, page_layout::paged}) {
      p.operation = o;
      p.layout = layout;
      p.page_size = layout == page_layout::paged ? 128 : 0;
      for (const auto& rule : slots_of(o)) {
        EXPECT_NO_THROW(shape_of(rule, p, bounds_of(p))) << name(o) << " " << name(rule.where);
        EXPECT_GT(size_bytes(type_of(rule, p)), 0);
        EXPECT_EQ(slot_from_name(name(rule.where)), rule.where);
      }
    }
}

TEST(case_problem, fp8_is_of_the_branches_that_the_operator_has) {
  const auto of = [](const char* text) { return make_problem(parse_case(text)); };
  const problem attend = of("attend/m3/q1.n8K/bf16.paged/random/fp8/s0");
  EXPECT_EQ(attend.kv, e4m3);
  EXPECT_EQ(attend.q, bf16);
  EXPECT_EQ(attend.out, bf16);
  EXPECT_EQ(attend.k_idx, bf16);
  EXPECT_EQ(attend.kv_scale, 2);
  EXPECT_EQ(attend.idx_scale, 0);
  const problem score = of("score/m3/q1.n8K/fp32.paged/random/fp8tensor/s0");
  EXPECT_EQ(score.kv, fp32);
  EXPECT_EQ(score.q_idx, e4m3);
  EXPECT_EQ(score.k_idx, e4m3);
  EXPECT_EQ(score.kv_scale, 0);
  EXPECT_EQ(score.idx_scale, 1);
  const problem msa = of("msa/m3/q1.n8K/bf16.paged/random/fp8tensor/s0");
  EXPECT_EQ(msa.kv_scale, 1);
  EXPECT_EQ(msa.idx_scale, 1);
}

TEST(case_problem, fp8idx_is_of_the_index_branch_alone) {
  for (const auto& [option, form] : {std::pair{"fp8idx", 2}, std::pair{"fp8idxtensor", 1}}) {
    const problem msa = make_problem(parse_case(std::string("msa/m3/q1.n8K/bf16.paged/random/") + option + "/s0"));
    EXPECT_EQ(msa.kv, bf16);
    EXPECT_EQ(msa.kv_scale, 0);
    EXPECT_EQ(msa.q_idx, e4m3);
    EXPECT_EQ(msa.k_idx, e4m3);
    EXPECT_EQ(msa.idx_scale, form);
  }
}

}  // namespace
}  // namespace msabench
