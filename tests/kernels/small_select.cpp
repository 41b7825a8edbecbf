// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/small_select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "tests/kernels/small_lengths.h"

namespace msabench::plugin_test {

small_select::small_select(select_shape given, unsigned seed)
    : shape(std::move(given)), problem(empty_problem(MSABENCH_OP_SELECT)) {
  const auto batch = static_cast<std::int64_t>(shape.sequences.size());
  small_lengths made(shape.sequences);
  cu_seqlens_q = std::move(made.cu_seqlens_q);
  kv_lens = std::move(made.kv_lens);
  tokens_ = made.tokens;
  const std::int64_t longest = made.longest;
  problem.hkv = shape.hkv;
  problem.block = shape.block;
  problem.topk = shape.topk;
  problem.local_blocks = shape.local_blocks;
  problem.init_blocks = shape.init_blocks;
  problem.batch = batch;
  problem.total_q = tokens_;
  problem.max_kv_len = longest;

  const std::int64_t rows = tokens_ + shape.spare_rows, blocks = (longest + shape.block - 1) / shape.block;
  scores = buffer(fp32_type, {shape.hkv, rows, blocks});
  ids = buffer(int32_type, {rows, shape.hkv, shape.topk});
  std::mt19937 random(seed);
  for (std::int64_t head = 0; head < shape.hkv; ++head) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t b = 0; b < blocks; ++b) scores.set({head, row, b}, static_cast<double>(random() % 64) / 8 - 4);
    }
  }
}

arguments small_select::args() const {
  arguments given;
  given.put(MSABENCH_SCORES, scores);
  given.put(MSABENCH_IDS, ids);
  given.put(MSABENCH_CU_SEQLENS_Q, cu_seqlens_q);
  given.put(MSABENCH_KV_LENS, kv_lens);
  return given;
}

std::int64_t small_select::visible(std::int64_t row) const {
  std::int64_t b = 0;
  while (cu_seqlens_q.get({b + 1}) <= static_cast<double>(row)) ++b;
  const auto position = static_cast<std::int64_t>(kv_lens.get({b}) - cu_seqlens_q.get({b + 1})) + row;
  return position < 0 ? 0 : position / shape.block + 1;
}

std::vector<std::int32_t> small_select::expected(std::int64_t row, std::int64_t head) const {
  const std::int64_t blocks = visible(row);
  std::vector<std::int32_t> order(static_cast<std::size_t>(blocks));
  for (std::int64_t b = 0; b < blocks; ++b) order[static_cast<std::size_t>(b)] = static_cast<std::int32_t>(b);
  const auto forced = [&](std::int32_t b) { return b < shape.init_blocks || b > blocks - 1 - shape.local_blocks; };
  const auto score = [&](std::int32_t b) {
    const double s = scores.get({head, row, b});
    return std::isnan(s) ? -std::numeric_limits<double>::infinity() : s;
  };
  // Stable: among equals the lower id stays in front.
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return forced(a) != forced(b) ? forced(a) : !forced(a) && score(a) > score(b);
  });
  order.resize(std::min(order.size(), static_cast<std::size_t>(shape.topk)));
  std::sort(order.begin(), order.end());
  order.resize(static_cast<std::size_t>(shape.topk), -1);
  return order;
}

std::vector<std::int32_t> small_select::got(std::int64_t row, std::int64_t head) const {
  std::vector<std::int32_t> read;
  for (std::int32_t slot = 0; slot < shape.topk; ++slot)
    read.push_back(static_cast<std::int32_t>(ids.get({row, head, slot})));
  return read;
}

std::optional<std::string> small_select::fault() const {
  if (!ids.guards_intact()) return "guard bands written";
  for (std::int64_t row = 0; row < ids.shape()[0]; ++row) {
    for (std::int64_t head = 0; head < shape.hkv; ++head) {
      const std::string where = "row " + std::to_string(row) + " head " + std::to_string(head);
      if (row >= tokens_ && !ids.untouched({row, head, 0})) return where + ": past T, but written";
      if (row < tokens_ && got(row, head) != expected(row, head)) return where + ": other ids than expected";
    }
  }
  return std::nullopt;
}

}  // namespace msabench::plugin_test
