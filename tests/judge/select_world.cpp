// SPDX-License-Identifier: Apache-2.0
#include "select_world.h"

#include <algorithm>

#include "reference/select.h"

namespace msabench::judge::test {

select_world::select_world(std::vector<std::int64_t> visible, std::int32_t heads, std::int32_t topk,
                           std::vector<std::vector<double>> given, std::int32_t local_blocks, std::int32_t init_blocks)
    : visible_(std::move(visible)) {
  const auto rows = std::ssize(visible_);
  agreed.operation = op::select;
  agreed.hq = agreed.hkv = agreed.hi = heads;
  agreed.block = 16;
  agreed.topk = topk;
  agreed.local_blocks = local_blocks;
  agreed.init_blocks = init_blocks;
  agreed.q = agreed.kv = agreed.out = bf16;
  agreed.total_q = agreed.batch = rows;
  agreed.max_q_len = 1;
  agreed.max_kv_len = 16 * *std::ranges::max_element(visible_);
  scores = tensor(fp32, {heads, rows, agreed.max_blocks()});
  ids = tensor(i32, {rows, heads, topk});
  cu_q = tensor(i32, {rows + 1});
  kv_lens = tensor(i32, {rows});
  for (std::int64_t i = 0; i < rows; ++i) {
    cu_q.set_int(i + 1, static_cast<std::int32_t>(i + 1));
    // Mid block, so that the own block is partial.
    const std::int64_t blocks = visible_[static_cast<std::size_t>(i)];
    kv_lens.set_int(i, static_cast<std::int32_t>(blocks == 0 ? 0 : blocks * 16 - 5));
    for (std::int32_t h = 0; h < heads; ++h) {
      const auto& row = given[static_cast<std::size_t>(i * heads + h)];
      for (std::size_t b = 0; b < row.size(); ++b) scores.set(scores.view().offset(h, i, b), row[b]);
    }
  }
  answer();
}

judge::subject select_world::subject() const {
  case_spec definition;
  definition.operation = op::select;
  definition.family = "select";
  return {definition,
          agreed,
          delivers,
          honest_numerics(bf16),
          {{slot::scores, scores.view()}, {slot::cu_seqlens_q, cu_q.view()}, {slot::kv_lens, kv_lens.view()}},
          targets};
}

std::vector<std::int64_t> select_world::all_rows() const {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < std::ssize(visible_); ++i) all.push_back(i);
  return all;
}

void select_world::answer() {
  const reference::select_inputs in{agreed, scores.view(), cu_q.view(), kv_lens.view()};
  const auto chosen = reference::select(in, all_rows());
  for (std::size_t i = 0; i < chosen.size(); ++i) ids.set_int(static_cast<std::int64_t>(i), chosen[i]);
}

void select_world::set_ids(std::int64_t row, std::int64_t head, const std::vector<std::int32_t>& list) {
  for (std::size_t i = 0; i < list.size(); ++i) ids.set_int(ids.view().offset(row, head, i), list[i]);
}

launch select_world::outputs() const {
  launch l;
  l.outputs = {{slot::ids, ids.view()}};
  return l;
}

std::vector<check_result> select_world::checks() const { return expect(subject(), all_rows())->check(outputs(), 0, 0); }

}  // namespace msabench::judge::test
