// SPDX-License-Identifier: Apache-2.0
// Negotiation, against an executor that answers as it is told.
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "core/error.h"
#include "tests/host/small_case.h"

using namespace msabench;
using namespace msabench::host_test;

namespace {

class scripted final : public executor {
 public:
  using answer = std::function<observation(const problem&)>;
  explicit scripted(answer a) : answer_(std::move(a)) {}

  implementation_record info() override { return {}; }
  observation query(const problem& p) override {
    asked.push_back(p);
    return answer_(p);
  }
  observation execute(input_set&, const run_spec&) override { throw suite_error("not asked"); }

  std::vector<problem> asked;

 private:
  answer answer_;
};

observation ok(const profile& p) {
  observation seen;
  seen.answered = capability{{}, p};
  return seen;
}

observation unsupported(std::string message) {
  observation seen;
  seen.result = outcome::unsupported;
  seen.entry = "query";
  seen.message = std::move(message);
  return seen;
}

problem attend_problem() { return make_problem(parse_case(attend_name)); }

std::string refused_for(const profile& answer, const problem& wanted = attend_problem()) {
  scripted on([&](const problem&) { return ok(answer); });
  return negotiate(on, wanted).refused;
}

}  // namespace

TEST(negotiate, paged_is_offered_apart_first_then_fused) {
  profile wants;
  wants.repeatable = true;
  scripted on([&](const problem& p) {
    return p.layout == page_layout::fused ? ok(wants) : unsupported("page_layout 1: fused only");
  });
  const agreement a = negotiate(on, attend_problem());
  ASSERT_EQ(on.asked.size(), 2u);
  EXPECT_EQ(on.asked[0].layout, page_layout::paged);
  EXPECT_EQ(a.agreed.layout, page_layout::fused);
  EXPECT_EQ(a.agreed.asked, wants);
  EXPECT_EQ(a.refused, "");
}

TEST(negotiate, the_first_offer_that_is_taken_ends_it) {
  scripted on([](const problem&) { return ok({}); });
  EXPECT_EQ(negotiate(on, attend_problem()).agreed.layout, page_layout::paged);
  EXPECT_EQ(on.asked.size(), 1u);
}

TEST(negotiate, refusal_of_every_offer_tells_both_reasons) {
  scripted on([](const problem& p) { return unsupported(p.layout == page_layout::paged ? "d 64" : "page_layout 2"); });
  const agreement a = negotiate(on, attend_problem());
  EXPECT_EQ(a.answer.result, outcome::unsupported);
  EXPECT_EQ(a.answer.message, "d 64 (paged); page_layout 2 (fused)");
  scripted same([](const problem&) { return unsupported("d 64"); });
  EXPECT_EQ(negotiate(same, attend_problem()).answer.message, "d 64");
}

TEST(negotiate, other_ends_are_not_asked_twice) {
  scripted on([](const problem&) {
    observation seen;
    seen.result = outcome::crashed;
    return seen;
  });
  EXPECT_EQ(negotiate(on, attend_problem()).answer.result, outcome::crashed);
  EXPECT_EQ(on.asked.size(), 1u);
}

TEST(negotiate, a_weaker_id_form_is_refused_a_stronger_one_taken) {
  problem wanted = attend_problem();
  wanted.asked.in_id_form = id_form::short_rows;
  EXPECT_EQ(refused_for({}, wanted), "takes ids in form exact, the case has them in form short");
  profile lenient;
  lenient.in_id_form = id_form::lenient;
  EXPECT_EQ(refused_for(lenient, wanted), "");
}

TEST(negotiate, what_is_not_converted_is_named) {
  profile p;
  p.in_id_order = id_order::score;
  EXPECT_EQ(refused_for(p), "profile field in_id_order = score is not converted by this version");
  p = {};
  p.in_id_order = id_order::any;
  EXPECT_EQ(refused_for(p), "");
  p = {};
  p.in_id_layout = id_layout::htk;
  EXPECT_NE(refused_for(p), "");
  p = {};
  p.out_id_order = id_order::any;
  EXPECT_EQ(refused_for(p), "") << "attend returns no ids";
  EXPECT_NE(refused_for(p, make_problem(parse_case(select_name))), "");
  p = {};
  p.lse = lse_form::base2;
  EXPECT_EQ(refused_for(p), "");
}

TEST(adapt_outputs, turns_base_2_into_natural_and_keeps_the_rest) {
  const float unwritten = std::bit_cast<float>(0x7fc012a5u), infinity = std::numeric_limits<float>::infinity();
  const float given[] = {1.0f, -infinity, unwritten, -3.5f};
  launch l;
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  const auto memory = std::make_shared<const std::vector<std::byte>>(bytes, bytes + sizeof given);
  l.memory = memory;
  l.outputs[slot::lse] = {memory->data(), packed(fp32, {4})};
  profile p;
  adapt_outputs(p, l);
  EXPECT_EQ(l.memory, memory) << "natural already";
  p.lse = lse_form::base2;
  adapt_outputs(p, l);
  const tensor_view& lse = l.outputs[slot::lse];
  EXPECT_NE(lse.data, memory->data());
  EXPECT_FLOAT_EQ(static_cast<float>(lse.at(0)), 0.69314718f);
  EXPECT_EQ(lse.at(1), -infinity);
  std::uint32_t kept = 0;
  std::memcpy(&kept, static_cast<const std::byte*>(lse.data) + 8, 4);
  EXPECT_EQ(kept, 0x7fc012a5u);
  EXPECT_FLOAT_EQ(static_cast<float>(lse.at(3)), -3.5f * 0.69314718f);
}
