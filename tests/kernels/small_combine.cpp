// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/small_combine.h"

#include <cmath>
#include <limits>
#include <random>

namespace msabench::plugin_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

small_combine::small_combine(std::int64_t parts, std::int64_t rows, std::int32_t heads, std::int32_t d,
                             msabench_dtype partial, msabench_dtype type, std::int64_t gap)
    : problem(empty_problem(MSABENCH_OP_COMBINE)), parts_(parts), rows_(rows), heads_(heads), d_(d), type_(type) {
  problem.hq = heads;
  problem.d = d;
  problem.total_q = rows + 3;
  problem.splits = static_cast<std::int32_t>(parts + 2);
  problem.partial = partial;
  problem.out = type;
  const std::int64_t head = d + gap, row = heads * head + gap, lse_row = heads + gap;
  partial_out = buffer(partial, {parts, rows, heads, d}, {rows * row + gap, row, head, 1});
  partial_lse = buffer(fp32_type, {parts, rows, heads}, {rows * lse_row + gap, lse_row, 1});
  out = buffer(type, {rows, heads, d}, {row, head, 1});
  lse = buffer(fp32_type, {rows, heads}, {lse_row, 1});
  std::mt19937 random(7);
  for (std::int64_t p = 0; p < parts; ++p)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t h = 0; h < heads; ++h) {
        const bool empty = (p + r + h) % 4 == 0 || r == 1;
        partial_lse.set({p, r, h}, empty ? -infinity : static_cast<double>(random() % 1024) / 128 - 150);
        for (std::int64_t c = 0; c < d; ++c)
          partial_out.set({p, r, h, c}, empty ? std::nan("") : static_cast<double>(random() % 512) / 128 - 2);
      }
}

arguments small_combine::args() const {
  arguments given;
  given.put(MSABENCH_PARTIAL_OUT, partial_out);
  given.put(MSABENCH_PARTIAL_LSE, partial_lse);
  given.put(MSABENCH_OUT, out);
  given.put(MSABENCH_LSE, lse);
  return given;
}

std::optional<std::string> small_combine::fault_of(std::int64_t row, std::int64_t head) const {
  const double u_out = std::ldexp(1.0, type_.bits == 32 ? -20 : type_.code == fp16_type.code ? -11 : -8);
  double sum = 0;
  for (std::int64_t p = 0; p < parts_; ++p) sum += std::exp(partial_lse.get({p, row, head}));
  const double got_lse = lse.get({row, head});
  if (!(sum == 0 ? got_lse == -infinity : std::abs(got_lse - std::log(sum)) <= 1e-4))
    return "lse " + std::to_string(got_lse) + " instead of " + std::to_string(std::log(sum));
  for (std::int64_t c = 0; c < d_; ++c) {
    double o = 0, size = 0;
    for (std::int64_t p = 0; p < parts_; ++p) {
      const double weight = std::exp(partial_lse.get({p, row, head})) / (sum == 0 ? 1 : sum);
      if (weight == 0) continue;
      o += weight * partial_out.get({p, row, head, c});
      size += weight * std::abs(partial_out.get({p, row, head, c}));
    }
    const double got = out.get({row, head, c});
    if (!(std::abs(got - o) <= u_out * std::abs(o) + 1e-5 * size))
      return "channel " + std::to_string(c) + " is " + std::to_string(got) + " instead of " + std::to_string(o);
  }
  return std::nullopt;
}

std::optional<std::string> small_combine::fault() const {
  if (!out.guards_intact() || !lse.guards_intact()) return "guard bands written";
  for (std::int64_t row = 0; row < rows_; ++row)
    for (std::int64_t head = 0; head < heads_; ++head)
      if (const auto found = fault_of(row, head))
        return "row " + std::to_string(row) + " head " + std::to_string(head) + ": " + *found;
  return std::nullopt;
}

}  // namespace msabench::plugin_test
