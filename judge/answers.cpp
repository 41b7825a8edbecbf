// SPDX-License-Identifier: Apache-2.0
#include "judge/answers.h"

#include <fmt/format.h>

#include "core/error.h"

namespace msabench::judge {

answers::answers(const launch& outputs, const profile& delivers)
    : heads_first_(delivers.out_id_layout == id_layout::htk) {
  for (const auto& [where, view] : outputs.outputs) {
    answer_sheet sheet{view.desc.shape, {}, {}};
    sheet.want.assign(static_cast<std::size_t>(view.desc.elements()), std::numeric_limits<double>::quiet_NaN());
    sheet.limit = sheet.want;
    sheets_.emplace(where, std::move(sheet));
  }
}

void answers::set(slot where, std::span<const std::int64_t> index, double want, double limit) {
  const auto found = sheets_.find(where);
  if (found == sheets_.end()) return;
  answer_sheet& sheet = found->second;
  if (index.size() != sheet.shape.size()) throw suite_error(fmt::format("an answer of {} has no place", name(where)));
  std::int64_t at = 0;
  for (std::size_t axis = 0; axis < index.size(); ++axis) at = at * sheet.shape[axis] + index[axis];
  sheet.want.at(static_cast<std::size_t>(at)) = want;
  sheet.limit.at(static_cast<std::size_t>(at)) = limit;
}

void answers::set_ids(std::int64_t row, std::int64_t head, std::span<const std::int32_t> ids) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    set(slot::ids,
        heads_first_ ? std::vector{head, row, static_cast<std::int64_t>(i)}
                     : std::vector{row, head, static_cast<std::int64_t>(i)},
        ids[i]);
}

}  // namespace msabench::judge
