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

TEST(negotiate, slots_are_offered_where_pages_of_a_block_are_refused) {
  const auto slots_only = [](const problem& p) { return p.page_size == 1 ? ok({}) : unsupported("slots only"); };
  scripted on(slots_only);
  const problem wanted = attend_problem();
  const agreement a = negotiate(on, wanted);
  EXPECT_EQ(a.answer.result, outcome::completed);
  EXPECT_EQ(a.agreed.layout, page_layout::paged);
  EXPECT_EQ(a.agreed.page_size, 1);
  EXPECT_EQ(a.agreed.pool_pages, wanted.pool_pages * wanted.page_size);
  EXPECT_EQ(on.asked.size(), 3u) << "apart, fused, slots";
  problem other_pages = wanted;
  other_pages.page_size *= 2;
  EXPECT_EQ(negotiate(on, other_pages).answer.result, outcome::unsupported) << "the case is about that size";
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

TEST(negotiate, every_form_is_converted_that_leaves_something_to_judge) {
  const problem select = make_problem(parse_case(select_name));
  for (const id_order order : {id_order::ascending, id_order::score, id_order::local_last, id_order::any})
    for (const id_layout layout : {id_layout::thk, id_layout::htk}) {
      profile p;
      p.in_id_order = p.out_id_order = order;
      p.in_id_layout = p.out_id_layout = layout;
      EXPECT_EQ(refused_for(p), "");
      EXPECT_EQ(refused_for(p, select), "");
    }
  profile p;
  p.lse = lse_form::base2;
  EXPECT_EQ(refused_for(p), "");
}

TEST(negotiate, an_output_that_is_all_there_is_can_not_be_left_out) {
  profile p;
  p.out_id_order = id_order::none;
  p.lse = lse_form::none;
  EXPECT_EQ(refused_for(p), "") << "attend returns no ids, and need not return lse";
  EXPECT_EQ(refused_for(p, make_problem(parse_case(select_name))),
            "profile field out_id_order = none: ids are what select is asked for");
  EXPECT_EQ(refused_for(p, make_problem(parse_case("combine/m3/q8.n1K/bf16/partials.random/split8/s0"))),
            "profile field lse = none: combine is asked for lse too");
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

TEST(adapt_outputs, converts_the_index_branch_too) {
  const float given[] = {2.0f};
  launch l;
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  l.memory = std::make_shared<const std::vector<std::byte>>(bytes, bytes + sizeof given);
  l.outputs[slot::lse_idx] = {l.memory->data(), packed(fp32, {1})};
  profile p;
  p.lse = lse_form::base2;
  adapt_outputs(p, l);
  EXPECT_FLOAT_EQ(static_cast<float>(l.outputs[slot::lse_idx].at(0)), 2 * 0.69314718f);
}
