// SPDX-License-Identifier: Apache-2.0
// Gradients of the index branch's loss where the problem is too large for the oracle to compute them whole: K0 on every
// element, K8 on dq_idx of sampled rows and on dk_idx of sampled keys, each over all rows that read it. The loss sums over
// all rows; of it only K0 is asked.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "judge/kl_expectation.h"

namespace msabench::judge {

class kl_samples final : public expectation {
 public:
  // Triples of row, head and key that dk_idx may take.
  static constexpr std::int64_t most_key_triples = 150'000'000;

  // Of the keys that are as far along their sequence as the rows are those that most rows read, as many as can be
  // afforded. suite_error where not a single one can.
  kl_samples(const subject& what, std::span<const std::int64_t> rows, std::int64_t key_triples = most_key_triples);

  std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const override;
  // Of samples nothing is said: a fault may show elsewhere.
  detectability measure() const override { return {}; }
  void answer(answers& into, const launch& outputs) const override;
  std::int64_t rows_checked() const override { return static_cast<std::int64_t>(lines_.rows.size()); }
  std::int64_t keys_checked() const override { return static_cast<std::int64_t>(lines_.keys.size()); }

  // Rows of k_idx.
  const std::vector<std::int64_t>& keys() const { return lines_.keys; }

 private:
  const std::vector<std::int64_t>& lines_of(slot where) const {
    return where == slot::dq_idx ? lines_.rows : lines_.keys;
  }

  subject what_;
  reference::kl_inputs in_;
  reference::kl_error err_;
  reference::gradient_lines lines_;
  reference::kl_result want_;
};

}  // namespace msabench::judge
