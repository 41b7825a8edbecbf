// SPDX-License-Identifier: Apache-2.0
#include "reference/rope3d.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "reference/parallel.h"

namespace msabench::reference {
namespace {

constexpr std::int64_t most_tokens = std::numeric_limits<std::int32_t>::max();
constexpr double default_theta = 1e4;

struct item {
  std::int64_t t, h, w;
};

item item_of(const tensor_view& grids, std::int64_t i, std::int64_t merge) {
  const item g{grids.int_at(i, 0), grids.int_at(i, 1), grids.int_at(i, 2)};
  if (g.t < 1 || g.h < 1 || g.w < 1 || g.h % merge != 0 || g.w % merge != 0)
    throw suite_error(
        fmt::format("grid {} is ({},{},{}): sides from 1, h and w multiples of {}", i, g.t, g.h, g.w, merge));
  if (g.h > most_tokens / g.w || g.t > most_tokens / (g.h * g.w))
    throw suite_error(fmt::format("grid {} is ({},{},{}), too many tokens for int32", i, g.t, g.h, g.w));
  return g;
}

// The tokens of one temporal patch, merge block by merge block.
void place_patch(std::int64_t t, const item& g, std::int64_t merge, vit_layout& to) {
  for (std::int64_t row = 0; row < g.h; row += merge)
    for (std::int64_t column = 0; column < g.w; column += merge)
      for (std::int64_t h = row; h < row + merge; ++h)
        for (std::int64_t w = column; w < column + merge; ++w)
          to.positions.push_back(
              {static_cast<std::int32_t>(t), static_cast<std::int32_t>(h), static_cast<std::int32_t>(w)});
}

void require_shapes(const rope3d_inputs& in, std::int64_t tokens) {
  const problem& p = in.p;
  if (p.hq < 1 || p.d < 1) throw suite_error("rope3d: the problem has no valid shape");
  for (const tensor_view* t : {&in.q, &in.k}) {
    const auto& shape = t->desc.shape;
    if (shape.size() != 3 || shape[0] < tokens || shape[1] != p.hq || shape[2] != p.d || t->desc.strides[2] != 1)
      throw suite_error(fmt::format("rope3d: q and k must be [N,heads,d] with the {} tokens of grids", tokens));
  }
}

// Element c of a head and the one that it is paired with; c itself where it passes through.
std::int64_t partner(std::int64_t c, std::int64_t pairs) {
  return c < pairs ? c + pairs : c < 2 * pairs ? c - pairs : c;
}

void rotate_row(const tensor_view& x, const rope3d_row& r, std::span<const double> angles, std::vector<double>& rotated,
                std::vector<double>& amplitude) {
  const auto d = static_cast<std::int64_t>(r.phi.size()), pairs = static_cast<std::int64_t>(angles.size());
  rotated.resize(r.phi.size());
  amplitude.assign(r.phi.size(), 0.0);
  widen(x.data, x.desc.type, x.offset(r.row, r.head), d, rotated.data());
  for (std::int64_t c = 0; c < 2 * pairs; ++c)
    amplitude[static_cast<std::size_t>(c)] =
        std::hypot(rotated[static_cast<std::size_t>(c)], rotated[static_cast<std::size_t>(partner(c, pairs))]);
  rotate(angles, rotated);
}

}  // namespace

std::int64_t temporal_patches(std::int64_t frames) {
  if (frames < 1) throw suite_error(fmt::format("a video of {} frames has no temporal patch", frames));
  return frames / 2 + frames % 2;
}

std::int64_t frame_of(std::int64_t temporal_patch, std::int64_t place, std::int64_t frames) {
  if (temporal_patch < 0 || temporal_patch >= temporal_patches(frames) || place < 0 || place > 1)
    throw suite_error(
        fmt::format("a video of {} frames has no place {} in temporal patch {}", frames, place, temporal_patch));
  return std::min(2 * temporal_patch + place, frames - 1);
}

vit_layout lay_out(const tensor_view& grids, std::int64_t window, std::int64_t merge) {
  if (grids.desc.shape.size() != 2 || grids.desc.shape[1] != 3 || grids.desc.type != i32)
    throw suite_error("grids must be [items,3] int32");
  if (window < 0 || merge < 1)
    throw suite_error(fmt::format("window {} with merge size {} is not valid", window, merge));
  vit_layout layout{{0}, {}};
  for (std::int64_t i = 0; i < grids.desc.shape[0]; ++i) {
    const item g = item_of(grids, i, merge);
    const std::int64_t longest = window == 0 ? g.t : std::min(window, g.t);
    for (std::int64_t first = 0; first < g.t; first += longest) {
      const std::int64_t patches = std::min(longest, g.t - first);
      const std::int64_t end = layout.cu_segments.back() + patches * g.h * g.w;
      if (end > most_tokens) throw suite_error(fmt::format("grids hold {} tokens, too many for int32", end));
      for (std::int64_t t = 0; t < patches; ++t) place_patch(t, g, merge, layout);
      layout.cu_segments.push_back(static_cast<std::int32_t>(end));
    }
  }
  return layout;
}

axial_angles::axial_angles(std::int64_t d, double theta) {
  const std::int64_t pairs = d / 3 / 2;
  for (std::int64_t i = 0; i < pairs; ++i)
    frequencies_.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs)));
}

void axial_angles::at(const std::array<std::int32_t, 3>& position, std::span<double> angles) const {
  auto angle = angles.begin();
  for (const std::int32_t coordinate : position)
    for (const double frequency : frequencies_) *angle++ = coordinate * frequency;
}

void rotate(std::span<const double> angles, std::span<double> x) {
  const std::size_t pairs = angles.size();
  for (std::size_t i = 0; i < pairs; ++i) {
    const double cosine = std::cos(angles[i]), sine = std::sin(angles[i]);
    const double low = x[i], high = x[i + pairs];
    x[i] = low * cosine - high * sine;
    x[i + pairs] = high * cosine + low * sine;
  }
}

rope3d_result rope3d(const rope3d_inputs& in, std::span<const std::int64_t> rows) {
  rope3d_result result{lay_out(in.grids, in.p.vit_window, in.merge), {}};
  const auto tokens = static_cast<std::int64_t>(result.layout.positions.size());
  require_shapes(in, tokens);
  for (const std::int64_t row : rows)
    if (row < 0 || row >= tokens) throw suite_error(fmt::format("rope3d: there is no token {}", row));
  const axial_angles axes(in.p.d, in.p.rope_theta != 0 ? in.p.rope_theta : default_theta);
  const auto heads = static_cast<std::size_t>(in.p.hq);
  result.rows.resize(rows.size() * heads);

  const auto units = static_cast<std::int64_t>(rows.size());
  // A sine costs about as much as 16 multiplications.
  parallel_for<std::vector<double>>(units, units * in.p.hq * in.p.d * 16, [&](std::int64_t unit, auto& angles) {
    const std::int64_t row = rows[static_cast<std::size_t>(unit)];
    angles.resize(static_cast<std::size_t>(axes.pairs()));
    axes.at(result.layout.positions[static_cast<std::size_t>(row)], angles);
    for (std::size_t head = 0; head < heads; ++head) {
      rope3d_row& r = result.rows[static_cast<std::size_t>(unit) * heads + head];
      r.row = row;
      r.head = static_cast<std::int64_t>(head);
      r.phi.assign(static_cast<std::size_t>(in.p.d), 0.0);
      std::ranges::copy(angles, r.phi.begin());
      std::ranges::copy(angles, r.phi.begin() + axes.pairs());
      rotate_row(in.q, r, angles, r.q, r.q_a);
      rotate_row(in.k, r, angles, r.k, r.k_a);
    }
  });
  return result;
}

}  // namespace msabench::reference
