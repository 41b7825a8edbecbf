// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "judge/combine_expectation.h"

namespace msabench::judge {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

perturbable_partials::perturbable_partials(const reference::combine_inputs& in, std::int64_t row, std::int64_t head)
    : dims_(static_cast<std::size_t>(in.p.d)) {
  const std::int64_t next = (head + 1) % in.p.hq;
  bool same_parts = in.p.hq > 1;
  for (std::int64_t p = 0; p < in.partial_out.desc.shape[0]; ++p) {
    const double lse = in.partial_lse.at(p, row, head), neighbour = in.partial_lse.at(p, row, next);
    if (lse == -infinity) {
      any_empty_ = true;
      continue;
    }
    part found{lse, std::vector<double>(dims_)};
    for (std::size_t c = 0; c < dims_; ++c) found.out[c] = in.partial_out.at(p, row, head, c);
    parts_.push_back(std::move(found));
    next_head_.push_back(neighbour);
    same_parts = same_parts && neighbour > -infinity;
  }
  if (!same_parts) next_head_.clear();
}

perturbable_partials::answer perturbable_partials::combined(const std::vector<part>& parts) const {
  answer a{std::vector<double>(dims_), -infinity};
  if (parts.empty()) return a;
  double maximum = -infinity, sum = 0;
  for (const part& p : parts) maximum = std::max(maximum, p.lse);
  for (const part& p : parts) sum += std::exp(p.lse - maximum);
  for (const part& p : parts)
    for (std::size_t c = 0; c < dims_; ++c) a.out[c] += std::exp(p.lse - maximum) / sum * p.out[c];
  a.lse = maximum + std::log(sum);
  return a;
}

perturbable_partials::answer perturbable_partials::not_a_number() const {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return {std::vector<double>(dims_, nan), nan};
}

std::optional<perturbable_partials::answer> perturbable_partials::with_lightest(bool twice) const {
  if (parts_.empty()) return std::nullopt;
  auto parts = parts_;
  const auto lightest = std::ranges::min_element(parts, {}, &part::lse);
  if (twice)
    parts.push_back(*lightest);
  else
    parts.erase(lightest);
  return combined(parts);
}

std::optional<perturbable_partials::answer> perturbable_partials::in_base2() const {
  if (parts_.empty()) return std::nullopt;
  auto parts = parts_;
  for (part& p : parts) p.lse *= std::numbers::ln2;
  answer a = combined(parts);
  a.lse /= std::numbers::ln2;
  return a;
}

std::optional<perturbable_partials::answer> perturbable_partials::undivided() const {
  if (parts_.empty()) return std::nullopt;
  answer a = combined(parts_);
  const double maximum = std::ranges::max_element(parts_, {}, &part::lse)->lse, sum = std::exp(a.lse - maximum);
  for (double& o : a.out) o *= sum;
  return a;
}

std::optional<perturbable_partials::answer> perturbable_partials::without_maximum() const {
  if (parts_.empty()) return std::nullopt;
  float sum = 0;
  for (const part& p : parts_) sum += std::exp(static_cast<float>(p.lse));
  // 0 / 0 and infinity / infinity; in between nothing shows.
  if (sum > 0 && std::isfinite(sum)) return std::nullopt;
  return not_a_number();
}

std::optional<perturbable_partials::answer> perturbable_partials::with_lse_of_next_head() const {
  if (parts_.empty() || next_head_.empty()) return std::nullopt;
  auto parts = parts_;
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].lse = next_head_[i];
  return combined(parts);
}

std::optional<perturbable_partials::answer> perturbable_partials::apply(perturbation fault) const {
  switch (fault) {
    case perturbation::drop_partial:
      return with_lightest(false);
    case perturbation::double_partial:
      return with_lightest(true);
    case perturbation::base2_partials:
      return in_base2();
    case perturbation::weights_unscaled:
      return undivided();
    case perturbation::maximum_kept:
      return without_maximum();
    case perturbation::empty_partial_leaks:
      return any_empty_ && !parts_.empty() ? std::optional(not_a_number()) : std::nullopt;
    case perturbation::nothing_is_nan:
      return parts_.empty() ? std::optional(not_a_number()) : std::nullopt;
    case perturbation::neighbour_head_lse:
      return with_lse_of_next_head();
    default:
      return std::nullopt;
  }
}

}  // namespace msabench::judge
