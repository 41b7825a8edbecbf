// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/small_rope3d.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace msabench::plugin_test {
namespace {

double u_of(msabench_dtype type) {
  return std::ldexp(1.0, type.code == bf16_type.code ? -8 : type.bits == 16 ? -11 : -24);
}

}  // namespace

small_rope3d::small_rope3d(rope3d_shape given) : shape(std::move(given)), problem(empty_problem(MSABENCH_OP_ROPE3D)) {
  for (const auto& [t, h, w] : shape.items)
    for (std::int32_t frame = 0, restart = 0; frame < t; ++frame) {
      if (shape.window != 0 && frame - restart == shape.window) restart = frame;
      for (std::int32_t i = 0; i < h; i += 2)
        for (std::int32_t j = 0; j < w; j += 2)
          for (const auto& [down, right] : {std::pair{0, 0}, std::pair{0, 1}, std::pair{1, 0}, std::pair{1, 1}})
            places.push_back({frame - restart, i + down, j + right});
      const bool last = frame + 1 == t || (shape.window != 0 && frame + 1 - restart == shape.window);
      if (last) ends.push_back(static_cast<std::int32_t>(places.size()));
    }
  const auto tokens = static_cast<std::int64_t>(places.size()), rows = tokens + shape.spare_rows;
  problem.hq = problem.hkv = shape.heads;
  problem.d = shape.d;
  problem.vit_window = shape.window;
  problem.rope_theta = shape.theta;
  problem.batch = static_cast<std::int64_t>(shape.items.size());
  problem.total_q = problem.total_kv = tokens;
  problem.q = problem.kv = problem.out = shape.type;

  std::mt19937 random(5);
  const std::int64_t head_stride = shape.d + shape.gap, row_stride = shape.heads * head_stride + shape.gap;
  for (buffer* b : {&q, &k, &q_rope, &k_rope})
    *b = buffer(shape.type, {rows, shape.heads, shape.d}, {row_stride, head_stride, 1});
  for (buffer* b : {&q, &k})
    for (std::int64_t row = 0; row < tokens; ++row)
      for (std::int64_t head = 0; head < shape.heads; ++head)
        for (std::int64_t c = 0; c < shape.d; ++c) b->set({row, head, c}, static_cast<double>(random() % 257) / 64 - 2);
  grids = buffer(int32_type, {problem.batch, 3}, {3 + shape.gap, 1});
  for (std::int64_t i = 0; i < problem.batch; ++i)
    for (std::int64_t axis = 0; axis < 3; ++axis)
      grids.set({i, axis}, shape.items[static_cast<std::size_t>(i)][static_cast<std::size_t>(axis)]);
  positions = buffer(int32_type, {rows, 3}, {3 + shape.gap, 1});
  cu_segments = buffer(int32_type, {static_cast<std::int64_t>(ends.size())});
}

arguments small_rope3d::args() const {
  arguments given;
  given.put(MSABENCH_Q, q);
  given.put(MSABENCH_K, k);
  given.put(MSABENCH_GRIDS, grids);
  given.put(MSABENCH_Q_ROPE, q_rope);
  given.put(MSABENCH_K_ROPE, k_rope);
  given.put(MSABENCH_POSITIONS, positions);
  given.put(MSABENCH_CU_SEGMENTS, cu_segments);
  return given;
}

std::optional<std::string> small_rope3d::fault_of_head(const buffer& x, const buffer& y, std::int64_t row,
                                                       std::int64_t head) const {
  const std::int64_t of_axis = shape.d / 3 / 2, pairs = 3 * of_axis;
  const auto& place = places[static_cast<std::size_t>(row)];
  for (std::int64_t c = 0; c < shape.d; ++c) {
    const double got = y.get({row, head, c}), own = x.get({row, head, c});
    double want = own, limit = 0;
    if (c < 2 * pairs) {
      const std::int64_t pair = c % pairs;
      const double angle = place[static_cast<std::size_t>(pair / of_axis)] *
                           std::pow(shape.theta, -static_cast<double>(pair % of_axis) / static_cast<double>(of_axis));
      const double other = x.get({row, head, c < pairs ? c + pairs : c - pairs});
      want =
          c < pairs ? own * std::cos(angle) - other * std::sin(angle) : own * std::cos(angle) + other * std::sin(angle);
      limit = u_of(shape.type) * std::abs(want) +
              std::hypot(own, other) * (std::ldexp(8 + 4 * angle, -24) + std::ldexp(1.0, -22)) * 1.02;
    }
    if (!(std::abs(got - want) <= limit))
      return "row " + std::to_string(row) + " head " + std::to_string(head) + " channel " + std::to_string(c) + ": " +
             std::to_string(got) + ", expected " + std::to_string(want);
  }
  return std::nullopt;
}

std::optional<std::string> small_rope3d::fault() const {
  for (const buffer* b : {&q_rope, &k_rope, &positions, &cu_segments})
    if (!b->guards_intact()) return "guard bands written";
  for (std::size_t s = 0; s < ends.size(); ++s)
    if (cu_segments.get({static_cast<std::int64_t>(s)}) != ends[s])
      return "segment " + std::to_string(s) + " ends elsewhere";
  for (std::int64_t row = 0; row < q.shape()[0]; ++row) {
    const std::string where = "row " + std::to_string(row);
    if (row >= static_cast<std::int64_t>(places.size())) {
      if (!q_rope.untouched({row, 0, 0}) || !k_rope.untouched({row, 0, 0}) || !positions.untouched({row, 0}))
        return where + ": past N, but written";
      continue;
    }
    for (std::int64_t axis = 0; axis < 3; ++axis)
      if (positions.get({row, axis}) != places[static_cast<std::size_t>(row)][static_cast<std::size_t>(axis)])
        return where + ": stands elsewhere";
    for (std::int64_t head = 0; head < shape.heads; ++head)
      for (const auto& [x, y] : {std::pair{&q, &q_rope}, std::pair{&k, &k_rope}})
        if (auto found = fault_of_head(*x, *y, row, head)) return found;
  }
  return std::nullopt;
}

}  // namespace msabench::plugin_test
