// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/small_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "tests/kernels/small_lengths.h"

namespace msabench::plugin_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

// Scores are of order 1, sums of a few dozen products.
constexpr double tolerance = 1e-5;

}  // namespace

small_index::small_index(msabench_op op, index_shape given, unsigned seed)
    : shape(std::move(given)), problem(empty_problem(op)) {
  make_lengths();
  problem.hkv = problem.hi = shape.heads;
  problem.di = shape.di;
  problem.block = shape.block;
  problem.topk = shape.topk;
  problem.local_blocks = shape.local_blocks;
  problem.init_blocks = shape.init_blocks;
  problem.page_layout = shape.page_size > 0 ? 1 : 0;
  problem.page_size = shape.page_size;
  problem.batch = static_cast<std::int64_t>(shape.sequences.size());
  problem.total_q = tokens_;
  for (const auto& sequence : shape.sequences)
    problem.max_q_len = std::max<std::int64_t>(problem.max_q_len, sequence.first);
  problem.max_kv_len = longest_;
  problem.total_kv = keys_;
  problem.q_idx = problem.k_idx = shape.type;
  problem.index_scale = shape.index_scale;

  const std::int64_t rows = tokens_ + shape.spare_rows, blocks = (longest_ + shape.block - 1) / shape.block;
  q_idx = buffer(shape.type, {rows, shape.heads, shape.di});
  scores = buffer(fp32_type, {shape.heads, rows, blocks});
  ids = buffer(int32_type, {rows, shape.heads, shape.topk});
  lse_idx = buffer(fp32_type, {rows, shape.heads});
  make_keys();
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      for (std::int64_t c = 0; c < shape.di; ++c) q_idx.set({row, head, c}, normal(random));
    }
  }
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    for (std::int64_t j = 0; j < shape.sequences[static_cast<std::size_t>(b)].second; ++j) {
      for (std::int64_t c = 0; c < shape.di; ++c) set_key(b, j, c, normal(random));
    }
  }
}

void small_index::make_lengths() {
  small_lengths made(shape.sequences);
  cu_seqlens_q = std::move(made.cu_seqlens_q);
  cu_seqlens_kv = std::move(made.cu_seqlens_kv);
  kv_lens = std::move(made.kv_lens);
  tokens_ = made.tokens;
  keys_ = made.keys;
  longest_ = made.longest;
}

/// Whatever no key lies in stays NaN: 0xA5A5.. is a number, so it is written.
void small_index::make_keys() {
  if (shape.page_size == 0) {
    k_idx = buffer(shape.type, {keys_, shape.di});
    return;
  }
  std::int64_t pages = 1;  // page 0 belongs to nobody
  const std::int64_t most = (longest_ + shape.page_size - 1) / shape.page_size;
  block_table_idx = buffer(int32_type, {problem.batch == 0 ? std::ssize(shape.sequences) : problem.batch, most + 1});
  for (std::int64_t b = 0; b < std::ssize(shape.sequences); ++b) {
    const std::int64_t used =
        (shape.sequences[static_cast<std::size_t>(b)].second + shape.page_size - 1) / shape.page_size;
    // Backwards, so that neighbours in the sequence are none in memory.
    for (std::int64_t page = 0; page <= most; ++page)
      block_table_idx.set({b, page}, page < used ? static_cast<double>(pages + used - 1 - page) : 2000000000);
    pages += used;
  }
  problem.pool_pages = pages;
  k_idx = buffer(shape.type, {pages, shape.page_size, shape.di});
  for (std::int64_t page = 0; page < pages; ++page) {
    for (std::int64_t slot = 0; slot < shape.page_size; ++slot) {
      for (std::int64_t c = 0; c < shape.di; ++c) k_idx.set({page, slot, c}, no_number);
    }
  }
}

void small_index::set_key(std::int64_t b, std::int64_t j, std::int64_t c, double value) {
  if (shape.page_size == 0) {
    k_idx.set({static_cast<std::int64_t>(cu_seqlens_kv.get({b})) + j, c}, value);
  } else {
    k_idx.set({static_cast<std::int64_t>(block_table_idx.get({b, j / shape.page_size})), j % shape.page_size, c},
              value);
  }
}

double small_index::key(std::int64_t b, std::int64_t j, std::int64_t c) const {
  if (shape.page_size == 0) return k_idx.get({static_cast<std::int64_t>(cu_seqlens_kv.get({b})) + j, c});
  return k_idx.get({static_cast<std::int64_t>(block_table_idx.get({b, j / shape.page_size})), j % shape.page_size, c});
}

arguments small_index::args() const {
  arguments given;
  given.put(MSABENCH_Q_IDX, q_idx);
  given.put(MSABENCH_K_IDX, k_idx);
  given.put(MSABENCH_CU_SEQLENS_Q, cu_seqlens_q);
  given.put(MSABENCH_KV_LENS, kv_lens);
  if (shape.page_size == 0) {
    given.put(MSABENCH_CU_SEQLENS_KV, cu_seqlens_kv);
  } else {
    given.put(MSABENCH_BLOCK_TABLE_IDX, block_table_idx);
  }
  if (problem.op == MSABENCH_OP_SCORE) {
    given.put(MSABENCH_SCORES, scores);
  } else {
    given.put(MSABENCH_IDS, ids);
    given.put(MSABENCH_LSE_IDX, lse_idx);
  }
  return given;
}

small_index::place small_index::place_of(std::int64_t row) const {
  std::int64_t b = 0;
  while (cu_seqlens_q.get({b + 1}) <= static_cast<double>(row)) ++b;
  return {b, static_cast<std::int64_t>(kv_lens.get({b}) - cu_seqlens_q.get({b + 1})) + row};
}

double small_index::score_of(std::int64_t row, std::int64_t head, std::int64_t j) const {
  const double scale = shape.index_scale != 0 ? shape.index_scale : 1 / std::sqrt(static_cast<double>(shape.di));
  double sum = 0;
  for (std::int64_t c = 0; c < shape.di; ++c) sum += q_idx.get({row, head, c}) * key(place_of(row).sequence, j, c);
  return scale * sum;
}

/// Of the visible blocks.
std::vector<double> small_index::block_scores(std::int64_t row, std::int64_t head) const {
  const std::int64_t position = place_of(row).position;
  std::vector<double> best(static_cast<std::size_t>(position < 0 ? 0 : position / shape.block + 1), -infinity);
  for (std::int64_t j = 0; j <= position; ++j) {
    double& score = best[static_cast<std::size_t>(j / shape.block)];
    const double s = score_of(row, head, j);
    if (s > score) score = s;
  }
  return best;
}

std::string small_index::place_text(std::int64_t row, std::int64_t head) const {
  return "row " + std::to_string(row) + " head " + std::to_string(head) + ": ";
}

std::optional<std::string> small_index::score_fault(std::int64_t row, std::int64_t head) const {
  const auto expected = block_scores(row, head);
  for (std::int64_t b = 0; b < scores.shape()[2]; ++b) {
    const double want = b < std::ssize(expected) ? expected[static_cast<std::size_t>(b)] : -infinity;
    const double got = scores.get({head, row, b});
    const bool agrees = std::isinf(want) ? got == want : std::abs(got - want) <= tolerance;
    if (!agrees)
      return place_text(row, head) + "block " + std::to_string(b) + " is " + std::to_string(got) + ", not " +
             std::to_string(want);
  }
  return std::nullopt;
}

std::optional<std::string> small_index::index_fault(std::int64_t row, std::int64_t head) const {
  const auto expected = block_scores(row, head);
  const auto blocks = std::ssize(expected);
  std::vector<std::int32_t> order;
  for (std::int32_t b = 0; b < blocks; ++b) order.push_back(b);
  const auto forced = [&](std::int32_t b) { return b < shape.init_blocks || b > blocks - 1 - shape.local_blocks; };
  const auto score = [&](std::int32_t b) { return expected[static_cast<std::size_t>(b)]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return forced(a) != forced(b) ? forced(a) : !forced(a) && score(a) > score(b);
  });
  order.resize(std::min(order.size(), static_cast<std::size_t>(shape.topk)));
  std::sort(order.begin(), order.end());
  double sum = 0;
  for (const std::int32_t b : order) {
    for (std::int64_t j = b * shape.block; j < (b + 1) * shape.block && j <= place_of(row).position; ++j)
      sum += std::exp(score_of(row, head, j));
  }
  order.resize(static_cast<std::size_t>(shape.topk), -1);
  for (std::int32_t slot = 0; slot < shape.topk; ++slot) {
    if (ids.get({row, head, slot}) != order[static_cast<std::size_t>(slot)])
      return place_text(row, head) + "other ids than expected";
  }
  const double got = lse_idx.get({row, head}), want = std::log(sum);
  if (std::isinf(want) ? got != want : !(std::abs(got - want) <= tolerance))
    return place_text(row, head) + "lse_idx is " + std::to_string(got) + ", not " + std::to_string(want);
  return std::nullopt;
}

std::optional<std::string> small_index::fault() const {
  if (!scores.guards_intact() || !ids.guards_intact() || !lse_idx.guards_intact()) return "guard bands written";
  const bool scoring = problem.op == MSABENCH_OP_SCORE;
  for (std::int64_t row = 0; row < q_idx.shape()[0]; ++row) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      if (row >= tokens_) {
        const bool untouched = scoring ? scores.untouched({head, row, 0})
                                       : ids.untouched({row, head, 0}) && lse_idx.untouched({row, head});
        if (!untouched) return place_text(row, head) + "past T, but written";
      } else if (const auto found = scoring ? score_fault(row, head) : index_fault(row, head)) {
        return found;
      }
    }
  }
  return std::nullopt;
}

}  // namespace msabench::plugin_test
