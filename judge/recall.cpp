// SPDX-License-Identifier: Apache-2.0
#include "judge/recall.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace msabench::judge {
namespace {

constexpr std::size_t most_rows = 8;
constexpr std::int64_t affordable_triples = 1'000'000;

check_result reported(std::string id, double value, std::size_t lines) {
  check_result c;
  c.id = std::move(id);
  c.gate = false;
  c.passed = true;
  c.unit = "share of the heaviest blocks";
  c.value = value;
  c.note = fmt::format("{} rows x KV heads", lines);
  return c;
}

}  // namespace

recall::recall(const reference::attend_inputs& in, const reference::row_map& map, std::span<const std::int64_t> rows) {
  const problem& p = in.p;
  reference::attend_inputs all_keys = in;
  all_keys.ids = {};
  std::vector<std::int64_t> sparse;
  for (const auto row : rows)
    if (map.visible_blocks(row, p.block) > p.topk) sparse.push_back(row);
  const std::size_t count = std::min(most_rows, sparse.size());
  std::int64_t left = affordable_triples;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t row = sparse[i * sparse.size() / count];
    left -= (map[row].position + 1) * p.hq;
    if (left < 0) break;
    for (std::int64_t kv_head = 0; kv_head < p.hkv; ++kv_head) {
      block_masses m{row, kv_head, std::vector<double>(static_cast<std::size_t>(map.visible_blocks(row, p.block))), {}};
      for (std::int64_t head = kv_head * p.group(); head < (kv_head + 1) * p.group(); ++head)
        for (const auto& key : reference::attended_keys(all_keys, row, head))
          m.mass[static_cast<std::size_t>(key.block)] += key.weight;
      m.heaviest.resize(m.mass.size());
      std::iota(m.heaviest.begin(), m.heaviest.end(), 0);
      std::ranges::stable_sort(m.heaviest, std::greater<>{},
                               [&](std::int64_t b) { return m.mass[static_cast<std::size_t>(b)]; });
      m.heaviest.resize(static_cast<std::size_t>(p.topk));
      masses_.push_back(std::move(m));
    }
  }
}

std::vector<check_result> recall::check(const tensor_view& ids) const {
  double blocks = 0, scores = 0;
  for (const auto& m : masses_) {
    double found = 0, mass_found = 0, mass = 0;
    for (const auto b : m.heaviest) {
      bool selected = false;
      for (std::int64_t i = 0; i < ids.desc.shape[2]; ++i) selected |= ids.int_at(m.row, m.kv_head, i) == b;
      const double own = m.mass[static_cast<std::size_t>(b)];
      mass += own;
      found += selected ? 1 : 0;
      mass_found += selected ? own : 0;
    }
    blocks += found / static_cast<double>(m.heaviest.size());
    scores += mass > 0 ? mass_found / mass : 1;
  }
  const auto lines = static_cast<double>(masses_.size());
  return {reported("K6r", blocks / lines, masses_.size()), reported("K6s", scores / lines, masses_.size())};
}

}  // namespace msabench::judge
