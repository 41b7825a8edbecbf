// SPDX-License-Identifier: Apache-2.0
// Inputs of a case as the oracle reads them.
#pragma once

#include <utility>

#include "judge/judge.h"

namespace msabench::judge {

// Absent where the case has none.
inline tensor_view input(const subject& what, slot s) {
  const auto found = what.inputs.find(s);
  return found == what.inputs.end() ? tensor_view{} : found->second;
}

// Ids as [T, H, k], whichever way they lie in memory.
inline tensor_view tokens_first(tensor_view ids, id_layout layout) {
  if (layout == id_layout::htk && ids.desc.shape.size() == 3) {
    std::swap(ids.desc.shape[0], ids.desc.shape[1]);
    std::swap(ids.desc.strides[0], ids.desc.strides[1]);
  }
  return ids;
}

}  // namespace msabench::judge
