// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "judge/rope3d_expectation.h"

namespace msabench::judge {
namespace {

constexpr double usual_theta = 1e4, theta_of_text = 5e6;

std::int64_t pairs_of(const problem& p) { return 3 * (std::int64_t{p.d} / 3 / 2); }

void turn(double angle, double& low, double& high) {
  const double first = low, second = high, cosine = std::cos(angle), sine = std::sin(angle);
  low = first * cosine - second * sine;
  high = second * cosine + first * sine;
}

}  // namespace

std::optional<perturbed_rope3d> perturbed_rope3d::of(const reference::rope3d_inputs& in, perturbation fault) {
  const problem& p = in.p;
  const double theta = p.rope_theta != 0 ? p.rope_theta : usual_theta;
  const auto with = [&](reference::vit_layout layout, double base, bool other = false) {
    return perturbed_rope3d(std::move(layout), reference::axial_angles(p.d, base), fault, other);
  };
  const auto right = reference::lay_out(in.grids, p.vit_window, in.merge);
  const auto whole = reference::lay_out(in.grids, 0, in.merge), apart = reference::lay_out(in.grids, 1, in.merge);
  switch (fault) {
    case perturbation::t_not_restarted:
      if (whole.positions == right.positions) return std::nullopt;
      return with(whole, theta);
    case perturbation::window_ignored:
      if (whole.cu_segments == right.cu_segments) return std::nullopt;
      return with(whole, theta, true);
    case perturbation::frames_apart:
      if (apart.cu_segments == right.cu_segments) return std::nullopt;
      return with(apart, theta, true);
    case perturbation::merge_ignored:
      return with(reference::lay_out(in.grids, p.vit_window, 1), theta);
    case perturbation::two_axes_only:
    case perturbation::axes_swapped: {
      auto other = right;
      for (auto& position : other.positions)
        position = fault == perturbation::two_axes_only ? std::array{0, position[1], position[2]}
                                                        : std::array{position[0], position[2], position[1]};
      return with(std::move(other), theta);
    }
    case perturbation::base_of_text:
      return with(right, theta_of_text);
    case perturbation::dims_of_head:
      // Exponents -2i/d instead of -2i/(2 x pairs of an axis).
      return with(right, std::pow(theta, 2.0 * (p.d / 3 / 2) / p.d));
    case perturbation::rope_backwards:
    case perturbation::rope_interleaved:
      return with(right, theta);
    case perturbation::rope_all_dims:
      if (2 * pairs_of(p) == p.d || p.d % 2 != 0) return std::nullopt;
      return with(right, theta);
    default:
      return std::nullopt;
  }
}

void perturbed_rope3d::rotate(std::int64_t row, std::span<double> x) const {
  std::vector<double> angles(static_cast<std::size_t>(axes_.pairs()));
  axes_.at(layout_.positions[static_cast<std::size_t>(row)], angles);
  const std::size_t distance = fault_ == perturbation::rope_all_dims ? x.size() / 2 : angles.size();
  for (std::size_t i = 0; i < angles.size(); ++i) {
    if (fault_ == perturbation::rope_interleaved)
      turn(angles[i], x[2 * i], x[2 * i + 1]);
    else
      turn(fault_ == perturbation::rope_backwards ? -angles[i] : angles[i], x[i], x[i + distance]);
  }
}

}  // namespace msabench::judge
