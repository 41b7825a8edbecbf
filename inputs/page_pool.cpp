// SPDX-License-Identifier: Apache-2.0
#include "inputs/page_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/generator.h"
#include "inputs/shuffle.h"

namespace msabench {

namespace {

// Any use of it as a page number faults: no pool is that large.
constexpr std::int32_t unused_entry = 0x7FFFFFF0;

// Whole pages of tokens from before this call.
std::int64_t history_pages(const sequence& s, std::int64_t page_size) {
  return std::max<std::int64_t>(0, s.kv_len - s.q_len) / page_size;
}

struct shared_prefix {
  std::int64_t lender = -1, borrower = -1, pages = 0;
};

// Between the two sequences of longest history.
shared_prefix longest_shareable(const batch& rows, std::int64_t page_size) {
  std::vector<std::int64_t> by_history(static_cast<std::size_t>(rows.size()));
  std::iota(by_history.begin(), by_history.end(), 0);
  std::stable_sort(by_history.begin(), by_history.end(), [&](std::int64_t a, std::int64_t b) {
    return history_pages(rows.at(a), page_size) > history_pages(rows.at(b), page_size);
  });
  if (by_history.size() < 2) return {};
  return {std::min(by_history[0], by_history[1]), std::max(by_history[0], by_history[1]),
          history_pages(rows.at(by_history[1]), page_size)};
}

}  // namespace

page_pool::page_pool(const case_spec& c, const problem& p, const batch& rows, bool share, slot table) {
  const stream random(name_without_seed(c), name(table), c.seed);
  const std::int64_t first = c.options.pool_pages != 0 ? p.pool_pages / 2 : 0;
  std::vector<std::int32_t> order(static_cast<std::size_t>(p.pool_pages - first));
  std::iota(order.begin(), order.end(), static_cast<std::int32_t>(first));
  std::vector<std::uint32_t> words(order.size());
  random.fill_words(words.data(), 0, words.size());
  shuffle(std::span(order), [&](std::int64_t i) { return words[static_cast<std::size_t>(i)]; });
  if (const auto zero = std::find(order.begin(), order.end(), 0); zero != order.end())
    std::iter_swap(zero, order.end() - 1);

  const shared_prefix prefix = share ? longest_shareable(rows, p.page_size) : shared_prefix{};
  std::size_t taken = 0;
  for (std::int64_t b = 0; b < rows.size(); ++b) {
    const std::int64_t needed = (rows.at(b).kv_len + p.page_size - 1) / p.page_size;
    const std::int64_t shared = b == prefix.borrower ? prefix.pages : 0;
    std::vector<std::int32_t> row;
    for (std::int64_t column = 0; column < needed; ++column) {
      if (column >= shared && taken == order.size())
        throw suite_error(fmt::format("a pool of {} pages is too small for {}", p.pool_pages, name(c)));
      row.push_back(column < shared ? table_[static_cast<std::size_t>(prefix.lender)][static_cast<std::size_t>(column)]
                                    : order[taken++]);
    }
    table_.push_back(std::move(row));
  }
  index_holders(p.pool_pages);
}

void page_pool::index_holders(std::int64_t pages) {
  first_holder_.assign(static_cast<std::size_t>(pages) + 1, 0);
  for (const auto& row : table_)
    for (const std::int32_t page : row) ++first_holder_[static_cast<std::size_t>(page) + 1];
  std::partial_sum(first_holder_.begin(), first_holder_.end(), first_holder_.begin());
  holders_.resize(first_holder_.back());
  std::vector<std::size_t> next(first_holder_.begin(), first_holder_.end() - 1);
  for (std::size_t b = 0; b < table_.size(); ++b)
    for (std::size_t column = 0; column < table_[b].size(); ++column)
      holders_[next[static_cast<std::size_t>(table_[b][column])]++] = {static_cast<std::int64_t>(b),
                                                                       static_cast<std::int64_t>(column)};
}

std::span<const page_pool::holder> page_pool::holders(std::int64_t page) const {
  const std::size_t first = first_holder_[static_cast<std::size_t>(page)];
  return {holders_.data() + first, first_holder_[static_cast<std::size_t>(page) + 1] - first};
}

std::int32_t page_pool::entry(std::int64_t sequence, std::int64_t column) const {
  const auto& row = table_[static_cast<std::size_t>(sequence)];
  return column < static_cast<std::int64_t>(row.size()) ? row[static_cast<std::size_t>(column)]
                                                        : unused_entry + static_cast<std::int32_t>(column % 15);
}

std::int64_t page_pool::columns(std::int64_t sequence) const {
  return static_cast<std::int64_t>(table_[static_cast<std::size_t>(sequence)].size());
}

}  // namespace msabench
