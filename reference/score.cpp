// SPDX-License-Identifier: Apache-2.0
#include "reference/score.h"

#include <algorithm>
#include <cmath>

#include "reference/index_keys.h"
#include "reference/parallel.h"
#include "reference/tile_kernels.h"

namespace msabench::reference {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

// One block of one (row, head) while its keys go by.
struct block_maxima {
  double value = -inf, lo = -inf, hi = -inf;
  std::int64_t key = -1;
  std::int64_t nan_key = -1;

  void add(const interval_model& model, std::int64_t position, double s, double magnitude) {
    if (std::isnan(s)) {
      if (nan_key < 0) nan_key = position;
      return;
    }
    if (key < 0 || s > value) {
      value = s;
      key = position;
    }
    if (std::isinf(s)) {  // s - delta would be NaN; -inf is left out
      lo = std::max(lo, s);
      hi = std::max(hi, s);
      return;
    }
    const double delta = contribution(model.per_magnitude, magnitude) + contribution(model.per_score, std::abs(s));
    lo = std::max(lo, s - delta);
    hi = std::max(hi, s + delta);
  }

  block_score result(const interval_model& model) const {
    const bool poisoned = nan_key >= 0, propagated = poisoned && model.propagate_nan;
    const double unit = std::abs(model.unit);
    return {propagated ? std::numeric_limits<double>::quiet_NaN() : value,
            poisoned || unit * lo < -model.largest ? -inf : lo,
            propagated                  ? -inf
            : unit * hi > model.largest ? inf
                                        : hi,
            propagated ? nan_key : key};
  }

  void write(const interval_model& model, score_row& to, std::int64_t block) const {
    const auto b = static_cast<std::size_t>(block);
    const block_score r = result(model);
    to.value[b] = r.value;
    to.lo[b] = r.lo;
    to.hi[b] = r.hi;
    to.key[b] = r.key;
  }
};

// A stretch of one row's blocks: small enough that a single long row keeps all threads busy.
struct stretch {
  std::int64_t row = 0;  // index into the wanted rows
  std::int64_t first_block = 0, end_block = 0;
};

std::vector<stretch> stretches(std::span<const std::int64_t> rows, const row_map& places, std::int64_t block) {
  constexpr std::int64_t stretch_keys = 8192;
  const std::int64_t blocks = std::max<std::int64_t>(1, stretch_keys / block);
  std::vector<stretch> result;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t visible = places.visible_blocks(rows[i], block);
    for (std::int64_t first = 0; first < visible; first += blocks)
      result.push_back({static_cast<std::int64_t>(i), first, std::min(first + blocks, visible)});
  }
  return result;
}

struct scratch : index_keys::scratch {
  std::vector<block_maxima> blocks;  // [heads][blocks of the stretch]
};

// `out`: one score_row per head.
void score_stretch(const index_keys& index, const row_place& place, const problem& p, const stretch& at,
                   const interval_model& model, std::span<score_row> out, scratch& s) {
  const std::int64_t first_key = at.first_block * p.block;
  const std::int64_t end_key = std::min(at.end_block * p.block, visible_keys(place));
  const std::int64_t blocks = at.end_block - at.first_block;
  s.keys.clear();
  for (std::int64_t key = first_key; key < end_key; ++key) s.keys.push_back(key);
  s.blocks.assign(static_cast<std::size_t>(p.hi * blocks), {});
  index.load_queries(out[0].row, 0, p.hi, s);

  const auto n = static_cast<std::int64_t>(s.keys.size());
  for (std::int64_t first = 0; first < n; first += tile_keys) {
    const std::int64_t count = std::min(tile_keys, n - first);
    index.score(place.sequence, s.keys, first, count, s);
    for (std::int64_t h = 0; h < p.hi; ++h)
      for (std::int64_t j = 0; j < count; ++j) {
        const auto scored = static_cast<std::size_t>(h * tile_keys + j);
        const std::int64_t block = (first + j) / p.block;
        s.blocks[static_cast<std::size_t>(h * blocks + block)].add(model, first_key + first + j, s.score[scored],
                                                                   s.magnitude[scored]);
      }
  }
  for (std::int64_t h = 0; h < p.hi; ++h)
    for (std::int64_t b = 0; b < blocks; ++b)
      s.blocks[static_cast<std::size_t>(h * blocks + b)].write(model, out[static_cast<std::size_t>(h)],
                                                               at.first_block + b);
}

}  // namespace

std::vector<score_row> score(const score_inputs& in, std::span<const std::int64_t> rows, const interval_model& model) {
  const index_keys index(in);
  const row_map places(in.cu_seqlens_q, in.kv_lens);
  const auto heads = static_cast<std::size_t>(in.p.hi);
  std::vector<score_row> results(rows.size() * heads);
  std::int64_t keys = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto visible = static_cast<std::size_t>(places.visible_blocks(rows[i], in.p.block));
    keys += places.visible_keys(rows[i]);
    for (std::size_t h = 0; h < heads; ++h) {
      score_row& r = results[i * heads + h];
      r.row = rows[i];
      r.head = static_cast<std::int64_t>(h);
      for (auto* ends : {&r.value, &r.lo, &r.hi}) ends->resize(visible);
      r.key.resize(visible);
    }
  }
  const auto units = stretches(rows, places, in.p.block);
  parallel_for<scratch>(std::ssize(units), index.work(keys) * in.p.hi, [&](std::int64_t unit, scratch& s) {
    const stretch& at = units[static_cast<std::size_t>(unit)];
    const auto out = std::span(results).subspan(static_cast<std::size_t>(at.row) * heads, heads);
    score_stretch(index, places[out[0].row], in.p, at, model, out, s);
  });
  return results;
}

block_score score_block(const score_inputs& in, std::int64_t row, std::int64_t head, std::int64_t block,
                        const interval_model& model) {
  const index_keys index(in);
  const row_place place = place_of(in.cu_seqlens_q, in.kv_lens, row);
  scratch s;
  const std::int64_t end = std::min((block + 1) * in.p.block, visible_keys(place));
  for (std::int64_t key = block * in.p.block; key < end; ++key) s.keys.push_back(key);
  index.load_queries(row, head, 1, s);
  block_maxima best;
  const auto n = static_cast<std::int64_t>(s.keys.size());
  for (std::int64_t first = 0; first < n; first += tile_keys) {
    const std::int64_t count = std::min(tile_keys, n - first);
    index.score(place.sequence, s.keys, first, count, s);
    for (std::int64_t j = 0; j < count; ++j) {
      const auto at = static_cast<std::size_t>(j);
      best.add(model, s.keys[static_cast<std::size_t>(first + j)], s.score[at], s.magnitude[at]);
    }
  }
  return best.result(model);
}

}  // namespace msabench::reference
