// SPDX-License-Identifier: Apache-2.0
// A case that ran in another layout than its name says tells so.
#include <gtest/gtest.h>

#include "conformance/runner.h"

namespace msabench {
namespace {

class takes_one_layout : public executor {
 public:
  explicit takes_one_layout(page_layout taken) : taken_(taken) {}
  implementation_record info() override { return {}; }
  observation query(const problem& p) override {
    observation seen;
    if (p.layout != taken_) {
      seen.result = outcome::unsupported;
      seen.entry = "query";
      return seen;
    }
    capability c;
    c.declared.operand = c.declared.v_operand = c.declared.out_store = p.q;
    c.declared.score_acc = c.declared.score_store = c.declared.p_operand = fp32;
    c.declared.pv_acc = c.declared.partial_store = c.declared.ds_operand = fp32;
    seen.answered = c;
    return seen;
  }
  observation execute(input_set&, const run_spec&) override {
    observation seen;
    seen.result = outcome::crashed;
    return seen;
  }

 private:
  page_layout taken_;
};

std::vector<std::string> remarks_of(page_layout taken, const char* asked) {
  takes_one_layout on(taken);
  const auto record =
      run_case(on, parse_case("attend/h8x2.d64.b32.k4.l1.i0/q1.n100/bf16." + std::string(asked) + "/random/s0"), {});
  EXPECT_EQ(record.decided, verdict::crash) << record.reason;
  return record.remarks;
}

TEST(layout, another_one_than_the_name_says_is_remarked) {
  const auto remarks = remarks_of(page_layout::fused, "paged");
  ASSERT_EQ(remarks.size(), 1U);
  EXPECT_NE(remarks[0].find("fused"), std::string::npos);
  EXPECT_TRUE(remarks_of(page_layout::paged, "paged").empty());
  EXPECT_TRUE(remarks_of(page_layout::fused, "fused").empty());
}

}  // namespace
}  // namespace msabench
