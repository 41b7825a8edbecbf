// SPDX-License-Identifier: Apache-2.0
// K0 and K5 over returned ids, for every operator that selects: what the rows' scores may be comes from the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/check_result.h"
#include "judge/judge.h"
#include "judge/select_row_check.h"
#include "reference/rows.h"

namespace msabench::judge {

// The ids of a launch as [T,Hkv,topk], whatever layout was delivered. suite_error if there are none.
tensor_view ids_of(const subject& what, const launch& l);

class ids_check {
 public:
  ids_check(const subject& what, const reference::row_map& map, const tensor_view& ids)
      : what_(what), map_(map), ids_(ids) {}

  // K0: written, and -1 in empty rows.
  check_result written(int launch_index, std::uint64_t poison_seed) const;

  // K5: structure on every row, `scored` on those of `rows` (ascending): the whole verdict on the ids of (position in
  // `rows`, head).
  using scored_check = std::function<selection_fault(std::size_t at, std::int64_t head,
                                                     std::span<const std::int32_t> ids, std::int64_t visible)>;
  check_result choice(std::span<const std::int64_t> rows, const selection_rules& rules,
                      const scored_check& scored) const;

 private:
  const subject& what_;
  const reference::row_map& map_;
  const tensor_view& ids_;
};

}  // namespace msabench::judge
