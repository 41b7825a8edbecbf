// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// After it, so that the tiles are those of the target.
#include "kernels/cpu/tiles-inl.h"

#include <cmath>
#include <limits>

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
  const float greatest = std::ceil(maximum_of(scores, seen) * scale);
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
  weight += exponentials(scores, seen, scale, reference);
}

void attend_tile(const attention_caches& caches, const query_rows& rows, std::int64_t first, int count, int first_token,
                 const attention_scratch& scratch, const partial_rows& to) {
  const std::int64_t columns = sum_columns(caches);
  const int group = rows.group;
  const std::int64_t first_row = std::int64_t{first_token} * group;
  const auto seen_by = [&](int token) {
    return static_cast<int>(std::clamp<std::int64_t>(rows.first_visible + token - first, 0, count));
  };
  multiply({rows.queries + first_row * caches.d, caches.d}, (rows.tokens - first_token) * group, scratch.key_panels,
           caches.d, caches.d, vectors_of(count), false, {scratch.scores + first_row * tile_keys, tile_keys});
  for (int token = first_token; token < rows.tokens; ++token) {
    for (int member = 0; member < group; ++member) {
      const std::int64_t row = std::int64_t{token} * group + member;
      weigh_row(scratch.scores + row * tile_keys, seen_by(token), rows.scale, columns, to.sums + row * columns,
                to.references[row], to.weights[row]);
    }
  }
  if (columns == 0) return;
  // A token's own keys only: a masked value may be NaN, and 0 * NaN would show it.
  for (int token = first_token; token < rows.tokens;) {
    const int seen = seen_by(token);
    int end = token + 1;
    while (end < rows.tokens && seen_by(end) == seen) ++end;
    const std::int64_t row = std::int64_t{token} * group;
    multiply({scratch.scores + row * tile_keys, tile_keys}, (end - token) * group, scratch.value_panels, count, seen,
             vectors_of(caches.d), true, {to.sums + row * columns, columns});
    token = end;
  }
}

void attend_chunk(const attention_caches& caches, const key_list& keys, const query_rows& rows, std::int64_t first,
                  std::int64_t count, const attention_scratch& scratch, const partial_rows& to) {
  const std::int64_t all_rows = std::int64_t{rows.tokens} * rows.group;
  clear_rows(all_rows, sum_columns(caches), to);
  for (std::int64_t begin = first; begin < first + count; begin += tile_keys) {
    const auto tile = static_cast<int>(std::min<std::int64_t>(tile_keys, first + count - begin));
    const std::int64_t first_token = std::max<std::int64_t>(0, begin - rows.first_visible + 1);
    if (first_token >= rows.tokens) return;
    gather(caches.keys, keys, begin, tile, scratch.addresses);
    with_storage<pack_columns>(caches.keys.type, scratch.addresses, tile, caches.d, scratch.key_panels);
    if (caches.values.data != nullptr) {
      gather(caches.values, keys, begin, tile, scratch.addresses);
      with_storage<pack_rows>(caches.values.type, scratch.addresses, tile, caches.d, scratch.value_panels);
    }
    attend_tile(caches, rows, begin, tile, static_cast<int>(first_token), scratch, to);
  }
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

int vector_lanes() { return lanes; }

}  // namespace msabench::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msabench::cpu {

HWY_EXPORT(attend_chunk);
HWY_EXPORT(merge_rows);
HWY_EXPORT(widen);
HWY_EXPORT(vector_lanes);

void attend_chunk(const attention_caches& caches, const key_list& keys, const query_rows& rows, std::int64_t first,
                  std::int64_t count, const attention_scratch& scratch, const partial_rows& to) {
  HWY_DYNAMIC_DISPATCH(attend_chunk)(caches, keys, rows, first, count, scratch, to);
}

void merge_rows(const partial_rows& chunk, std::int64_t rows, std::int64_t stride, const partial_rows& total) {
  HWY_DYNAMIC_DISPATCH(merge_rows)(chunk, rows, stride, total);
}

void widen(const char* from, msabench_dtype type, std::int32_t d, float factor, float* to) {
  HWY_DYNAMIC_DISPATCH(widen)(from, type, d, factor, to);
}

int vector_lanes() { return HWY_DYNAMIC_DISPATCH(vector_lanes)(); }

}  // namespace msabench::cpu
#endif
