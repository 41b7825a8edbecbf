// SPDX-License-Identifier: Apache-2.0
#include "inputs/selection.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "inputs/recorded.h"
#include "inputs/shuffle.h"

namespace msabench {

namespace {

// Rows that share what they select in variants shared64 and realistic.
constexpr std::int64_t neighbours = 64;

// Nothing is selected, or nobody knows what.
bool reads_every_block(const case_spec& c) {
  return c.operation == op::dense || c.operation == op::dense_backward || c.operation == op::vit_attend ||
         c.operation == op::vit3d || (c.operation == op::kl && c.options.warm) ||
         (c.operation == op::msa && !plants_selection(c));
}

}  // namespace

selection::selection(const case_spec& c, const problem& p, const batch& rows, bool shared)
    : rows_(rows),
      problem_(p),
      short_rows_(c.options.short_rows),
      lenient_(c.options.lenient),
      heads_(p.hkv),
      topk_(reads_every_block(c) ? std::max<std::int64_t>(1, p.max_blocks()) : p.topk),
      ids_stream_(name_without_seed(c), "ids", c.seed),
      form_stream_(name_without_seed(c), "ids_form", c.seed),
      order_stream_(name_without_seed(c), "ids_order", c.seed) {
  const auto cells = static_cast<std::size_t>(rows.total_q() * heads_);
  ids_.assign(cells * static_cast<std::size_t>(topk_), -1);
  counts_.assign(cells, 0);
  const bool random = c.family == "random";
  const bool shared64 = random && c.variant == "shared64", realistic = random && c.variant == "realistic";
  std::optional<recorded_tensor> recorded;
  if (c.family == "recorded" && c.operation == op::attend) recorded.emplace(open_recording(c), slot::ids);
  // Last rows first: where rows share, the earlier ones of a sequence follow its last.
  for (std::int64_t row = rows.total_q(); row-- > 0;) {
    const batch_row& at = rows.rows()[static_cast<std::size_t>(row)];
    const bool follows = shared && row + 1 < rows.first_row(at.sequence + 1);
    for (std::int64_t h = 0; h < heads_; ++h) {
      const std::int64_t leader = shared64 ? last_of_neighbours(row) : row;
      auto chosen = recorded       ? recorded_ids(*recorded, p, row, h)
                    : follows      ? choose_like(last_blocks(at.sequence, h), row)
                    : leader > row ? choose_like(blocks(leader, h), row)
                    : realistic    ? choose_realistic(row, h)
                                   : choose(row, h);
      if (short_rows_ || lenient_) thin_out(chosen, row, h);
      counts_[cell(row, h)] = static_cast<std::int32_t>(chosen.size());
      std::copy(chosen.begin(), chosen.end(), ids_.begin() + static_cast<std::ptrdiff_t>(cell(row, h)) * topk_);
    }
  }
  count_keys_read();
}

std::uint32_t selection::word(const stream& from, std::int64_t row, std::int64_t head, std::int64_t i) const {
  return from.word(cell(row, head) * static_cast<std::uint64_t>(4 * topk_) + static_cast<std::uint64_t>(i));
}

std::vector<std::int32_t> selection::choose(std::int64_t row, std::int64_t head) const {
  const batch_row& at = rows_.rows()[static_cast<std::size_t>(row)];
  const std::int64_t visible = at.visible_blocks(problem_.block);
  std::vector<std::int32_t> chosen;
  if (visible <= topk_) {
    for (std::int64_t b = 0; b < visible; ++b) chosen.push_back(static_cast<std::int32_t>(b));
    return chosen;
  }
  // More than topk blocks are visible, so the forced ones at both ends don't meet.
  const std::int64_t own = visible - 1, init = problem_.init_blocks, local = problem_.local_blocks;
  for (std::int64_t b = 0; b < init; ++b) chosen.push_back(static_cast<std::int32_t>(b));
  const std::int64_t others = visible - init - local, wanted = topk_ - init - local;
  // Floyd's algorithm: each subset of `wanted` out of `others` is equally likely.
  for (std::int64_t i = 0; i < wanted; ++i) {
    const std::int64_t last = others - wanted + i;
    const std::int64_t drawn = word(ids_stream_, row, head, i) % (last + 1);
    const auto id = static_cast<std::int32_t>(init + drawn);
    const bool taken = std::find(chosen.begin() + init, chosen.end(), id) != chosen.end();
    chosen.push_back(taken ? static_cast<std::int32_t>(init + last) : id);
  }
  for (std::int64_t b = own - local + 1; b <= own; ++b) chosen.push_back(static_cast<std::int32_t>(b));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// Of the rows that share: 64 of a sequence, counted from its first.
std::int64_t selection::last_of_neighbours(std::int64_t row) const {
  const batch_row& at = rows_.rows()[static_cast<std::size_t>(row)];
  const std::int64_t first = rows_.first_row(at.sequence);
  return std::min(first + (row - first) / neighbours * neighbours + neighbours, rows_.first_row(at.sequence + 1)) - 1;
}

std::vector<std::int32_t> selection::choose_realistic(std::int64_t row, std::int64_t head) const {
  const batch_row& at = rows_.rows()[static_cast<std::size_t>(row)];
  const std::int64_t visible = at.visible_blocks(problem_.block);
  if (visible <= topk_) return choose(row, head);
  constexpr std::int64_t stripe = 16;
  const std::int64_t own = visible - 1, on_stripe = (own - 3 - head % stripe) / stripe * stripe + head % stripe;
  std::vector<std::int32_t> model;
  for (const std::int64_t b : {std::int64_t{0}, own - 1, own - 2, on_stripe, on_stripe - stripe})
    if (b >= 0) model.push_back(static_cast<std::int32_t>(b));
  const std::size_t hot = model.size();
  // Those of the neighbours and those of its own, in turns; choose_like takes as many as there is room for.
  const auto shared = choose(last_of_neighbours(row), head), single = choose(row, head);
  for (std::size_t i = 0; i < std::max(shared.size(), single.size()); ++i)
    for (const auto* from : {&shared, &single})
      if (i < from->size()) model.push_back((*from)[i]);
  // Ascending lists would fill the row from the front of the sequence.
  shuffle(std::span(model).subspan(hot), [&](std::int64_t i) { return word(form_stream_, row, head, i); });
  return choose_like(model, row);
}

std::vector<std::int32_t> selection::choose_like(std::span<const std::int32_t> model, std::int64_t row) const {
  const std::int64_t visible = rows_.rows()[static_cast<std::size_t>(row)].visible_blocks(problem_.block);
  std::vector<std::int32_t> chosen;
  const auto take = [&](std::int64_t b) {
    const auto id = static_cast<std::int32_t>(b);
    if (static_cast<std::int64_t>(chosen.size()) < std::min(topk_, visible) &&
        std::find(chosen.begin(), chosen.end(), id) == chosen.end())
      chosen.push_back(id);
  };
  for (std::int64_t b = 0; b < visible; ++b) {
    if (b == problem_.init_blocks) b = std::max(b, visible - problem_.local_blocks);
    if (b < visible) take(b);
  }
  for (const std::int32_t b : model)
    if (b < visible) take(b);
  for (std::int64_t b = 0; b < visible && static_cast<std::int64_t>(chosen.size()) < std::min(topk_, visible); ++b)
    take(b);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

void selection::thin_out(std::vector<std::int32_t>& chosen, std::int64_t row, std::int64_t head) const {
  const auto count = static_cast<std::int64_t>(chosen.size());
  // Lenient rows keep at least half, so that the valid ids still stand between the invalid ones.
  const std::int64_t fewest = lenient_ ? (count + 1) / 2 : 0;
  const std::int64_t kept = fewest + word(form_stream_, row, head, 0) % (count - fewest + 1);
  shuffle(std::span(chosen), [&](std::int64_t i) { return word(form_stream_, row, head, 1 + i); });
  chosen.resize(static_cast<std::size_t>(kept));
  std::sort(chosen.begin(), chosen.end());
}

std::span<const std::int32_t> selection::blocks(std::int64_t row, std::int64_t head) const {
  const std::size_t at = cell(row, head);
  return {ids_.data() + at * static_cast<std::size_t>(topk_), static_cast<std::size_t>(counts_[at])};
}

std::span<const std::int32_t> selection::last_blocks(std::int64_t sequence, std::int64_t head) const {
  if (rows_.at(sequence).q_len == 0) return {};
  return blocks(rows_.first_row(sequence + 1) - 1, head);
}

void selection::count_keys_read() {
  first_ = {0};
  for (const sequence& s : rows_.sequences()) {
    const std::int64_t blocks_held = (s.kv_len + problem_.block - 1) / problem_.block;
    first_.push_back(first_.back() + static_cast<std::size_t>(heads_ * blocks_held));
  }
  keys_read_.assign(first_.back(), 0);
  for (std::int64_t row = 0; row < rows_.total_q(); ++row) {
    const batch_row& at = rows_.rows()[static_cast<std::size_t>(row)];
    const std::int64_t blocks_held = (at.kv_len + problem_.block - 1) / problem_.block;
    for (std::int64_t h = 0; h < heads_; ++h)
      for (const std::int32_t b : blocks(row, h)) {
        const std::int64_t seen =
            std::min<std::int64_t>(at.position + 1 - std::int64_t{b} * problem_.block, problem_.block);
        auto& read =
            keys_read_[first_[static_cast<std::size_t>(at.sequence)] + static_cast<std::size_t>(h * blocks_held + b)];
        read = std::max(read, static_cast<std::int32_t>(seen));
      }
  }
}

std::int64_t selection::keys_read(std::int64_t sequence, std::int64_t head, std::int64_t b) const {
  const std::int64_t blocks_held = (rows_.at(sequence).kv_len + problem_.block - 1) / problem_.block;
  return keys_read_[first_[static_cast<std::size_t>(sequence)] + static_cast<std::size_t>(head * blocks_held + b)];
}

std::vector<std::int32_t> selection::written(std::int64_t row, std::int64_t head) const {
  const auto chosen = blocks(row, head);
  std::vector<std::int32_t> ids(chosen.begin(), chosen.end());
  const auto random = [&](std::int64_t i) { return word(order_stream_, row, head, i); };
  if (lenient_) {
    add_invalid_ids(ids, row, head);
    shuffle(std::span(ids), random);
    return ids;
  }
  switch (problem_.asked.in_id_order) {
    case id_order::ascending:
    case id_order::none:
      break;
    case id_order::local_last: {
      // Of the others nothing is promised.
      const bool own_last =
          !ids.empty() && ids.back() + 1 == rows_.rows()[static_cast<std::size_t>(row)].visible_blocks(problem_.block);
      shuffle(std::span(ids).first(ids.size() - (own_last ? 1 : 0)), random);
      break;
    }
    case id_order::score:
    case id_order::any:
      // Attention is handed no scores: any order may be theirs.
      shuffle(std::span(ids), random);
      break;
  }
  ids.resize(static_cast<std::size_t>(topk_), -1);
  return ids;
}

// Fills up to topk with what contract section 5 says is ignored: -1, repetitions, blocks past the own one, nonsense.
void selection::add_invalid_ids(std::vector<std::int32_t>& ids, std::int64_t row, std::int64_t head) const {
  const batch_row& at = rows_.rows()[static_cast<std::size_t>(row)];
  const std::size_t valid = ids.size();
  const std::int64_t past = at.visible_blocks(problem_.block);
  for (std::int64_t i = static_cast<std::int64_t>(valid); i < topk_; ++i) {
    const std::uint32_t drawn = word(form_stream_, row, head, 2 * topk_ + i);
    const std::uint32_t detail = drawn / 8;
    std::int64_t id = -1;
    switch (drawn % 8) {
      case 0:
      case 1:
        if (valid > 0) id = ids[detail % valid];
        break;
      case 2:
      case 3:
        id = past + detail % 3;
        break;
      case 4:
        id = std::numeric_limits<std::int32_t>::max() - static_cast<std::int32_t>(detail % 16);
        break;
      case 5:
        id = std::numeric_limits<std::int32_t>::min() + static_cast<std::int32_t>(detail % 16);
        break;
      default:
        break;
    }
    ids.push_back(static_cast<std::int32_t>(id));
  }
}

}  // namespace msabench
