// SPDX-License-Identifier: Apache-2.0
// Honest backward passes stay within the limits of what they declare; planted faults do not.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "attend_world.h"
#include "judge/backward_expectation.h"
#include "judge/backward_samples.h"
#include "numbers.h"

namespace msabench::judge::test {
namespace {

// How a backward pass computes; faults and honest variants differ in one field.
struct backward_method {
  dtype p = fp32, ds = fp32;  // matrix operands
  dtype dk_sum = fp32;
  bool reversed = false;
  double dq_factor = 1, all_factor = 1;
  std::int64_t delta_of = 0;  // so many heads further
  std::int64_t dv_of = 0;     // so many KV heads further
  bool no_delta = false;
};

// Attention of one sequence and what its backward pass is handed.
struct backward_world {
  explicit backward_world(const attend_shape& shape)
      : forward(shape),
        d_out(forward.out.desc.type, forward.out.desc.shape),
        dq(fp32, forward.out.desc.shape),
        dk(fp32, forward.k.desc.shape),
        dv(fp32, forward.k.desc.shape) {
    forward.fill_random(3);
    forward.run({});
    std::mt19937 gen(17);
    for (std::int64_t i = 0; i < d_out.desc.elements(); ++i) d_out.set(i, normal(gen));
    declared = honest_numerics(shape.type);
    declared.p_operand = declared.ds_operand = fp32;
  }

  judge::subject subject() const {
    judge::subject what = forward.subject();
    what.agreed.operation = what.definition.operation = forward.shape.dense ? op::dense_backward : op::attend_backward;
    what.agreed.grad = fp32;
    what.agreed.max_q_len = forward.rows();
    what.declared = declared;
    what.targets = targets;
    what.inputs[slot::out] = forward.out.view();
    what.inputs[slot::lse] = forward.lse.view();
    what.inputs[slot::d_out] = d_out.view();
    return what;
  }

  void run(const backward_method& how) {
    for (tensor* t : {&dq, &dk, &dv})
      for (std::int64_t i = 0; i < t->desc.elements(); ++i) t->set(i, 0);
    for (std::int64_t i = 0; i < forward.rows(); ++i)
      for (std::int64_t head = 0; head < forward.shape.hq; ++head)
        run_head(how, how.reversed ? forward.rows() - 1 - i : i, head);
    for (std::int64_t i = 0; i < dq.desc.elements(); ++i) dq.set(i, dq.get(i) * how.dq_factor * how.all_factor);
    for (tensor* t : {&dk, &dv})
      for (std::int64_t i = 0; i < t->desc.elements(); ++i) t->set(i, t->get(i) * how.all_factor);
  }

  std::vector<check_result> checks(int launch_index = 0) const {
    launch l;
    l.outputs = {{slot::dq, dq.view()}, {slot::dk, dk.view()}, {slot::dv, dv.view()}};
    return expect(subject(), forward.all_rows())->check(l, launch_index, 0);
  }

  std::vector<check_result> checks_of_samples(const std::vector<std::int64_t>& rows) const {
    launch l;
    l.outputs = {{slot::dq, dq.view()}, {slot::dk, dk.view()}, {slot::dv, dv.view()}};
    return backward_samples(subject(), rows).check(l, 0, 0);
  }

  attend_world forward;
  tensor d_out, dq, dk, dv;
  numerics declared;
  std::vector<perturbation> targets;

 private:
  static float rounded(float x, dtype type) { return static_cast<float>(round_to(x, type)); }

  float product(const tensor& a, std::int64_t a_at, const tensor& b, std::int64_t b_at) const {
    float sum = 0;
    for (std::int64_t c = 0; c < forward.shape.d; ++c)
      sum += static_cast<float>(a.get(a_at + c)) * static_cast<float>(b.get(b_at + c));
    return sum;
  }

  static void add(tensor& to, std::int64_t at, float term, dtype sum = fp32) {
    to.set(at, rounded(static_cast<float>(to.get(at)) + term, sum));
  }

  void run_head(const backward_method& how, std::int64_t row, std::int64_t head) {
    const std::int64_t d = forward.shape.d, hq = forward.shape.hq, hkv = forward.shape.hkv, group = hq / hkv;
    const std::int64_t kv_head = head / group, of = (row * hq + head) * d;
    const std::int64_t other = (row * hq + (head + how.delta_of) % hq) * d;
    const std::int64_t dv_row = (row * hq + (head + how.dv_of * group) % hq) * d;
    const float delta = how.no_delta ? 0 : product(d_out, other, forward.out, other);
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
    for (const std::int64_t key : forward.selected_keys(row, kv_head)) {
      const std::int64_t at = (key * hkv + kv_head) * d;
      const float score = scale * product(forward.q, of, forward.k, at);
      const float p = std::exp(score - static_cast<float>(forward.lse.get(row * hq + head)));
      const float ds = rounded(p * (product(d_out, of, forward.v, at) - delta), how.ds);
      for (std::int64_t c = 0; c < d; ++c) {
        add(dq, of + c, scale * ds * static_cast<float>(forward.k.get(at + c)));
        add(dk, at + c, scale * ds * static_cast<float>(forward.q.get(of + c)), how.dk_sum);
        add(dv, at + c, rounded(p, how.p) * static_cast<float>(d_out.get(dv_row + c)));
      }
    }
  }
};

attend_shape usual_backward(dtype type, bool dense = false) {
  return {.hq = 8, .hkv = 2, .d = 32, .block = 8, .topk = 5, .sequences = {{60, 90}}, .type = type, .dense = dense};
}

backward_world backward_declaring(dtype type, dtype operand, bool dense = false) {
  backward_world w(usual_backward(type, dense));
  w.declared.p_operand = w.declared.ds_operand = operand;
  return w;
}

TEST(backward_honest, passes_within_what_it_declares) {
  for (const auto type : {bf16, fp16, fp32})
    for (const bool dense : {false, true})
      for (const bool reversed : {false, true})
        for (const auto operand : {fp32, type}) {
          auto w = backward_declaring(type, operand, dense);
          w.run({.p = operand, .ds = operand, .reversed = reversed});
          EXPECT_EQ(failing_ids(w.checks()), "") << name(type) << " dense " << dense << "\n" << told(w.checks());
        }
}

TEST(backward_checks, short_operands_have_to_be_declared) {
  backward_world w(usual_backward(bf16));
  w.run({.p = bf16, .ds = bf16});
  const auto k8 = find_check(w.checks(), "K8a");
  EXPECT_FALSE(k8.passed);
  EXPECT_EQ(k8.kind, fail_kind::numeric);
  EXPECT_EQ(k8.worst.where, slot::dv);
  EXPECT_EQ(k8.worst.axes, (std::vector<std::string>{"key", "KV head", "channel"}));
  EXPECT_EQ(k8.worst.index.size(), 3U);
  w.run({.p = bf16});
  EXPECT_EQ(find_check(w.checks(), "K8a").cure, "p_operand bf16 instead of fp32");
}

TEST(backward_checks, gross_faults_fail_whatever_is_declared) {
  const std::pair<const char*, backward_method> faults[] = {{"no D", {.no_delta = true}},
                                                            {"D of the next head", {.delta_of = 1}},
                                                            {"dV of the next group", {.dv_of = 1}},
                                                            {"no scale", {.dq_factor = std::sqrt(32.0)}}};
  for (const auto type : {bf16, fp16, fp32})
    for (const bool dense : {false, true})
      for (auto [name, how] : faults) {
        auto w = backward_declaring(type, type, dense);
        how.p = how.ds = type;
        w.run(how);
        EXPECT_NE(failing_ids(w.checks()), "") << name;
        for (const auto& c : w.checks()) EXPECT_EQ(c.cure, "") << name;
      }
}

TEST(backward_checks, scale_and_size_are_judged_of_whole_outputs) {
  auto w = backward_declaring(bf16, bf16);
  w.run({.p = bf16, .ds = bf16, .all_factor = 1.02});
  EXPECT_FALSE(find_check(w.checks(), "K8c").passed) << told(w.checks());
  w.run({.p = bf16, .ds = bf16, .dk_sum = bf16});
  const auto size = find_check(w.checks(), "K8b");
  EXPECT_GT(size.value, 3 * most_pooled_size) << told(w.checks());
  EXPECT_NE(size.note.find("dk"), std::string::npos) << size.note;
  EXPECT_TRUE(find_check(w.checks(), "K8c").passed);
}

TEST(backward_checks, what_nobody_reads_is_exactly_zero) {
  attend_shape shape = usual_backward(bf16);
  shape.sequences.push_back({0, 16});
  backward_world w(shape);
  w.run({});
  std::int64_t unread = -1;
  for (std::int64_t i = 0; i < w.dk.desc.elements() && unread < 0; i += w.forward.shape.d)
    if (w.dk.get(i) == 0 && w.dk.get(i + 1) == 0) unread = i;
  ASSERT_GE(unread, 0);
  w.dk.set(unread + 3, 0x1p-140);
  const auto k0 = find_check(w.checks(), "K0");
  EXPECT_EQ(k0.kind, fail_kind::numeric);
  EXPECT_EQ(k0.worst.where, slot::dk);
  EXPECT_EQ(k0.worst.index[2], 3);
  w.dk.set(unread + 3, -0.0);
  EXPECT_EQ(failing_ids(w.checks()), "");
  w.dq.set(5, std::nan(""));
  EXPECT_EQ(find_check(w.checks(), "K0").kind, fail_kind::nonfinite);
}

const std::vector<std::int64_t> sampled_lines = {0, 7, 8, 20, 33, 41, 50, 59};

TEST(backward_samples, honest_passes_are_right_and_gross_faults_are_not) {
  for (const auto type : {bf16, fp16, fp32})
    for (const bool dense : {false, true}) {
      auto w = backward_declaring(type, type, dense);
      w.run({.p = type, .ds = type});
      EXPECT_EQ(failing_ids(w.checks_of_samples(sampled_lines)), "") << told(w.checks_of_samples(sampled_lines));
      for (const backward_method& fault :
           {backward_method{.no_delta = true}, {.delta_of = 1}, {.dv_of = 1}, {.dq_factor = std::sqrt(32.0)}}) {
        backward_method how = fault;
        how.p = how.ds = type;
        w.run(how);
        EXPECT_NE(failing_ids(w.checks_of_samples(sampled_lines)), "");
      }
    }
}

TEST(backward_samples, an_element_of_a_sampled_line_is_named_by_its_place_in_the_output) {
  auto w = backward_declaring(bf16, bf16);
  w.run({.p = bf16, .ds = bf16});
  const std::int64_t row = (33 * w.forward.shape.hq + 5) * w.forward.shape.d + 4;
  w.dq.set(row, w.dq.get(row) + 1000);
  auto k8 = find_check(w.checks_of_samples(sampled_lines), "K8a");
  EXPECT_FALSE(k8.passed);
  EXPECT_EQ(k8.worst.where, slot::dq);
  EXPECT_EQ(k8.worst.index, (std::vector<std::int64_t>{33, 5, 4}));
  w.run({.p = bf16, .ds = bf16});
  // Keys lie as far along the 90 of the sequence as rows along its 60.
  const auto keys = backward_samples(w.subject(), sampled_lines).keys();
  EXPECT_EQ(keys.front(), 0);
  EXPECT_EQ(keys.back(), 89);
  EXPECT_EQ(keys.size(), sampled_lines.size());
  const std::int64_t key = (keys[4] * w.forward.shape.hkv + 1) * w.forward.shape.d + 2;
  w.dv.set(key, w.dv.get(key) + 1000);
  k8 = find_check(w.checks_of_samples(sampled_lines), "K8a");
  EXPECT_EQ(k8.worst.where, slot::dv);
  EXPECT_EQ(k8.worst.index, (std::vector<std::int64_t>{keys[4], 1, 2}));
}

TEST(backward_samples, all_other_elements_are_finite) {
  auto w = backward_declaring(bf16, bf16);
  w.run({.p = bf16, .ds = bf16});
  const std::int64_t elsewhere = (34 * w.forward.shape.hq + 5) * w.forward.shape.d + 4;
  w.dq.set(elsewhere, w.dq.get(elsewhere) + 1000);
  EXPECT_EQ(failing_ids(w.checks_of_samples(sampled_lines)), "");  // which is what samples can't tell
  w.dq.set(elsewhere, std::nan(""));
  const auto k0 = find_check(w.checks_of_samples(sampled_lines), "K0");
  EXPECT_EQ(k0.kind, fail_kind::nonfinite);
  EXPECT_EQ(k0.worst.index, (std::vector<std::int64_t>{34, 5, 4}));
}

TEST(backward_samples, are_what_is_expected_of_a_part_of_the_rows) {
  backward_world w(usual_backward(bf16));
  const auto whole = expect(w.subject(), w.forward.all_rows());
  EXPECT_EQ(whole->rows_checked(), w.forward.rows());
  EXPECT_EQ(expect(w.subject(), sampled_lines)->rows_checked(), std::ssize(sampled_lines));
}

// Weights are powers of two there.
TEST(backward_checks, rounded_weights_open_nothing_in_the_carry_probe) {
  auto w = backward_declaring(bf16, bf16);
  auto what = w.subject();
  EXPECT_EQ(backward_error_of(what, w.declared).u_p, 0x1p-8);
  what.definition.family = "carry";
  EXPECT_EQ(backward_error_of(what, w.declared).u_p, 0);
  EXPECT_EQ(backward_error_of(what, w.declared).u_ds, 0x1p-8);
  w.declared.truncated = truncates_p;
  EXPECT_EQ(backward_error_of(what, w.declared).u_p, 0x1p-7);
}

TEST(backward_checks, coarse_operands_break_the_promise) {
  backward_world w(usual_backward(bf16));
  w.declared.ds_operand = e4m3;
  EXPECT_FALSE(broken_declarations(w.subject().agreed, w.declared, {}).empty());
  w.declared.ds_operand = bf16;
  EXPECT_TRUE(broken_declarations(w.subject().agreed, w.declared, {}).empty());
  w.declared.chain_dkv = 1 << 30;
  EXPECT_FALSE(broken_declarations(w.subject().agreed, w.declared, {}).empty());
}

TEST(backward_detectability, every_fault_shows_under_every_declaration) {
  using enum perturbation;
  for (const auto type : {bf16, fp16, fp32})
    for (const bool dense : {false, true})
      for (const auto operand : {fp32, type}) {
        auto w = backward_declaring(type, operand, dense);
        w.targets = {delta_left_out, delta_of_next_head, gradient_unscaled, gradient_of_next_group};
        const auto sees = expect(w.subject(), w.forward.all_rows())->measure();
        EXPECT_EQ(sees.by_fault.size(), w.targets.size());
        EXPECT_GE(sees.value, detectability::floor) << name(type) << " " << sees.weakest_fault;
      }
  // Of many terms to a key, and of a row with few keys.
  backward_world many({.hq = 16, .hkv = 1, .d = 32, .block = 8, .topk = 4, .sequences = {{64, 64}}, .dense = true});
  many.declared.p_operand = many.declared.ds_operand = bf16;
  many.targets = {accumulate_16bit, key_past_diagonal};
  const auto sees = expect(many.subject(), many.forward.all_rows())->measure();
  EXPECT_GE(sees.value, detectability::floor) << sees.weakest_fault;
}

TEST(backward_detectability, what_cannot_show_counts_nothing) {
  backward_world w({.hq = 1, .hkv = 1, .d = 16, .block = 8, .topk = 4, .sequences = {{1, 20}}});
  for (const auto fault :
       {perturbation::delta_of_next_head, perturbation::gradient_of_next_group, perturbation::key_past_diagonal}) {
    w.targets = {fault};
    EXPECT_EQ(expect(w.subject(), w.forward.all_rows())->measure().value, 0) << name(fault);
  }
}

}  // namespace
}  // namespace msabench::judge::test
