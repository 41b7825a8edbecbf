// SPDX-License-Identifier: Apache-2.0
// What the outputs of a launch should be and how far they may be off, element by element, for whoever wants to look for
// himself.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "core/observation.h"
#include "core/operator_table.h"
#include "core/profile.h"

namespace msabench::judge {

// Of one output, packed as its shape says. NaN: not held to anything (a row that was not checked, an element that the
// profile leaves open), or in `limit` of ids, whose judgement is no distance.
struct answer_sheet {
  std::vector<std::int64_t> shape;
  std::vector<double> want, limit;
};

class answers {
 public:
  answers(const launch& outputs, const profile& delivers);

  // Nothing if the launch has no such output.
  void set(slot where, std::span<const std::int64_t> index, double want,
           double limit = std::numeric_limits<double>::quiet_NaN());
  // In the order of axes that the implementation has.
  void set_ids(std::int64_t row, std::int64_t head, std::span<const std::int32_t> ids);

  const std::map<slot, answer_sheet>& sheets() const { return sheets_; }

 private:
  std::map<slot, answer_sheet> sheets_;
  bool heads_first_;
};

}  // namespace msabench::judge
