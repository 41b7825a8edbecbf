// SPDX-License-Identifier: Apache-2.0
#include "reference/dense_backward.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <numeric>

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

const backward_error every_term{{1e-3, 2e-4, 1e-5, 3e-5, 4e-7},   5e-4, 3e-3, 4e-3, 2e-3, 1e-6, 2e-6,
                                {1e-6, 0, 0, 1e-3, 1e-7, 0x1p-24}};

training_spec ragged() {
  training_spec spec;
  spec.sequences = {{0, 0}, {3, 3}, {1, 0}, {5, 149}, {0, 40}, {2, 128}, {4, 2}, {1, 1}, {130, 140}, {0, 0}};
  return spec;
}

TEST(dense_backward, gradients_and_gauges_are_those_of_the_plain_formulas) {
  for (const dtype type : {bf16, fp32, fp64}) {
    auto spec = ragged();
    spec.type = type;
    const training_batch b(spec);
    const auto got = dense_backward(b.dense(), every_term);
    const auto want = plain_backward(b, true, every_term);
    expect_close(got.dq, want.dq, 1e-12);
    expect_close(got.dk, want.dk, 1e-12);
    expect_close(got.dv, want.dv, 1e-12);
  }
}

TEST(dense_backward, equals_attend_backward_over_all_blocks) {
  auto spec = ragged();
  spec.topk = 10;
  training_batch b(spec);
  b.set_ids([](auto, auto) {
    std::vector<std::int32_t> all(10);
    std::iota(all.begin(), all.end(), 0);
    return all;
  });
  const auto dense = dense_backward(b.dense(), every_term);
  const auto sparse = attend_backward(b.attend(), every_term);
  const auto close = [](const gradient& a, const gradient& b2) {
    EXPECT_EQ(a.chain, b2.chain);
    for (std::size_t i = 0; i < a.value.size(); ++i) {
      EXPECT_LE(std::abs(a.value[i] - b2.value[i]), 1e-12 * (a.magnitude[i] + a.error[i])) << i;
      EXPECT_LE(std::abs(a.error[i] - b2.error[i]), 1e-12 * a.error[i]) << i;
    }
  };
  close(dense.dq, sparse.dq);
  close(dense.dk, sparse.dk);
  close(dense.dv, sparse.dv);
}

TEST(dense_backward, gradients_agree_with_central_differences) {
  training_spec spec;
  spec.sequences = {{4, 20}, {3, 3}, {1, 0}};
  spec.hq = 6, spec.hkv = 2, spec.d = 5, spec.type = fp64;
  training_batch b(spec);
  const auto got = dense_backward(b.dense(), {});
  const auto objective = [&] { return plain_objective(b, true); };
  expect_derivative(got.dq, b.q, objective);
  expect_derivative(got.dk, b.k, objective);
  expect_derivative(got.dv, b.v, objective);
}

TEST(dense_backward, keys_behind_the_last_row_are_exact_zeros) {
  // Padding: the only row of the second sequence stands before its first position.
  training_spec spec;
  spec.sequences = {{2, 20}, {3, 2}, {0, 7}};
  const training_batch b(spec);
  const auto got = dense_backward(b.dense(), every_term);
  for (std::int64_t key = 0; key < b.keys(); ++key) {
    const std::int64_t rows = key < 19 ? 2 : key == 19 ? 1 : key == 20 ? 2 : key == 21 ? 1 : 0;
    EXPECT_EQ(got.dk.chain[got.dk.line(key, 0)], rows * 2) << key;
  }
  EXPECT_EQ(got.dq.chain[got.dq.line(2, 0)], 0);
}

TEST(dense_backward, block_and_ids_do_not_matter) {
  auto spec = ragged();
  const training_batch b(spec);
  auto in = b.dense();
  in.p.block = in.p.topk = 0;
  expect_same_bits(dense_backward(in, every_term).dk, dense_backward(b.dense(), every_term).dk);
}

TEST(dense_backward, threads_change_no_bit) {
  auto spec = ragged();
  spec.d = 64;
  const training_batch b(spec);
  omp_set_num_threads(1);
  const auto one = dense_backward(b.dense(), every_term);
  for (const int threads : {2, 3}) {
    omp_set_num_threads(threads);
    const auto got = dense_backward(b.dense(), every_term);
    expect_same_bits(got.dq, one.dq);
    expect_same_bits(got.dk, one.dk);
    expect_same_bits(got.dv, one.dv);
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(dense_backward, contradicting_shapes_are_refused) {
  const training_batch b(ragged());
  auto in = b.dense();
  in.k.desc.shape[1] = 4;
  EXPECT_THROW(dense_backward(in, every_term), suite_error);
}

}  // namespace
}  // namespace msabench::reference
