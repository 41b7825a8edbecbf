// SPDX-License-Identifier: Apache-2.0
#include "judge/index_branch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/dtype.h"
#include "judge/detectability.h"
#include "judge/input.h"
#include "judge/limits.h"
#include "reference/index_keys.h"
#include "reference/tile_kernels.h"

namespace msabench::judge {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// What public kernels clamp scores to.
constexpr double sentinel_score = 1e30;

}  // namespace

reference::score_inputs score_inputs_of(const subject& what) {
  return {what.agreed,
          input(what, slot::q_idx),
          input(what, slot::k_idx),
          input(what, slot::q_idx_scale),
          input(what, slot::k_idx_scale),
          input(what, slot::cu_seqlens_q),
          input(what, slot::kv_lens),
          input(what, slot::cu_seqlens_kv),
          input(what, slot::block_table_idx)};
}

double index_scale_of(const problem& p) {
  return p.index_scale != 0 ? p.index_scale : 1 / std::sqrt(static_cast<double>(p.di));
}

roundoffs index_roundoffs(const problem& p, const numerics& n) {
  const score_branch branch = index_branch_of(p, n);
  return resolve(branch.p, branch.n);
}

reference::interval_model interval_model_of(const problem& p, const profile& f, const numerics& n) {
  const roundoffs r = index_roundoffs(p, n);
  const reference::score_error e = score_error_of(r);
  reference::interval_model model;
  model.per_magnitude = e.per_magnitude;
  model.per_score = e.per_score;
  model.unit = f.unit == score_unit::raw ? 1 / index_scale_of(p) : 1;
  model.largest = r.u_s > 0 ? std::min(max_finite(n.score_store), max_finite(fp32)) : max_finite(fp32);
  model.propagate_nan = f.nan_score == nan_policy::propagate;
  return model;
}

bool scores_are_exact(const case_spec& c, const problem& p) {
  int exponent = 0;
  return c.family == "index_code" && std::frexp(index_scale_of(p), &exponent) == 0.5;
}

double largest_score(const std::vector<key_score>& keys) {
  double best = -infinity;
  for (const auto& k : keys)
    if (k.score > best) best = k.score;
  return best;
}

std::vector<key_score> index_probe::keys(std::int64_t row, std::int64_t head, std::int64_t block, bool hidden) const {
  const problem& p = in_.p;
  const auto place = reference::place_of(in_.cu_seqlens_q, in_.kv_lens, row);
  const std::int64_t visible = reference::visible_keys(place);
  const std::int64_t end = std::min((block + 1) * p.block, hidden ? place.kv_len : visible);
  const reference::index_keys index(in_);
  reference::index_keys::scratch s;
  for (std::int64_t key = block * p.block; key < end; ++key) s.keys.push_back(key);
  index.load_queries(row, head, 1, s);
  std::vector<key_score> all;
  for (std::int64_t first = 0; first < std::ssize(s.keys); first += reference::tile_keys) {
    const std::int64_t count = std::min(reference::tile_keys, static_cast<std::int64_t>(s.keys.size()) - first);
    index.score(place.sequence, s.keys, first, count, s);
    for (std::int64_t j = 0; j < count; ++j)
      all.push_back({s.keys[static_cast<std::size_t>(first + j)], s.score[static_cast<std::size_t>(j)],
                     s.magnitude[static_cast<std::size_t>(j)]});
  }
  return all;
}

double index_probe::with_swapped_pages(std::int64_t row, std::int64_t head, std::int64_t block, std::int64_t a,
                                       std::int64_t b) const {
  const tensor_view& table = in_.block_table_idx;
  const auto place = reference::place_of(in_.cu_seqlens_q, in_.kv_lens, row);
  std::vector<std::int32_t> entries(static_cast<std::size_t>(table.desc.span_elements()));
  std::memcpy(entries.data(), table.data, entries.size() * sizeof entries[0]);
  const std::int64_t moved = swapped_tokens(in_.p) / in_.p.page_size, behind = (place.kv_len - 1) / in_.p.page_size + 1;
  for (std::int64_t i = 0; i < moved && std::max(a, b) * moved + i < behind; ++i)
    std::swap(entries[static_cast<std::size_t>(table.offset(place.sequence, a * moved + i))],
              entries[static_cast<std::size_t>(table.offset(place.sequence, b * moved + i))]);
  reference::score_inputs swapped = in_;
  swapped.block_table_idx = {entries.data(), table.desc};
  return largest_score(index_probe(swapped).keys(row, head, block, false));
}

double index_probe::scale_of_key(std::int64_t sequence, std::int64_t key) const {
  const tensor_view& scale = in_.k_idx_scale;
  if (!scale) return 1;
  if (in_.p.idx_scale == 1) return scale.at(0);
  if (!in_.p.paged()) return scale.at(in_.cu_seqlens_kv.int_at(sequence) + key);
  return scale.at(in_.block_table_idx.int_at(sequence, key / in_.p.page_size), key % in_.p.page_size);
}

double index_probe::with_other_scales(perturbation fault, std::int64_t row, std::int64_t head,
                                      std::int64_t block) const {
  reference::score_inputs other = in_;
  if (fault == perturbation::scale_left_out) other.q_idx_scale = other.k_idx_scale = {};
  if (fault == perturbation::scale_of_page) other.k_idx_scale.desc.strides[1] = 0;
  if (fault == perturbation::scale_of_next_head)
    other.q_idx_scale.data = static_cast<const float*>(in_.q_idx_scale.data) + (head + 1) % in_.p.hi - head;
  return largest_score(index_probe(other).keys(row, head, block, false));
}

// Products added up one after the other in the storage format; fp32 storage: in bf16.
double index_probe::short_accumulation(std::int64_t row, std::int64_t head, std::int64_t block) const {
  const problem& p = in_.p;
  const auto sequence = reference::place_of(in_.cu_seqlens_q, in_.kv_lens, row).sequence;
  const dtype format = p.q_idx == fp16 ? fp16 : bf16;
  const reference::cache_map map(p, in_.k_idx, in_.block_table_idx, in_.cu_seqlens_kv);
  std::vector<double> q(static_cast<std::size_t>(p.di)), k(q.size());
  widen(in_.q_idx.data, p.q_idx, in_.q_idx.offset(row, head), p.di, q.data());
  double best = -infinity;
  for (const auto& at : keys(row, head, block, false)) {
    widen(in_.k_idx.data, p.k_idx, map.offset(sequence, at.key, 0), p.di, k.data());
    double sum = 0;
    for (std::size_t c = 0; c < q.size(); ++c) sum = round_to(sum + q[c] * k[c], format);
    // Scales come last, as where matrix units add up stored values.
    best = std::max(best, sum * index_scale_of(p) * scale_of_key(sequence, at.key) *
                              (in_.q_idx_scale ? in_.q_idx_scale.at(row, head) : 1));
  }
  return best;
}

std::optional<double> index_probe::apply(perturbation fault, std::int64_t row, std::int64_t head,
                                         std::int64_t block) const {
  const problem& p = in_.p;
  const auto place = reference::place_of(in_.cu_seqlens_q, in_.kv_lens, row);
  const std::int64_t visible = reference::visible_keys(place);
  auto seen = keys(row, head, block, false);
  const double value = largest_score(seen);
  switch (fault) {
    case perturbation::drop_best_key:
      if (value == -infinity) return std::nullopt;
      seen.erase(std::ranges::find(seen, value, &key_score::score));
      return largest_score(seen);
    case perturbation::mask_after_max:
    case perturbation::key_past_diagonal: {
      // The own block only, and a hidden key in it.
      if (visible == 0 || (visible - 1) / p.block != block || visible % p.block == 0 || visible >= place.kv_len)
        return std::nullopt;
      auto more = keys(row, head, block, true);
      if (fault == perturbation::key_past_diagonal) more.resize(seen.size() + 1);
      return largest_score(more);
    }
    case perturbation::neighbour_head_q:
      if (p.hi < 2) return std::nullopt;
      return largest_score(keys(row, (head + 1) % p.hi, block, false));
    case perturbation::swap_table_entries: {
      if (!p.paged() || visible == 0) return std::nullopt;
      const std::int64_t last = (visible - 1) / swapped_tokens(p), own = block * p.block / swapped_tokens(p);
      if (own == last) return std::nullopt;
      return with_swapped_pages(row, head, block, own, last);
    }
    case perturbation::accumulate_16bit:
      return short_accumulation(row, head, block);
    case perturbation::scale_left_out:
    case perturbation::scale_of_next_head:
    case perturbation::scale_of_page:
      if (p.idx_scale == 0 || (fault == perturbation::scale_of_next_head && p.hi < 2) ||
          (fault == perturbation::scale_of_page && (p.idx_scale != 2 || !p.paged())))
        return std::nullopt;
      return with_other_scales(fault, row, head, block);
    case perturbation::unscaled_scores:
      return value / index_scale_of(p);
    case perturbation::relu_scores:
      return std::max(value, 0.0);
    case perturbation::nan_wins:
      if (std::ranges::none_of(seen, [](const key_score& k) { return std::isnan(k.score); })) return std::nullopt;
      return infinity;
    case perturbation::sentinel_collides:
      return std::min(value, sentinel_score);
    default:
      return std::nullopt;
  }
}

}  // namespace msabench::judge
