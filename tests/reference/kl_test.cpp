// SPDX-License-Identifier: Apache-2.0
#include "reference/kl.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "training_batch.h"

namespace msabench::reference {
namespace {

using testing::expect_close;
using testing::expect_derivative;
using testing::expect_same_bits;
using testing::plain_kl;
using testing::plain_loss;
using testing::training_batch;
using testing::training_spec;

// Every term distinct and visible.
const kl_error every_term{
    {1e-3, 2e-4, 1e-5, 3e-5, 4e-7},   {2e-3, 1e-4, 3e-5, 1e-5, 2e-7}, {1, 1e-6, 3e-6, 0}, 4e-4, 3e-3, 2e-6,
    {1e-6, 0, 0, 1e-3, 1e-7, 0x1p-24}};

training_spec ragged() {
  training_spec spec;
  spec.sequences = {{0, 0}, {3, 3}, {1, 0}, {5, 149}, {0, 40}, {2, 128}, {4, 2}, {1, 1}, {0, 0}};
  spec.coeff = 0.7;
  return spec;
}

void expect_plain(const training_batch& b, const kl_error& err = every_term) {
  const auto got = kl(b.kl(), err);
  const auto want = plain_kl(b, err);
  const auto near = [](double x, long double y, const char* what) {
    EXPECT_NEAR(x, static_cast<double>(y), 1e-12 * std::abs(static_cast<double>(y))) << what;
  };
  EXPECT_NEAR(got.loss, static_cast<double>(want.loss), 1e-12 * static_cast<double>(want.magnitude));
  near(got.loss_teacher, want.teacher, "teacher");
  near(got.loss_student, want.student, "student");
  near(got.loss_magnitude, want.magnitude, "magnitude");
  expect_close(got.dq_idx, want.dq_idx, 1e-12);
  expect_close(got.dk_idx, want.dk_idx, 1e-12);
}

TEST(kl, sparse_stage_and_warm_up_follow_the_plain_formulas_in_every_type) {
  for (const bool warm_up : {false, true})
    for (const dtype type : {bf16, fp16, fp32, fp64}) {
      auto spec = ragged();
      spec.type = type, spec.warm_up = warm_up;
      expect_plain(training_batch(spec));
    }
}

TEST(kl, odd_shapes_scales_and_forced_blocks_follow_the_plain_formulas) {
  struct shape {
    std::int32_t hq, hkv, d, di, block, topk, local, init;
    double scale, index_scale;
  };
  for (const shape& s : {shape{1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, shape{6, 3, 20, 24, 32, 2, 0, 0, 0.5, 0.3},
                         shape{16, 1, 80, 7, 64, 5, 3, 2, 0, 0.01}, shape{3, 3, 8, 128, 128, 2, 1, 1, 2, 0},
                         shape{4, 1, 7, 9, 200, 1, 0, 1, 0, 1}}) {
    training_spec spec;
    spec.sequences = {{4, 301}, {2, 17}, {140, 140}};
    spec.hq = s.hq, spec.hkv = s.hkv, spec.d = s.d, spec.di = s.di, spec.block = s.block, spec.topk = s.topk;
    spec.local_blocks = s.local, spec.init_blocks = s.init;
    spec.softmax_scale = s.scale, spec.index_scale = s.index_scale;
    expect_plain(training_batch(spec));
  }
}

TEST(kl, each_term_of_the_error_model_acts_alone) {
  const training_batch b(ragged());
  kl_error one;
  one.sums.fine = 0;
  double* const terms[] = {&one.weight.per_magnitude,
                           &one.weight.underflow,
                           &one.index_weight.per_score,
                           &one.index_weight.constant,
                           &one.index_weight.per_size,
                           &one.mean,
                           &one.u_ds,
                           &one.omega_ds};
  for (double* const term : terms) {
    *term = 1e-3;
    expect_plain(b, one);
    const auto got = kl(b.kl(), one);
    EXPECT_TRUE(std::ranges::any_of(got.dq_idx.error, [](double x) { return x > 0; }));
    EXPECT_TRUE(std::ranges::any_of(got.dk_idx.error, [](double x) { return x > 0; }));
    EXPECT_EQ(std::ranges::any_of(got.dk_idx.fine_error, [](double x) { return x > 0; }), term != &one.u_ds);
    *term = 0;
  }
  // A normaliser passes on what its terms have, and adds its own sum and logarithm.
  one.index_weight.constant = 1e-3;
  const auto alone = kl(b.kl(), one);
  one.normaliser = {1, 1e-6, 1e-5, 0};
  expect_plain(b, one);
  one.normaliser.chain = 5;
  expect_plain(b, one);
  const auto passed_on = kl(b.kl(), one);
  for (std::size_t i = 0; i < alone.dq_idx.error.size(); ++i)
    EXPECT_GE(passed_on.dq_idx.error[i], 2 * alone.dq_idx.error[i]) << i;
}

TEST(kl, gradients_agree_with_central_differences) {
  for (const bool warm_up : {false, true}) {
    training_spec spec;
    spec.sequences = {{5, 30}, {0, 4}, {3, 3}, {1, 0}};
    spec.hq = 6, spec.hkv = 2, spec.d = 5, spec.di = 4, spec.block = 8, spec.topk = 2, spec.type = fp64;
    spec.warm_up = warm_up, spec.coeff = 3, spec.query_size = 2;
    training_batch b(spec);
    const auto got = kl(b.kl(), {});
    const auto objective = [&] { return plain_loss(b); };
    expect_derivative(got.dq_idx, b.q_idx, objective);
    expect_derivative(got.dk_idx, b.k_idx, objective);
  }
}

TEST(kl, teacher_is_detached) {
  // One tensor serves both branches. The loss depends on it through the teacher too, but the gradient is that of the
  // student alone.
  training_spec spec;
  spec.sequences = {{6, 12}};
  spec.hq = spec.hkv = 1, spec.d = spec.di = 8, spec.type = fp64, spec.warm_up = true, spec.index_scale = 1;
  training_batch b(spec);
  const auto copy = [&](testing::stored& to, const testing::stored& from) {
    for (std::int64_t i = 0; i < from.view().desc.elements(); ++i) to.set(i, from[i]);
  };
  copy(b.q_idx, b.q);
  copy(b.k_idx, b.k);
  auto in = b.kl();
  in.q.data = in.q_idx.data;  // shared memory
  const auto shared = kl(in, {});
  expect_derivative(shared.dq_idx, b.q_idx, [&] { return plain_loss(b); });  // moves the student's copy only
  const double before = shared.loss, old = b.q_idx[3];
  b.q_idx.set(3, old + 1e-4);
  const double total = (kl(in, {}).loss - before) / 1e-4;  // moves both
  EXPECT_GT(std::abs(total - shared.dq_idx.value[3]), 0.1 * std::abs(shared.dq_idx.value[3]));
}

TEST(kl, equal_distributions_have_no_loss_and_no_gradient) {
  training_spec spec;
  spec.sequences = {{6, 150}, {3, 3}};
  spec.hq = 4, spec.hkv = 1, spec.d = spec.di = 16;
  training_batch b(spec);
  // Every head's query, and the only key head, are those of the index branch.
  for (std::int64_t i = 0; i < b.rows() * 4 * 16; ++i) b.q.set(i, b.q_idx[i / 64 * 16 + i % 16]);
  for (std::int64_t i = 0; i < b.keys() * 16; ++i) b.k.set(i, b.k_idx[i]);
  for (const int warm_up : {0, 1}) {
    b.p.kl_warm_up = warm_up;
    const auto got = kl(b.kl(), {});
    EXPECT_NEAR(got.loss, 0, 1e-12);
    for (const gradient* g : {&got.dq_idx, &got.dk_idx})
      for (const double x : g->value) EXPECT_NEAR(x, 0, 1e-12);
  }
}

TEST(kl, warm_up_equals_the_sparse_stage_over_all_blocks) {
  auto spec = ragged();
  spec.topk = 10;
  training_batch b(spec);
  b.set_ids([](auto, auto) {
    std::vector<std::int32_t> all(10);
    std::iota(all.begin(), all.end(), 0);
    return all;
  });
  const auto sparse = kl(b.kl(), every_term);
  b.p.kl_warm_up = 1;
  const auto warm_up = kl(b.kl(), every_term);
  EXPECT_NEAR(sparse.loss, warm_up.loss, 1e-12 * warm_up.loss_magnitude);
  for (std::size_t i = 0; i < sparse.dk_idx.value.size(); ++i)
    EXPECT_NEAR(sparse.dk_idx.value[i], warm_up.dk_idx.value[i], 1e-12 * warm_up.dk_idx.error[i]);
  EXPECT_EQ(sparse.dk_idx.chain, warm_up.dk_idx.chain);
}

TEST(kl, warm_up_reads_no_ids) {
  auto spec = ragged();
  spec.warm_up = true;
  const training_batch b(spec);
  auto in = b.kl();
  in.ids = {};
  expect_same_bits(kl(in, every_term).dq_idx, kl(b.kl(), every_term).dq_idx);
  in.p.kl_warm_up = 0;
  EXPECT_THROW(kl(in, every_term), suite_error);
}

TEST(kl, coeff_zero_gives_exact_zeros) {
  auto spec = ragged();
  spec.coeff = 0;
  const training_batch b(spec);
  kl_error err = every_term;
  err.omega_ds = 0;
  const auto got = kl(b.kl(), err);
  EXPECT_EQ(got.loss, 0);
  EXPECT_EQ(got.loss_teacher + got.loss_student + got.loss_magnitude, 0);
  for (const gradient* g : {&got.dq_idx, &got.dk_idx})
    for (const auto* gauge : {&g->value, &g->magnitude, &g->error, &g->fine_error, &g->spread})
      for (const double x : *gauge) EXPECT_EQ(x, 0);
}

TEST(kl, loss_is_finite_where_the_student_underflows) {
  training_spec spec;
  spec.sequences = {{8, 60}};
  spec.warm_up = true, spec.index_size = 5000;  // t goes down to some -1e4
  const training_batch b(spec);
  const auto got = kl(b.kl(), {});
  EXPECT_TRUE(std::isfinite(got.loss));
  EXPECT_GT(got.loss, 1000);
  EXPECT_GT(got.largest_lse, 1000);
  expect_plain(b, {});
}

TEST(kl, a_teacher_that_underflows_counts_as_zero) {
  training_spec spec;
  spec.sequences = {{8, 60}};
  spec.warm_up = true, spec.query_size = 20000;  // weights below exp(-11000), where ln P is finite and P is 0
  const training_batch b(spec);
  const auto got = kl(b.kl(), every_term);
  EXPECT_TRUE(std::isfinite(got.loss) && std::isfinite(got.loss_teacher) && std::isfinite(got.loss_student));
  EXPECT_GT(got.loss, 0);
}

TEST(kl, empty_rows_count_in_the_mean_and_get_no_gradient) {
  training_spec spec;
  spec.sequences = {{4, 40}};
  const training_batch full(spec);
  spec.sequences = {{4, 40}, {4, 0}};  // padding rows
  const training_batch padded_batch(spec);
  const auto alone = kl(full.kl(), every_term), got = kl(padded_batch.kl(), every_term);
  EXPECT_DOUBLE_EQ(got.loss, alone.loss / 2);
  for (std::int64_t row = 0; row < 8; ++row)
    for (std::int64_t group = 0; group < 2; ++group) {
      EXPECT_EQ(got.dq_idx.chain[got.dq_idx.line(row, group)] == 0, row >= 4);
      for (std::int64_t c = 0; c < 8; ++c) {
        const double x = got.dq_idx.value[got.dq_idx.element(row, group, c)];
        if (row >= 4)
          EXPECT_EQ(x, 0);
        else
          EXPECT_NEAR(x, alone.dq_idx.value[alone.dq_idx.element(row, group, c)] / 2, 1e-16);
      }
    }
}

TEST(kl, rows_of_a_single_key_have_no_loss_and_no_gradient) {
  training_spec spec;
  spec.sequences = {{1, 1}, {1, 1}};
  const training_batch b(spec);
  const auto got = kl(b.kl(), {});
  EXPECT_EQ(got.loss, 0);
  for (const double x : got.dq_idx.value) EXPECT_EQ(x, 0);
  for (const double x : got.dk_idx.value) EXPECT_EQ(x, 0);
  EXPECT_EQ(got.dk_idx.chain, (std::vector<std::int64_t>{2, 2}));
}

TEST(kl, blocks_that_no_row_selects_are_exact_zeros) {
  training_spec spec;
  spec.sequences = {{4, 150}};
  training_batch b(spec);
  b.set_ids([](auto, std::int64_t group) {
    return group == 0 ? std::vector<std::int32_t>{2, 9} : std::vector<std::int32_t>{5, 9};
  });
  const auto got = kl(b.kl(), every_term);
  for (std::int64_t key = 0; key < 150; ++key) {
    const std::int64_t heads = key / 16 == 9 ? 2 : key / 16 == 2 || key / 16 == 5 ? 1 : 0;
    const std::int64_t rows = key < 147 ? 4 : 150 - key;
    EXPECT_EQ(got.dk_idx.chain[static_cast<std::size_t>(key)], heads * rows) << key;
    for (std::int64_t c = 0; c < 8; ++c) {
      const auto at = got.dk_idx.element(key, 0, c);
      EXPECT_EQ(got.dk_idx.error[at] == 0, heads == 0);
      EXPECT_EQ(got.dk_idx.value[at] == 0, heads == 0);
    }
  }
  EXPECT_EQ(got.loss_chain, 16 + 6 + 4 * 2);  // the last row sees 6 keys of block 9
  expect_plain(b);
}

TEST(kl, empty_batches_have_no_loss) {
  training_spec spec;
  for (const auto& sequences : {std::vector<std::pair<std::int64_t, std::int64_t>>{}, {{0, 0}, {0, 30}}}) {
    spec.sequences = sequences;
    const auto got = kl(training_batch(spec).kl(), every_term);
    EXPECT_EQ(got.loss, 0);
    EXPECT_TRUE(got.dq_idx.value.empty());
    EXPECT_TRUE(std::ranges::all_of(got.dk_idx.value, [](double x) { return x == 0; }));
  }
}

TEST(kl, endless_chains_give_huge_gauges_and_no_nan) {
  auto spec = ragged();
  spec.query_size = spec.index_size = 3000;
  const training_batch b(spec);
  kl_error err = every_term;
  err.weight.per_magnitude = err.index_weight.per_magnitude = err.mean = std::numeric_limits<double>::infinity();
  err.normaliser.roundoff = 1;
  const auto got = kl(b.kl(), err);
  EXPECT_GT(got.loss_teacher, 1e90);
  EXPECT_FALSE(std::isnan(got.loss_teacher) || std::isnan(got.loss_student));
  for (const gradient* g : {&got.dq_idx, &got.dk_idx})
    for (const double x : g->error) EXPECT_FALSE(std::isnan(x));
}

TEST(kl, threads_and_repeats_change_no_bit) {
  for (const bool warm_up : {false, true}) {
    auto spec = ragged();
    spec.d = spec.di = 128, spec.hq = 16, spec.warm_up = warm_up;
    spec.sequences.emplace_back(24, 160);
    const training_batch b(spec);
    omp_set_num_threads(1);
    const auto one = kl(b.kl(), every_term);
    for (const int threads : {1, 2, 3, 3}) {
      omp_set_num_threads(threads);
      const auto got = kl(b.kl(), every_term);
      EXPECT_EQ(got.loss, one.loss);
      EXPECT_EQ(got.loss_teacher, one.loss_teacher);
      expect_same_bits(got.dq_idx, one.dq_idx);
      expect_same_bits(got.dk_idx, one.dk_idx);
    }
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(kl, lines_are_those_of_the_whole) {
  for (const bool warm_up : {false, true}) {
    auto spec = ragged();
    spec.sequences.push_back({90, 300});
    spec.warm_up = warm_up;
    const training_batch b(spec);
    const auto whole = kl(b.kl(), every_term);
    const gradient_lines lines{{0, 3, 4, 9, b.rows() - 1}, {0, 2, 3, 130, 151, 200, b.keys() - 1}};
    const auto some = kl_lines(b.kl(), every_term, lines);
    const auto expect_line = [](const gradient& got, std::size_t at, const gradient& want, std::int64_t line) {
      for (std::int64_t head = 0; head < want.heads; ++head) {
        const auto own = static_cast<std::int64_t>(at);
        EXPECT_EQ(got.chain[got.line(own, head)], want.chain[want.line(line, head)]);
        for (std::int64_t c = 0; c < want.channels; ++c) {
          const std::size_t x = got.element(own, head, c), y = want.element(line, head, c);
          EXPECT_NEAR(got.value[x], want.value[y], 1e-12 * want.magnitude[y]);
          EXPECT_NEAR(got.error[x], want.error[y], 1e-12 * want.error[y]);
          EXPECT_NEAR(got.spread[x], want.spread[y], 1e-12 * want.spread[y]);
        }
      }
    };
    ASSERT_EQ(some.dq_idx.rows, std::ssize(lines.rows));
    ASSERT_EQ(some.dk_idx.rows, std::ssize(lines.keys));
    for (std::size_t i = 0; i < lines.rows.size(); ++i) expect_line(some.dq_idx, i, whole.dq_idx, lines.rows[i]);
    for (std::size_t i = 0; i < lines.keys.size(); ++i) expect_line(some.dk_idx, i, whole.dk_idx, lines.keys[i]);
    EXPECT_GT(some.largest_lse, 0);
    EXPECT_LE(some.largest_lse, whole.largest_lse);
    EXPECT_EQ(some.loss, 0);
  }
}

TEST(kl, a_key_costs_all_keys_of_those_who_read_it) {
  training_spec spec;
  spec.sequences = {{3, 3}};
  spec.warm_up = true;
  const training_batch b(spec);
  // Rows see 1, 2 and 3 keys; key 1 is read by the last two, of every KV head and by its query heads and the index head.
  const std::int64_t of_pair = b.p.hkv * (b.p.group() + 1);
  EXPECT_EQ(kl_key_triples(b.kl(), std::vector<std::int64_t>{0, 1, 2}),
            (std::vector<std::int64_t>{6 * of_pair, 5 * of_pair, 3 * of_pair}));
}

TEST(kl, lines_that_do_not_exist_are_refused) {
  const training_batch b(ragged());
  EXPECT_THROW(kl_lines(b.kl(), every_term, {{b.rows()}, {}}), suite_error);
  EXPECT_THROW(kl_lines(b.kl(), every_term, {{}, {b.keys()}}), suite_error);
  EXPECT_THROW(kl_lines(b.kl(), every_term, {{}, {-1}}), suite_error);
}

TEST(kl, contradicting_shapes_are_refused) {
  const training_batch b(ragged());
  const auto refused = [&](auto change) {
    auto in = b.kl();
    change(in);
    EXPECT_THROW(kl(in, every_term), suite_error);
  };
  refused([](auto& in) { in.q.desc.shape[1] = 5; });
  refused([](auto& in) { in.q_idx.desc.shape[2] = 5; });
  refused([](auto& in) { in.k_idx.desc.shape.push_back(1); });
  refused([](auto& in) { in.p.hi = 1; });
  refused([](auto& in) { in.ids.desc.shape[1] = 4; });
  refused([](auto& in) { in.p.layout = page_layout::paged; });
  refused([](auto& in) { in.k_idx.desc.shape[0] = 3; });
}

}  // namespace
}  // namespace msabench::reference
