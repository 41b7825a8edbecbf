// SPDX-License-Identifier: Apache-2.0
#include "reference/attend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "reference/pairwise.h"
#include "reference/parallel.h"
#include "reference/tile_kernels.h"

namespace msabench::reference {
namespace {

constexpr double no_keys = -std::numeric_limits<double>::infinity();
constexpr double largest_eta = 1e100;

// What stays the same over all rows of a call.
struct context {
  explicit context(const attend_inputs& inputs)
      : in(inputs),
        keys(in.p, in.k, in.block_table, in.cu_seqlens_kv),
        values(in.p, in.v, in.block_table, in.cu_seqlens_kv),
        scale(in.p.softmax_scale != 0 ? in.p.softmax_scale : 1 / std::sqrt(static_cast<double>(in.p.d))),
        width(padded(in.p.d)) {}

  const attend_inputs& in;
  cache_map keys, values;
  double scale;
  std::int64_t width;  // d in whole lanes
};

// One KV head's share of a row: the heads of its group see the same keys.
struct group_place {
  std::int64_t row, group;
  row_place place;
};

// Memory of one thread, reused from group to group. n keys; [heads][n] unless said otherwise.
struct scratch {
  std::vector<std::int64_t> keys;                 // [n] positions in the sequence, ascending
  std::vector<double> queries;                    // [heads][width]
  std::vector<double> tile;                       // widened keys [128][width], values [width / lanes][128][lanes]
  std::vector<double> line;                       // [width] one widened value row
  std::vector<double> score, magnitude, squares;  // squares only where asked for
  std::vector<double> weight, weight_eta, weight_e, terms;
  std::vector<double> means;  // [heads][width]
  std::vector<double> sums;   // one tile's sums: [gauge][heads][width]
  pairwise_vectors total;
};

void resize(std::vector<double>& v, std::int64_t n) { v.resize(static_cast<std::size_t>(n)); }
std::span<double> part(std::vector<double>& v, std::int64_t i, std::int64_t n) {
  return std::span(v).subspan(static_cast<std::size_t>(i * n), static_cast<std::size_t>(n));
}

void require_shapes(const attend_inputs& in) {
  const problem& p = in.p;
  const auto is = [](const tensor_view& t, std::size_t rank, std::size_t axis, std::int64_t size) {
    return t.desc.shape.size() == rank && t.desc.shape[axis] == size && t.desc.strides[rank - 1] == 1;
  };
  const std::size_t cache_rank = p.paged() ? 4 : 3;
  if (p.hkv < 1 || p.hq < 1 || p.hq % p.hkv != 0 || p.d < 1 || p.block < 1 || (p.paged() && p.page_size < 1))
    throw suite_error("attend: the problem has no valid shape");
  if (!is(in.q, 3, 1, p.hq) || !is(in.q, 3, 2, p.d)) throw suite_error("attend: q must be [T,Hq,d]");
  if (!is(in.ids, 3, 1, p.hkv)) throw suite_error("attend: ids must be [T,Hkv,k]");
  for (const tensor_view* cache : {&in.k, &in.v})
    if (!is(*cache, cache_rank, 1, p.hkv) || !is(*cache, cache_rank, cache_rank - 1, p.d))
      throw suite_error("attend: k and v must be [N,Hkv,d] or [pages,Hkv,page_size,d]");
}

// Keys of the distinct blocks in 0..own that the ids name, as far as they are visible.
void find_keys(const context& c, const group_place& at, std::vector<std::int64_t>& keys) {
  keys.clear();
  const std::int64_t block = c.in.p.block, visible = visible_keys(at.place);
  const std::int64_t blocks = visible_blocks(at.place, block);
  std::vector<std::int64_t> chosen;
  for (std::int64_t slot = 0; slot < c.in.ids.desc.shape[2]; ++slot) {
    const std::int64_t b = c.in.ids.int_at(at.row, at.group, slot);
    if (b >= 0 && b < blocks) chosen.push_back(b);
  }
  std::ranges::sort(chosen);
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  for (const std::int64_t b : chosen)
    for (std::int64_t key = b * block; key < std::min((b + 1) * block, visible); ++key) keys.push_back(key);
}

void load_queries(const context& c, const group_place& at, std::int64_t first_head, std::int64_t heads, scratch& s) {
  s.queries.assign(static_cast<std::size_t>(heads * c.width), 0.0);
  for (std::int64_t h = 0; h < heads; ++h)
    widen(c.in.q.data, c.in.q.desc.type, c.in.q.offset(at.row, first_head + h), c.in.p.d,
          part(s.queries, h, c.width).data());
}

// The i-th of `keys` out of a cache. Rows of neighbouring keys can lie pages apart, where only a prefetch of ours hides
// the memory's latency.
void widen_key(const tensor_view& cache, const cache_map& map, const group_place& at,
               std::span<const std::int64_t> keys, std::int64_t i, std::int64_t channels, double* to) {
  constexpr std::size_t ahead = 8, cache_line_bytes = 64;
  const auto index = static_cast<std::size_t>(i);
  if (index + ahead < keys.size()) {
    const std::int64_t size = size_bytes(cache.desc.type);
    const auto* next =
        static_cast<const char*>(cache.data) + map.offset(at.place.sequence, keys[index + ahead], at.group) * size;
    for (std::size_t byte = 0; byte < static_cast<std::size_t>(channels * size); byte += cache_line_bytes)
      __builtin_prefetch(next + byte);
  }
  widen(cache.data, cache.desc.type, map.offset(at.place.sequence, keys[index], at.group), channels, to);
}

// s_j, G_j and, where asked for, scale^2 sum_c (q_c k_jc)^2 of every head and key.
void score_keys(const context& c, const group_place& at, std::int64_t heads, bool squares, scratch& s) {
  const auto n = static_cast<std::int64_t>(s.keys.size());
  resize(s.score, heads * n);
  resize(s.magnitude, heads * n);
  resize(s.squares, squares ? heads * n : 0);
  s.tile.assign(static_cast<std::size_t>(std::min(tile_keys, n) * c.width), 0.0);
  for (std::int64_t first = 0; first < n; first += tile_keys) {
    const std::int64_t count = std::min(tile_keys, n - first);
    for (std::int64_t j = 0; j < count; ++j)
      widen_key(c.in.k, c.keys, at, s.keys, first + j, c.in.p.d, part(s.tile, j, c.width).data());
    for (std::int64_t h = 0; h < heads; ++h)
      score_tile(s.tile.data(), count, c.width, part(s.queries, h, c.width).data(), s.score.data() + h * n + first,
                 s.magnitude.data() + h * n + first, squares ? s.squares.data() + h * n + first : nullptr);
  }
  for (double& x : s.score) x *= c.scale;
  for (double& x : s.magnitude) x *= std::abs(c.scale);
  for (double& x : s.squares) x *= c.scale * c.scale;
}

// Softmax over one head's scores.
struct softmax_sums {
  double m, lse;
};
softmax_sums softmax(std::span<const double> score, std::span<double> weight) {
  const double m = *std::ranges::max_element(score);
  for (std::size_t j = 0; j < score.size(); ++j) weight[j] = std::exp(score[j] - m);
  const double sum = pairwise_sum(weight);
  for (double& w : weight) w /= sum;
  return {m, m + std::log(sum)};
}

// 0 times an endless chain's infinity is no contribution.
double times(double coefficient, double x) { return x == 0 ? 0 : coefficient * x; }

void weigh_keys(const score_error& err, std::int64_t head, std::int64_t n, scratch& s, attend_row& r) {
  const auto score = part(s.score, head, n), weight = part(s.weight, head, n);
  const auto weight_eta = part(s.weight_eta, head, n), weight_e = part(s.weight_e, head, n);
  const auto sums = softmax(score, weight);
  r.n = n;
  r.m = sums.m;
  r.lse = sums.lse;
  for (std::size_t j = 0; j < score.size(); ++j) {
    const std::size_t flat = static_cast<std::size_t>(head * n) + j;
    const double size = std::abs(score[j]);
    const double theta = times(err.per_magnitude, s.magnitude[flat]) + err.per_score * size + err.constant +
                         err.per_size * (std::abs(score[j] - r.m) + std::abs(r.m));
    const double products = s.squares.empty() ? 0 : err.var_products * s.squares[flat];
    const double variance = (err.var_score + err.var_size) * size * size + products + err.var_constant;
    weight_eta[j] = weight[j] * std::min(std::expm1(theta), largest_eta);
    weight_e[j] = weight[j] * std::sqrt(variance);
    s.terms[j] = weight[j] * weight[j];
  }
  r.eta_bar = pairwise_sum(weight_eta);
  r.n_eff = 1 / pairwise_sum(std::span(s.terms).first(score.size()));
}

// Values of up to 128 keys from `first` on, channels in groups of `lanes` that stay in cache over all heads of the
// group.
std::int64_t load_values(const context& c, const group_place& at, std::int64_t first, scratch& s) {
  const std::int64_t count = std::min(tile_keys, static_cast<std::int64_t>(s.keys.size()) - first);
  for (std::int64_t j = 0; j < count; ++j) {
    widen_key(c.in.v, c.values, at, s.keys, first + j, c.in.p.d, s.line.data());
    for (std::int64_t channel = 0; channel < c.width; channel += lanes)
      std::copy_n(s.line.data() + channel, lanes, s.tile.data() + channel * tile_keys + j * lanes);
  }
  return count;
}

// Calls add(values of a lane group, keys, head, first key, channel) over all tiles; it fills that part of s.sums, of
// which there are `gauges` per head and channel, and the tiles' sums are added up pairwise.
template <class Add>
std::span<const double> sum_tiles(const context& c, const group_place& at, std::int64_t heads, std::int64_t gauges,
                                  scratch& s, const Add& add) {
  s.line.assign(static_cast<std::size_t>(c.width), 0.0);
  resize(s.tile, tile_keys * c.width);
  resize(s.sums, gauges * heads * c.width);
  s.total.reset(s.sums.size());
  for (std::int64_t first = 0; first < static_cast<std::int64_t>(s.keys.size()); first += tile_keys) {
    const std::int64_t count = load_values(c, at, first, s);
    for (std::int64_t channel = 0; channel < c.width; channel += lanes)
      for (std::int64_t h = 0; h < heads; ++h) add(s.tile.data() + channel * tile_keys, count, h, first, channel);
    s.total.add(s.sums);
  }
  return s.total.total();
}

void copy_channels(std::span<const double> sums, std::int64_t index, std::int64_t width, std::vector<double>& to) {
  std::copy_n(sums.data() + index * width, to.size(), to.data());
}

// o, A, Q.
void sum_moments(const context& c, const group_place& at, std::span<attend_row> out, scratch& s) {
  const auto heads = static_cast<std::int64_t>(out.size()), n = static_cast<std::int64_t>(s.keys.size());
  const auto add = [&](const double* values, std::int64_t count, std::int64_t h, std::int64_t first,
                       std::int64_t channel) {
    const auto to = [&](std::int64_t gauge) { return s.sums.data() + (gauge * heads + h) * c.width + channel; };
    moments_tile(values, count, s.weight.data() + h * n + first, {to(0), to(1), to(2)});
  };
  const auto sums = sum_tiles(c, at, heads, 3, s, add);
  s.means.assign(sums.begin(), sums.begin() + heads * c.width);
  for (std::int64_t h = 0; h < heads; ++h) {
    auto& r = out[static_cast<std::size_t>(h)];
    copy_channels(sums, h, c.width, r.out);
    copy_channels(sums, heads + h, c.width, r.a);
    copy_channels(sums, 2 * heads + h, c.width, r.q2);
  }
}

// D, e1, e2, x: what needs o.
void sum_spreads(const context& c, const group_place& at, std::span<attend_row> out, scratch& s) {
  const auto heads = static_cast<std::int64_t>(out.size()), n = static_cast<std::int64_t>(s.keys.size());
  const auto add = [&](const double* values, std::int64_t count, std::int64_t h, std::int64_t first,
                       std::int64_t channel) {
    const auto to = [&](std::int64_t gauge) { return s.sums.data() + (gauge * heads + h) * c.width + channel; };
    const std::int64_t key = h * n + first;
    spreads_tile(values, count, s.weight.data() + key, s.weight_eta.data() + key, s.weight_e.data() + key,
                 s.means.data() + h * c.width + channel, {to(0), to(1), to(2), to(3)});
  };
  const auto sums = sum_tiles(c, at, heads, 4, s, add);
  for (std::int64_t h = 0; h < heads; ++h) {
    auto& r = out[static_cast<std::size_t>(h)];
    copy_channels(sums, h, c.width, r.dev);
    copy_channels(sums, heads + h, c.width, r.e1);
    copy_channels(sums, 2 * heads + h, c.width, r.e2);
    copy_channels(sums, 3 * heads + h, c.width, r.x);
  }
}

void attend_group(const context& c, const group_place& at, const score_error& err, std::span<attend_row> out,
                  scratch& s) {
  const auto heads = static_cast<std::int64_t>(out.size());
  for (std::int64_t h = 0; h < heads; ++h) {
    auto& r = out[static_cast<std::size_t>(h)];
    r.row = at.row;
    r.head = at.group * heads + h;
    r.lse = no_keys;
    for (auto* channels : {&r.out, &r.a, &r.dev, &r.q2, &r.e1, &r.e2, &r.x})
      channels->assign(static_cast<std::size_t>(c.in.p.d), 0.0);
  }
  find_keys(c, at, s.keys);
  if (s.keys.empty()) return;

  const auto n = static_cast<std::int64_t>(s.keys.size());
  load_queries(c, at, at.group * heads, heads, s);
  score_keys(c, at, heads, err.var_products != 0, s);
  for (auto* weights : {&s.weight, &s.weight_eta, &s.weight_e}) resize(*weights, heads * n);
  resize(s.terms, n);
  for (std::int64_t h = 0; h < heads; ++h) weigh_keys(err, h, n, s, out[static_cast<std::size_t>(h)]);
  sum_moments(c, at, out, s);
  sum_spreads(c, at, out, s);
}

group_place place_group(const attend_inputs& in, std::int64_t row, std::int64_t head) {
  if (head < 0 || head >= in.p.hq) throw suite_error(fmt::format("attend: there is no query head {}", head));
  return {row, head / in.p.group(), place_of(in.cu_seqlens_q, in.kv_lens, row)};
}

// Scores of one head over s.keys.
void score_head(const context& c, const group_place& at, std::int64_t head, scratch& s) {
  load_queries(c, at, head, 1, s);
  score_keys(c, at, 1, false, s);
}

}  // namespace

std::vector<attend_row> attend(const attend_inputs& in, std::span<const std::int64_t> rows, const score_error& err) {
  require_shapes(in);
  const context c(in);
  const row_map places(in.cu_seqlens_q, in.kv_lens);
  const std::int64_t hkv = in.p.hkv, group_size = in.p.group();
  std::vector<attend_row> results(rows.size() * static_cast<std::size_t>(in.p.hq));
  const std::int64_t units = static_cast<std::int64_t>(rows.size()) * hkv;
  const std::int64_t keys = std::min(in.ids.desc.shape[2] * in.p.block, in.p.max_kv_len);
  parallel_for<scratch>(units, units * group_size * keys * in.p.d, [&](std::int64_t unit, scratch& s) {
    const std::int64_t row = rows[static_cast<std::size_t>(unit / hkv)];
    const auto out =
        std::span(results).subspan(static_cast<std::size_t>(unit * group_size), static_cast<std::size_t>(group_size));
    attend_group(c, {row, unit % hkv, places[row]}, err, out, s);
  });
  return results;
}

std::vector<attended_key> attended_keys(const attend_inputs& in, std::int64_t row, std::int64_t head) {
  require_shapes(in);
  const context c(in);
  const group_place at = place_group(in, row, head);
  scratch s;
  find_keys(c, at, s.keys);
  if (s.keys.empty()) return {};
  score_head(c, at, head, s);
  s.weight.resize(s.keys.size());
  softmax(s.score, s.weight);
  std::vector<attended_key> result;
  for (std::size_t j = 0; j < s.keys.size(); ++j)
    result.push_back({s.keys[j], s.keys[j] / in.p.block, s.score[j], s.weight[j]});
  return result;
}

double score_of(const attend_inputs& in, std::int64_t row, std::int64_t head, std::int64_t key) {
  const context c(in);
  scratch s;
  s.keys = {key};
  score_head(c, place_group(in, row, head), head, s);
  return s.score[0];
}

void value_of(const attend_inputs& in, std::int64_t row, std::int64_t value_head, std::int64_t key,
              std::span<double> out) {
  const cache_map values(in.p, in.v, in.block_table, in.cu_seqlens_kv);
  const row_place place = place_of(in.cu_seqlens_q, in.kv_lens, row);
  widen(in.v.data, in.v.desc.type, values.offset(place.sequence, key, value_head), in.p.d, out.data());
}

}  // namespace msabench::reference
