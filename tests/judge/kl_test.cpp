// SPDX-License-Identifier: Apache-2.0
// Honest losses of the index branch stay within the limits of what they declare; planted faults do not.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "attend_world.h"
#include "core/error.h"
#include "judge/kl_expectation.h"
#include "judge/kl_samples.h"
#include "numbers.h"

namespace msabench::judge::test {
namespace {

// How a kernel computes; faults and honest variants differ in one field.
struct kl_method {
  dtype ds = fp32;  // matrix operand
  bool reversed = false, prescaled = false;
  bool mean_of_logits = false, no_teacher = false;
  double rows_less = 0, factor = 1;
  std::int64_t query_of = 0;  // so many index heads further
  bool over_all = false;      // both softmaxes
};

struct kl_shape {
  attend_shape main;
  std::int32_t di = 16;
  bool warm_up = false;
  double coeff = 0.5;
};

struct kl_world {
  explicit kl_world(const kl_shape& given)
      : shape(given),
        forward(given.main),
        q_idx(given.main.type, {forward.rows(), given.main.hkv, given.di}),
        k_idx(given.main.type, {forward.k.desc.shape[0], given.di}),
        loss(fp64, {1}),
        dq_idx(fp32, q_idx.desc.shape),
        dk_idx(fp32, k_idx.desc.shape),
        dq(fp32, forward.q.desc.shape),
        dk(fp32, forward.k.desc.shape) {
    forward.fill_random(3);
    std::mt19937 gen(17);
    for (tensor* t : {&q_idx, &k_idx})
      for (std::int64_t i = 0; i < t->desc.elements(); ++i) t->set(i, normal(gen));
    declared = honest_numerics(given.main.type);
    declared.p_operand = declared.ds_operand = fp32;
  }

  judge::subject subject() const {
    judge::subject what = forward.subject();
    problem& p = what.agreed;
    p.operation = what.definition.operation = op::kl;
    p.grad = fp32;
    p.hi = p.hkv;
    p.di = shape.di;
    p.q_idx = p.k_idx = shape.main.type;
    p.kl_coeff = shape.coeff;
    p.kl_warm_up = shape.warm_up ? 1 : 0;
    p.max_q_len = forward.rows();
    what.declared = declared;
    what.targets = targets;
    what.inputs[slot::q_idx] = q_idx.view();
    what.inputs[slot::k_idx] = k_idx.view();
    if (shape.warm_up) what.inputs.erase(slot::ids);
    return what;
  }

  std::vector<std::int64_t> visible_keys(std::int64_t row) const {
    std::vector<std::int64_t> keys;
    const std::int64_t own = forward.rows() - 1 - row;  // of one sequence
    for (std::int64_t j = 0; j < k_idx.desc.shape[0] - own; ++j) keys.push_back(j);
    return keys;
  }

  void run(const kl_method& how) {
    for (tensor* t : {&loss, &dq_idx, &dk_idx, &dq, &dk})
      for (std::int64_t i = 0; i < t->desc.elements(); ++i) t->set(i, 0);
    for (std::int64_t i = 0; i < forward.rows(); ++i)
      for (std::int64_t head = 0; head < shape.main.hkv; ++head)
        run_row(how, how.reversed ? forward.rows() - 1 - i : i, head);
  }

  launch outputs() const {
    launch l;
    l.outputs = {{slot::loss, loss.view()},
                 {slot::dq_idx, dq_idx.view()},
                 {slot::dk_idx, dk_idx.view()},
                 {slot::dq, dq.view()},
                 {slot::dk, dk.view()}};
    return l;
  }

  std::vector<check_result> checks(int launch_index = 0) const {
    return expect(subject(), forward.all_rows())->check(outputs(), launch_index, 0);
  }

  std::vector<check_result> checks_of_samples(const std::vector<std::int64_t>& rows) const {
    return kl_samples(subject(), rows).check(outputs(), 0, 0);
  }

  kl_shape shape;
  attend_world forward;
  tensor q_idx, k_idx, loss, dq_idx, dk_idx, dq, dk;
  numerics declared;
  std::vector<perturbation> targets;

 private:
  using vector = std::vector<float>;
  static float product(const tensor& a, std::int64_t a_at, const tensor& b, std::int64_t b_at, std::int64_t count) {
    float sum = 0;
    for (std::int64_t c = 0; c < count; ++c)
      sum += static_cast<float>(a.get(a_at + c)) * static_cast<float>(b.get(b_at + c));
    return sum;
  }
  static float log_sum_exp(const vector& scores) {
    const float m = *std::max_element(scores.begin(), scores.end());
    float sum = 0;
    for (const float s : scores) sum += std::exp(s - m);
    return m + std::log(sum);
  }

  // Scores of query head `head`, or of the mean over its group.
  vector main_scores(const kl_method& how, std::int64_t row, std::int64_t head,
                     const std::vector<std::int64_t>& keys) const {
    const std::int64_t d = shape.main.d, hq = shape.main.hq, hkv = shape.main.hkv, group = hq / hkv;
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d)));
    vector scores;
    for (const std::int64_t key : keys) {
      const auto of = [&](std::int64_t h) {
        return scale * product(forward.q, (row * hq + h) * d, forward.k, (key * hkv + head / group) * d, d);
      };
      float sum = 0;
      for (std::int64_t h = head / group * group; how.mean_of_logits && h < (head / group + 1) * group; ++h)
        sum += of(h);
      scores.push_back(how.mean_of_logits ? sum / static_cast<float>(group) : of(head));
    }
    return scores;
  }
  vector index_scores(const kl_method& how, std::int64_t row, std::int64_t head,
                      const std::vector<std::int64_t>& keys) const {
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.di)));
    const std::int64_t of = (row * shape.main.hkv + (head + how.query_of) % shape.main.hkv) * shape.di;
    tensor query(fp32, {shape.di});
    for (std::int64_t c = 0; c < shape.di; ++c)
      query.set(c, how.prescaled ? round_to(q_idx.get(of + c) * scale, shape.main.type) : q_idx.get(of + c));
    vector scores;
    for (const std::int64_t key : keys)
      scores.push_back((how.prescaled ? 1 : scale) * product(query, 0, k_idx, key * shape.di, shape.di));
    return scores;
  }

  void run_row(const kl_method& how, std::int64_t row, std::int64_t head) {
    const auto all = visible_keys(row);
    const auto keys = shape.warm_up ? all : forward.selected_keys(row, head);
    const auto& normalised = how.over_all ? all : keys;
    const std::int64_t group = shape.main.hq / shape.main.hkv;
    const auto rows = static_cast<double>(forward.rows()) - how.rows_less;
    const auto factor = static_cast<float>(how.factor * shape.coeff / (rows * shape.main.hkv));
    const auto index_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.di)));
    vector teacher(keys.size(), 0);
    for (std::int64_t h = head * group; h < (head + 1) * group; ++h) {
      const vector scores = main_scores(how, row, h, keys);
      const float lse = log_sum_exp(how.over_all ? main_scores(how, row, h, normalised) : scores);
      for (std::size_t j = 0; j < keys.size(); ++j) teacher[j] += std::exp(scores[j] - lse) / static_cast<float>(group);
    }
    const vector scores = index_scores(how, row, head, keys);
    const float lse = log_sum_exp(how.over_all ? index_scores(how, row, head, normalised) : scores);
    for (std::size_t j = 0; j < keys.size(); ++j) {
      const float t = scores[j] - lse, p = how.no_teacher ? 0 : teacher[j];
      if (p > 0) loss.set(0, loss.get(0) + static_cast<double>(factor * p * (std::log(p) - t)));
      const auto ds = static_cast<float>(round_to(factor * (std::exp(t) - p), how.ds));
      for (std::int64_t c = 0; c < shape.di; ++c) {
        const std::int64_t of_q = (row * shape.main.hkv + head) * shape.di + c, of_k = keys[j] * shape.di + c;
        dq_idx.set(of_q, static_cast<float>(dq_idx.get(of_q)) + index_scale * ds * static_cast<float>(k_idx.get(of_k)));
        dk_idx.set(of_k, static_cast<float>(dk_idx.get(of_k)) + index_scale * ds * static_cast<float>(q_idx.get(of_q)));
      }
    }
  }
};

kl_shape usual_kl(dtype type, bool warm_up = false) {
  return {.main = {.hq = 8, .hkv = 2, .d = 32, .block = 8, .topk = 5, .sequences = {{60, 90}}, .type = type},
          .warm_up = warm_up};
}

kl_world kl_declaring(dtype type, dtype operand, bool warm_up = false) {
  kl_world w(usual_kl(type, warm_up));
  w.declared.ds_operand = operand;
  return w;
}

TEST(kl_honest, passes_within_what_it_declares) {
  for (const auto type : {bf16, fp16, fp32})
    for (const bool warm_up : {false, true})
      for (const bool reversed : {false, true})
        for (const auto operand : {fp32, type}) {
          auto w = kl_declaring(type, operand, warm_up);
          w.run({.ds = operand, .reversed = reversed});
          EXPECT_EQ(failing_ids(w.checks()), "") << name(type) << " warm-up " << warm_up << "\n" << told(w.checks());
          EXPECT_NE(w.loss.get(0), 0);
        }
}

TEST(kl_honest, rounded_queries_are_declared) {
  kl_shape shape = usual_kl(bf16);
  shape.di = 24;  // a scale that is no power of two
  kl_world w(shape);
  w.run({.prescaled = true});
  EXPECT_NE(failing_ids(w.checks()), "");
  w.declared.rounded_operands = 1;
  w.declared.operand = bf16;
  EXPECT_EQ(failing_ids(w.checks()), "") << told(w.checks());
}

TEST(kl_checks, short_operands_have_to_be_declared) {
  kl_world w(usual_kl(bf16));
  w.run({.ds = bf16});
  const auto k8 = find_check(w.checks(), "K8a");
  EXPECT_FALSE(k8.passed);
  EXPECT_EQ(k8.kind, fail_kind::numeric);
  EXPECT_EQ(k8.cure, "ds_operand bf16 instead of fp32");
  EXPECT_EQ(k8.worst.axes.size(), k8.worst.index.size());
  EXPECT_TRUE(find_check(w.checks(), "K8d").passed);
}

TEST(kl_checks, gross_faults_fail_whatever_is_declared) {
  const std::pair<const char*, kl_method> faults[] = {{"mean of logits", {.mean_of_logits = true}},
                                                      {"no teacher", {.no_teacher = true}},
                                                      {"query of the next head", {.query_of = 1}},
                                                      {"T - 1", {.rows_less = 1}},
                                                      {"no heads", {.factor = 2}}};
  for (const auto type : {bf16, fp16, fp32})
    for (const bool warm_up : {false, true})
      for (auto [name, how] : faults) {
        auto w = kl_declaring(type, type, warm_up);
        how.ds = type;
        w.run(how);
        EXPECT_NE(failing_ids(w.checks()).find("K8d"), std::string::npos) << name;
        for (const auto& c : w.checks()) EXPECT_EQ(c.cure, "") << name;
      }
  auto w = kl_declaring(bf16, bf16);
  w.run({.ds = bf16, .over_all = true});
  EXPECT_NE(failing_ids(w.checks()), "");
}

// The loss is right here.
TEST(kl_checks, a_factor_of_the_gradients_shows_in_their_scale) {
  auto w = kl_declaring(bf16, bf16);
  w.run({.ds = bf16});
  const double loss = w.loss.get(0);
  w.run({.ds = bf16, .rows_less = 1});
  w.loss.set(0, loss);
  const auto k8c = find_check(w.checks(), "K8c");
  EXPECT_FALSE(k8c.passed) << told(w.checks());
  EXPECT_GT(k8c.value, 1.2 * k8c.limit);
  EXPECT_TRUE(find_check(w.checks(), "K8d").passed);
}

TEST(kl_checks, what_nothing_flows_to_is_zero) {
  kl_shape shape = usual_kl(bf16);
  shape.main.sequences = {{20, 90}};
  kl_world w(shape);
  w.run({});
  EXPECT_EQ(failing_ids(w.checks()), "") << told(w.checks());
  w.dq.set(3, -0.0);  // not all bits
  EXPECT_EQ(find_check(w.checks(), "K0").worst.where, slot::dq);
  w.dq.set(3, 0);
  w.dk.set(40, 0x1p-140);
  EXPECT_EQ(find_check(w.checks(), "K0").worst.where, slot::dk);
  w.dk.set(40, 0);
  std::int64_t unread = -1;
  for (std::int64_t i = 0; i < w.dk_idx.desc.elements() && unread < 0; i += shape.di)
    if (w.dk_idx.get(i) == 0 && w.dk_idx.get(i + 1) == 0) unread = i;
  ASSERT_GE(unread, 0);
  w.dk_idx.set(unread, -0.0);
  EXPECT_EQ(failing_ids(w.checks()), "");
  w.dk_idx.set(unread + 3, 0x1p-140);
  const auto k0 = find_check(w.checks(), "K0");
  EXPECT_EQ(k0.worst.where, slot::dk_idx);
  EXPECT_EQ(k0.worst.index, (std::vector<std::int64_t>{unread / shape.di, 3}));
}

TEST(kl_checks, everything_is_zero_without_a_coefficient) {
  kl_shape shape = usual_kl(fp32);
  shape.coeff = 0;
  kl_world w(shape);
  w.run({});
  EXPECT_EQ(failing_ids(w.checks()), "") << told(w.checks());
  for (tensor* t : {&w.loss, &w.dq_idx, &w.dk_idx}) {
    t->set(0, 0x1p-140);
    EXPECT_EQ(find_check(w.checks(), "K0").kind, fail_kind::numeric);
    t->set(0, 0);
  }
  w.targets = {perturbation::coefficient_left_out};
  EXPECT_EQ(expect(w.subject(), w.forward.all_rows())->measure().value, unbounded_effect);
}

TEST(kl_checks, the_loss_has_to_be_written_and_finite) {
  kl_world w(usual_kl(fp32));
  w.run({});
  w.loss.set(0, infinity);
  EXPECT_EQ(find_check(w.checks(), "K0").kind, fail_kind::nonfinite);
  EXPECT_EQ(find_check(w.checks(), "K8d").kind, fail_kind::nonfinite);
}

TEST(kl_checks, coarse_operands_and_long_chains_break_the_promise) {
  kl_world w(usual_kl(bf16));
  EXPECT_TRUE(broken_declarations(w.subject().agreed, w.declared, {}).empty());
  w.declared.chain_dkv = (60 + 128) * 2;  // rows of a sequence and index heads
  EXPECT_TRUE(broken_declarations(w.subject().agreed, w.declared, {}).empty());
  w.declared.chain_dkv = (60 + 128) * 2 + 1;
  EXPECT_FALSE(broken_declarations(w.subject().agreed, w.declared, {}).empty());
  w.declared.chain_dkv = 0;
  w.declared.ds_operand = e4m3;
  EXPECT_FALSE(broken_declarations(w.subject().agreed, w.declared, {}).empty());
}

const std::vector<std::int64_t> some_lines = {0, 7, 8, 20, 33, 41, 50, 59};

TEST(kl_samples, honest_passes_are_right_and_gross_faults_are_not) {
  for (const auto type : {bf16, fp16, fp32})
    for (const bool warm_up : {false, true}) {
      auto w = kl_declaring(type, type, warm_up);
      w.run({.ds = type});
      EXPECT_EQ(failing_ids(w.checks_of_samples(some_lines)), "") << told(w.checks_of_samples(some_lines));
      for (const kl_method& fault :
           {kl_method{.no_teacher = true}, {.mean_of_logits = true}, {.query_of = 1}, {.factor = 2}}) {
        kl_method how = fault;
        how.ds = type;
        w.run(how);
        EXPECT_NE(failing_ids(w.checks_of_samples(some_lines)), "");
      }
    }
}

TEST(kl_samples, an_element_of_a_sampled_line_is_named_by_its_place_in_the_output) {
  auto w = kl_declaring(bf16, bf16);
  w.run({.ds = bf16});
  const std::int64_t row = (33 * w.shape.main.hkv + 1) * w.shape.di + 4;
  w.dq_idx.set(row, w.dq_idx.get(row) + 1000);
  auto k8 = find_check(w.checks_of_samples(some_lines), "K8a");
  EXPECT_FALSE(k8.passed);
  EXPECT_EQ(k8.worst.where, slot::dq_idx);
  EXPECT_EQ(k8.worst.index, (std::vector<std::int64_t>{33, 1, 4}));
  w.run({.ds = bf16});
  const auto keys = kl_samples(w.subject(), some_lines).keys();
  EXPECT_EQ(keys.front(), 0);
  EXPECT_EQ(keys.back(), 89);
  const std::int64_t key = keys[4] * w.shape.di + 2;
  w.dk_idx.set(key, w.dk_idx.get(key) + 1000);
  k8 = find_check(w.checks_of_samples(some_lines), "K8a");
  EXPECT_EQ(k8.worst.where, slot::dk_idx);
  EXPECT_EQ(k8.worst.index, (std::vector<std::int64_t>{keys[4], 2}));
}

TEST(kl_samples, all_other_elements_are_finite_and_nothing_flows_to_q_and_k) {
  auto w = kl_declaring(bf16, bf16);
  w.run({.ds = bf16});
  const std::int64_t elsewhere = (34 * w.shape.main.hkv + 1) * w.shape.di + 4;
  w.dq_idx.set(elsewhere, w.dq_idx.get(elsewhere) + 1000);
  EXPECT_EQ(failing_ids(w.checks_of_samples(some_lines)), "");  // which is what samples can't tell
  w.dq_idx.set(elsewhere, std::nan(""));
  auto k0 = find_check(w.checks_of_samples(some_lines), "K0");
  EXPECT_EQ(k0.kind, fail_kind::nonfinite);
  EXPECT_EQ(k0.worst.index, (std::vector<std::int64_t>{34, 1, 4}));
  w.run({.ds = bf16});
  w.loss.set(0, std::nan(""));
  EXPECT_FALSE(find_check(w.checks_of_samples(some_lines), "K0").passed);
  w.run({.ds = bf16});
  w.dq.set(7, 1);
  EXPECT_FALSE(find_check(w.checks_of_samples(some_lines), "K0").passed);
}

TEST(kl_samples, keys_are_the_most_read_that_can_be_afforded) {
  const kl_world w(usual_kl(bf16, true));
  const auto all = kl_samples(w.subject(), some_lines).keys();
  ASSERT_EQ(all.size(), some_lines.size());
  const auto in = kl_inputs_of(w.subject());
  const auto costs = reference::kl_key_triples(in, all);
  // All rows see the first key, and only the last row the last one.
  EXPECT_EQ(kl_samples(w.subject(), some_lines, costs.front()).keys(), (std::vector<std::int64_t>{all.front()}));
  EXPECT_EQ(kl_samples(w.subject(), some_lines, costs.back()).keys(), (std::vector<std::int64_t>{all.back()}));
  EXPECT_THROW(kl_samples(w.subject(), some_lines, costs.back() - 1), suite_error);
}

TEST(kl_samples, are_what_is_expected_of_a_part_of_the_rows) {
  const kl_world w(usual_kl(bf16));
  EXPECT_EQ(expect(w.subject(), w.forward.all_rows())->rows_checked(), w.forward.rows());
  const auto some = expect(w.subject(), some_lines);
  EXPECT_EQ(some->rows_checked(), std::ssize(some_lines));
  EXPECT_GT(some->keys_checked(), 0);
}

TEST(kl_detectability, every_fault_shows_under_every_declaration) {
  using enum perturbation;
  for (const auto type : {bf16, fp16, fp32})
    for (const bool warm_up : {false, true})
      for (const auto operand : {fp32, type}) {
        auto w = kl_declaring(type, operand, warm_up);
        w.targets = {teacher_left_out,  teacher_of_mean_logits, teacher_head_missing, neighbour_head_q,
                     gradient_unscaled, mean_of_one_row_less,   mean_without_heads};
        if (warm_up)
          w.targets.push_back(warm_up_over_few);
        else
          w.targets.insert(w.targets.end(), {teacher_over_all, student_over_all});
        const auto sees = expect(w.subject(), w.forward.all_rows())->measure();
        EXPECT_EQ(sees.by_fault.size(), w.targets.size());
        EXPECT_GE(sees.value, detectability::floor) << name(type) << " " << sees.weakest_fault;
      }
}

TEST(kl_detectability, what_cannot_show_counts_nothing) {
  using enum perturbation;
  kl_world w({.main = {.hq = 1, .hkv = 1, .d = 16, .block = 8, .topk = 4, .sequences = {{1, 1}}, .type = fp32}});
  for (const auto fault : {mean_of_one_row_less, mean_of_rows_with_keys, mean_without_heads, teacher_of_mean_logits,
                           key_past_diagonal, teacher_over_all, student_over_all}) {
    w.targets = {fault};
    EXPECT_EQ(expect(w.subject(), w.forward.all_rows())->measure().value, 0) << name(fault);
  }
  w.targets = {teacher_left_out};
  EXPECT_GE(expect(w.subject(), w.forward.all_rows())->measure().value, detectability::floor);
}

}  // namespace
}  // namespace msabench::judge::test
