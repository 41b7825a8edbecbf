// SPDX-License-Identifier: Apache-2.0
// The oracle's answer to a case of `attend_backward` or `dense_backward`, its limits (docs/verdicts.md) and the checks K0
// and K8 against it. A gradient of a key sums over all rows, so all rows are checked; where that costs too much,
// judge/backward_samples.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "judge/declaration.h"
#include "judge/detectability.h"
#include "judge/gradient_checks.h"
#include "judge/judge.h"
#include "reference/attention_backward.h"
#include "reference/key_map.h"

namespace msabench::judge {

// Without ids for `dense_backward`: every visible key.
reference::backward_inputs backward_inputs_of(const subject& what);

reference::backward_error backward_error_of(const problem& p, const roundoffs& r);
// Of a case: where weights are powers of two by construction (family carry), rounding them to nearest changes nothing.
reference::backward_error backward_error_of(const subject& what, const numerics& n);

// suite_error where the launch has no such output.
tensor_view gradient_output(const launch& l, slot s);
// K8: outputs of a launch as `want` has them, line by line.
std::vector<check_result> check_gradient_values(const subject& what, const launch& l,
                                                const reference::backward_result& want, const roundoffs& r,
                                                const reference::backward_error& err);

class backward_expectation final : public expectation {
 public:
  explicit backward_expectation(const subject& what);

  std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const override;
  detectability measure() const override;
  void answer(answers& into, const launch& outputs) const override;
  std::int64_t rows_checked() const override { return want_.dq.rows; }

 private:
  struct sampled;
  std::vector<std::size_t> rows_before_a_key() const;
  std::vector<sampled> sample() const;
  const reference::gradient& want(slot where) const;
  effect effect_of(perturbation fault, std::span<const sampled> lines) const;
  std::string find_cure(const launch& outputs) const;

  subject what_;
  reference::backward_inputs in_;
  roundoffs r_;
  reference::backward_error err_;
  reference::backward_result want_;
};

// How a line of a gradient would change if the kernel had one of the gross faults of core/perturbation.h. Weights and D
// are taken of the lse and the out handed in, whose rounding is small beside any fault.
class perturbable_gradients {
 public:
  // Of inputs that outlive this; `want` is the right answer.
  perturbable_gradients(const subject& what, const reference::backward_inputs& in,
                        const reference::backward_result& want);

  // The change of a line of dq, dk or dv; nothing if the fault can't show there.
  std::optional<std::vector<double>> change(perturbation fault, slot where, std::int64_t line, std::int64_t head) const;

 private:
  using vector = std::vector<double>;
  struct place_of_key {
    std::int64_t sequence = 0, position = 0;
    const reference::key_map::tile* tile = nullptr;
  };
  // Of a query head and a key: weight and dP.
  struct term {
    double weight = 0, d_weight = 0;
  };
  place_of_key find(std::int64_t key) const;
  term term_of(std::int64_t row, std::int64_t head, std::int64_t key) const;
  double delta_of(std::int64_t row, std::int64_t head) const;
  // What D is off by under a fault of it; nothing for other faults, and for a single head.
  std::optional<double> delta_error(perturbation fault, std::int64_t row, std::int64_t head) const;
  // Calls visit(row, query head) for all that see the key.
  template <class Visit>
  void for_each_reader(std::int64_t key, std::int64_t kv_head, const Visit& visit) const;

  std::optional<vector> change_of_dq(perturbation fault, std::int64_t row, std::int64_t head) const;
  std::optional<vector> change_of_dk(perturbation fault, std::int64_t key, std::int64_t kv_head) const;
  std::optional<vector> change_of_dv(perturbation fault, std::int64_t key, std::int64_t kv_head) const;
  std::optional<vector> next_key_of_dq(std::int64_t row, std::int64_t head) const;
  vector short_sum(std::int64_t key, std::int64_t kv_head, bool values) const;

  const subject& what_;
  const reference::backward_inputs& in_;
  const reference::backward_result& want_;
  tensor_view out_, lse_;
  reference::key_map keys_;
  std::map<std::int64_t, const reference::key_map::tile*> tile_at_;  // by its first row of k
  double scale_ = 1;
};

}  // namespace msabench::judge
