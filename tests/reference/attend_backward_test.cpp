// SPDX-License-Identifier: Apache-2.0
#include "reference/attend_backward.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "training_batch.h"

namespace msabench::reference {
namespace {

using testing::expect_close;
using testing::expect_derivative;
using testing::expect_same_bits;
using testing::plain_backward;
using testing::plain_objective;
using testing::training_batch;
using testing::training_spec;

constexpr double inf = std::numeric_limits<double>::infinity();

// Every term distinct and visible.
const backward_error every_term{{1e-3, 2e-4, 1e-5, 3e-5, 4e-7},   5e-4, 3e-3, 4e-3, 2e-3, 1e-6, 2e-6,
                                {1e-6, 0, 0, 1e-3, 1e-7, 0x1p-24}};

training_spec ragged() {
  training_spec spec;
  spec.sequences = {{0, 0}, {3, 3}, {1, 0}, {5, 149}, {0, 40}, {2, 128}, {4, 2}, {1, 1}, {0, 0}};
  return spec;
}

void expect_plain(const training_batch& b, const backward_error& err = every_term) {
  const auto got = attend_backward(b.attend(), err);
  const auto want = plain_backward(b, false, err);
  expect_close(got.dq, want.dq, 1e-12);
  expect_close(got.dk, want.dk, 1e-12);
  expect_close(got.dv, want.dv, 1e-12);
  ASSERT_EQ(got.lse.size(), want.lse.size());
  for (std::size_t i = 0; i < got.lse.size(); ++i) {
    if (std::isinf(want.lse[i]))
      EXPECT_EQ(got.lse[i], -inf);
    else
      EXPECT_NEAR(got.lse[i], static_cast<double>(want.lse[i]), 1e-12);
  }
}

TEST(attend_backward, gradients_and_gauges_are_those_of_the_plain_formulas_in_every_type) {
  for (const dtype type : {bf16, fp16, fp32, fp64, e4m3}) {
    auto spec = ragged();
    spec.type = type;
    expect_plain(training_batch(spec));
  }
}

TEST(attend_backward, odd_shapes_follow_the_plain_formulas) {
  struct shape {
    std::int32_t hq, hkv, d, block, topk;
  };
  for (const shape& s : {shape{1, 1, 1, 1, 1}, shape{6, 3, 20, 32, 2}, shape{16, 1, 80, 64, 3},
                         shape{3, 3, 128, 128, 2}, shape{4, 1, 7, 5, 9}, shape{2, 1, 8, 200, 2}}) {
    training_spec spec;
    spec.sequences = {{4, 301}, {2, 17}};
    spec.hq = s.hq, spec.hkv = s.hkv, spec.d = s.d, spec.block = s.block, spec.topk = s.topk;
    expect_plain(training_batch(spec));
  }
}

TEST(attend_backward, many_rows_of_a_key_follow_the_plain_formulas) {
  // More terms than one tile for each key: 16 heads of 60 rows.
  training_spec spec;
  spec.sequences = {{60, 60}};
  spec.hq = 16, spec.hkv = 1, spec.d = 8;
  expect_plain(training_batch(spec));
}

TEST(attend_backward, forced_block_settings_follow_the_plain_formulas) {
  for (const std::int32_t local : {0, 1, 3})
    for (const std::int32_t init : {0, 1, 2}) {
      auto spec = ragged();
      spec.topk = 5, spec.local_blocks = local, spec.init_blocks = init;
      expect_plain(training_batch(spec));
    }
}

TEST(attend_backward, scales_peaks_and_offsets_follow_the_plain_formulas) {
  for (const auto& [scale, query_size, offset] : {std::array{0.05, 1.0, 0.0}, {0.0, 12.0, 0.0}, {0.7, 0.01, 100.0}}) {
    auto spec = ragged();
    spec.softmax_scale = scale, spec.query_size = query_size, spec.offset = offset;
    expect_plain(training_batch(spec));
  }
}

TEST(attend_backward, each_term_of_the_error_model_acts_alone) {
  const training_batch b(ragged());
  backward_error one;
  double* const terms[] = {&one.weight.per_magnitude,
                           &one.weight.per_score,
                           &one.weight.constant,
                           &one.weight.per_size,
                           &one.weight.underflow,
                           &one.products,
                           &one.u_p,
                           &one.u_ds,
                           &one.u_out,
                           &one.omega_p,
                           &one.omega_ds};
  for (double* const term : terms) {
    one.sums.fine = 0;
    *term = 1e-3;
    const auto got = attend_backward(b.attend(), one);
    const auto want = plain_backward(b, false, one);
    for (const auto& [mine, plain] : {std::pair(&got.dq, &want.dq), {&got.dk, &want.dk}, {&got.dv, &want.dv}}) {
      expect_close(*mine, *plain, 1e-12);
      const bool of_p = term == &one.u_p || term == &one.omega_p;
      const bool of_ds = term == &one.products || term == &one.u_ds || term == &one.u_out || term == &one.omega_ds;
      const bool acts = mine == &got.dv ? !of_ds : !of_p;
      EXPECT_EQ(std::ranges::any_of(mine->error, [](double x) { return x > 0; }), acts) << term - terms[0];
      const bool stores = of_p || term == &one.u_ds || term == &one.u_out || term == &one.omega_ds;
      EXPECT_EQ(std::ranges::any_of(mine->spread, [](double x) { return x > 0; }), acts && stores);
      // Roundoffs of stores, and nothing else, become fine ones.
      const bool replaced = term == &one.u_p || term == &one.u_ds || term == &one.u_out;
      EXPECT_EQ(std::ranges::any_of(mine->fine_error, [](double x) { return x > 0; }), acts && !replaced);
    }
    *term = 0;
  }
}

TEST(attend_backward, gradients_agree_with_central_differences) {
  for (const std::uint64_t seed : {1, 2}) {
    training_spec spec;
    spec.sequences = {{5, 30}, {0, 4}, {3, 3}, {1, 0}};
    spec.hq = 4, spec.hkv = 2, spec.d = 6, spec.block = 8, spec.topk = 2, spec.type = fp64, spec.seed = seed;
    spec.query_size = 2;
    training_batch b(spec);
    const auto got = attend_backward(b.attend(), {});
    const auto objective = [&] { return plain_objective(b, false); };
    expect_derivative(got.dq, b.q, objective);
    expect_derivative(got.dk, b.k, objective);
    expect_derivative(got.dv, b.v, objective);
  }
}

TEST(attend_backward, empty_rows_get_no_gradient_and_give_none) {
  training_batch b(ragged());
  for (std::int64_t slot = 0; slot < 4; ++slot) b.id(5, 0, slot) = -1;  // sees keys, but is given none
  const auto got = attend_backward(b.attend(), every_term);
  const auto& dq = got.dq;
  std::size_t empty = 0;
  for (std::int64_t row = 0; row < b.rows(); ++row)
    for (std::int64_t head = 0; head < 4; ++head) {
      // Row 3 has N_b = 0; rows 11 and 12 are padding before their sequence's first position.
      const bool is_empty = row == 3 || row == 11 || row == 12 || (row == 5 && head < 2);
      EXPECT_EQ(dq.chain[dq.line(row, head)] == 0, is_empty) << row << " " << head;
      EXPECT_EQ(std::isinf(got.lse[dq.line(row, head)]), is_empty);
      if (!is_empty) continue;
      ++empty;
      for (std::int64_t c = 0; c < 16; ++c)
        for (const auto* gauge : {&dq.value, &dq.magnitude, &dq.error, &dq.fine_error, &dq.spread})
          EXPECT_EQ((*gauge)[dq.element(row, head, c)], 0);
    }
  EXPECT_EQ(empty, 3u * 4 + 2);
  expect_plain(b);
}

TEST(attend_backward, rows_of_a_single_key_have_a_query_gradient_of_exactly_zero) {
  training_spec spec;
  spec.sequences = {{1, 1}, {3, 3}};
  spec.query_size = 30;
  const training_batch b(spec);
  const auto got = attend_backward(b.attend(), every_term);
  for (const std::int64_t row : {0, 1})
    for (std::int64_t head = 0; head < 4; ++head)
      for (std::int64_t c = 0; c < 16; ++c) {
        EXPECT_EQ(got.dq.value[got.dq.element(row, head, c)], 0);
        // An implementation may still be off by what it does to dP and D.
        EXPECT_GT(got.dq.error[got.dq.element(row, head, c)], 0);
      }
  for (std::int64_t c = 0; c < 16; ++c)
    EXPECT_EQ(got.dv.value[got.dv.element(0, 1, c)], b.d_out[2 * 16 + c] + b.d_out[3 * 16 + c]);
}

TEST(attend_backward, blocks_that_no_row_selects_are_exact_zeros) {
  training_spec spec;
  spec.sequences = {{4, 150}, {2, 40}};
  training_batch b(spec);
  b.set_ids([](std::int64_t row, std::int64_t group) {
    return row < 4 ? std::vector<std::int32_t>{static_cast<std::int32_t>(2 + group), 9} : std::vector<std::int32_t>{0};
  });
  const auto got = attend_backward(b.attend(), every_term);
  for (std::int64_t key = 0; key < 190; ++key)
    for (std::int64_t group = 0; group < 2; ++group) {
      const bool selected = key < 150 ? key / 16 == 2 + group || key / 16 == 9 : key - 150 < 16;
      // Keys past the first row's own position are seen by fewer rows.
      const std::int64_t rows = !selected ? 0 : key >= 150 ? 2 : key < 147 ? 4 : 150 - key;
      EXPECT_EQ(got.dk.chain[got.dk.line(key, group)], rows * 2) << key;
      EXPECT_EQ(got.dv.chain[got.dv.line(key, group)], rows * 2) << key;
      if (selected) continue;
      for (std::int64_t c = 0; c < 16; ++c)
        for (const gradient* g : {&got.dk, &got.dv}) {
          EXPECT_EQ(g->value[g->element(key, group, c)], 0);
          EXPECT_EQ(limit_of(*g, g->element(key, group, c), every_term.sums).total(),
                    gradient_limit::second_order * every_term.sums.omega_grad);
        }
    }
  expect_plain(b);
}

TEST(attend_backward, keys_that_no_row_reads_may_hold_anything) {
  training_spec spec;
  spec.sequences = {{4, 150}};
  training_batch b(spec), other(spec);
  const auto ids = [](auto, auto) { return std::vector<std::int32_t>{2, 9}; };
  b.set_ids(ids), other.set_ids(ids);
  for (std::int64_t i = 0; i < 150 * 2 * 16; ++i)
    if (i / 32 / 16 != 2 && i / 32 / 16 != 9)
      other.k.set(i, std::numeric_limits<double>::quiet_NaN()), other.v.set(i, inf);
  const auto got = attend_backward(other.attend(), every_term), want = attend_backward(b.attend(), every_term);
  expect_same_bits(got.dq, want.dq);
  expect_same_bits(got.dk, want.dk);
  expect_same_bits(got.dv, want.dv);
}

TEST(attend_backward, lenient_ids_are_a_set) {
  training_spec spec;
  spec.sequences = {{3, 200}};
  spec.topk = 8;
  training_batch canonical(spec), lenient(spec);
  canonical.set_ids([](auto, auto) { return std::vector<std::int32_t>{1, 4, 7, 12}; });
  lenient.set_ids([](auto, auto) {
    return std::vector<std::int32_t>{-1, 12, 4, 13, 7, 12, std::numeric_limits<std::int32_t>::min(), 1};
  });
  expect_same_bits(attend_backward(lenient.attend(), every_term).dk,
                   attend_backward(canonical.attend(), every_term).dk);
}

TEST(attend_backward, a_batch_equals_its_sequences_alone) {
  training_spec spec;
  spec.sequences = {{4, 90}};
  const training_batch alone(spec);
  spec.sequences = {{4, 90}, {3, 33}};
  const training_batch both(spec);  // the first sequence holds the same values, its ids too
  const auto whole = attend_backward(both.attend(), every_term), part = attend_backward(alone.attend(), every_term);
  const auto is_front = [](const gradient& longer, const gradient& shorter) {
    EXPECT_TRUE(std::ranges::equal(shorter.value, std::span(longer.value).first(shorter.value.size())));
    EXPECT_TRUE(std::ranges::equal(shorter.error, std::span(longer.error).first(shorter.error.size())));
  };
  is_front(whole.dq, part.dq);
  is_front(whole.dk, part.dk);
  is_front(whole.dv, part.dv);
}

TEST(attend_backward, threads_and_repeats_change_no_bit) {
  auto spec = ragged();
  spec.d = 128, spec.hq = 16;
  spec.sequences.emplace_back(24, 160);
  const training_batch b(spec);
  omp_set_num_threads(1);
  const auto one = attend_backward(b.attend(), every_term);
  for (const int threads : {1, 2, 3, 3}) {
    omp_set_num_threads(threads);
    const auto got = attend_backward(b.attend(), every_term);
    expect_same_bits(got.dq, one.dq);
    expect_same_bits(got.dk, one.dk);
    expect_same_bits(got.dv, one.dv);
    EXPECT_EQ(got.lse, one.lse);
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(attend_backward, endless_chains_give_huge_gauges_and_no_nan) {
  auto spec = ragged();
  spec.query_size = 300;  // weights that underflow to zero
  const training_batch b(spec);
  backward_error err;
  err.weight.per_magnitude = err.products = inf;
  err.sums.u_m = 1;
  const auto got = attend_backward(b.attend(), err);
  double largest = 0;
  for (const gradient* g : {&got.dq, &got.dk, &got.dv})
    for (std::size_t i = 0; i < g->value.size(); ++i) {
      largest = std::max(largest, g->error[i]);
      EXPECT_FALSE(std::isnan(g->error[i]) || std::isnan(limit_of(*g, i, err.sums).total()) ||
                   std::isnan(expected_square(*g, i, err.sums)));
    }
  EXPECT_GT(largest, 1e90);
}

TEST(attend_backward, strided_views_are_followed) {
  const training_batch b(ragged());
  auto in = b.attend();
  // d_out with a gap of one head's width after each head; k with one after each key.
  std::vector<float> wide(static_cast<std::size_t>(b.rows() * 4 * 32), std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t i = 0; i < b.rows() * 4 * 16; ++i)
    wide[static_cast<std::size_t>(i / 16 * 32 + i % 16)] = static_cast<float>(b.d_out[i]);
  in.d_out.data = wide.data();
  in.d_out.desc.strides = {128, 32, 1};
  std::vector<float> keys(static_cast<std::size_t>(b.keys() * 48), std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t i = 0; i < b.keys() * 32; ++i)
    keys[static_cast<std::size_t>(i / 32 * 48 + i % 32)] = static_cast<float>(b.k[i]);
  in.k.data = keys.data();
  in.k.desc.strides = {48, 16, 1};
  const auto got = attend_backward(in, every_term), want = attend_backward(b.attend(), every_term);
  expect_same_bits(got.dq, want.dq);
  expect_same_bits(got.dk, want.dk);
  expect_same_bits(got.dv, want.dv);
}

TEST(attend_backward, contradicting_shapes_and_lengths_are_refused) {
  const training_batch b(ragged());
  const auto refused = [&](auto change) {
    auto in = b.attend();
    change(in);
    EXPECT_THROW(attend_backward(in, every_term), suite_error);
  };
  refused([](auto& in) { in.q.desc.shape[1] = 5; });
  refused([](auto& in) { in.d_out.desc.shape[2] = 8; });
  refused([](auto& in) { in.v.desc.strides[2] = 2; });
  refused([](auto& in) { in.ids.desc.shape[1] = 4; });
  refused([](auto& in) { in.ids = {}; });
  refused([](auto& in) { in.p.layout = page_layout::paged; });
  refused([](auto& in) { in.p.hkv = 3; });
  refused([](auto& in) { in.k.desc.shape[0] = 10; });
  refused([](auto& in) { in.q.desc.shape[0] = 10; });
  refused([](auto& in) { in.cu_seqlens_kv = in.cu_seqlens_q; });
  refused([](auto& in) { in.cu_seqlens_kv = {}; });
}

TEST(attend_backward, empty_batches_have_empty_gradients) {
  training_spec spec;
  EXPECT_TRUE(attend_backward(training_batch(spec).attend(), every_term).dq.value.empty());
  spec.sequences = {{0, 0}, {0, 30}};
  const auto got = attend_backward(training_batch(spec).attend(), every_term);
  EXPECT_TRUE(got.dq.value.empty());
  EXPECT_EQ(got.dk.value, std::vector<double>(30 * 2 * 16, 0.0));
  EXPECT_EQ(got.dv.chain, std::vector<std::int64_t>(30 * 2, 0));
}

// What the forward pass of a batch hands over, in double precision.
struct forward_of_batch {
  forward_of_batch(const training_batch& b, bool all)
      : out(fp64, {b.rows(), b.p.hq, b.p.d}), lse(fp64, {b.rows(), b.p.hq}) {
    const std::int64_t hq = b.p.hq, hkv = b.p.hkv, d = b.p.d;
    const double scale = b.p.softmax_scale != 0 ? b.p.softmax_scale : 1 / std::sqrt(static_cast<double>(d));
    for (std::int64_t row = 0; row < b.rows(); ++row)
      for (std::int64_t head = 0; head < hq; ++head) {
        const std::int64_t group = head / b.p.group();
        std::vector<double> mean(static_cast<std::size_t>(d));
        double sum = 0;
        for (const std::int64_t key : b.read_keys(row, group, all)) {
          double score = 0;
          for (std::int64_t c = 0; c < d; ++c)
            score += b.q[(row * hq + head) * d + c] * b.k[(key * hkv + group) * d + c];
          const double weight = std::exp(scale * score);
          sum += weight;
          for (std::int64_t c = 0; c < d; ++c)
            mean[static_cast<std::size_t>(c)] += weight * b.v[(key * hkv + group) * d + c];
        }
        lse.set(row * hq + head, std::log(sum));
        for (std::int64_t c = 0; c < d; ++c)
          out.set((row * hq + head) * d + c, sum == 0 ? 0 : mean[static_cast<std::size_t>(c)] / sum);
      }
  }
  forward_tensors tensors() const { return {out.view(), lse.view()}; }
  testing::stored out, lse;
};

backward_inputs inputs_of(const training_batch& b, bool all) {
  const auto in = b.attend();
  return {
      in.p, in.q, in.k, in.v, all ? tensor_view{} : in.ids, in.d_out, in.cu_seqlens_q, in.kv_lens, in.cu_seqlens_kv};
}

void expect_same_line(const gradient& got, std::int64_t line, const gradient& want, std::int64_t of) {
  for (std::int64_t head = 0; head < want.heads; ++head) {
    EXPECT_EQ(got.chain[got.line(line, head)], want.chain[want.line(of, head)]);
    for (std::int64_t c = 0; c < want.channels; ++c) {
      const std::size_t a = got.element(line, head, c), b = want.element(of, head, c);
      const auto expect_near = [&](const std::vector<double>& x, const std::vector<double>& y, double size) {
        EXPECT_NEAR(x[a], y[b], 1e-11 * (1 + size)) << of << " " << head << " " << c;
      };
      expect_near(got.value, want.value, want.magnitude[b]);
      expect_near(got.magnitude, want.magnitude, want.magnitude[b]);
      expect_near(got.error, want.error, want.error[b]);
      expect_near(got.fine_error, want.fine_error, want.fine_error[b]);
      expect_near(got.spread, want.spread, want.spread[b]);
    }
  }
}

TEST(attend_backward, lines_of_an_exact_forward_pass_are_those_of_the_whole) {
  auto spec = ragged();
  spec.sequences.push_back({90, 300});
  const training_batch b(spec);
  for (const bool all : {false, true}) {
    const forward_of_batch forward(b, all);
    const backward_inputs in = inputs_of(b, all);
    const backward_result whole = attention_backward("test", in, every_term);
    const gradient_lines lines{{0, 3, 4, 9, b.rows() - 1}, {0, 2, 3, 130, 151, 200, b.keys() - 1}};
    const auto some = attention_backward_lines("test", in, forward.tensors(), lines, every_term);
    for (std::size_t i = 0; i < lines.rows.size(); ++i)
      expect_same_line(some.dq, static_cast<std::int64_t>(i), whole.dq, lines.rows[i]);
    for (std::size_t i = 0; i < lines.keys.size(); ++i) {
      expect_same_line(some.dk, static_cast<std::int64_t>(i), whole.dk, lines.keys[i]);
      expect_same_line(some.dv, static_cast<std::int64_t>(i), whole.dv, lines.keys[i]);
    }
    EXPECT_EQ(some.lse.size(), whole.lse.size());
  }
}

TEST(attend_backward, lines_follow_the_forward_pass_that_was_handed_in) {
  const training_batch b(ragged());
  const forward_of_batch right(b, false);
  forward_of_batch off(b, false);
  const gradient_lines lines{{5}, {5}};
  const auto values = [&](const forward_of_batch& of) {
    return attention_backward_lines("test", inputs_of(b, false), of.tensors(), lines, every_term).dq.value;
  };
  off.lse.set(5 * b.p.hq, off.lse[5 * b.p.hq] + 1);
  EXPECT_NE(values(off), values(right));
  off = right;
  off.out.set(5 * b.p.hq * b.p.d, 7);
  EXPECT_NE(values(off), values(right));
}

TEST(attend_backward, lines_that_do_not_exist_are_refused) {
  const training_batch b(ragged());
  const forward_of_batch forward(b, false);
  const auto of = [&](gradient_lines lines) {
    return attention_backward_lines("test", inputs_of(b, false), forward.tensors(), lines, every_term);
  };
  EXPECT_THROW(of({{b.rows()}, {}}), suite_error);
  EXPECT_THROW(of({{}, {b.keys()}}), suite_error);
  EXPECT_THROW(of({{}, {-1}}), suite_error);
  EXPECT_THROW(
      attention_backward_lines("test", inputs_of(b, false), {forward.lse.view(), forward.lse.view()}, {}, every_term),
      suite_error);
}

}  // namespace
}  // namespace msabench::reference
