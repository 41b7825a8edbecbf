// SPDX-License-Identifier: Apache-2.0
// Do the bounds of the training operators hold what honest kernels do, and no more? Kernels in fp32 with 16-bit
// operands, emulated, against the limits of K8; then the same with a fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "emulated_training.h"

namespace msabench::reference {
namespace {

using testing::emulation;
using testing::limit_use;
using testing::run_backward;
using testing::run_kl;
using testing::training_batch;
using testing::training_fault;
using testing::training_spec;
using testing::use_of;

constexpr double u32 = 0x1p-24, accumulator = 0x1p-23, exp_error = 0x1p-22;

double underflow_of(dtype type) { return type == fp16 ? 0x1p-25 : 0x1p-126; }
double roundoff_of(dtype type) { return unit_roundoff(type); }
double operand_roundoff(const emulation& how) { return (how.truncates ? 2 : 1) * unit_roundoff(how.operand); }
double operand_underflow(const emulation& how) { return (how.truncates ? 2 : 1) * underflow_of(how.operand); }

// What the emulated kernels declare.
weight_error declared_weight(std::int32_t channels) {
  return {chain_roundoff(channels + 2, accumulator), 0, exp_error, 4 * u32, 0x1p-126};
}
sum_error declared_sums(const emulation& how) {
  return {accumulator, 0, 0, how.grad == fp32 ? u32 : roundoff_of(how.grad), underflow_of(how.grad), u32};
}
backward_error declared(const training_batch& b, const emulation& how) {
  return {declared_weight(b.p.d), chain_roundoff(b.p.d + 2, accumulator),
          operand_roundoff(how),  operand_roundoff(how),
          roundoff_of(how.out),   operand_underflow(how),
          operand_underflow(how), declared_sums(how)};
}
kl_error declared_kl(const training_batch& b, const emulation& how) {
  return {declared_weight(b.p.d), declared_weight(b.p.di),
          {1, u32, exp_error, 0}, chain_roundoff(b.p.group() + 2, accumulator),
          operand_roundoff(how),  operand_underflow(how),
          declared_sums(how)};
}

double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double each : x)
    if (std::isfinite(each)) most = std::max(most, std::abs(each));
  return most;
}

struct backward_use {
  limit_use dq, dk, dv;
};
backward_use judge(const training_batch& b, bool all, const emulation& how) {
  const auto err = declared(b, how);
  const auto want = all ? dense_backward(b.dense(), err) : attend_backward(b.attend(), err);
  const auto got = run_backward(b, all, how);
  const double roundoff = std::max({err.u_p, err.u_ds, err.sums.u_grad}), lse = largest(want.lse);
  const auto use = [&](const gradient& g, const std::vector<double>& x) {
    return use_of(g, x, err.sums, roundoff, exp_error, lse);
  };
  return {use(want.dq, got.dq), use(want.dk, got.dk), use(want.dv, got.dv)};
}

struct kl_use {
  limit_use dq_idx, dk_idx;
  double loss = 0;  // |error| / bound
};
kl_use judge_kl(const training_batch& b, const emulation& how, const kl_error& err) {
  const auto want = kl(b.kl(), err);
  const auto got = run_kl(b, how);
  const double roundoff = std::max(err.u_ds, err.sums.u_grad);
  const double bound = gradient_limit::second_order * (want.loss_teacher + want.loss_student +
                                                       chain_roundoff(want.loss_chain, u32) * want.loss_magnitude);
  return {use_of(want.dq_idx, got.dq_idx, err.sums, roundoff, exp_error, want.largest_lse),
          use_of(want.dk_idx, got.dk_idx, err.sums, roundoff, exp_error, want.largest_lse),
          std::abs(got.loss - want.loss) / bound};
}

// 160 keys in 10 blocks, 5 of them read; padding rows.
training_spec usual(dtype type = bf16) {
  training_spec spec;
  spec.sequences = {{48, 160}, {0, 20}, {2, 0}, {33, 70}};
  spec.d = 32, spec.di = 16, spec.topk = 5, spec.type = type;
  return spec;
}

void report(const std::string& name, const limit_use& use) {
  const auto record = [&](const char* what, double x) {
    ::testing::Test::RecordProperty(name + "_" + what, std::to_string(x));
  };
  record("worst", use.worst), record("pooled", use.pooled), record("arithmetic", use.arithmetic);
  record("scale_off", use.scale_off), record("scale_limit", use.scale_limit);
}

// The bound holds everywhere and is not idle. Bounds of long sums are worst cases and some hundred times what happens;
// where storage roundoffs prevail, a good part of the bound is used, and the expected size is met: relative errors of
// rounding have 0.54 of the variance u^2/3, so that the pooled figure comes to 0.73.
void expect_honest(const std::string& name, const limit_use& use, bool zero_mean) {
  report(name, use);
  EXPECT_LE(use.worst, 1) << name;
  EXPECT_GT(use.worst, use.arithmetic > 0.5 ? 0.001 : 0.1) << name;
  EXPECT_LE(use.scale_off, use.scale_limit) << name;
  if (!zero_mean || use.arithmetic > 0.5) return;
  EXPECT_LE(use.pooled, 1.25) << name;
  EXPECT_GT(use.pooled, 0.3) << name;
}

struct honest_case {
  const char* name;
  dtype type, grad;
  bool all;
  double query_size, offset;
  bool truncates = false;
};
void PrintTo(const honest_case& c, std::ostream* out) { *out << c.name; }

class honest_backward : public ::testing::TestWithParam<honest_case> {};

TEST_P(honest_backward, stays_within_the_limits) {
  const honest_case& c = GetParam();
  auto spec = usual(c.type);
  spec.query_size = c.query_size, spec.offset = c.offset;
  const training_batch b(spec);
  emulation how;
  how.operand = how.out = c.type, how.grad = c.grad, how.truncates = c.truncates;
  const auto use = judge(b, c.all, how);
  const bool zero_mean = c.offset == 0;
  expect_honest("dq", use.dq, zero_mean);
  expect_honest("dk", use.dk, zero_mean);
  expect_honest("dv", use.dv, zero_mean);
}

INSTANTIATE_TEST_SUITE_P(
    , honest_backward,
    ::testing::Values(honest_case{"bf16", bf16, fp32, false, 1, 0}, honest_case{"bf16_grad", bf16, bf16, false, 1, 0},
                      honest_case{"bf16_dense", bf16, fp32, true, 1, 0}, honest_case{"fp16", fp16, fp32, false, 1, 0},
                      honest_case{"fp16_grad", fp16, fp16, false, 1, 0}, honest_case{"fp32", fp32, fp32, false, 1, 0},
                      honest_case{"bf16_peaked", bf16, fp32, false, 8, 0},
                      honest_case{"bf16_very_peaked", bf16, fp32, false, 40, 0},
                      honest_case{"fp16_peaked", fp16, fp32, false, 8, 0},
                      honest_case{"bf16_offset", bf16, fp32, false, 1, 100},
                      honest_case{"bf16_flat", bf16, fp32, true, 0.01, 0},
                      honest_case{"bf16_truncated", bf16, fp32, false, 1, 0, true},
                      honest_case{"fp16_truncated", fp16, fp32, true, 1, 0, true}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST(attend_backward, faults_exceed_the_limits) {
  const training_batch b(usual());
  const auto worst = [&](training_fault fault, limit_use backward_use::* output) {
    emulation how;
    how.fault = fault;
    const double x = (judge(b, false, how).*output).worst;
    ::testing::Test::RecordProperty("fault_" + std::to_string(static_cast<int>(fault)), std::to_string(x));
    return x;
  };
  EXPECT_GT(worst(training_fault::d_of_neighbour_head, &backward_use::dq), 4);
  EXPECT_GT(worst(training_fault::d_of_neighbour_head, &backward_use::dk), 4);
  EXPECT_GT(worst(training_fault::no_d, &backward_use::dq), 4);
  EXPECT_GT(worst(training_fault::no_d, &backward_use::dk), 4);
  EXPECT_GT(worst(training_fault::missing_key, &backward_use::dq), 4);
  EXPECT_GT(worst(training_fault::missing_key, &backward_use::dv), 4);
  EXPECT_GT(worst(training_fault::missing_head, &backward_use::dk), 4);
  EXPECT_GT(worst(training_fault::missing_head, &backward_use::dv), 4);
}

TEST(attend_backward, weights_below_the_range_of_fp32_need_an_allowance) {
  // One query head and row; its scores leave most keys with weights below 2^-149, and so nothing but zeros to store.
  training_spec spec;
  spec.sequences = {{2, 64}};
  spec.hq = spec.hkv = 1, spec.d = 8, spec.type = bf16, spec.query_size = 100;
  const training_batch b(spec);
  emulation how;
  how.flushes = true;
  auto err = declared(b, how);
  const auto got = run_backward(b, true, how);
  const auto worst = [&](const backward_error& e) {
    const auto want = dense_backward(b.dense(), e);
    return std::max(use_of(want.dv, got.dv, e.sums, e.u_p, exp_error, 0).worst,
                    use_of(want.dk, got.dk, e.sums, e.u_p, exp_error, 0).worst);
  };
  EXPECT_LE(worst(err), 1);
  err.weight.underflow = err.omega_p = err.omega_ds = err.sums.omega_grad = 0;  // relative errors alone
  EXPECT_GT(worst(err), 10);
}

class honest_kl : public ::testing::TestWithParam<bool> {};

TEST_P(honest_kl, stays_within_the_limits) {
  for (const dtype type : {bf16, fp16, fp32})
    for (const double size : {1.0, 8.0}) {
      auto spec = usual(type);
      spec.warm_up = GetParam(), spec.query_size = size, spec.index_size = size;
      const training_batch b(spec);
      emulation how;
      how.operand = type, how.grad = size == 1 ? fp32 : type;
      const auto use = judge_kl(b, how, declared_kl(b, how));
      const std::string name(msabench::name(type));
      expect_honest(name + "_dq_idx", use.dq_idx, true);
      expect_honest(name + "_dk_idx", use.dk_idx, true);
      EXPECT_LE(use.loss, 1) << name;
      EXPECT_GT(use.loss, 0.0001) << name;
      ::testing::Test::RecordProperty(name + "_loss", std::to_string(use.loss));
    }
}
INSTANTIATE_TEST_SUITE_P(, honest_kl, ::testing::Bool(),
                         [](const auto& instance) { return instance.param ? "warm_up" : "sparse"; });

TEST(kl, faults_exceed_the_limits) {
  const training_batch b(usual());
  const auto use = [&](training_fault fault) {
    emulation how;
    how.fault = fault;
    const auto x = judge_kl(b, how, declared_kl(b, how));
    ::testing::Test::RecordProperty("fault_" + std::to_string(static_cast<int>(fault)),
                                    std::to_string(x.dq_idx.worst) + " " + std::to_string(x.loss));
    return x;
  };
  EXPECT_GT(use(training_fault::missing_head).dq_idx.worst, 4);
  EXPECT_GT(use(training_fault::mean_of_logits).dq_idx.worst, 4);
  EXPECT_GT(use(training_fault::mean_of_logits).loss, 4);
  // A normaliser that is a little off moves every element alike: the scale shows it, and so does the loss.
  for (const auto fault : {training_fault::mean_over_t_minus_1, training_fault::mean_over_full_rows}) {
    const auto x = use(fault);
    EXPECT_GT(x.dq_idx.scale_off, 1.2 * x.dq_idx.scale_limit);
    EXPECT_GT(x.dk_idx.scale_off, 1.2 * x.dk_idx.scale_limit);
    EXPECT_GT(x.loss, 4);
  }
}

TEST(kl, own_normalisers_pass_on_the_errors_of_their_terms) {
  // Index scores +1 for one key and -1 for 63 others, from a query that rounding moves by almost one roundoff: the
  // weight of the one key moves by more than its own score does, since the normaliser follows the many.
  training_spec spec;
  spec.sequences = {{1, 64}};
  spec.hq = spec.hkv = 1, spec.d = 8, spec.di = 2, spec.type = bf16, spec.warm_up = true, spec.query_size = 0;
  spec.index_scale = 1 + 0x1p-8 - 0x1p-20;  // in 16 bits it becomes 1
  training_batch b(spec);
  b.q_idx.set(0, 1), b.q_idx.set(1, 0);
  for (std::int64_t j = 0; j < 64; ++j) b.k_idx.set(2 * j, j == 0 ? 1 : -1), b.k_idx.set(2 * j + 1, j == 0 ? 1 : 0);
  emulation how;
  how.operand = fp32, how.prescaled_index = true;
  auto err = declared_kl(b, how);
  err.index_weight.per_magnitude += 0x1p-8;
  EXPECT_LE(judge_kl(b, how, err).dq_idx.worst, 1);
  err.normaliser.share = 0;
  EXPECT_GT(judge_kl(b, how, err).dq_idx.worst, 1.5);
}

}  // namespace
}  // namespace msabench::reference
