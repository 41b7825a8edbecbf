// SPDX-License-Identifier: Apache-2.0
#include "reference/rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace msabench::reference {
namespace {

bool are_segments(const tensor_view& kv_lens) { return kv_lens.desc.shape.empty(); }

std::int64_t sequences_of(const tensor_view& cu_seqlens_q, const tensor_view& kv_lens) {
  if (are_segments(kv_lens)) {
    if (cu_seqlens_q.desc.shape.size() != 1 || cu_seqlens_q.desc.shape[0] < 1)
      throw suite_error("cu_segments must be [S+1]");
    return cu_seqlens_q.desc.shape[0] - 1;
  }
  const std::int64_t batch = kv_lens.desc.elements();
  if (cu_seqlens_q.desc.shape.size() != 1 || cu_seqlens_q.desc.shape[0] != batch + 1)
    throw suite_error(fmt::format("cu_seqlens_q must have one entry more than the {} of kv_lens", batch));
  return batch;
}

row_place place_in(const tensor_view& cu_seqlens_q, const tensor_view& kv_lens, std::int64_t sequence,
                   std::int64_t row) {
  if (are_segments(kv_lens)) {
    const std::int64_t length = cu_seqlens_q.int_at(sequence + 1) - cu_seqlens_q.int_at(sequence);
    return {sequence, length - 1, length};
  }
  const std::int64_t kv_len = kv_lens.int_at(sequence);
  const std::int64_t end = cu_seqlens_q.int_at(sequence + 1);
  return {sequence, kv_len - (end - row), kv_len};
}

}  // namespace

row_place place_of(const tensor_view& cu_seqlens_q, const tensor_view& kv_lens, std::int64_t row) {
  const std::int64_t batch = sequences_of(cu_seqlens_q, kv_lens);
  if (row < 0 || batch == 0 || row >= cu_seqlens_q.int_at(batch))
    throw suite_error(fmt::format("row {} is no query row of the batch", row));
  // The last sequence that begins at or before the row: those without query tokens begin where the next one does.
  std::int64_t low = 0, high = batch;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (cu_seqlens_q.int_at(middle) <= row ? low : high) = middle;
  }
  return place_in(cu_seqlens_q, kv_lens, low, row);
}

std::int64_t visible_keys(const row_place& place) {
  return std::max<std::int64_t>(0, std::min(place.position + 1, place.kv_len));
}

std::int64_t visible_blocks(const row_place& place, std::int64_t block) {
  return (visible_keys(place) + block - 1) / block;
}

void find_block_keys(std::span<const std::int32_t> ids, const row_place& place, std::int64_t block,
                     std::vector<std::int64_t>& keys) {
  const std::int64_t visible = visible_keys(place), blocks = visible_blocks(place, block);
  std::vector<std::int64_t> chosen;
  for (const std::int64_t b : ids)
    if (b >= 0 && b < blocks) chosen.push_back(b);
  std::ranges::sort(chosen);
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  keys.clear();
  for (const std::int64_t b : chosen)
    for (std::int64_t key = b * block; key < std::min((b + 1) * block, visible); ++key) keys.push_back(key);
}

row_map::row_map(const tensor_view& cu_seqlens_q, const tensor_view& kv_lens) {
  const std::int64_t batch = sequences_of(cu_seqlens_q, kv_lens);
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t begin = cu_seqlens_q.int_at(b), end = cu_seqlens_q.int_at(b + 1);
    if (begin != total_rows() || end < begin)
      throw suite_error(fmt::format("cu_seqlens_q[{}] = {} after {}: lengths must add up", b, begin, total_rows()));
    for (std::int64_t row = begin; row < end; ++row) rows_.push_back(place_in(cu_seqlens_q, kv_lens, b, row));
  }
}

const row_place& row_map::operator[](std::int64_t row) const {
  if (row < 0 || row >= total_rows()) throw suite_error(fmt::format("row {} is no query row of the batch", row));
  return rows_[static_cast<std::size_t>(row)];
}

cache_map::cache_map(const problem& p, const tensor_view& cache, const tensor_view& block_table,
                     const tensor_view& cu_seqlens_kv)
    : p_(p), cache_(cache), table_(block_table), cu_(cu_seqlens_kv) {
  const std::size_t rank = cache.desc.shape.size(), axes = p.paged() ? 3 : 2;
  if (rank != axes && rank != axes + 1)
    throw suite_error(fmt::format("a cache of rank {} fits no layout of this problem", rank));
}

std::int64_t cache_map::offset(std::int64_t sequence, std::int64_t key, std::int64_t head) const {
  const bool has_heads = cache_.desc.shape.size() == (p_.paged() ? 4u : 3u);
  if (!p_.paged()) {
    const std::int64_t at = cu_.int_at(sequence) + key;
    return has_heads ? cache_.offset(at, head) : cache_.offset(at);
  }
  const std::int64_t page = table_.int_at(sequence, key / p_.page_size), slot = key % p_.page_size;
  return has_heads ? cache_.offset(page, head, slot) : cache_.offset(page, slot);
}

}  // namespace msabench::reference
