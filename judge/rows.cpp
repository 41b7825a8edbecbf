// SPDX-License-Identifier: Apache-2.0
#include "judge/rows.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "core/generator.h"

namespace msabench {

namespace {

// The last row of every sequence, which sees most.
std::vector<std::int64_t> last_rows(const case_spec& c) {
  std::vector<std::int64_t> rows;
  std::int64_t end = 0;
  for (const auto& s : sequences(c))
    if (end += s.q_len; s.q_len > 0) rows.push_back(end - 1);
  return rows;
}

// Rows that faults like: borders of sequences and of blocks.
std::vector<std::int64_t> border_rows(const case_spec& c) {
  std::vector<std::int64_t> ends, borders;
  std::int64_t first = 0;
  for (const auto& s : sequences(c)) {
    for (std::int64_t i = 0; i < s.q_len; ++i) {
      const std::int64_t position = s.kv_len - s.q_len + i;
      const std::int64_t offset = position < 0 ? -1 : position % c.shape.block;
      if (i == 0 || i + 1 == s.q_len)
        ends.push_back(first + i);
      else if (position == 0 || offset == 0 || offset == c.shape.block - 1 || position == -1)
        borders.push_back(first + i);
    }
    first += s.q_len;
  }
  ends.insert(ends.end(), borders.begin(), borders.end());
  return ends;
}

}  // namespace

bool sums_over_rows(op o) { return o == op::attend_backward || o == op::dense_backward || o == op::kl; }

std::int64_t total_rows(const case_spec& c) {
  std::int64_t total = 0;
  for (const auto& s : sequences(c)) total += s.q_len;
  return total;
}

std::vector<std::int64_t> rows_to_check(const case_spec& c, std::string_view outputs_sha256,
                                        std::int64_t budget_triples, std::int64_t fewest) {
  if (!sums_over_rows(c.operation)) return sampled_rows(c, outputs_sha256, budget_triples, fewest);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(total_rows(c)));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

std::vector<std::int64_t> sampled_rows(const case_spec& c, std::string_view outputs_sha256, std::int64_t budget_triples,
                                       std::int64_t fewest) {
  const std::int64_t total = total_rows(c), cost = cost_triples(c);
  if (cost <= budget_triples) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(total));
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
  const std::int64_t affordable = std::max<std::int64_t>(fewest, total * budget_triples / cost);
  const std::int64_t drawn = std::max<std::int64_t>(1, affordable / 8);
  std::set<std::int64_t> chosen;
  const auto room = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(chosen.size()) < std::min(limit, total);
  };
  const std::int64_t spread = affordable - drawn;
  chosen.insert(0);
  for (const auto row : last_rows(c))
    if (room(spread)) chosen.insert(row);
  for (const auto row : border_rows(c))
    if (room(spread / 2)) chosen.insert(row);
  for (std::int64_t i = 0; i < spread && room(spread); ++i)
    chosen.insert(i * (total - 1) / std::max<std::int64_t>(1, spread - 1));
  const stream after_the_run(std::string(name_without_seed(c)) + std::string(outputs_sha256), "rows", c.seed);
  for (std::uint64_t i = 0; room(affordable) && i < 64 * static_cast<std::uint64_t>(affordable); ++i)
    chosen.insert(static_cast<std::int64_t>(after_the_run.word(i)) % total);
  return {chosen.begin(), chosen.end()};
}

}  // namespace msabench
