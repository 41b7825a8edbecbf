// SPDX-License-Identifier: Apache-2.0
// The inputs of kl: those of both branches, read by the rows alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "made_case.h"

namespace msabench {
namespace {

// Index keys that some row selects and sees are normal, the others far out where they can be told at all.
void expect_read_keys(const made_case& m) {
  const auto read = m.keys_read();
  std::int64_t far = 0;
  for (std::int64_t b = 0; b < m.batch(); ++b)
    for (std::int64_t j = 0; j < m.kv_len(b); ++j) {
      bool any = false;
      for (const auto& of_head : read[static_cast<std::size_t>(b)]) any = any || of_head[static_cast<std::size_t>(j)];
      const std::int64_t key = m.view(slot::cu_seqlens_kv).int_at(b) + j;
      double largest = 0;
      for (std::int64_t c = 0; c < m.p.di; ++c) {
        const double x = m.view(slot::k_idx).at(key, c);
        ASSERT_TRUE(std::isfinite(x)) << key;
        largest = std::max(largest, std::abs(x));
      }
      EXPECT_EQ(largest < 10, any) << key;
      far += any ? 0 : 1;
    }
  if (m.p.kl_warm_up == 0) {
    EXPECT_GT(far, 0);
  }
}

TEST(kl_inputs, index_keys_that_nobody_reads_are_far_out) {
  for (const char* name : {"kl/h6x3.d24.di16.b16.k3.l1.i0/rag.small/bf16.contig/random/s1",
                           "kl/h4x1.d16.b8.k4.l1.i1/q3.n70/fp16.contig/random/s0",
                           "kl/h4x1.d16.b8.k2.l1.i0/q1.n70/fp32.contig/random/short/s0",
                           "kl/h6x3.d24.di16.b16.k3.l1.i0/rag.small/bf16.contig/random/warm/s1"})
    expect_read_keys(made_case(name));
}

TEST(kl_inputs, the_warm_up_has_no_ids_and_neither_stage_values) {
  const made_case sparse("kl/h4x2.d16.b8.k2.l1.i0/q5.n70/bf16.contig/random/s0"),
      warm_up("kl/h4x2.d16.b8.k2.l1.i0/q5.n70/bf16.contig/random/warm/s0");
  EXPECT_TRUE(sparse.in.contains(slot::ids));
  EXPECT_FALSE(warm_up.in.contains(slot::ids));
  for (const made_case* m : {&sparse, &warm_up}) {
    EXPECT_FALSE(m->in.contains(slot::v));
    for (const slot s : {slot::loss, slot::dq_idx, slot::dk_idx, slot::dq, slot::dk})
      EXPECT_NE(m->set.find(s), nullptr) << name(s);
  }
}

TEST(kl_inputs, heads_differ) {
  const made_case m("kl/h4x1.d16.b8.k4.l1.i0/q5.n30/fp32.contig/random/s0");
  for (std::int64_t head = 1; head < 4; ++head)
    EXPECT_NE(m.view(slot::q).at(0, head, 0), m.view(slot::q).at(0, head - 1, 0));
}

}  // namespace
}  // namespace msabench
