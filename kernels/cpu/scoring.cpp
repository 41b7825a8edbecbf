// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/scoring.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/scoring.cpp"
#include <hwy/foreach_target.h>
// After it, so that the tiles are those of the target.
#include "kernels/cpu/tiles-inl.h"

#include <cmath>
#include <limits>

#include "kernels/common/check.h"

HWY_BEFORE_NAMESPACE();
namespace msabench::cpu::HWY_NAMESPACE {

/// score_tile where rows are so few that memory is the limit.
void score_few(const index_call& call, const scoring_rows& rows, int keys, std::int64_t first_row, int ahead,
               const scoring_scratch& scratch) {
  // Keys that are on their way while one is computed.
  constexpr int distance = 64;
  const int count = static_cast<int>(rows.tile.tokens * call.heads - first_row);
  for (int at = 0; at < keys; at += direct_keys) {
    const bool same_tile = at + distance < tile_keys;
    const char* const* near = same_tile ? scratch.addresses + at + distance : scratch.ahead + at + distance - tile_keys;
    const int near_end = same_tile ? keys - at - distance : ahead + tile_keys - at - distance;
    with_storage<multiply_directly>(call.keys.type, scratch.addresses + at, std::min(direct_keys, keys - at),
                                    const_matrix{rows.queries + first_row * call.width, call.width}, count, call.width,
                                    matrix{scratch.scores + first_row * tile_keys + at, tile_keys}, near,
                                    std::clamp(near_end, 0, direct_keys));
  }
}

/// Scores of `keys` keys from `first` on, into scratch.scores, for the tokens from first_token on. Their addresses are in
/// scratch.addresses; meanwhile `ahead` keys at scratch.ahead are brought near.
void score_tile(const index_call& call, const scoring_rows& rows, int keys, std::int64_t first_token, int ahead,
                const scoring_scratch& scratch) {
  const std::int64_t first_row = first_token * call.heads;
  constexpr int few_rows = 8, whole_steps = 8;  // elements that every storage type transposes at once
  if (rows.tile.tokens * call.heads <= few_rows && call.width % whole_steps == 0) {
    return score_few(call, rows, keys, first_row, ahead, scratch);
  }
  lookahead none;
  for (int at = 0; at < keys; at += panel_lanes) {
    const int columns = std::min(panel_lanes, keys - at);
    with_storage<pack_columns>(call.keys.type, scratch.addresses + at, columns, call.width, scratch.panel,
                               scratch.ahead + at, std::clamp(ahead - at, 0, panel_lanes));
    multiply({rows.queries + first_row * call.width, call.width},
             static_cast<int>(rows.tile.tokens * call.heads - first_row), scratch.panel, call.width, columns, false,
             {scratch.scores + first_row * tile_keys + at, tile_keys}, none);
  }
}

/// Raises the maxima of the blocks that have keys in a tile.
void raise_maxima(const index_call& call, const scoring_rows& rows, std::int64_t first, int keys,
                  std::int64_t first_token, float* maxima, std::int64_t strip_blocks, std::int64_t first_block,
                  const scoring_scratch& scratch) {
  for (std::int64_t row = first_token * call.heads; row < rows.tile.tokens * call.heads; ++row) {
    const std::int64_t seen = std::min<std::int64_t>(rows.visible(row / call.heads) - first, keys);
    float* row_maxima = maxima + row * strip_blocks;
    for (std::int64_t at = 0; at < seen;) {
      const std::int64_t block = (first + at) / call.rule.block;
      const std::int64_t end = std::min(seen, (block + 1) * call.rule.block - first);
      const float greatest = rows.scale * maximum_of(scratch.scores + row * tile_keys + at, static_cast<int>(end - at));
      float& maximum = row_maxima[block - first_block];
      maximum = std::max(maximum, greatest);
      at = end;
    }
  }
}

void score_strip(const index_call& call, const scoring_rows& rows, std::int64_t first, std::int64_t count,
                 std::int64_t strip_blocks, const scoring_scratch& scratch) {
  for (std::int64_t row = 0; row < rows.tile.tokens * call.heads; ++row) {
    std::fill_n(scratch.maxima + row * strip_blocks, count, -std::numeric_limits<float>::infinity());
  }
  const std::int64_t end = std::min((first + count) * call.rule.block, rows.visible(rows.tile.tokens - 1));
  const key_list all{rows.tile.sequence, 0, nullptr, 1, end};
  const auto keys_from = [end](std::int64_t key) {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(end - key, 0, tile_keys));
  };
  scoring_scratch near = scratch;
  std::int64_t key = first * call.rule.block;
  if (key < end) gather(call.keys, all, {key, keys_from(key)}, near.ahead);
  for (; key < end; key += tile_keys) {
    const int keys = keys_from(key), ahead = keys_from(key + tile_keys);
    const std::int64_t first_token = std::max<std::int64_t>(0, key - rows.first_visible + 1);
    std::swap(near.addresses, near.ahead);
    gather(call.keys, all, {key + tile_keys, ahead}, near.ahead);
    score_tile(call, rows, keys, first_token, ahead, near);
    raise_maxima(call, rows, key, keys, first_token, scratch.maxima, strip_blocks, first, scratch);
  }
}

}  // namespace msabench::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msabench::cpu {

HWY_EXPORT(score_strip);

void score_strip(const index_call& call, const scoring_rows& rows, std::int64_t first, std::int64_t count,
                 std::int64_t strip_blocks, const scoring_scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(score_strip)(call, rows, first, count, strip_blocks, scratch);
}

void write_strip(const index_call& call, const scoring_rows& rows, std::int64_t first, std::int64_t count,
                 std::int64_t strip_blocks, const scoring_scratch& scratch) {
  for (std::int64_t row = 0; row < rows.tile.tokens * call.heads; ++row) {
    const std::int64_t token = rows.tile.first_row + row / call.heads, head = row % call.heads;
    std::copy_n(scratch.maxima + row * strip_blocks, count,
                call.scores + head * call.score_head_stride + token * call.score_row_stride + first);
  }
}

scoring_sizes scoring_sizes_of(const msabench_problem& p) {
  scoring_sizes s{};
  s.tile_tokens = std::clamp<std::int64_t>(tile_rows / p.hi, 1, std::max<std::int64_t>(1, p.max_q_len));
  s.rows = s.tile_tokens * p.hi;
  s.width = p.di;
  constexpr std::int64_t strip_keys = 4096;
  s.strip_blocks = std::max<std::int64_t>(1, strip_keys / p.block);
  s.strips = ceil_div(max_blocks(p), s.strip_blocks);
  return s;
}

scoring_scratch take_scratch(carver& memory, const scoring_sizes& sizes) {
  const auto rows = static_cast<double>(sizes.rows), width = static_cast<double>(sizes.width);
  scoring_scratch taken{};
  taken.queries = memory.take<float>(rows * width);
  taken.panel = memory.take<float>(width * panel_columns);
  taken.scores = memory.take<float>(rows * tile_keys);
  taken.maxima = memory.take<float>(rows * static_cast<double>(sizes.strip_blocks));
  taken.addresses = memory.take<const char*>(tile_keys);
  taken.ahead = memory.take<const char*>(tile_keys);
  return taken;
}

scoring_rows scoring_rows_of(const index_call& call, const token_tile& tile, const scoring_scratch& scratch) {
  const float sign = call.scale < 0 ? -1.0f : 1.0f;
  for (std::int64_t row = 0; row < tile.tokens * call.heads; ++row) {
    const std::int64_t element =
        (tile.first_row + row / call.heads) * call.q_row_stride + row % call.heads * call.q_head_stride;
    widen(call.q + element * bytes_of(call.q_type), call.q_type, call.width, sign, scratch.queries + row * call.width);
  }
  const row_place first = call.rows.place(tile.first_row);
  // Lengths above the bound of the problem are the caller's fault, but no reason to write behind the scores.
  const std::int64_t bound = call.max_blocks * call.rule.block;
  return {tile, scratch.queries, std::abs(call.scale), std::min(first.position, bound - tile.tokens) + 1};
}

}  // namespace msabench::cpu
#endif
