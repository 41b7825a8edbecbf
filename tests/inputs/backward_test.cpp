// SPDX-License-Identifier: Apache-2.0
// What a backward pass is handed is what attention of its own inputs gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "made_case.h"

namespace msabench {
namespace {

// out and lse by double loops over the definition.
void expect_forward_results(const made_case& m) {
  const bool selects = m.c.operation == op::attend_backward;
  for (std::int64_t row = 0; row < std::ssize(m.rows()); ++row) {
    const auto& at = m.rows()[static_cast<std::size_t>(row)];
    for (std::int64_t head = 0; head < m.p.hq; ++head) {
      const std::int64_t kv_head = head / m.p.group();
      const auto chosen = selects ? m.chosen(row, kv_head) : std::vector<std::int64_t>{};
      std::vector<long double> mean(static_cast<std::size_t>(m.p.d));
      long double sum = 0;
      for (std::int64_t j = 0; j <= at.position && j < at.kv_len; ++j) {
        if (selects && std::ranges::find(chosen, j / m.p.block) == chosen.end()) continue;
        long double score = 0;
        for (std::int64_t c = 0; c < m.p.d; ++c)
          score +=
              m.p.softmax_scale * m.view(slot::q).at(row, head, c) * m.cache_at(slot::k, at.sequence, j, kv_head, c);
        const long double weight = std::exp(score);
        sum += weight;
        for (std::int64_t c = 0; c < m.p.d; ++c)
          mean[static_cast<std::size_t>(c)] += weight * m.cache_at(slot::v, at.sequence, j, kv_head, c);
      }
      const double lse = m.view(slot::lse).at(row, head);
      if (sum == 0)
        EXPECT_EQ(lse, -std::numeric_limits<double>::infinity());
      else
        EXPECT_NEAR(lse, static_cast<double>(std::log(sum)), 0x1p-22 * std::max(1.0, std::abs(lse)));
      for (std::int64_t c = 0; c < m.p.d; ++c) {
        const double want = sum == 0 ? 0 : static_cast<double>(mean[static_cast<std::size_t>(c)] / sum);
        const double open = unit_roundoff(m.p.out) * std::abs(want) * (1 + 0x1p-20) + 1e-12;
        EXPECT_NEAR(m.view(slot::out).at(row, head, c), want, open) << row << " " << head << " " << c;
      }
    }
  }
}

TEST(backward_inputs, out_and_lse_are_those_of_the_stored_inputs) {
  for (const char* name : {"attend_backward/h6x3.d24.b16.k3.l1.i0/rag.small/bf16.contig/random/s1",
                           "attend_backward/h4x1.d16.b8.k4.l1.i1/q9.n70/fp16.contig/random.sharp/short/s0",
                           "attend_backward/h4x2.d16.b8.k3.l0.i0/q9.n70.x2/fp32.contig/random/lenient/s0",
                           "dense_backward/h4x2.d16.b8.k3.l0.i0/rag.small/bf16.contig/random/scale0.7/stride/s0",
                           "dense_backward/h2x2.d8.b8.k3.l0.i0/q5.n90/fp32.contig/random/slack/s4"})
    expect_forward_results(made_case(name));
}

// Weights that are powers of two, and sums over heads or rows that vanish but for the rest.
TEST(backward_inputs, carried_gradients_leave_the_rest) {
  struct example {
    const char* name;
    double rest;
    bool by_row;
  };
  for (const auto& [name, rest, by_row] :
       {example{"attend_backward/h8x2.d8.b8.k4.l0.i0/q20.n100/bf16.contig/carry/s0", 0x1p-7, false},
        example{"attend_backward/h5x1.d8.b8.k4.l1.i0/q9.n100.x2/fp16.contig/carry/s1", 0x1p-10, false},
        example{"dense_backward/h8x1.d8.b8.k4.l1.i0/q20.n40/bf16.contig/carry/s0", 0x1p-7, false},
        example{"attend_backward/h4x2.d8.b8.k4.l0.i0/q20.n100/bf16.contig/carry.all/s0", 0x1p-7, true}}) {
    const made_case m(name);
    expect_forward_results(m);
    std::vector<double> of_rows(static_cast<std::size_t>(m.p.hkv));
    std::int64_t counted = 0;
    for (std::int64_t row = 0; row < std::ssize(m.rows()); ++row)
      for (std::int64_t kv_head = 0; kv_head < m.p.hkv; ++kv_head) {
        double sum = 0;
        std::int64_t used = 0;
        for (std::int64_t head = kv_head * m.p.group(); head < (kv_head + 1) * m.p.group(); ++head) {
          EXPECT_EQ(m.view(slot::q).at(row, head, 0), 0);
          const double value = m.view(slot::d_out).at(row, head, 0);
          EXPECT_EQ(m.view(slot::d_out).at(row, head, 1), -value);
          sum += value;
          used += value != 0 ? 1 : 0;
        }
        if (used == 0) continue;
        ++counted;
        const double n = std::round(std::exp(m.view(slot::lse).at(row, kv_head * m.p.group())));
        EXPECT_EQ(std::exp2(std::round(std::log2(n))), n) << name << " row " << row;
        of_rows[static_cast<std::size_t>(kv_head)] += sum / static_cast<double>(m.p.group());
        if (!by_row) {
          EXPECT_EQ(std::abs(sum), rest) << name << " row " << row;
        }
      }
    EXPECT_GT(counted, 0) << name;
    for (std::size_t head = 0; by_row && head < of_rows.size(); ++head)
      EXPECT_EQ(std::abs(of_rows[head]), rest) << head;
  }
}

TEST(backward_inputs, the_gradient_is_independent_of_the_values) {
  const made_case m("dense_backward/h4x4.d32.b16.k4.l1.i0/q40.n40/fp32.contig/random/s0");
  double squares = 0, with_v = 0, with_q = 0, sum = 0, n = 0;
  for (std::int64_t row = 0; row < 40; ++row)
    for (std::int64_t head = 0; head < 4; ++head)
      for (std::int64_t c = 0; c < 32; ++c) {
        const double g = m.view(slot::d_out).at(row, head, c);
        squares += g * g;
        with_v += g * m.view(slot::v).at(row, head, c);
        with_q += g * m.view(slot::q).at(row, head, c);
        sum += g;
        ++n;
      }
  EXPECT_GT(squares / n, 0.5);
  for (const double product : {with_v, with_q, sum}) EXPECT_LE(std::abs(product), 5 * std::sqrt(n) * squares / n);
}

TEST(backward_inputs, forward_results_may_come_from_the_caller) {
  for (const char* name : {"attend_backward/h6x3.d24.b16.k3.l1.i0/rag.small/bf16.contig/random/s1",
                           "dense_backward/h4x2.d16.b8.k3.l0.i0/rag.small/bf16.contig/random/scale0.7/stride/s0"}) {
    const made_case m(name);
    input_set set = make_inputs(m.c, m.p, forward_results::left_to_caller);
    EXPECT_NE(set.inputs_checksum, m.set.inputs_checksum);
    EXPECT_TRUE(std::isnan(set.views().at(slot::out).at(0, 0, 0)));
    for (const slot where : {slot::out, slot::lse}) put_input(set, where, m.view(where));
    EXPECT_EQ(find_modified_input(m.c, set), nullptr);
    EXPECT_EQ(set.inputs_checksum, m.set.inputs_checksum);
    EXPECT_THROW(put_input(set, slot::out, m.view(slot::lse)), suite_error);
    EXPECT_THROW(put_input(set, slot::k_idx, m.view(slot::out)), suite_error);
  }
}

TEST(backward_inputs, are_those_of_the_forward_pass) {
  const made_case m("attend_backward/h6x3.d24.b16.k3.l1.i0/rag.small/bf16.contig/random/s1");
  const case_spec attend = parse_case("attend/h6x3.d24.b16.k3.l1.i0/rag.small/bf16.contig/random/s1");
  const input_set set = with_other_operator(attend, m.set, make_problem(attend));
  for (const buffer& b : set.inputs) EXPECT_EQ(b.region, m.set.find(b.where)->region) << name(b.where);
  EXPECT_EQ(set.find(slot::d_out), nullptr);
  ASSERT_NE(set.find(slot::out), nullptr);
  EXPECT_EQ(set.find(slot::out)->dir, direction::out);
  EXPECT_NE(set.find(slot::out)->region, m.set.find(slot::out)->region);
  EXPECT_EQ(set.inputs_checksum, checksum_inputs(set));
  const case_spec paged = parse_case("attend/h6x3.d24.b16.k3.l1.i0/rag.small/bf16.paged/random/s1");
  EXPECT_THROW(with_other_operator(paged, m.set, make_problem(paged)), suite_error);
}

}  // namespace
}  // namespace msabench
