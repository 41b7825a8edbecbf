// SPDX-License-Identifier: Apache-2.0
#include "reference/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "reference/parallel.h"
#include "reference/tile_kernels.h"

namespace msabench::reference {
namespace {

constexpr double no_keys = -std::numeric_limits<double>::infinity();
constexpr double largest_eta = 1e100;
// Keys that one thread works on alone. Sums run over the tiles of a chunk and then over chunks, whoever works on them.
constexpr std::int64_t chunk_keys = 32 * tile_keys;
// From here on the keys of one unit are worth to be shared by all threads, and its memory is not to be had once a thread.
constexpr std::int64_t long_unit_keys = 8 * chunk_keys;

constexpr std::int64_t moments = 3, spreads = 4;  // gauges of moments_tile and of spreads_tile

void resize(std::vector<double>& v, std::int64_t n) { v.resize(static_cast<std::size_t>(n)); }
std::span<double> part(std::vector<double>& v, std::int64_t i, std::int64_t n) {
  return std::span(v).subspan(static_cast<std::size_t>(i * n), static_cast<std::size_t>(n));
}

void require_shapes(std::string_view name, const problem& p, const tensor_view& q, const tensor_view& k,
                    const tensor_view& v, const tensor_view& q_scale) {
  const auto is = [](const tensor_view& t, std::size_t rank, std::size_t axis, std::int64_t size) {
    return t.desc.shape.size() == rank && t.desc.shape[axis] == size && t.desc.strides[rank - 1] == 1;
  };
  const std::size_t cache_rank = p.paged() ? 4 : 3;
  if (p.hkv < 1 || p.hq < 1 || p.hq % p.hkv != 0 || p.d < 1 || (p.paged() && p.page_size < 1))
    throw suite_error(fmt::format("{}: the problem has no valid shape", name));
  if (!is(q, 3, 1, p.hq) || !is(q, 3, 2, p.d)) throw suite_error(fmt::format("{}: q must be [T,Hq,d]", name));
  if (q_scale && (q_scale.desc.shape.size() != 2 || q_scale.desc.shape[1] != p.hq))
    throw suite_error(fmt::format("{}: q_scale must be [T,Hq]", name));
  for (const tensor_view* cache : {&k, &v})
    if (!is(*cache, cache_rank, 1, p.hkv) || !is(*cache, cache_rank, cache_rank - 1, p.d))
      throw suite_error(fmt::format("{}: k and v must be [N,Hkv,d] or [pages,Hkv,page_size,d]", name));
}

// One group's work: its place, its keys and its memory.
struct unit {
  const attention_context& c;
  const group_place& at;
  const key_list& keys;
  attention_scratch& s;
  bool spread;

  std::int64_t n() const { return keys.size(); }
  std::int64_t chunks() const { return (n() + chunk_keys - 1) / chunk_keys; }
};

struct key_range {
  std::int64_t index, first, count;  // chunk number; keys first .. first + count - 1 of the list
};

// body(range, memory) for each chunk of keys.
template <class Body>
void for_chunks(const unit& u, std::int64_t heads, const Body& body) {
  const auto range = [&](std::int64_t i) {
    return key_range{i, i * chunk_keys, std::min(chunk_keys, u.n() - i * chunk_keys)};
  };
  if (u.spread)
    parallel_for<attention_chunk>(u.chunks(), u.n() * heads * u.c.d,
                                  [&](std::int64_t i, attention_chunk& memory) { body(range(i), memory); });
  else
    for (std::int64_t i = 0; i < u.chunks(); ++i) body(range(i), u.s.chunk);
}

void multiply(double* values, std::int64_t count, double factor) {
  for (std::int64_t c = 0; c < count; ++c) values[c] *= factor;
}

void load_queries(const unit& u, std::int64_t first_head, std::int64_t heads) {
  u.s.queries.assign(static_cast<std::size_t>(heads * u.c.width), 0.0);
  for (std::int64_t h = 0; h < heads; ++h) {
    double* const to = part(u.s.queries, h, u.c.width).data();
    widen(u.c.q.data, u.c.q.desc.type, u.c.q.offset(u.at.row, first_head + h), u.c.d, to);
    if (u.c.q_scale) multiply(to, u.c.d, u.c.q_scale.at(u.at.row, first_head + h));
  }
}

// The i-th key out of a cache. Rows of neighbouring keys can lie pages apart, where only a prefetch of ours hides the
// memory's latency. The product with a scale is exact for stored formats of at most 29 bits.
void widen_key(const unit& u, const tensor_view& cache, const cache_map& map, const cache_scale& scale, std::int64_t i,
               double* to) {
  constexpr std::int64_t ahead = 8, cache_line_bytes = 64;
  const auto offset = [&](std::int64_t index) { return map.offset(u.at.place.sequence, u.keys[index], u.at.group); };
  if (i + ahead < u.n()) {
    const std::int64_t size = size_bytes(cache.desc.type);
    const auto* next = static_cast<const char*>(cache.data) + offset(i + ahead) * size;
    for (std::int64_t byte = 0; byte < u.c.d * size; byte += cache_line_bytes) __builtin_prefetch(next + byte);
  }
  widen(cache.data, cache.desc.type, offset(i), u.c.d, to);
  if (scale.present()) multiply(to, u.c.d, scale.at(u.at.place.sequence, u.keys[i], u.at.group));
}

// s_j, G_j and, where asked for, scale^2 sum_c (q_c k_jc)^2 of every head and key; the largest s_j of each chunk.
void score_keys(const unit& u, std::int64_t heads, bool squares) {
  attention_scratch& s = u.s;
  const std::int64_t n = u.n(), width = u.c.width;
  for (auto* scores : {&s.score, &s.magnitude}) resize(*scores, heads * n);
  resize(s.squares, squares ? heads * n : 0);
  resize(s.largest, heads * u.chunks());
  for_chunks(u, heads, [&](const key_range& keys, attention_chunk& memory) {
    memory.tile.assign(static_cast<std::size_t>(std::min(tile_keys, keys.count) * width), 0.0);
    for (std::int64_t first = keys.first; first < keys.first + keys.count; first += tile_keys) {
      const std::int64_t count = std::min(tile_keys, keys.first + keys.count - first);
      for (std::int64_t j = 0; j < count; ++j)
        widen_key(u, u.c.k, u.c.key_rows, u.c.key_scale, first + j, part(memory.tile, j, width).data());
      for (std::int64_t h = 0; h < heads; ++h)
        score_tile(memory.tile.data(), count, width, part(s.queries, h, width).data(), s.score.data() + h * n + first,
                   s.magnitude.data() + h * n + first, squares ? s.squares.data() + h * n + first : nullptr);
    }
    const auto rescale = [&](std::vector<double>& values, std::int64_t h, double factor) {
      for (std::int64_t i = 0; i < keys.count; ++i) values[static_cast<std::size_t>(h * n + keys.first + i)] *= factor;
    };
    for (std::int64_t h = 0; h < heads; ++h) {
      rescale(s.score, h, u.c.scale);
      rescale(s.magnitude, h, std::abs(u.c.scale));
      if (squares) rescale(s.squares, h, u.c.scale * u.c.scale);
      const auto score = part(s.score, h, n).subspan(static_cast<std::size_t>(keys.first));
      part(s.largest, h, u.chunks())[static_cast<std::size_t>(keys.index)] =
          *std::ranges::max_element(score.first(static_cast<std::size_t>(keys.count)));
    }
  });
}

struct softmax_sums {
  double m, sum;
};

// m and sum exp(s_j - m) of each head; exp(s_j - m) into s.weight.
std::vector<softmax_sums> exponentiate(const unit& u, std::int64_t heads) {
  attention_scratch& s = u.s;
  const std::int64_t n = u.n(), chunks = u.chunks();
  resize(s.weight, heads * n);
  resize(s.sums, heads * chunks);
  std::vector<softmax_sums> result;
  for (std::int64_t h = 0; h < heads; ++h) result.push_back({*std::ranges::max_element(part(s.largest, h, chunks)), 0});
  for_chunks(u, heads, [&](const key_range& keys, attention_chunk&) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto at = static_cast<std::size_t>(h * n + keys.first), count = static_cast<std::size_t>(keys.count);
      for (std::size_t j = at; j < at + count; ++j)
        s.weight[j] = std::exp(s.score[j] - result[static_cast<std::size_t>(h)].m);
      part(s.sums, h, chunks)[static_cast<std::size_t>(keys.index)] =
          pairwise_sum(std::span(s.weight).subspan(at, count));
    }
  });
  for (std::int64_t h = 0; h < heads; ++h)
    result[static_cast<std::size_t>(h)].sum = pairwise_sum(part(s.sums, h, chunks));
  return result;
}

// 0 times an endless chain's infinity is no contribution.
double times(double coefficient, double x) { return x == 0 ? 0 : coefficient * x; }

// p_j, p_j eta_j and p_j e_j of one head in place of exp(s_j - m), G_j and s_j.
void weigh_keys(const unit& u, const score_error& err, const softmax_sums& softmax, std::int64_t h,
                const key_range& keys) {
  attention_scratch& s = u.s;
  const auto at = static_cast<std::size_t>(h * u.n() + keys.first);
  for (std::size_t j = at; j < at + static_cast<std::size_t>(keys.count); ++j) {
    const double size = std::abs(s.score[j]);
    const double theta = times(err.per_magnitude, s.magnitude[j]) + err.per_score * size + err.constant +
                         err.per_size * (std::abs(s.score[j] - softmax.m) + std::abs(softmax.m));
    const double products = s.squares.empty() ? 0 : err.var_products * s.squares[j];
    const double variance = (err.var_score + err.var_size) * size * size + products + err.var_constant;
    s.weight[j] /= softmax.sum;
    s.magnitude[j] = s.weight[j] * std::min(std::expm1(theta), largest_eta);
    s.score[j] = s.weight[j] * std::sqrt(variance);
  }
}

// Values of up to 128 keys from `first` on, channels in groups of `lanes` that stay in cache over all heads of the
// group.
void load_values(const unit& u, std::int64_t first, std::int64_t count, attention_chunk& memory) {
  for (std::int64_t j = 0; j < count; ++j) {
    widen_key(u, u.c.v, u.c.value_rows, u.c.value_scale, first + j, memory.line.data());
    for (std::int64_t channel = 0; channel < u.c.width; channel += lanes)
      std::memcpy(memory.tile.data() + channel * tile_keys + j * lanes, memory.line.data() + channel,
                  lanes * sizeof(double));
  }
}

// Calls add(values of a lane group, keys, head, first key, sums) over all tiles of a chunk, where sums(gauge) is where
// that part of the tile's sums goes; tiles are added up pairwise into s.gauges.
template <class Add>
void sum_tiles(const unit& u, const key_range& keys, std::int64_t gauges, attention_chunk& memory, const Add& add) {
  const std::int64_t heads = u.c.heads, width = u.c.width;
  memory.line.assign(static_cast<std::size_t>(width), 0.0);
  resize(memory.tile, tile_keys * width);
  resize(memory.sums, gauges * heads * width);
  memory.total.reset(memory.sums.size());
  for (std::int64_t first = keys.first; first < keys.first + keys.count; first += tile_keys) {
    const std::int64_t count = std::min(tile_keys, keys.first + keys.count - first);
    load_values(u, first, count, memory);
    for (std::int64_t channel = 0; channel < width; channel += lanes)
      for (std::int64_t h = 0; h < heads; ++h)
        add(memory.tile.data() + channel * tile_keys, count, h, first, channel,
            [&](std::int64_t gauge) { return memory.sums.data() + (gauge * heads + h) * width + channel; });
    memory.total.add(memory.sums);
  }
  std::ranges::copy(memory.total.total(), part(u.s.gauges, keys.index, std::ssize(memory.sums)).begin());
}

// Sums of all chunks, pairwise; gauge i of each head into the i-th of `to`.
void sum_chunks(const unit& u, std::initializer_list<std::vector<double> attend_row::*> to, std::span<attend_row> out) {
  const std::int64_t heads = u.c.heads, width = u.c.width, size = std::ssize(to) * heads * width;
  u.s.total.reset(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < u.chunks(); ++i) u.s.total.add(part(u.s.gauges, i, size));
  const auto sums = u.s.total.total();
  std::int64_t index = 0;
  for (const auto gauge : to)
    for (auto& r : out) std::copy_n(sums.data() + index++ * width, u.c.d, (r.*gauge).data());
}

// p_j and its like, eta_bar, n_eff; o, A, Q.
void sum_moments(const unit& u, const score_error& err, std::span<const softmax_sums> softmax,
                 std::span<attend_row> out) {
  attention_scratch& s = u.s;
  const std::int64_t heads = u.c.heads, n = u.n(), chunks = u.chunks();
  resize(s.sums, 2 * heads * chunks);  // eta_bar, then sum p_j^2
  resize(s.gauges, chunks * moments * heads * u.c.width);
  for_chunks(u, heads, [&](const key_range& keys, attention_chunk& memory) {
    const auto count = static_cast<std::size_t>(keys.count), chunk = static_cast<std::size_t>(keys.index);
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto at = static_cast<std::size_t>(h * n + keys.first);
      weigh_keys(u, err, softmax[static_cast<std::size_t>(h)], h, keys);
      part(s.sums, h, chunks)[chunk] = pairwise_sum(std::span(s.magnitude).subspan(at, count));
      memory.line.resize(count);
      for (std::size_t j = 0; j < count; ++j) memory.line[j] = s.weight[at + j] * s.weight[at + j];
      part(s.sums, heads + h, chunks)[chunk] = pairwise_sum(memory.line);
    }
    sum_tiles(
        u, keys, moments, memory,
        [&](const double* values, std::int64_t size, std::int64_t h, std::int64_t first, std::int64_t, const auto& to) {
          moments_tile(values, size, s.weight.data() + h * n + first, {to(0), to(1), to(2)});
        });
  });
  sum_chunks(u, {&attend_row::out, &attend_row::a, &attend_row::q2}, out);
  for (std::int64_t h = 0; h < heads; ++h) {
    auto& r = out[static_cast<std::size_t>(h)];
    r.eta_bar = pairwise_sum(part(s.sums, h, chunks));
    r.n_eff = 1 / pairwise_sum(part(s.sums, heads + h, chunks));
  }
}

// D, e1, e2, x: what needs o.
void sum_spreads(const unit& u, std::span<attend_row> out) {
  attention_scratch& s = u.s;
  const std::int64_t heads = u.c.heads, n = u.n(), width = u.c.width;
  s.means.assign(static_cast<std::size_t>(heads * width), 0.0);
  for (std::int64_t h = 0; h < heads; ++h)
    std::ranges::copy(out[static_cast<std::size_t>(h)].out, part(s.means, h, width).begin());
  resize(s.gauges, u.chunks() * spreads * heads * width);
  for_chunks(u, heads, [&](const key_range& keys, attention_chunk& memory) {
    sum_tiles(u, keys, spreads, memory,
              [&](const double* values, std::int64_t size, std::int64_t h, std::int64_t first, std::int64_t channel,
                  const auto& to) {
                const std::int64_t key = h * n + first;
                spreads_tile(values, size, s.weight.data() + key, s.magnitude.data() + key, s.score.data() + key,
                             s.means.data() + h * width + channel, {to(0), to(1), to(2), to(3)});
              });
  });
  sum_chunks(u, {&attend_row::dev, &attend_row::e1, &attend_row::e2, &attend_row::x}, out);
}

// As many heads as the context has, from `first_head` on.
void attend_heads(const unit& u, std::int64_t first_head, const score_error& err, std::span<attend_row> out) {
  for (std::int64_t h = 0; h < u.c.heads; ++h) {
    auto& r = out[static_cast<std::size_t>(h)];
    r.row = u.at.row;
    r.head = first_head + h;
    r.n = u.n();
    r.lse = no_keys;
    for (auto* channels : {&r.out, &r.a, &r.dev, &r.q2, &r.e1, &r.e2, &r.x})
      channels->assign(static_cast<std::size_t>(u.c.d), 0.0);
  }
  if (u.n() == 0) return;

  load_queries(u, first_head, u.c.heads);
  score_keys(u, u.c.heads, err.var_products != 0);
  const auto softmax = exponentiate(u, u.c.heads);
  for (std::size_t h = 0; h < softmax.size(); ++h) {
    out[h].m = softmax[h].m;
    out[h].lse = softmax[h].m + std::log(softmax[h].sum);
  }
  sum_moments(u, err, softmax, out);
  sum_spreads(u, out);
}

}  // namespace

attention_context::attention_context(std::string_view name, const problem& p, const tensor_view& queries,
                                     const tensor_view& keys, const tensor_view& values, const tensor_view& block_table,
                                     const tensor_view& cu_seqlens_kv, const operand_scales& scales)
    : q(queries),
      k(keys),
      v(values),
      q_scale(scales.q),
      key_rows(p, keys, block_table, cu_seqlens_kv),
      value_rows(p, values, block_table, cu_seqlens_kv),
      key_scale(name, p, scales.k, block_table, cu_seqlens_kv),
      value_scale(name, p, scales.v, block_table, cu_seqlens_kv),
      hq(p.hq),
      hkv(p.hkv),
      heads(p.group()),
      d(p.d),
      width(padded(p.d)),
      scale(p.softmax_scale != 0 ? p.softmax_scale : 1 / std::sqrt(static_cast<double>(p.d))) {
  require_shapes(name, p, queries, keys, values, q_scale);
}

void attend_group(const attention_context& c, const group_place& at, const key_list& keys, const score_error& err,
                  std::span<attend_row> out, attention_scratch& s, bool spread) {
  attend_heads({c, at, keys, s, spread}, at.group * c.heads, err, out);
}

void attend_head(const attention_context& c, const group_place& at, std::int64_t head, const key_list& keys,
                 const score_error& err, attend_row& out, attention_scratch& s) {
  attention_context alone = c;
  alone.heads = 1;
  attend_heads({alone, at, keys, s, keys.size() > long_unit_keys}, head, err, std::span(&out, 1));
}

std::vector<attend_row> attend_rows(const attention_context& c, const row_map& places,
                                    std::span<const std::int64_t> rows, const score_error& err,
                                    const key_finder& find) {
  std::vector<attend_row> results(rows.size() * static_cast<std::size_t>(c.hq));
  const std::int64_t units = std::ssize(rows) * c.hkv;
  std::vector<char> is_long(static_cast<std::size_t>(units));
  std::int64_t work = 0;
  for (const std::int64_t row : rows) work += visible_keys(places[row]) * c.hq * c.d;
  const auto place = [&](std::int64_t i) {
    const std::int64_t row = rows[static_cast<std::size_t>(i / c.hkv)];
    return group_place{row, i % c.hkv, places[row]};
  };
  const auto out = [&](std::int64_t i) {
    return std::span(results).subspan(static_cast<std::size_t>(i * c.heads), static_cast<std::size_t>(c.heads));
  };
  parallel_for<attention_scratch>(units, work, [&](std::int64_t i, attention_scratch& s) {
    const group_place at = place(i);
    const key_list keys = find(at, s.positions);
    if (keys.size() > long_unit_keys)
      is_long[static_cast<std::size_t>(i)] = 1;
    else
      attend_group(c, at, keys, err, out(i), s);
  });
  attention_scratch s;
  for (std::int64_t i = 0; i < units; ++i)
    if (is_long[static_cast<std::size_t>(i)] != 0) {
      const group_place at = place(i);
      attend_group(c, at, find(at, s.positions), err, out(i), s, true);
    }
  return results;
}

void weigh_head(const attention_context& c, const group_place& at, std::int64_t head, const key_list& keys,
                attention_scratch& s) {
  const unit u{c, at, keys, s, false};
  load_queries(u, head, 1);
  score_keys(u, 1, false);
  const auto softmax = exponentiate(u, 1);
  for (double& w : s.weight) w /= softmax[0].sum;
}

}  // namespace msabench::reference
