// SPDX-License-Identifier: Apache-2.0
#include "kernels/cublas_twin/passes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/common/check.h"
#include "kernels/common/lengths.h"
#include "kernels/cublas_twin/cublas.h"
#include "kernels/cublas_twin/rounding.h"

namespace msabench::cublas_twin {
namespace {

constexpr double most_bytes = 1 << 30;
constexpr std::int64_t most_units = 65535;  // of the last axis of a grid, which kernels of libraries are launched with
constexpr std::int64_t vector = 8;          // of 16-bit values
constexpr std::int64_t full_lines = 256;    // that a product of matrices wants

bool fits(const passes& p) { return p.units() <= most_units && pass_memory(p, nullptr).bytes <= most_bytes; }

/// As much as fits, `most` at most and one at least: what a single one takes has to be.
template <class SetTo>
void grow(passes& p, std::int64_t most, const SetTo& set_to) {
  std::int64_t good = 1, bad = std::clamp<std::int64_t>(most, 1, most_units) + 1;
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    passes tried = p;
    set_to(tried, middle);
    (fits(tried) ? good : bad) = middle;
  }
  set_to(p, good);
}

}  // namespace

passes passes_of(const msabench_problem& problem) {
  passes p{};
  p.attends = problem.op != MSABENCH_OP_SCORE;
  p.has_ids = problem.op == MSABENCH_OP_ATTEND;
  p.heads = p.attends ? problem.hkv : 1;
  p.group = p.attends ? problem.hq / problem.hkv : problem.hi;
  p.width = p.attends ? problem.d : problem.di;
  p.padded_width = round_up(p.width, vector);
  p.block = kernels::block_size(problem);
  const auto set_sequences = [](passes& to, std::int64_t count) { to.sequences = count; };
  if (p.has_ids) {
    p.capacity = std::max<std::int64_t>(kernels::block_capacity(problem), 1);
    p.keys = p.capacity * problem.block;
    p.padded_keys = round_up(p.keys, vector);
    grow(p, problem.total_q, set_sequences);
    return p;
  }
  // Short enough that few lines make many products, long enough that what is kept of a part is little.
  const std::int64_t wanted = std::clamp<std::int64_t>(problem.max_kv_len / 64, 512, 16384);
  const std::int64_t all_keys = std::max<std::int64_t>(problem.max_kv_len, 1);
  p.keys = round_up(std::min(wanted, all_keys), p.attends ? vector : p.block);
  p.padded_keys = round_up(p.keys, vector);
  const std::int64_t all_parts = ceil_div(all_keys, p.keys);
  const auto set_queries = [](passes& to, std::int64_t count) { to.queries = count; };
  const auto set_parts = [all_parts](passes& to, std::int64_t count) {
    to.parts = count;
    to.key_passes = ceil_div(all_parts, count);
  };
  p.key_passes = all_parts;
  grow(p, std::min(problem.max_q_len, ceil_div(full_lines, p.group)), set_queries);
  grow(p, all_parts, set_parts);
  grow(p, problem.max_q_len, set_queries);
  grow(p, problem.batch, set_sequences);
  return p;
}

pass_memory::pass_memory(const passes& p, void* workspace) {
  bytes = 0;
  const auto take = [&](double wanted) {
    // Only counted where there is no workspace yet.
    void* const at =
        workspace == nullptr ? nullptr : static_cast<std::byte*>(workspace) + static_cast<std::int64_t>(bytes);
    constexpr double alignment = 256;
    bytes += std::ceil(wanted / alignment) * alignment;
    return at;
  };
  constexpr double stored = 2, single = sizeof(float);
  const auto units = static_cast<double>(p.units()), lines = units * static_cast<double>(p.lines()),
             kept = static_cast<double>(p.key_passes) * lines, key_count = static_cast<double>(p.padded_keys),
             width = static_cast<double>(p.padded_width);
  cublas = take(cublas_workspace_bytes);
  queries = take(lines * width * stored);
  keys = take(units * key_count * width * stored);
  scores = static_cast<float*>(take(lines * key_count * single));
  values = weights = places = nullptr;
  outs = nullptr;
  sums = nullptr;
  blocks = nullptr;
  if (!p.attends) return;
  values = take(units * key_count * width * stored);
  weights = take(lines * key_count * stored);
  outs = static_cast<float*>(take(kept * width * single));
  sums = static_cast<line_sum*>(take(kept * sizeof(line_sum)));
  if (!p.has_ids) return;
  blocks = static_cast<std::int32_t*>(take(units * static_cast<double>(p.capacity) * sizeof(std::int32_t)));
  places = take(units * sizeof(kernels::row_place));
}

}  // namespace msabench::cublas_twin
