// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "judge/select_expectation.h"

namespace msabench::judge {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// What public kernels write over the score of a forced block.
constexpr double sentinel_score = 1e30;

double rank_of(double score) { return std::isnan(score) ? -infinity : score; }
double relu(double score) { return std::isnan(score) ? score : std::max(score, 0.0); }
double nan_first(double score) { return std::isnan(score) ? infinity : score; }

}  // namespace

std::vector<std::int32_t> perturbable_selection::choose(std::span<const double> scores,
                                                        std::int64_t local_blocks) const {
  return reference::select_row(scores, static_cast<std::int64_t>(scores.size()), rules_.topk, local_blocks,
                               rules_.init_blocks);
}

std::optional<std::vector<std::int32_t>> perturbable_selection::with_scores(double (*change)(double)) const {
  auto scores = given_.own;
  std::ranges::transform(scores, scores.begin(), change);
  return choose(scores, rules_.local_blocks);
}

std::optional<std::vector<std::int32_t>> perturbable_selection::last_choice_replaced() const {
  auto ids = choose(given_.own, rules_.local_blocks);
  std::int64_t last = -1, next = -1;
  for (std::int64_t b = 0; b < given_.visible; ++b) {
    const double s = rank_of(given_.own[static_cast<std::size_t>(b)]);
    const bool in = std::ranges::find(ids, static_cast<std::int32_t>(b)) != ids.end();
    auto& best = in ? last : next;
    if (in && reference::forced(b, given_.visible - 1, rules_.local_blocks, rules_.init_blocks)) continue;
    const double held = best < 0 ? 0 : rank_of(given_.own[static_cast<std::size_t>(best)]);
    if (best < 0 || (in ? s < held : s > held)) best = b;
  }
  if (next < 0) {
    // Every visible block is due: the choice is lost altogether.
    const auto count = std::ranges::find(ids, -1) - ids.begin();
    ids.erase(ids.begin() + count - 1);
    ids.push_back(-1);
    return ids;
  }
  if (last < 0) return std::nullopt;
  std::ranges::replace(ids, static_cast<std::int32_t>(last), static_cast<std::int32_t>(next));
  std::ranges::sort(ids);
  return ids;
}

// topk of the rest and the forced ones on top, sorted and cut: the highest ids, the local block first, fall off.
std::optional<std::vector<std::int32_t>> perturbable_selection::forced_on_top() const {
  if (given_.visible <= rules_.topk) return std::nullopt;
  std::vector<double> rest = given_.own;
  std::vector<std::int32_t> ids;
  for (std::int64_t b = 0; b < given_.visible; ++b)
    if (reference::forced(b, given_.visible - 1, rules_.local_blocks, rules_.init_blocks)) {
      ids.push_back(static_cast<std::int32_t>(b));
      rest[static_cast<std::size_t>(b)] = -infinity;
    }
  for (const auto b : reference::select_row(rest, given_.visible, rules_.topk, 0, 0))
    if (std::ranges::find(ids, b) == ids.end()) ids.push_back(b);
  std::ranges::sort(ids);
  ids.resize(static_cast<std::size_t>(rules_.topk));
  return ids;
}

// Forced blocks win by a large finite score, to which larger natural ones are clamped.
std::optional<std::vector<std::int32_t>> perturbable_selection::sentinel() const {
  auto scores = given_.own;
  for (std::int64_t b = 0; b < given_.visible; ++b) {
    auto& s = scores[static_cast<std::size_t>(b)];
    if (reference::forced(b, given_.visible - 1, rules_.local_blocks, rules_.init_blocks) || s > sentinel_score)
      s = sentinel_score;
  }
  return reference::select_row(scores, given_.visible, rules_.topk, 0, 0);
}

// Scores mapped to 0..65535 over the row's own finite range before they are compared.
std::optional<std::vector<std::int32_t>> perturbable_selection::sixteen_bit_ranks() const {
  double low = infinity, high = -infinity;
  for (const double s : given_.own)
    if (std::isfinite(s)) {
      low = std::min(low, s);
      high = std::max(high, s);
    }
  if (!(high > low)) return std::nullopt;
  auto scores = given_.own;
  for (auto& s : scores)
    if (!std::isnan(s)) s = std::floor((std::clamp(s, low, high) - low) / (high - low) * 65535);
  return choose(scores, rules_.local_blocks);
}

std::optional<std::vector<std::int32_t>> perturbable_selection::apply(perturbation fault) const {
  switch (fault) {
    case perturbation::drop_last_choice:
      return last_choice_replaced();
    case perturbation::forget_local:
      return choose(given_.own, 0);
    case perturbation::forced_extra:
      return forced_on_top();
    case perturbation::relu_scores:
      return with_scores(relu);
    case perturbation::nan_wins:
      return with_scores(nan_first);
    case perturbation::sentinel_collides:
      return sentinel();
    case perturbation::shared_heads:
      return choose(given_.head0, rules_.local_blocks);
    case perturbation::neighbour_row:
      if (given_.neighbour_visible == 0) return std::nullopt;
      return choose(given_.neighbour, rules_.local_blocks);
    case perturbation::rank_16bit:
      return sixteen_bit_ranks();
    default:
      return std::nullopt;
  }
}

}  // namespace msabench::judge
