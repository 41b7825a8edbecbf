// SPDX-License-Identifier: Apache-2.0
#include "reference/attention_backward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "reference/gradient_sums.h"
#include "reference/key_map.h"
#include "reference/pairwise.h"
#include "reference/parallel.h"

namespace msabench::reference {
namespace {

// What the gradient of a score needs of its (row, query head).
struct row_sums {
  double m = 0, sum = 0;  // largest score, sum of exp(s - m)
  double lse = -std::numeric_limits<double>::infinity();
  double d = 0, z = 0, z2 = 0;  // D, Z, sum_c (dO_c o_c)^2
};

struct context {
  const backward_inputs& in;
  const key_map& keys;
  const backward_error& err;
  double scale;
  std::int64_t heads;                          // of a group
  const forward_tensors* handed_in = nullptr;  // taken in the place of a softmax of its own
};

// Of one (row, query head, key).
struct score_pair {
  double s = 0, magnitude = 0;  // scaled score, and G
  double dp = 0, w = 0;         // dP and W
};
struct pair_gradient {
  double p = 0, ds = 0;
  double ds_error = 0, ds_fine = 0, ds_square = 0;  // e, e with fine roundoffs, its expected square without D's
  double p_error = 0, p_fine = 0, p_square = 0;
};

double squared(double x) { return x * x; }

// The formula.
pair_gradient differentiate(const backward_error& err, const row_sums& row, const score_pair& x) {
  const double p = std::exp(x.s - row.m) / row.sum, away = x.dp - row.d;
  const double eta = eta_of(theta_of(err.weight, x.s, x.magnitude, row.lse));
  const double fine = err.sums.fine;
  const auto ds_error = [&](double u_ds, double u_out) {
    const double products = err.products * x.w + (u_out + err.products) * row.z;
    return p * ((eta + u_ds + 2 * fine) * std::abs(away) + (1 + eta) * (1 + u_ds) * products) +
           err.weight.underflow * (1 + u_ds) * (std::abs(away) + products) + err.omega_ds;
  };
  const auto p_error = [&](double u_p) { return p * (eta + u_p) + err.weight.underflow + err.omega_p; };
  pair_gradient g;
  g.p = p;
  g.ds = p * away;
  g.ds_error = ds_error(err.u_ds, err.u_out);
  g.ds_fine = ds_error(fine, fine);
  g.ds_square = (squared(err.u_ds * g.ds) + squared(err.omega_ds)) / 3;
  g.p_error = p_error(err.u_p);
  g.p_fine = p_error(fine);
  g.p_square = (squared(err.u_p * p) + squared(err.omega_p)) / 3;
  return g;
}

double spread_of_d(const backward_error& err, const row_sums& row) { return squared(err.u_out) / 3 * row.z2; }

// Memory of one thread. n keys of a row; [heads][n] unless said otherwise.
struct scratch {
  std::vector<std::int64_t> keys, rows, chain;
  widened_tile q, d_out, k, v;
  std::vector<score_pair> pairs;
  std::vector<double> weight;
  std::array<double, tile_keys> dot{}, magnitude{}, d_dot{}, d_magnitude{};
  weight_columns of_ds, of_p;
  mean_sums means;
  gradient_sums of_row, of_key;
};

// What a sweep over keys reads.
enum class sweep { keys, values, both };

// Up to 128 of the keys from `first` on, into s.k and s.v; returns their number.
std::int64_t load_keys(const context& c, std::int64_t sequence, std::int64_t group, std::int64_t first, sweep what,
                       scratch& s) {
  const std::int64_t count = std::min(tile_keys, std::ssize(s.keys) - first);
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t key = c.keys.first_key(sequence) + s.keys[static_cast<std::size_t>(first + j)];
    if (what != sweep::values) s.k.set(j, c.in.k, c.in.k.offset(key, group));
    if (what != sweep::keys) s.v.set(j, c.in.v, c.in.v.offset(key, group));
  }
  return count;
}

void load_term(const context& c, std::int64_t i, std::int64_t row, std::int64_t head, scratch& s) {
  s.q.set(i, c.in.q, c.in.q.offset(row, head));
  s.d_out.set(i, c.in.d_out, c.in.d_out.offset(row, head));
}

// Scores and dP of `n` rows x with one y: keys of a query, or queries of a key, to the same bits.
void multiply(const context& c, const widened_tile& x, const double* y, const widened_tile& dx, const double* dy,
              std::int64_t n, scratch& s, score_pair* to) {
  score_tile(x.rows(), n, x.width(), y, s.dot.data(), s.magnitude.data(), nullptr);
  score_tile(dx.rows(), n, dx.width(), dy, s.d_dot.data(), s.d_magnitude.data(), nullptr);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    to[i] = {c.scale * s.dot[at], std::abs(c.scale) * s.magnitude[at], s.d_dot[at], s.d_magnitude[at]};
  }
}

// Softmax over one head's pairs.
void weigh(std::span<const score_pair> pairs, std::span<double> weight, row_sums& row) {
  row.m = std::ranges::max(pairs, {}, &score_pair::s).s;
  for (std::size_t j = 0; j < pairs.size(); ++j) weight[j] = std::exp(pairs[j].s - row.m);
  row.sum = pairwise_sum(weight);
  row.lse = row.m + std::log(row.sum);
  for (double& w : weight) w /= row.sum;
}

// o of every head, then D = <dO, o> and its gauges.
void find_means(const context& c, const row_place& at, std::int64_t group, std::span<row_sums> rows, scratch& s) {
  const std::int64_t n = std::ssize(s.keys);
  s.means.reset(c.heads, s.v.width());
  for (std::int64_t first = 0; first < n; first += tile_keys) {
    const std::int64_t count = load_keys(c, at.sequence, group, first, sweep::values, s);
    for (std::int64_t h = 0; h < c.heads; ++h) s.means.set(h, s.v, count, s.weight.data() + h * n + first);
    s.means.end_tile();
  }
  const auto means = s.means.total();
  for (std::int64_t h = 0; h < c.heads; ++h) {
    row_sums& row = rows[static_cast<std::size_t>(h)];
    score_tile(means.data() + h * s.v.width(), 1, s.v.width(), s.d_out.row(h), &row.d, &row.z, &row.z2);
  }
}

// LSE and D with its gauges as the forward tensors of a head have them.
row_sums sums_of(const context& c, std::int64_t row, std::int64_t head, scratch& s) {
  row_sums of;
  of.m = of.lse = load(c.handed_in->lse.data, c.handed_in->lse.desc.type, c.handed_in->lse.offset(row, head));
  of.sum = 1;
  for (auto* tile : {&s.d_out, &s.v}) tile->reset(c.in.p.d);
  s.d_out.set(0, c.in.d_out, c.in.d_out.offset(row, head));
  s.v.set(0, c.handed_in->out, c.handed_in->out.offset(row, head));
  score_tile(s.v.rows(), 1, s.v.width(), s.d_out.row(0), &of.d, &of.z, &of.z2);
  return of;
}

// Scores, softmax and D of the heads of one group over s.keys; of what was handed in `sums` holds LSE and D already.
void weigh_row(const context& c, std::int64_t row, std::int64_t group, std::span<row_sums> sums, scratch& s) {
  const row_place& at = c.keys.place(row);
  const std::int64_t n = std::ssize(s.keys);
  for (std::int64_t h = 0; h < c.heads; ++h) load_term(c, h, row, group * c.heads + h, s);
  s.pairs.resize(static_cast<std::size_t>(c.heads * n));
  s.weight.resize(s.pairs.size());
  for (std::int64_t first = 0; first < n; first += tile_keys) {
    const std::int64_t count = load_keys(c, at.sequence, group, first, sweep::both, s);
    for (std::int64_t h = 0; h < c.heads; ++h)
      multiply(c, s.k, s.q.row(h), s.v, s.d_out.row(h), count, s, s.pairs.data() + h * n + first);
  }
  for (std::int64_t h = 0; h < c.heads; ++h) {
    const std::span pairs(s.pairs.data() + h * n, s.keys.size());
    const std::span weight(s.weight.data() + h * n, s.keys.size());
    row_sums& of = sums[static_cast<std::size_t>(h)];
    if (c.handed_in)
      std::ranges::transform(pairs, weight.begin(), [&](const score_pair& x) { return std::exp(x.s - of.lse); });
    else
      weigh(pairs, weight, of);
  }
  if (!c.handed_in) find_means(c, at, group, sums, s);
}

// dq of the heads of one group at one row, as row `to` of dq.
void differentiate_row(const context& c, std::int64_t row, std::int64_t group, std::span<row_sums> sums, gradient& dq,
                       std::int64_t to, scratch& s) {
  c.keys.keys_of(row, group, s.keys);
  if (s.keys.empty()) return;
  const std::int64_t n = std::ssize(s.keys);
  for (auto* tile : {&s.q, &s.d_out, &s.k, &s.v}) tile->reset(c.in.p.d);
  weigh_row(c, row, group, sums, s);
  s.of_row.reset(c.heads, s.k.width());
  s.means.reset(c.heads, s.k.width());
  for (std::int64_t first = 0; first < n; first += tile_keys) {
    const std::int64_t count = load_keys(c, c.keys.place(row).sequence, group, first, sweep::keys, s);
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t j = 0; j < count; ++j) {
        const auto g = differentiate(c.err, sums[static_cast<std::size_t>(h)],
                                     s.pairs[static_cast<std::size_t>(h * n + first + j)]);
        s.of_ds.set(j, g.ds, g.ds_error, g.ds_fine, g.ds_square);
      }
      s.of_row.set(h, s.k, count, s.of_ds.view());
      s.means.set(h, s.k, count, s.weight.data() + h * n + first);
    }
    s.of_row.end_tile();
    s.means.end_tile();
  }
  const auto mean_key = s.means.total();
  for (std::int64_t h = 0; h < c.heads; ++h) {
    const std::size_t line = dq.line(to, group * c.heads + h);
    s.of_row.finish(h, c.scale, dq, line);
    dq.set_chain(line, n, c.err.sums.chain_q, c.err.sums.u_m);
    // An error of D moves all dS of the row at once.
    const double of_d = squared(c.scale) * spread_of_d(c.err, sums[static_cast<std::size_t>(h)]);
    for (std::int64_t channel = 0; channel < c.in.p.d; ++channel)
      dq.spread[dq.element(to, group * c.heads + h, channel)] +=
          of_d * squared(mean_key[static_cast<std::size_t>(h * s.k.width() + channel)]);
  }
}

// dk and dv of the keys of one tile and KV head, as rows `to` on: terms are (row, head), heads innermost.
void differentiate_keys(const context& c, const key_map::tile& tile, std::int64_t group, std::span<const row_sums> sums,
                        backward_result& result, std::int64_t to, scratch& s) {
  c.keys.rows_of(tile, group, s.rows);
  if (s.rows.empty()) return;
  for (auto* rows : {&s.q, &s.d_out, &s.k, &s.v}) rows->reset(c.in.p.d);
  s.keys.resize(static_cast<std::size_t>(tile.count));
  for (std::int64_t j = 0; j < tile.count; ++j) s.keys[static_cast<std::size_t>(j)] = tile.first + j;
  load_keys(c, tile.sequence, group, 0, sweep::both, s);
  s.pairs.resize(tile_keys);
  s.of_row.reset(tile.count, s.k.width());
  s.of_key.reset(tile.count, s.v.width());
  s.chain.assign(static_cast<std::size_t>(tile.count), 0);
  const std::int64_t terms = std::ssize(s.rows) * c.heads;
  const auto row_of = [&](std::int64_t term) { return s.rows[static_cast<std::size_t>(term / c.heads)]; };
  const auto head_of = [&](std::int64_t term) { return group * c.heads + term % c.heads; };
  for (std::int64_t first = 0; first < terms; first += tile_keys) {
    const std::int64_t n = std::min(tile_keys, terms - first);
    for (std::int64_t i = 0; i < n; ++i) load_term(c, i, row_of(first + i), head_of(first + i), s);
    for (std::int64_t j = 0; j < tile.count; ++j) {
      multiply(c, s.q, s.k.row(j), s.d_out, s.v.row(j), n, s, s.pairs.data());
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t row = row_of(first + i);
        const bool seen = j < c.keys.visible_in(tile, row);
        const row_sums& of = sums[static_cast<std::size_t>(row * c.in.p.hq + head_of(first + i))];
        const pair_gradient g = seen ? differentiate(c.err, of, s.pairs[static_cast<std::size_t>(i)]) : pair_gradient{};
        s.of_ds.set(i, g.ds, g.ds_error, g.ds_fine, g.ds_square + squared(g.p) * spread_of_d(c.err, of));
        s.of_p.set(i, g.p, g.p_error, g.p_fine, g.p_square);
        if (seen) ++s.chain[static_cast<std::size_t>(j)];
      }
      s.of_row.set(j, s.q, n, s.of_ds.view());
      s.of_key.set(j, s.d_out, n, s.of_p.view());
    }
    s.of_row.end_tile();
    s.of_key.end_tile();
  }
  for (std::int64_t j = 0; j < tile.count; ++j) {
    const std::size_t line = result.dk.line(to + j, group);
    s.of_row.finish(j, c.scale, result.dk, line);
    s.of_key.finish(j, 1, result.dv, line);
    for (auto* g : {&result.dk, &result.dv})
      g->set_chain(line, s.chain[static_cast<std::size_t>(j)], c.err.sums.chain_kv, c.err.sums.u_m);
  }
}

void require_shapes(std::string_view operation, const backward_inputs& in) {
  const problem& p = in.p;
  const auto require = [&](const tensor_view& t, std::int64_t heads, std::string_view what) {
    const auto& shape = t.desc.shape;
    if (shape.size() != 3 || shape[1] != heads || shape[2] != p.d || t.desc.strides[2] != 1)
      throw suite_error(fmt::format("{}: {}", operation, what));
  };
  if (p.d < 1) throw suite_error(fmt::format("{}: the problem has no head dim", operation));
  if (p.group() > tile_keys) throw suite_error(fmt::format("{}: more than {} heads to a group", operation, tile_keys));
  require(in.q, p.hq, "q must be [T,Hq,d]");
  require(in.d_out, p.hq, "d_out must be [T,Hq,d]");
  require(in.k, p.hkv, "k must be [N,Hkv,d]");
  require(in.v, p.hkv, "v must be [N,Hkv,d]");
}

// Checks what the tensors say against each other.
void require_lengths(std::string_view operation, const backward_inputs& in, const key_map& keys) {
  if (in.q.desc.shape[0] < keys.rows() || in.d_out.desc.shape[0] < keys.rows() || in.k.desc.shape[0] < keys.keys() ||
      in.v.desc.shape[0] < keys.keys())
    throw suite_error(fmt::format("{}: a tensor has fewer rows than the lengths say", operation));
}

backward_error bounded(backward_error err) {
  err.products = std::min(err.products, 1e100);  // an endless chain makes a huge bound and no NaN
  return err;
}

double scale_of(const problem& p) {
  return p.softmax_scale != 0 ? p.softmax_scale : 1 / std::sqrt(static_cast<double>(p.d));
}

std::span<row_sums> of_group(const context& c, std::vector<row_sums>& sums, std::int64_t row, std::int64_t group) {
  return std::span(sums).subspan(static_cast<std::size_t>(row * c.in.p.hq + group * c.heads),
                                 static_cast<std::size_t>(c.heads));
}

// The tile that has a row of k alone.
key_map::tile tile_of(const key_map& keys, std::int64_t key) {
  const auto begin_of = [&](const key_map::tile& t) { return keys.first_key(t.sequence) + t.first; };
  const auto after = std::ranges::upper_bound(keys.tiles(), key, {}, begin_of);
  if (key < 0 || key >= keys.keys() || after == keys.tiles().begin())
    throw suite_error(fmt::format("key {} is none of the batch", key));
  key_map::tile tile = *std::prev(after);
  tile.first += key - begin_of(tile);
  tile.count = 1;
  return tile;
}

}  // namespace

backward_result attention_backward(std::string_view operation, const backward_inputs& in, const backward_error& err) {
  require_shapes(operation, in);
  const problem& p = in.p;
  const key_map keys(p, in.ids, in.cu_seqlens_q, in.kv_lens, in.cu_seqlens_kv);
  require_lengths(operation, in, keys);
  const backward_error limited = bounded(err);
  const context c{in, keys, limited, scale_of(p), p.group()};
  backward_result result{
      gradient(keys.rows(), p.hq, p.d), gradient(keys.keys(), p.hkv, p.d), gradient(keys.keys(), p.hkv, p.d), {}};
  std::vector<row_sums> sums(static_cast<std::size_t>(keys.rows() * p.hq));
  const std::int64_t work = keys.rows() * p.hq * p.d * 128;
  parallel_for<scratch>(keys.rows() * p.hkv, work, [&](std::int64_t unit, scratch& s) {
    const std::int64_t row = unit / p.hkv, group = unit % p.hkv;
    differentiate_row(c, row, group, of_group(c, sums, row, group), result.dq, row, s);
  });
  parallel_for<scratch>(std::ssize(keys.tiles()) * p.hkv, work, [&](std::int64_t unit, scratch& s) {
    const auto& tile = keys.tiles()[static_cast<std::size_t>(unit / p.hkv)];
    differentiate_keys(c, tile, unit % p.hkv, sums, result, keys.first_key(tile.sequence) + tile.first, s);
  });
  for (const row_sums& row : sums) result.lse.push_back(row.lse);
  return result;
}

backward_result attention_backward_lines(std::string_view operation, const backward_inputs& in,
                                         const forward_tensors& forward, const gradient_lines& lines,
                                         const backward_error& err) {
  require_shapes(operation, in);
  const problem& p = in.p;
  const key_map keys(p, in.ids, in.cu_seqlens_q, in.kv_lens, in.cu_seqlens_kv);
  require_lengths(operation, in, keys);
  const auto& [out, lse] = forward;
  if (out.desc.shape.size() != 3 || out.desc.shape[0] < keys.rows() || out.desc.shape[1] != p.hq ||
      out.desc.shape[2] != p.d || out.desc.strides[2] != 1)
    throw suite_error(fmt::format("{}: out must be [T,Hq,d]", operation));
  if (lse.desc.shape.size() != 2 || lse.desc.shape[0] < keys.rows() || lse.desc.shape[1] != p.hq)
    throw suite_error(fmt::format("{}: lse must be [T,Hq]", operation));
  const backward_error limited = bounded(err);
  const context c{in, keys, limited, scale_of(p), p.group(), &forward};
  const std::int64_t rows = std::ssize(lines.rows), key_lines = std::ssize(lines.keys);
  backward_result result{
      gradient(rows, p.hq, p.d), gradient(key_lines, p.hkv, p.d), gradient(key_lines, p.hkv, p.d), {}};
  std::vector<row_sums> sums(static_cast<std::size_t>(keys.rows() * p.hq));
  const std::int64_t work = keys.rows() * p.hq * p.d;
  parallel_for<scratch>(keys.rows(), work, [&](std::int64_t row, scratch& s) {
    for (std::int64_t head = 0; head < p.hq; ++head)
      sums[static_cast<std::size_t>(row * p.hq + head)] = sums_of(c, row, head, s);
  });
  parallel_for<scratch>(rows * p.hkv, work, [&](std::int64_t unit, scratch& s) {
    const std::int64_t to = unit / p.hkv, row = lines.rows[static_cast<std::size_t>(to)], group = unit % p.hkv;
    differentiate_row(c, row, group, of_group(c, sums, row, group), result.dq, to, s);
  });
  parallel_for<scratch>(key_lines * p.hkv, work, [&](std::int64_t unit, scratch& s) {
    const std::int64_t to = unit / p.hkv;
    differentiate_keys(c, tile_of(keys, lines.keys[static_cast<std::size_t>(to)]), unit % p.hkv, sums, result, to, s);
  });
  for (const row_sums& row : sums) result.lse.push_back(row.lse);
  return result;
}

}  // namespace msabench::reference
