// SPDX-License-Identifier: Apache-2.0
// `msa` end to end: the ids that came back are held to the scores of the index branch (K5), and the outputs to attention
// over exactly these ids (K1-K3). So a legal near-tie upstream never fails the numbers downstream.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "judge/attend_expectation.h"
#include "judge/index_expectation.h"
#include "judge/judge.h"
#include "judge/recall.h"

namespace msabench::judge {

class msa_expectation final : public expectation {
 public:
  msa_expectation(const subject& what, std::span<const std::int64_t> rows);

  // Without ids K5 is not observed; outputs are judged on the rows whose selection the scores leave no choice in.
  std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const override;
  detectability measure() const override;
  void answer(answers& into, const launch& outputs) const override;
  std::int64_t rows_checked() const override { return static_cast<std::int64_t>(rows_.size()); }

 private:
  // Ids of all rows [T,Hkv,k], and what attention over them is.
  struct attention_part {
    std::vector<std::int32_t> ids;
    std::unique_ptr<attend_expectation> judged;
  };
  std::unique_ptr<attention_part> attention_on(std::vector<std::int32_t> ids, std::span<const std::int64_t> rows) const;
  const attend_expectation& attention_on_returned(const tensor_view& ids) const;
  std::vector<std::int32_t> own_ids() const;
  std::vector<check_result> check_without_ids(const launch& outputs, int launch_index, std::uint64_t poison_seed) const;

  subject what_;
  std::vector<std::int64_t> rows_;
  index_expectation index_;
  std::unique_ptr<recall> recall_;  // null where keys that nobody may select hold no values
  // Of the last launch: mostly the next one selects the same.
  mutable std::unique_ptr<attention_part> last_;
};

}  // namespace msabench::judge
