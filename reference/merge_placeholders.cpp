// SPDX-License-Identifier: Apache-2.0
#include "reference/merge_placeholders.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace msabench::reference {
namespace {

struct kind {
  const char* name;
  std::int32_t id;
  const tensor_view& features;
};

void require_shapes(const placeholder_inputs& in) {
  const auto is_rows = [&](const tensor_view& t) {
    return t.desc.shape.size() == 2 && t.desc.shape[1] == in.hidden.desc.shape[1] && t.desc.strides[1] == 1;
  };
  if (in.hidden.desc.shape.size() != 2 || !is_rows(in.hidden) || !is_rows(in.image_features) ||
      !is_rows(in.video_features))
    throw suite_error("merge_placeholders: hidden and features must be rows of one width");
  if (in.token_ids.desc.shape != std::vector{in.hidden.desc.shape[0]} || in.token_ids.desc.type != i32)
    throw suite_error("merge_placeholders: token_ids must be [T] int32");
  if (in.image_id == in.video_id)
    throw suite_error(fmt::format("merge_placeholders: {} stands for both images and videos", in.image_id));
}

void require_counts(const placeholder_inputs& in, const kind& k) {
  std::int64_t places = 0;
  for (std::int64_t i = 0; i < in.token_ids.desc.shape[0]; ++i) places += in.token_ids.int_at(i) == k.id;
  const std::int64_t rows = k.features.desc.shape[0];
  if (rows != places)
    bad_input(fmt::format("{}_features", k.name), fmt::format("{} rows", rows),
              fmt::format("the text has {} placeholders of id {}", places, k.id), "give one row for each placeholder");
}

}  // namespace

std::vector<double> merge_placeholders(const placeholder_inputs& in) {
  require_shapes(in);
  const kind kinds[] = {{"image", in.image_id, in.image_features}, {"video", in.video_id, in.video_features}};
  for (const kind& k : kinds) require_counts(in, k);

  const std::int64_t tokens = in.hidden.desc.shape[0], width = in.hidden.desc.shape[1];
  std::vector<double> merged(static_cast<std::size_t>(tokens * width));
  std::int64_t used[] = {0, 0};
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int32_t id = in.token_ids.int_at(i);
    const std::size_t which = id == in.image_id ? 0 : id == in.video_id ? 1 : 2;
    const tensor_view& from = which < 2 ? kinds[which].features : in.hidden;
    const std::int64_t row = which < 2 ? used[which]++ : i;
    widen(from.data, from.desc.type, from.offset(row, std::int64_t{0}), width, merged.data() + i * width);
  }
  return merged;
}

}  // namespace msabench::reference
