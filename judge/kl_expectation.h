// SPDX-License-Identifier: Apache-2.0
// The oracle's answer to a case of `kl`, its limits (docs/verdicts.md) and the checks K0 and K8 against it. Loss and
// gradients of keys sum over all rows, so all rows are checked; where that costs too much, judge/kl_samples.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "judge/declaration.h"
#include "judge/detectability.h"
#include "judge/gradient_checks.h"
#include "judge/judge.h"
#include "judge/limits.h"
#include "reference/key_map.h"
#include "reference/kl.h"

namespace msabench::judge {

// Without ids in the warm-up.
reference::kl_inputs kl_inputs_of(const subject& what);

reference::kl_error kl_error_of(const problem& p, const numerics& n);

using loss_limit = limit<3>;
loss_limit limit_of_loss(const reference::kl_result& want);

// suite_error where the launch has no such output.
tensor_view kl_output(const launch& l, slot s);
// K8a to K8c: gradients of a launch as `want` has them, line by line.
std::vector<check_result> check_kl_gradients(const subject& what, const launch& l, const reference::kl_result& want,
                                             const roundoffs& r, const reference::kl_error& err);
// K0: dq and dk, of so many rows and keys, are zeros of all bits where they are wanted.
void scan_detached(value_scan& scan, const launch& outputs, std::int64_t rows, std::int64_t keys);

class perturbable_kl;

class kl_expectation final : public expectation {
 public:
  explicit kl_expectation(const subject& what);

  std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const override;
  detectability measure() const override;
  void answer(answers& into, const launch& outputs) const override;
  std::int64_t rows_checked() const override { return want_.dq_idx.rows; }

 private:
  bool is_all_zero() const { return what_.agreed.kl_coeff == 0 || want_.dq_idx.rows == 0; }
  check_result scan(const launch& outputs, int launch_index, std::uint64_t poison_seed) const;
  std::string find_cure(const launch& outputs) const;
  // A row and index head that faults are tried on, and its right line of dq_idx.
  struct sampled {
    std::int64_t row, head;
    std::vector<double> right;
  };
  std::vector<sampled> sample(const perturbable_kl& of) const;
  effect effect_of_factor(double relative) const;
  effect effect_on_rows(perturbation fault, const perturbable_kl& faulty, std::span<const sampled> lines) const;

  subject what_;
  reference::kl_inputs in_;
  reference::kl_error err_;
  reference::kl_result want_;
};

// A row and index head of dq_idx as it would be if the kernel had one of the gross faults of core/perturbation.h.
class perturbable_kl {
 public:
  // Of inputs that outlive this.
  explicit perturbable_kl(const reference::kl_inputs& in);

  // The line of dq_idx; the right one without a fault. Nothing if the fault can't show there.
  std::optional<std::vector<double>> line(std::optional<perturbation> fault, std::int64_t row, std::int64_t head) const;

  const reference::key_map& keys() const { return keys_; }
  std::int64_t rows_with_keys() const;

 private:
  using vector = std::vector<double>;
  // Keys of the loss, and of the two normalisers, as positions in the sequence.
  struct token_sets {
    std::vector<std::int64_t> loss, teacher, student;
  };
  std::optional<token_sets> sets(std::optional<perturbation> fault, std::int64_t row, std::int64_t head) const;
  // By query head of a group, then by key.
  std::vector<vector> scores(std::int64_t row, std::int64_t group, std::span<const std::int64_t> keys) const;
  vector teacher(std::optional<perturbation> fault, const token_sets& of, std::int64_t row, std::int64_t group) const;
  vector student(const token_sets& of, std::int64_t row, std::int64_t head) const;

  const reference::kl_inputs& in_;
  reference::key_map keys_;
  double scale_, index_scale_, factor_;
};

}  // namespace msabench::judge
