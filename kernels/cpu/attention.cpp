// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// After it, so that the tiles are those of the target.
#include "kernels/cpu/exponentials-inl.h"
#include "kernels/cpu/tiles-inl.h"

#include <cmath>
#include <limits>

#include "kernels/common/storage.h"

HWY_BEFORE_NAMESPACE();
namespace msabench::cpu::HWY_NAMESPACE {

constexpr float nothing = -std::numeric_limits<float>::infinity();

/// 2^exponent for whole numbers <= 0.
HWY_INLINE float power_of_two(float exponent) {
  return exponent >= -160.0f ? std::ldexp(1.0f, static_cast<int>(exponent)) : 0.0f;
}

/// Makes weights of one row's scores and moves the row on to a greater reference where they ask for it.
HWY_INLINE void weigh_row(float* scores, int seen, float scale, std::int64_t columns, float* sums, float& reference,
                          float& weight) {
  const float_tag d;
  if (seen == 0) return;
  const auto [greatest_score, least_score] = extremes_of(scores, seen);
  const float greatest = std::ceil(greatest_score * scale);
  if (greatest > reference) {
    if (weight != 0) {
      const float factor = power_of_two(reference - greatest);
      const auto factors = hn::Set(d, factor);
      for (std::int64_t c = 0; c < columns; c += lanes) hn::Store(hn::Mul(hn::Load(d, sums + c), factors), d, sums + c);
      weight *= factor;
    }
    reference = greatest;
  }
  if (reference == nothing) {
    std::fill(scores, scores + vectors_of(seen) * lanes, 0.0f);
    return;
  }
  weight += least_score * scale - reference >= least_normal ? exponentials<true>(scores, seen, scale, reference)
                                                            : exponentials<false>(scores, seen, scale, reference);
}

/// The first row of a token.
std::int64_t row_of(const query_rows& rows, std::int32_t head, std::int32_t token) {
  return (std::int64_t{head} * rows.tokens + token) * rows.group;
}

/// Rows of some runs.
std::int64_t rows_of(const query_rows& rows, const token_range* runs, std::int32_t count) {
  std::int64_t tokens = 0;
  for (const token_range* run = runs; run != runs + count; ++run) tokens += run->end - run->first;
  return tokens * rows.group;
}

void score_keys(const attention_caches& caches, const query_rows& rows, int keys, const token_range* runs,
                std::int32_t count, std::int32_t ahead, const attention_scratch& scratch) {
  lookahead near(scratch.ahead.keys, ahead, static_cast<int>(caches.d * bytes_of(caches.keys.type)));
  const int width = panel_width(rows_of(rows, runs, count));
  for (int first = 0; first < keys; first += width) {
    const int columns = std::min(width, keys - first);
    with_storage<pack_columns>(caches.keys.type, scratch.addresses.keys + first, columns, caches.d, scratch.panel,
                               nullptr, 0);
    for (const token_range* run = runs; run != runs + count; ++run) {
      const std::int64_t row = row_of(rows, run->head, run->first);
      multiply({rows.queries + row * caches.d, caches.d}, (run->end - run->first) * rows.group, scratch.panel, caches.d,
               columns, false, {scratch.scores + row * tile_keys + first, tile_keys}, near);
    }
  }
}

void add_values(const attention_caches& caches, const query_rows& rows, const key_range& range, const token_range* runs,
                std::int32_t count, std::int32_t ahead, const attention_scratch& scratch, float* sums) {
  const std::int64_t stride = sum_columns(caches);
  lookahead near(scratch.ahead.values, ahead, static_cast<int>(caches.d * bytes_of(caches.values.type)));
  const int width = panel_width(rows_of(rows, runs, count));
  for (int first = 0; first < caches.d; first += width) {
    const int columns = std::min(width, caches.d - first);
    with_storage<pack_rows>(caches.values.type, scratch.addresses.values, range.count, first, columns, scratch.panel);
    for (const token_range* run = runs; run != runs + count; ++run) {
      // A token's own keys only: a masked value may be NaN, and 0 * NaN would show it.
      for (std::int32_t token = run->first, end; token < run->end; token = end) {
        const int seen = seen_in(rows, range, token);
        for (end = token + 1; end < run->end && seen_in(rows, range, end) == seen;) ++end;
        const std::int64_t row = row_of(rows, run->head, token);
        multiply({scratch.scores + row * tile_keys, tile_keys}, (end - token) * rows.group, scratch.panel, seen,
                 columns, true, {sums + row * stride + first, stride}, near);
      }
    }
  }
}

void attend_tile(const attention_caches& caches, const query_rows& rows, const key_range& range,
                 const token_range* runs, std::int32_t count, std::int32_t ahead, const attention_scratch& scratch,
                 const partial_rows& to) {
  const std::int64_t columns = sum_columns(caches);
  score_keys(caches, rows, range.count, runs, count, ahead, scratch);
  for (const token_range* run = runs; run != runs + count; ++run) {
    for (std::int32_t token = run->first; token < run->end; ++token) {
      const int seen = seen_in(rows, range, token);
      const std::int64_t first = row_of(rows, run->head, token);
      for (std::int64_t row = first; row < first + rows.group; ++row) {
        weigh_row(scratch.scores + row * tile_keys, seen, rows.scale, columns, to.sums + row * columns,
                  to.references[row], to.weights[row]);
      }
    }
  }
  if (columns > 0) add_values(caches, rows, range, runs, count, ahead, scratch, to.sums);
}

void merge_rows(const partial_rows& chunk, std::int64_t rows, std::int64_t stride, const partial_rows& total) {
  const float_tag d;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (chunk.references[row] == nothing) continue;
    float& reference = total.references[row];
    const float greatest = std::max(reference, chunk.references[row]);
    const float old_factor = reference == nothing ? 0.0f : power_of_two(reference - greatest);
    const float new_factor = power_of_two(chunk.references[row] - greatest);
    const auto old_factors = hn::Set(d, old_factor), new_factors = hn::Set(d, new_factor);
    for (std::int64_t c = row * stride; c < (row + 1) * stride; c += lanes) {
      const auto old_sum = hn::Mul(hn::Load(d, total.sums + c), old_factors);
      hn::Store(hn::MulAdd(hn::Load(d, chunk.sums + c), new_factors, old_sum), d, total.sums + c);
    }
    total.weights[row] = total.weights[row] * old_factor + chunk.weights[row] * new_factor;
    reference = greatest;
  }
}

void widen(const char* from, msabench_dtype type, std::int32_t d, float factor, float* to) {
  with_storage<widen_row>(type, from, d, factor, to);
}

void divide_row(float* sums, float weight, std::int32_t d, msabench_dtype type, char* to) {
  const float_tag tag;
  const auto divisor = hn::Set(tag, weight);
  for (std::int32_t c = 0; c < d; c += lanes) {
    const auto quotient = hn::Div(hn::Load(tag, sums + c), divisor);
    hn::Store(weight == 0 ? hn::Zero(tag) : quotient, tag, sums + c);
  }
  store_row(sums, d, type, to);
}

int vector_lanes() { return lanes; }

}  // namespace msabench::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msabench::cpu {

HWY_EXPORT(attend_tile);
HWY_EXPORT(merge_rows);
HWY_EXPORT(widen);
HWY_EXPORT(divide_row);
HWY_EXPORT(vector_lanes);

void attend_tile(const attention_caches& caches, const query_rows& rows, const key_range& range,
                 const token_range* runs, std::int32_t count, std::int32_t ahead, const attention_scratch& scratch,
                 const partial_rows& to) {
  HWY_DYNAMIC_DISPATCH(attend_tile)(caches, rows, range, runs, count, ahead, scratch, to);
}

void merge_rows(const partial_rows& chunk, std::int64_t rows, std::int64_t stride, const partial_rows& total) {
  HWY_DYNAMIC_DISPATCH(merge_rows)(chunk, rows, stride, total);
}

void widen(const char* from, msabench_dtype type, std::int32_t d, float factor, float* to) {
  HWY_DYNAMIC_DISPATCH(widen)(from, type, d, factor, to);
}

void divide_row(float* sums, float weight, std::int32_t d, msabench_dtype type, char* to) {
  HWY_DYNAMIC_DISPATCH(divide_row)(sums, weight, d, type, to);
}

int vector_lanes() { return HWY_DYNAMIC_DISPATCH(vector_lanes)(); }

}  // namespace msabench::cpu
#endif
