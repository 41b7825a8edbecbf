// SPDX-License-Identifier: Apache-2.0
#include "reference/index_keys.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "reference/tile_kernels.h"

namespace msabench::reference {
namespace {

const score_inputs& require_shapes(const score_inputs& in) {
  const problem& p = in.p;
  const std::size_t axes = p.paged() ? 3 : 2;
  if (p.hi < 1 || p.di < 1 || p.block < 1 || (p.paged() && p.page_size < 1))
    throw suite_error("score: the problem has no valid shape");
  const auto& q = in.q_idx.desc;
  if (q.shape.size() != 3 || q.shape[1] != p.hi || q.shape[2] != p.di || q.strides[2] != 1)
    throw suite_error("score: q_idx must be [T,Hi,di]");
  const auto& k = in.k_idx.desc;
  if (k.shape.size() != axes || k.shape.back() != p.di || k.strides.back() != 1)
    throw suite_error("score: k_idx must be [N,di] or [pages,page_size,di]");
  if (in.q_idx_scale && (in.q_idx_scale.desc.shape.size() != 2 || in.q_idx_scale.desc.shape[1] != p.hi))
    throw suite_error("score: q_idx_scale must be [T,Hi]");
  const auto& s = in.k_idx_scale.desc.shape;
  if (in.k_idx_scale && s.size() != axes - 1 && !(s.size() == 1 && s[0] == 1))
    throw suite_error("score: k_idx_scale must be [1], [N] or [pages,page_size]");
  return in;
}

}  // namespace

index_keys::index_keys(const score_inputs& in)
    : in_(require_shapes(in)),
      map_(in.p, in.k_idx, in.block_table_idx, in.cu_seqlens_kv),
      scale_(in.p.index_scale != 0 ? in.p.index_scale : 1 / std::sqrt(static_cast<double>(in.p.di))),
      width_(padded(in.p.di)) {}

void index_keys::load_queries(std::int64_t row, std::int64_t first_head, std::int64_t heads, scratch& s) const {
  s.queries.assign(static_cast<std::size_t>(heads * width_), 0.0);
  s.factors.resize(static_cast<std::size_t>(heads));
  for (std::int64_t h = 0; h < heads; ++h) {
    widen(in_.q_idx.data, in_.q_idx.desc.type, in_.q_idx.offset(row, first_head + h), in_.p.di,
          s.queries.data() + h * width_);
    s.factors[static_cast<std::size_t>(h)] =
        in_.q_idx_scale ? scale_ * in_.q_idx_scale.at(row, first_head + h) : scale_;
  }
}

// Rows of neighbouring keys can lie pages apart, where only a prefetch of ours hides the memory's latency.
void index_keys::widen_key(std::int64_t sequence, std::span<const std::int64_t> keys, std::int64_t i,
                           double* to) const {
  constexpr std::size_t ahead = 8, cache_line_bytes = 64;
  const auto at = static_cast<std::size_t>(i);
  if (at + ahead < keys.size()) {
    const std::int64_t size = size_bytes(in_.k_idx.desc.type);
    const auto* next = static_cast<const char*>(in_.k_idx.data) + map_.offset(sequence, keys[at + ahead], 0) * size;
    for (std::size_t byte = 0; byte < static_cast<std::size_t>(in_.p.di * size); byte += cache_line_bytes)
      __builtin_prefetch(next + byte);
  }
  widen(in_.k_idx.data, in_.k_idx.desc.type, map_.offset(sequence, keys[at], 0), in_.p.di, to);
}

double index_keys::key_scale(std::int64_t sequence, std::int64_t key) const {
  const tensor_view& scale = in_.k_idx_scale;
  if (!scale) return 1;
  if (scale.desc.shape.size() == 1 && scale.desc.shape[0] == 1) return scale.at(0);
  if (!in_.p.paged()) return scale.at(in_.cu_seqlens_kv.int_at(sequence) + key);
  return scale.at(in_.block_table_idx.int_at(sequence, key / in_.p.page_size), key % in_.p.page_size);
}

void index_keys::score(std::int64_t sequence, std::span<const std::int64_t> keys, std::int64_t first,
                       std::int64_t count, scratch& s) const {
  const auto heads = static_cast<std::int64_t>(s.factors.size());
  if (std::ssize(s.tile) != tile_keys * width_) s.tile.assign(static_cast<std::size_t>(tile_keys * width_), 0.0);
  s.score.resize(static_cast<std::size_t>(heads * tile_keys));
  s.magnitude.resize(s.score.size());
  for (std::int64_t j = 0; j < count; ++j) widen_key(sequence, keys, first + j, s.tile.data() + j * width_);
  for (std::int64_t h = 0; h < heads; ++h)
    score_tile(s.tile.data(), count, width_, s.queries.data() + h * width_, s.score.data() + h * tile_keys,
               s.magnitude.data() + h * tile_keys, nullptr);
  for (std::int64_t j = 0; j < count; ++j) {
    const double scale = key_scale(sequence, keys[static_cast<std::size_t>(first + j)]);
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto at = static_cast<std::size_t>(h * tile_keys + j);
      const double factor = s.factors[static_cast<std::size_t>(h)] * scale;
      s.score[at] *= factor;
      s.magnitude[at] *= std::abs(factor);
    }
  }
}

}  // namespace msabench::reference
