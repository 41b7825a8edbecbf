// SPDX-License-Identifier: Apache-2.0
#include "reference/index.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "reference/index_keys.h"
#include "reference/pairwise.h"
#include "reference/parallel.h"
#include "reference/select.h"
#include "reference/tile_kernels.h"

namespace msabench::reference {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double largest_eta = 1e100;

struct scratch : index_keys::scratch {
  std::vector<std::int32_t> ids;           // of one row and head
  std::vector<double> scores, magnitudes;  // of all keys of the set
  std::vector<double> weights, weights_eta;
};

// Scores of one head over s.keys.
void score_keys(const index_keys& index, const row_place& place, std::int64_t row, std::int64_t head, scratch& s) {
  index.load_queries(row, head, 1, s);
  s.scores.clear();
  s.magnitudes.clear();
  const auto n = static_cast<std::int64_t>(s.keys.size());
  for (std::int64_t first = 0; first < n; first += tile_keys) {
    const std::int64_t count = std::min(tile_keys, n - first);
    index.score(place.sequence, s.keys, first, count, s);
    s.scores.insert(s.scores.end(), s.score.begin(), s.score.begin() + count);
    s.magnitudes.insert(s.magnitudes.end(), s.magnitude.begin(), s.magnitude.begin() + count);
  }
}

// Scores that are not finite: NaN left out, no bound.
void sum_without_bound(std::span<double> scores, index_lse_row& r) {
  r.eta_bar = inf;
  r.m = -inf;
  for (double& s : scores) {
    if (std::isnan(s)) s = -inf;
    r.m = std::max(r.m, s);
  }
  r.lse = r.m;
  if (std::isinf(r.m)) return;
  for (double& s : scores) s = std::exp(s - r.m);
  r.lse += std::log(pairwise_sum(scores));
}

void sum_exponentials(const score_error& err, scratch& s, index_lse_row& r) {
  r.n = std::ssize(s.keys);
  r.lse = -inf;
  if (s.keys.empty()) return;
  if (!std::ranges::all_of(s.scores, [](double x) { return std::isfinite(x); })) return sum_without_bound(s.scores, r);

  r.m = *std::ranges::max_element(s.scores);
  s.weights.resize(s.scores.size());
  s.weights_eta.resize(s.scores.size());
  for (std::size_t j = 0; j < s.scores.size(); ++j) s.weights[j] = std::exp(s.scores[j] - r.m);
  const double sum = pairwise_sum(s.weights);
  r.lse = r.m + std::log(sum);
  for (std::size_t j = 0; j < s.scores.size(); ++j) {
    const double size = std::abs(s.scores[j]);
    const double theta = contribution(err.per_magnitude, s.magnitudes[j]) + err.per_score * size + err.constant +
                         err.per_size * (std::abs(s.scores[j] - r.m) + std::abs(r.m));
    s.weights_eta[j] = s.weights[j] / sum * std::min(std::expm1(theta), largest_eta);
  }
  r.eta_bar = pairwise_sum(s.weights_eta);
}

void lse_of_row(const index_keys& index, const row_place& place, const score_error& err, scratch& s, index_lse_row& r) {
  if (!s.keys.empty()) score_keys(index, place, r.row, r.head, s);
  sum_exponentials(err, s, r);
}

}  // namespace

std::vector<index_row> index(const index_inputs& in, std::span<const std::int64_t> rows, const interval_model& model,
                             const score_error& err) {
  const problem& p = in.p;
  auto scored = score(in, rows, model);
  const index_keys keys(in);
  const row_map places(in.cu_seqlens_q, in.kv_lens);
  std::vector<index_row> results(scored.size());
  const auto units = static_cast<std::int64_t>(results.size());
  const std::int64_t most_keys = static_cast<std::int64_t>(p.topk) * p.block;
  parallel_for<scratch>(units, units * keys.work(most_keys), [&](std::int64_t unit, scratch& s) {
    index_row& r = results[static_cast<std::size_t>(unit)];
    r.scores = std::move(scored[static_cast<std::size_t>(unit)]);
    r.row = r.lse.row = r.scores.row;
    r.head = r.lse.head = r.scores.head;
    r.ids = select_row(r.scores.value, std::ssize(r.scores.value), p.topk, p.local_blocks, p.init_blocks);
    const row_place& place = places[r.row];
    find_block_keys(r.ids, place, p.block, s.keys);
    lse_of_row(keys, place, err, s, r.lse);
  });
  return results;
}

std::vector<index_lse_row> index_lse(const index_inputs& in, const tensor_view& ids, std::span<const std::int64_t> rows,
                                     const score_error& err) {
  const index_keys keys(in);
  if (ids.desc.shape.size() != 3 || ids.desc.shape[1] != in.p.hi) throw suite_error("index: ids must be [T,Hi,k]");
  const row_map places(in.cu_seqlens_q, in.kv_lens);
  const std::int64_t slots = ids.desc.shape[2];
  std::vector<index_lse_row> results(rows.size() * static_cast<std::size_t>(in.p.hi));
  const auto units = static_cast<std::int64_t>(results.size());
  parallel_for<scratch>(units, units * keys.work(slots * in.p.block), [&](std::int64_t unit, scratch& s) {
    index_lse_row& r = results[static_cast<std::size_t>(unit)];
    r.row = rows[static_cast<std::size_t>(unit / in.p.hi)];
    r.head = unit % in.p.hi;
    const row_place& place = places[r.row];
    s.ids.clear();
    for (std::int64_t slot = 0; slot < slots; ++slot) s.ids.push_back(ids.int_at(r.row, r.head, slot));
    find_block_keys(s.ids, place, in.p.block, s.keys);
    lse_of_row(keys, place, err, s, r);
  });
  return results;
}

}  // namespace msabench::reference
