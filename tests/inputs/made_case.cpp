// SPDX-License-Identifier: Apache-2.0
#include "tests/inputs/made_case.h"

#include <set>

namespace msabench {

std::vector<made_case::place> made_case::find_rows() const {
  std::vector<place> all;
  const tensor_view& cu = view(slot::cu_seqlens_q);
  for (std::int64_t b = 0; b < batch(); ++b) {
    const std::int64_t q_len = cu.int_at(b + 1) - cu.int_at(b);
    for (std::int64_t i = 0; i < q_len; ++i) all.push_back({b, kv_len(b) - q_len + i, kv_len(b)});
  }
  return all;
}

std::vector<std::int64_t> made_case::chosen(std::int64_t row, std::int64_t head) const {
  const std::int64_t position = rows()[static_cast<std::size_t>(row)].position;
  std::set<std::int64_t> all;
  const bool all_of_them = p.operation == op::dense || p.kl_warm_up != 0;
  if (all_of_them)
    for (std::int64_t b = 0; position >= 0 && b <= position / p.block; ++b) all.insert(b);
  for (std::int64_t i = 0; !all_of_them && i < p.topk; ++i) {
    const std::int64_t id = id_at(row, head, i);
    if (position >= 0 && id >= 0 && id <= position / p.block) all.insert(id);
  }
  return {all.begin(), all.end()};
}

std::vector<std::vector<std::vector<bool>>> made_case::keys_read() const {
  std::vector<std::vector<std::vector<bool>>> read;
  for (std::int64_t b = 0; b < batch(); ++b)
    read.emplace_back(static_cast<std::size_t>(p.hkv), std::vector<bool>(static_cast<std::size_t>(kv_len(b))));
  const auto& all = rows();
  for (std::size_t row = 0; row < all.size(); ++row)
    for (std::int64_t head = 0; head < p.hkv; ++head)
      for (const std::int64_t block : chosen(static_cast<std::int64_t>(row), head))
        for (std::int64_t key = block * p.block; key < (block + 1) * p.block && key <= all[row].position; ++key)
          read[static_cast<std::size_t>(all[row].sequence)][static_cast<std::size_t>(head)]
              [static_cast<std::size_t>(key)] = true;
  return read;
}

}  // namespace msabench
