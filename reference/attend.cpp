// SPDX-License-Identifier: Apache-2.0
#include "reference/attend.h"

#include <fmt/format.h>

#include "core/error.h"

namespace msabench::reference {
namespace {

attention_context context_of(const attend_inputs& in) {
  return {"attend", in.p, in.q, in.k, in.v, in.block_table, in.cu_seqlens_kv, {in.q_scale, in.k_scale, in.v_scale}};
}

bool every_key(const attend_inputs& in) { return in.ids.desc.shape.empty(); }

void require_blocks(const attend_inputs& in) {
  if (in.p.block < 1) throw suite_error("attend: the problem has no valid block");
  if (every_key(in)) return;
  if (in.ids.desc.shape.size() != 3 || in.ids.desc.shape[1] != in.p.hkv || in.ids.desc.strides[2] != 1)
    throw suite_error("attend: ids must be [T,Hkv,k]");
}

key_list find_keys(const attend_inputs& in, const group_place& at, std::vector<std::int64_t>& keys) {
  if (every_key(in)) return key_list(visible_keys(at.place));
  std::vector<std::int32_t> ids;
  for (std::int64_t slot = 0; slot < in.ids.desc.shape[2]; ++slot) ids.push_back(in.ids.int_at(at.row, at.group, slot));
  find_block_keys(ids, at.place, in.p.block, keys);
  return key_list(keys);
}

group_place place_group(const attend_inputs& in, std::int64_t row, std::int64_t head) {
  if (head < 0 || head >= in.p.hq) throw suite_error(fmt::format("attend: there is no query head {}", head));
  return {row, head / in.p.group(), place_of(in.cu_seqlens_q, in.kv_lens, row)};
}

}  // namespace

std::vector<attend_row> attend(const attend_inputs& in, std::span<const std::int64_t> rows, const score_error& err) {
  const attention_context c = context_of(in);
  require_blocks(in);
  return attend_rows(
      c, row_map(in.cu_seqlens_q, in.kv_lens), rows, err,
      [&](const group_place& at, std::vector<std::int64_t>& memory) { return find_keys(in, at, memory); });
}

attend_row attend_head(const attend_inputs& in, std::int64_t row, std::int64_t head, const score_error& err) {
  const attention_context c = context_of(in);
  require_blocks(in);
  const group_place at = place_group(in, row, head);
  attention_scratch s;
  attend_row result;
  attend_head(c, at, head, find_keys(in, at, s.positions), err, result, s);
  return result;
}

std::vector<attended_key> attended_keys(const attend_inputs& in, std::int64_t row, std::int64_t head) {
  const attention_context c = context_of(in);
  require_blocks(in);
  const group_place at = place_group(in, row, head);
  attention_scratch s;
  const key_list keys = find_keys(in, at, s.positions);
  if (keys.size() == 0) return {};
  weigh_head(c, at, head, keys, s);
  std::vector<attended_key> result;
  for (std::int64_t j = 0; j < keys.size(); ++j) {
    const auto i = static_cast<std::size_t>(j);
    result.push_back({keys[j], keys[j] / in.p.block, s.score[i], s.weight[i]});
  }
  return result;
}

double score_of(const attend_inputs& in, std::int64_t row, std::int64_t head, std::int64_t key) {
  const attention_context c = context_of(in);
  attention_scratch s;
  weigh_head(c, place_group(in, row, head), head, key_list(std::span(&key, 1)), s);
  return s.score[0];
}

void value_of(const attend_inputs& in, std::int64_t row, std::int64_t value_head, std::int64_t key,
              std::span<double> out) {
  const attention_context c = context_of(in);
  const row_place place = place_of(in.cu_seqlens_q, in.kv_lens, row);
  widen(c.v.data, c.v.desc.type, c.value_rows.offset(place.sequence, key, value_head), c.d, out.data());
  if (const double scale = c.value_scale.at(place.sequence, key, value_head); scale != 1)
    for (double& x : out.first(static_cast<std::size_t>(c.d))) x *= scale;
}

}  // namespace msabench::reference
