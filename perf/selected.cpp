// SPDX-License-Identifier: Apache-2.0
#include "perf/selected.h"

namespace msabench {

std::optional<selection_counts> counts_of(const tensor_view* ids, const case_spec& c, const problem& p) {
  const auto batch = sequences(c);
  if (!ids || ids->data == nullptr || ids->desc.type != i32 || ids->desc.shape.size() != 3) return std::nullopt;
  if (ids->desc.shape[0] != query_rows(batch) || ids->desc.shape[1] != p.hkv || ids->desc.shape[2] != p.topk ||
      ids->desc.span_elements() != ids->desc.elements())
    return std::nullopt;
  const auto* first = static_cast<const std::int32_t*>(ids->data);
  return count_selection({first, static_cast<std::size_t>(ids->desc.elements())}, batch, p.hkv, p.block, p.topk);
}

}  // namespace msabench
