// SPDX-License-Identifier: Apache-2.0
// Who makes the forward results that gradients are handed.
#include "perf/forward.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "core/error.h"

namespace msabench {
namespace {

const case_spec backward = parse_case("attend_backward/h8x2.d64.b32.k4.l1.i0/q256.n256/bf16.contig/random/grad16/s0");

// Answers with what the generator has computed, or with something else.
class forwarder final : public executor {
 public:
  implementation_record info() override { return {"fake", "1", "", "", ""}; }
  observation query(const problem& p) override {
    observation seen;
    if (refuses) {
      seen.result = outcome::unsupported;
      seen.message = "no forward pass here";
      return seen;
    }
    capability answer;
    numerics& n = answer.declared;
    n.operand = n.v_operand = n.score_acc = n.score_store = n.p_operand = n.pv_acc = n.partial_store = n.ds_operand =
        fp32;
    n.out_store = p.out;
    answer.delivers.lse = lse;
    answer.delivers.in_id_layout = layout;
    seen.answered = answer;
    return seen;
  }
  observation execute(input_set& set, const run_spec& how) override {
    ++executed;
    launches = how.launches;
    observation seen;
    if (crashes) {
      seen.result = outcome::crashed;
      seen.message = "signal 11";
      return seen;
    }
    const input_set computed = make_inputs(backward, make_problem(backward));
    launch l;
    l.outputs_sha256 = "of these outputs";
    auto memory = std::make_shared<std::vector<std::byte>>();
    std::vector<std::size_t> begins;
    for (const buffer& b : set.outputs) {
      const auto* values = static_cast<const std::byte*>(computed.find(b.where)->data());
      begins.push_back(memory->size());
      memory->insert(memory->end(), values, values + b.desc.elements() * size_bytes(b.desc.type));
    }
    // One head of every row.
    for (std::int64_t row = 0; wrong && row < 256; ++row) store(memory->data() + begins[0], bf16, row * 8 * 64, 50);
    for (std::size_t i = 0; i < set.outputs.size(); ++i)
      l.outputs[set.outputs[i].where] = {memory->data() + begins[i], set.outputs[i].desc};
    l.memory = memory;
    seen.launches.push_back(std::move(l));
    return seen;
  }

  bool refuses = false, crashes = false, wrong = false;
  lse_form lse = lse_form::natural;
  id_layout layout = id_layout::thk;
  int executed = 0, launches = 0;
};

input_set unmade() { return make_inputs(backward, make_problem(backward), forward_results::left_to_caller); }

forward_outcome make(input_set& set, std::vector<executor*> by) {
  const std::vector<std::string> labels = {"one", "two"};
  return make_forward(set, backward, by, std::span(labels).first(by.size()), 60);
}

TEST(forward, the_case_is_that_of_the_gradient_without_what_gradients_have) {
  EXPECT_EQ(name(forward_of(backward)), "attend/h8x2.d64.b32.k4.l1.i0/q256.n256/bf16.contig/random/s0");
  EXPECT_EQ(name(forward_of(parse_case("dense_backward/h8x2.d64.b32.k4.l1.i0/q9.n9/fp32.contig/random/s3"))),
            "dense/h8x2.d64.b32.k4.l1.i0/q9.n9/fp32.contig/random/s3");
}

TEST(forward, results_of_an_implementation_become_inputs) {
  forwarder one;
  input_set set = unmade();
  const forward_outcome seen = make(set, {&one});
  EXPECT_TRUE(seen.made) << seen.told;
  EXPECT_EQ(one.launches, 1);
  EXPECT_EQ(find_modified_input(backward, set), nullptr);
  EXPECT_EQ(set.inputs_checksum, checksum_inputs(set));
  EXPECT_NE(seen.told.find("attend of one"), std::string::npos) << seen.told;
  EXPECT_NE(seen.told.find("of 256 rows"), std::string::npos) << seen.told;
}

TEST(forward, wrong_rows_are_no_inputs) {
  forwarder one;
  one.wrong = true;
  input_set set = unmade();
  const forward_outcome seen = make(set, {&one});
  EXPECT_FALSE(seen.made);
  EXPECT_NE(seen.told.find("attend of one: is wrong"), std::string::npos) << seen.told;
  EXPECT_TRUE(std::isnan(set.views().at(slot::out).at(0, 1, 0)));
}

TEST(forward, the_next_implementation_is_asked) {
  forwarder one, two;
  for (int how = 0; how < 4; ++how) {
    one = forwarder();
    (how == 0 ? one.refuses : how == 1 ? one.crashes : one.wrong) = how < 3;
    if (how == 3) one.lse = lse_form::none;
    input_set set = unmade();
    const forward_outcome seen = make(set, {&one, &two});
    EXPECT_TRUE(seen.made) << seen.told;
    EXPECT_NE(seen.told.find("attend of two"), std::string::npos) << how << ": " << seen.told;
  }
  EXPECT_EQ(two.executed, 4);
}

TEST(forward, without_anybody_there_are_all_reasons) {
  forwarder one, two;
  one.refuses = true;
  two.layout = id_layout::htk;
  input_set set = unmade();
  const forward_outcome seen = make(set, {&one, &two});
  EXPECT_FALSE(seen.made);
  EXPECT_NE(seen.told.find("no forward pass here"), std::string::npos) << seen.told;
  EXPECT_NE(seen.told.find("another layout"), std::string::npos) << seen.told;
  EXPECT_EQ(two.executed, 0);
}

}  // namespace
}  // namespace msabench
