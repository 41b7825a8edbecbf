// SPDX-License-Identifier: Apache-2.0
#include "reference/kl.h"

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

// One softmax of a row: of a query head, or of the student.
struct softmax_sums {
  double m = 0, sum = 0, lse = 0;
  double theta = 0;  // what its normaliser adds to theta
};

struct context {
  const kl_inputs& in;
  const key_map& keys;
  const kl_error& err;
  double scale, index_scale, c;
  std::int64_t heads;  // of a group
};

// Sums of rows: [row][Hq] and [row][Hkv], where `place` has rows; without it, of all.
struct row_softmaxes {
  std::vector<std::int64_t> place;
  std::vector<softmax_sums> heads, index;

  std::size_t at(std::int64_t row) const {
    return static_cast<std::size_t>(place.empty() ? row : place[static_cast<std::size_t>(row)]);
  }
};

struct scaled_score {
  double s = 0, magnitude = 0;
};
// One weight of a softmax and its worst error.
struct weight {
  double p = 0, ln = 0, theta = 0, error = 0;
};

// For what has no bound: huge, and no NaN in a product with 0.
constexpr double largest = 1e100;

double squared(double x) { return x * x; }

weight weigh(const weight_error& err, const softmax_sums& of, const scaled_score& x) {
  weight w;
  w.p = std::exp(x.s - of.m) / of.sum;
  w.ln = x.s - of.lse;
  w.theta = std::min(theta_of(err, x.s, x.magnitude, of.lse) + of.theta, largest);
  w.error = w.p * eta_of(w.theta) + err.underflow;
  return w;
}

// The teacher at one key: the mean over the heads of a group.
struct teacher {
  double p = 0, error = 0;
  void add(const weight& head) { p += head.p, error += head.error; }
  void end(std::int64_t heads, double mean) {
    p /= static_cast<double>(heads);
    error = error / static_cast<double>(heads) + mean * p;
  }
};

// ds of one (row, index head, key).
struct score_gradient {
  double ds = 0, error = 0, fine = 0, square = 0;
};
score_gradient differentiate(const context& c, const teacher& main, const weight& student) {
  const double away = student.p - main.p, fine = c.err.sums.fine;
  const auto error = [&](double u_ds) {
    return c.c * (student.error + main.error + (u_ds + fine) * std::abs(away)) + c.err.omega_ds;
  };
  const double ds = c.c * away;
  return {ds, error(c.err.u_ds), error(fine), (squared(c.err.u_ds * ds) + squared(c.err.omega_ds)) / 3};
}

// Memory of one thread.
struct scratch {
  std::vector<std::int64_t> keys, rows, chain;
  widened_tile q, k, q_idx, k_idx;
  std::vector<scaled_score> main, index;                     // [heads][n], [n]
  std::vector<double> terms, of_teacher, of_student, sizes;  // of a row's loss and its gauges, [n]
  std::vector<double> logs;                                  // [heads] ln p^h of one key
  std::array<double, tile_keys> dot{}, magnitude{};
  std::array<scaled_score, tile_keys> line{};
  std::vector<teacher> teachers;
  weight_columns of_ds;
  gradient_sums sums;
};

// Parts of the loss of one row and group.
struct loss_parts {
  double loss = 0, teacher = 0, student = 0, magnitude = 0;
  std::int64_t n = 0;
};

void multiply(const widened_tile& x, const double* y, std::int64_t n, double scale, scratch& s, scaled_score* to) {
  score_tile(x.rows(), n, x.width(), y, s.dot.data(), s.magnitude.data(), nullptr);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    to[i] = {scale * s.dot[at], std::abs(scale) * s.magnitude[at]};
  }
}

std::int64_t usual_chain(std::int64_t n) { return std::min(n, tile_keys) + (n + tile_keys - 1) / tile_keys; }

softmax_sums normalise(const weight_error& err, const normaliser_error& normaliser,
                       std::span<const scaled_score> scores, std::vector<double>& terms) {
  softmax_sums of;
  of.m = std::ranges::max(scores, {}, &scaled_score::s).s;
  terms.resize(scores.size());
  for (std::size_t j = 0; j < scores.size(); ++j) terms[j] = std::exp(scores[j].s - of.m);
  of.sum = pairwise_sum(terms);
  of.lse = of.m + std::log(of.sum);
  if (normaliser.share == 0) return of;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const double theta = theta_of(err, scores[j].s, scores[j].magnitude, of.lse);
    terms[j] = terms[j] / of.sum * eta_of(theta);
  }
  const auto n = static_cast<std::int64_t>(scores.size());
  const std::int64_t chain = std::min(n, normaliser.chain == 0 ? usual_chain(n) : normaliser.chain);
  of.theta = normaliser.share *
             (std::log1p(pairwise_sum(terms)) + chain_roundoff(chain, normaliser.roundoff) + normaliser.log);
  return of;
}

std::int64_t load_keys(const context& c, std::int64_t sequence, std::int64_t group, std::int64_t first, bool main,
                       scratch& s) {
  const std::int64_t count = std::min(tile_keys, std::ssize(s.keys) - first);
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t key = c.keys.first_key(sequence) + s.keys[static_cast<std::size_t>(first + j)];
    if (main) s.k.set(j, c.in.k, c.in.k.offset(key, group));
    s.k_idx.set(j, c.in.k_idx, c.in.k_idx.offset(key));
  }
  return count;
}

void reset_tiles(const context& c, scratch& s) {
  for (auto* tile : {&s.q, &s.k}) tile->reset(c.in.p.d);
  for (auto* tile : {&s.q_idx, &s.k_idx}) tile->reset(c.in.p.di);
}

void score_row(const context& c, std::int64_t row, std::int64_t group, scratch& s) {
  const std::int64_t n = std::ssize(s.keys);
  for (std::int64_t h = 0; h < c.heads; ++h) s.q.set(h, c.in.q, c.in.q.offset(row, group * c.heads + h));
  s.q_idx.set(0, c.in.q_idx, c.in.q_idx.offset(row, group));
  s.main.resize(static_cast<std::size_t>(c.heads * n));
  s.index.resize(static_cast<std::size_t>(n));
  for (std::int64_t first = 0; first < n; first += tile_keys) {
    const std::int64_t count = load_keys(c, c.keys.place(row).sequence, group, first, true, s);
    for (std::int64_t h = 0; h < c.heads; ++h)
      multiply(s.k, s.q.row(h), count, c.scale, s, s.main.data() + h * n + first);
    multiply(s.k_idx, s.q_idx.row(0), count, c.index_scale, s, s.index.data() + first);
  }
}

// ln P from the logarithms of the heads' weights: finite where every weight underflows.
double log_mean(std::span<const double> logs) {
  const double m = *std::ranges::max_element(logs);
  double sum = 0;
  for (const double x : logs) sum += std::exp(x - m);
  return m + std::log(sum / static_cast<double>(logs.size()));
}

// Sums of one (row, group), each softmax's in of_heads and of_index.
struct row_sums {
  std::span<softmax_sums> heads;
  softmax_sums& index;
};

// One key of a row, `at` among n: its terms of the loss into s, and ds.
score_gradient compare(const context& c, const row_sums& of, std::size_t at, std::size_t n, scratch& s) {
  teacher main;
  for (std::size_t h = 0; h < of.heads.size(); ++h) {
    const weight w = weigh(c.err.weight, of.heads[h], s.main[h * n + at]);
    s.logs[h] = w.ln;
    main.add(w);
  }
  main.end(c.heads, c.err.mean);
  const weight student = weigh(c.err.index_weight, of.index, s.index[at]);
  const double ln = log_mean(s.logs), ratio = ln - student.ln;
  s.terms[at] = main.p * ratio;
  s.of_teacher[at] = main.error * (std::abs(ratio) + 1);
  s.of_student[at] = main.p * (student.theta + 2 * c.err.sums.fine * std::abs(ln));
  s.sizes[at] = main.p * std::abs(ratio);
  return differentiate(c, main, student);
}

// Scores and both branches' sums of one (row, group); false without keys.
bool normalise_row(const context& c, std::int64_t row, std::int64_t group, const row_sums& of, scratch& s) {
  c.keys.keys_of(row, group, s.keys);
  const std::size_t n = s.keys.size();
  if (n == 0) return false;
  reset_tiles(c, s);
  score_row(c, row, group, s);
  for (std::size_t h = 0; h < of.heads.size(); ++h)
    of.heads[h] = normalise(c.err.weight, c.err.normaliser, std::span(s.main).subspan(h * n, n), s.terms);
  of.index = normalise(c.err.index_weight, c.err.normaliser, s.index, s.terms);
  return true;
}

// Line `line` of dq_idx and the parts of the loss of one (row, group).
loss_parts differentiate_row(const context& c, std::int64_t row, std::int64_t group, const row_sums& of,
                             gradient& dq_idx, std::size_t line, scratch& s) {
  if (!normalise_row(c, row, group, of, s)) return {};
  const std::size_t n = s.keys.size();
  for (auto* terms : {&s.terms, &s.of_teacher, &s.of_student, &s.sizes}) terms->resize(n);
  s.logs.resize(of.heads.size());
  s.sums.reset(1, s.k_idx.width());
  for (std::int64_t first = 0; first < std::ssize(s.keys); first += tile_keys) {
    const std::int64_t count = load_keys(c, c.keys.place(row).sequence, group, first, false, s);
    for (std::int64_t j = 0; j < count; ++j) {
      const score_gradient g = compare(c, of, static_cast<std::size_t>(first + j), n, s);
      s.of_ds.set(j, g.ds, g.error, g.fine, g.square);
    }
    s.sums.set(0, s.k_idx, count, s.of_ds.view());
    s.sums.end_tile();
  }
  s.sums.finish(0, c.index_scale, dq_idx, line);
  dq_idx.set_chain(line, std::ssize(s.keys), c.err.sums.chain_q, c.err.sums.u_m);
  return {c.c * pairwise_sum(s.terms), c.c * pairwise_sum(s.of_teacher), c.c * pairwise_sum(s.of_student),
          c.c * pairwise_sum(s.sizes), std::ssize(s.keys)};
}

// Terms of up to 128 rows of one group in dk_idx of the tile's keys.
void add_rows(const context& c, const key_map::tile& tile, std::int64_t group, std::span<const std::int64_t> rows,
              const row_softmaxes& sums, scratch& s) {
  const std::int64_t n = std::ssize(rows);
  const auto row_of = [&](std::int64_t i) { return rows[static_cast<std::size_t>(i)]; };
  const auto seen = [&](std::int64_t i, std::int64_t j) { return j < c.keys.visible_in(tile, row_of(i)); };
  s.teachers.assign(static_cast<std::size_t>(tile.count * n), teacher{});
  for (std::int64_t head = group * c.heads; head < (group + 1) * c.heads; ++head) {
    for (std::int64_t i = 0; i < n; ++i) s.q.set(i, c.in.q, c.in.q.offset(row_of(i), head));
    for (std::int64_t j = 0; j < tile.count; ++j) {
      multiply(s.q, s.k.row(j), n, c.scale, s, s.line.data());
      for (std::int64_t i = 0; i < n; ++i) {
        if (!seen(i, j)) continue;
        const auto& of =
            sums.heads[sums.at(row_of(i)) * static_cast<std::size_t>(c.in.p.hq) + static_cast<std::size_t>(head)];
        s.teachers[static_cast<std::size_t>(j * n + i)].add(
            weigh(c.err.weight, of, s.line[static_cast<std::size_t>(i)]));
      }
    }
  }
  for (std::int64_t i = 0; i < n; ++i) s.q_idx.set(i, c.in.q_idx, c.in.q_idx.offset(row_of(i), group));
  for (std::int64_t j = 0; j < tile.count; ++j) {
    multiply(s.q_idx, s.k_idx.row(j), n, c.index_scale, s, s.line.data());
    for (std::int64_t i = 0; i < n; ++i) {
      score_gradient g;
      if (seen(i, j)) {
        teacher& main = s.teachers[static_cast<std::size_t>(j * n + i)];
        main.end(c.heads, c.err.mean);
        const auto& of =
            sums.index[sums.at(row_of(i)) * static_cast<std::size_t>(c.in.p.hkv) + static_cast<std::size_t>(group)];
        g = differentiate(c, main, weigh(c.err.index_weight, of, s.line[static_cast<std::size_t>(i)]));
        ++s.chain[static_cast<std::size_t>(j)];
      }
      s.of_ds.set(i, g.ds, g.error, g.fine, g.square);
    }
    s.sums.set(j, s.q_idx, n, s.of_ds.view());
  }
  s.sums.end_tile();
}

// dk_idx of the keys of one tile, from line `first_line` on: terms are (group, row).
void differentiate_keys(const context& c, const key_map::tile& tile, const row_softmaxes& sums, gradient& dk_idx,
                        std::int64_t first_line, scratch& s) {
  reset_tiles(c, s);
  s.keys.resize(static_cast<std::size_t>(tile.count));
  for (std::int64_t j = 0; j < tile.count; ++j) s.keys[static_cast<std::size_t>(j)] = tile.first + j;
  s.sums.reset(tile.count, s.k_idx.width());
  s.chain.assign(static_cast<std::size_t>(tile.count), 0);
  for (std::int64_t group = 0; group < c.in.p.hkv; ++group) {
    c.keys.rows_of(tile, group, s.rows);
    if (s.rows.empty()) continue;
    load_keys(c, tile.sequence, group, 0, true, s);
    for (std::int64_t first = 0; first < std::ssize(s.rows); first += tile_keys) {
      const std::int64_t n = std::min(tile_keys, std::ssize(s.rows) - first);
      add_rows(c, tile, group, std::span(s.rows).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n)),
               sums, s);
    }
  }
  for (std::int64_t j = 0; j < tile.count; ++j) {
    const std::size_t line = dk_idx.line(first_line + j, 0);
    s.sums.finish(j, c.index_scale, dk_idx, line);
    dk_idx.set_chain(line, s.chain[static_cast<std::size_t>(j)], c.err.sums.chain_kv, c.err.sums.u_m);
  }
}

void require_shapes(const kl_inputs& in) {
  const problem& p = in.p;
  const auto require = [&](const tensor_view& t, std::vector<std::int64_t> inner, std::string_view what) {
    const auto& shape = t.desc.shape;
    if (shape.size() != inner.size() + 1 || !std::equal(inner.begin(), inner.end(), shape.begin() + 1) ||
        t.desc.strides.back() != 1)
      throw suite_error(fmt::format("kl: {}", what));
  };
  if (p.d < 1 || p.di < 1 || p.hi != p.hkv)
    throw suite_error("kl: the problem needs d, di and an index head for each KV head");
  if (p.group() > tile_keys) throw suite_error(fmt::format("kl: more than {} heads to a group", tile_keys));
  require(in.q, {p.hq, p.d}, "q must be [T,Hq,d]");
  require(in.k, {p.hkv, p.d}, "k must be [N,Hkv,d]");
  require(in.q_idx, {p.hi, p.di}, "q_idx must be [T,Hi,di]");
  require(in.k_idx, {p.di}, "k_idx must be [N,di]");
  if (p.kl_warm_up == 0 && in.ids.desc.shape.empty()) throw suite_error("kl: ids are missing");
}

double sum_of(std::span<const loss_parts> parts, double loss_parts::* part) {
  std::vector<double> terms;
  for (const loss_parts& x : parts) terms.push_back(x.*part);
  return pairwise_sum(terms);
}

double largest_lse(std::span<const softmax_sums> sums) {
  double most = 0;
  for (const softmax_sums& x : sums) most = std::max(most, std::abs(x.lse));
  return most;
}

double scale_of(double asked, std::int32_t dim) { return asked != 0 ? asked : 1 / std::sqrt(static_cast<double>(dim)); }

key_map keys_of(const kl_inputs& in) {
  require_shapes(in);
  key_map keys(in.p, in.p.kl_warm_up != 0 ? tensor_view{} : in.ids, in.cu_seqlens_q, in.kv_lens, in.cu_seqlens_kv);
  if (in.q.desc.shape[0] < keys.rows() || in.q_idx.desc.shape[0] < keys.rows() || in.k.desc.shape[0] < keys.keys() ||
      in.k_idx.desc.shape[0] < keys.keys())
    throw suite_error("kl: a tensor has fewer rows than the lengths say");
  return keys;
}

kl_error bounded_mean(const kl_error& err) {
  kl_error bounded = err;
  bounded.mean = std::min(err.mean, largest);
  return bounded;
}

context context_of(const kl_inputs& in, const key_map& keys, const kl_error& err) {
  const problem& p = in.p;
  const double mean_over = static_cast<double>(std::max<std::int64_t>(keys.rows(), 1) * p.hkv);
  return {in,       keys, err, scale_of(p.softmax_scale, p.d), scale_of(p.index_scale, p.di), p.kl_coeff / mean_over,
          p.group()};
}

std::int64_t work_of(const problem& p, std::int64_t rows) { return rows * (p.hq * p.d + p.hi * p.di) * tile_keys; }

row_softmaxes sums_of(const problem& p, std::int64_t rows) {
  row_softmaxes sums;
  sums.heads.resize(static_cast<std::size_t>(rows * p.hq));
  sums.index.resize(static_cast<std::size_t>(rows * p.hkv));
  return sums;
}

// `at`: place * Hkv + group.
row_sums sums_at(const context& c, row_softmaxes& sums, std::size_t at) {
  const auto heads = static_cast<std::size_t>(c.heads);
  return {std::span(sums.heads).subspan(at * heads, heads), sums.index[at]};
}

// A tile for each of these rows of k.
std::vector<key_map::tile> tiles_of(const key_map& keys, std::span<const std::int64_t> rows_of_k) {
  std::vector<key_map::tile> tiles;
  for (const std::int64_t row : rows_of_k) {
    const auto holds = [&](const key_map::tile& t) {
      const std::int64_t first = keys.first_key(t.sequence) + t.first;
      return first <= row && row < first + t.count;
    };
    const auto found = std::ranges::find_if(keys.tiles(), holds);
    if (found == keys.tiles().end()) throw suite_error("kl: a line of a key that no sequence has");
    tiles.push_back({found->sequence, found->block, row - keys.first_key(found->sequence), 1});
  }
  return tiles;
}

struct row_and_group {
  std::int64_t row, group;
  auto operator<=>(const row_and_group&) const = default;
};

// Who reads one of these keys, ascending.
std::vector<row_and_group> units_of(const key_map& keys, std::span<const key_map::tile> tiles) {
  std::vector<row_and_group> units;
  std::vector<std::int64_t> rows;
  for (const key_map::tile& tile : tiles)
    for (std::int64_t group = 0; group < keys.groups(); ++group) {
      keys.rows_of(tile, group, rows);
      for (const std::int64_t row : rows) units.push_back({row, group});
    }
  std::ranges::sort(units);
  units.erase(std::unique(units.begin(), units.end()), units.end());
  return units;
}

}  // namespace

kl_result kl(const kl_inputs& in, const kl_error& err) {
  const problem& p = in.p;
  const key_map keys = keys_of(in);
  const std::int64_t rows = keys.rows();
  const kl_error bounded = bounded_mean(err);
  const context c = context_of(in, keys, bounded);
  kl_result result;
  result.dq_idx = gradient(rows, p.hi, p.di);
  result.dk_idx = gradient(keys.keys(), 1, p.di);
  row_softmaxes sums = sums_of(p, rows);
  std::vector<loss_parts> parts(sums.index.size());
  const std::int64_t work = work_of(p, rows);
  parallel_for<scratch>(rows * p.hkv, work, [&](std::int64_t unit, scratch& s) {
    const auto at = static_cast<std::size_t>(unit);
    parts[at] = differentiate_row(c, unit / p.hkv, unit % p.hkv, sums_at(c, sums, at), result.dq_idx, at, s);
  });
  parallel_for<scratch>(std::ssize(keys.tiles()), work, [&](std::int64_t unit, scratch& s) {
    const auto& tile = keys.tiles()[static_cast<std::size_t>(unit)];
    differentiate_keys(c, tile, sums, result.dk_idx, keys.first_key(tile.sequence) + tile.first, s);
  });
  result.loss = sum_of(parts, &loss_parts::loss);
  result.loss_teacher = sum_of(parts, &loss_parts::teacher);
  result.loss_student = sum_of(parts, &loss_parts::student);
  result.loss_magnitude = sum_of(parts, &loss_parts::magnitude);
  for (const loss_parts& x : parts) result.loss_chain = std::max(result.loss_chain, x.n);
  result.loss_chain += rows * p.hkv;
  result.largest_lse = std::max(largest_lse(sums.heads), largest_lse(sums.index));
  return result;
}

kl_result kl_lines(const kl_inputs& in, const kl_error& err, const gradient_lines& lines) {
  const problem& p = in.p;
  const key_map keys = keys_of(in);
  const kl_error bounded = bounded_mean(err);
  const context c = context_of(in, keys, bounded);
  const auto tiles = tiles_of(keys, lines.keys);
  const auto units = units_of(keys, tiles);
  // Places of rows that read one of the keys.
  row_softmaxes sums;
  sums.place.assign(static_cast<std::size_t>(std::max<std::int64_t>(keys.rows(), 1)), 0);
  std::int64_t readers = 0;
  for (std::size_t i = 0; i < units.size(); ++i)
    if (i == 0 || units[i].row != units[i - 1].row) sums.place[static_cast<std::size_t>(units[i].row)] = readers++;
  sums.heads.resize(static_cast<std::size_t>(readers * p.hq));
  sums.index.resize(static_cast<std::size_t>(readers * p.hkv));
  parallel_for<scratch>(std::ssize(units), work_of(p, std::ssize(units)), [&](std::int64_t i, scratch& s) {
    const row_and_group& unit = units[static_cast<std::size_t>(i)];
    const std::size_t at = sums.at(unit.row) * static_cast<std::size_t>(p.hkv) + static_cast<std::size_t>(unit.group);
    normalise_row(c, unit.row, unit.group, sums_at(c, sums, at), s);
  });
  kl_result result;
  result.dq_idx = gradient(std::ssize(lines.rows), p.hi, p.di);
  result.dk_idx = gradient(std::ssize(lines.keys), 1, p.di);
  row_softmaxes own = sums_of(p, std::ssize(lines.rows));
  parallel_for<scratch>(std::ssize(own.index), work_of(p, std::ssize(lines.rows)), [&](std::int64_t unit, scratch& s) {
    const std::int64_t row = lines.rows[static_cast<std::size_t>(unit / p.hkv)];
    if (row < 0 || row >= keys.rows()) throw suite_error("kl: a line of a row that no sequence has");
    const auto at = static_cast<std::size_t>(unit);
    differentiate_row(c, row, unit % p.hkv, sums_at(c, own, at), result.dq_idx, at, s);
  });
  parallel_for<scratch>(std::ssize(tiles), work_of(p, std::ssize(units)), [&](std::int64_t i, scratch& s) {
    differentiate_keys(c, tiles[static_cast<std::size_t>(i)], sums, result.dk_idx, i, s);
  });
  for (const auto* of : {&sums, &own})
    result.largest_lse = std::max({result.largest_lse, largest_lse(of->heads), largest_lse(of->index)});
  return result;
}

std::vector<std::int64_t> kl_key_triples(const kl_inputs& in, std::span<const std::int64_t> rows_of_k) {
  const key_map keys = keys_of(in);
  std::vector<std::int64_t> triples, of_row;
  for (const key_map::tile& tile : tiles_of(keys, rows_of_k)) {
    std::int64_t pairs = 0;
    for (const row_and_group& unit : units_of(keys, std::span(&tile, 1))) {
      keys.keys_of(unit.row, unit.group, of_row);
      pairs += std::ssize(of_row);
    }
    triples.push_back(pairs * (in.p.group() + 1));
  }
  return triples;
}

}  // namespace msabench::reference
