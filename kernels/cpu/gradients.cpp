// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/gradients.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gradients.cpp"
#include <hwy/foreach_target.h>
// After it, so that the tiles are those of the target.
#include "kernels/cpu/exponentials-inl.h"
#include "kernels/cpu/tiles-inl.h"

#include <algorithm>

#include "kernels/common/storage.h"

HWY_BEFORE_NAMESPACE();
namespace msabench::cpu::HWY_NAMESPACE {

template <class Storage>
struct product_of {
  static HWY_INLINE void call(const char* a, const char* b, std::int32_t d, float* to) {
    constexpr int element_bytes = static_cast<int>(sizeof(typename Storage::element));
    const float_tag tag;
    auto sum = hn::Zero(tag);
    std::int32_t c = 0;
    for (; c + lanes <= d; c += lanes)
      sum = hn::MulAdd(Storage::load(a + std::int64_t{c} * element_bytes),
                       Storage::load(b + std::int64_t{c} * element_bytes), sum);
    if (c < d) {
      sum = hn::MulAdd(load_some<Storage>(a + std::int64_t{c} * element_bytes, d - c),
                       load_some<Storage>(b + std::int64_t{c} * element_bytes, d - c), sum);
    }
    *to = hn::GetLane(hn::SumOfLanes(tag, sum));
  }
};

float product(const char* a, const char* b, msabench_dtype type, std::int32_t d) {
  float sum = 0;
  with_storage<product_of>(type, a, b, d, &sum);
  return sum;
}

/// to = left * keys^T for runs of rows; rows of `to` hold tile_keys elements.
void multiply_columns(const char* const* keys, msabench_dtype type, std::int32_t count, const float* left,
                      const gradient_rows& rows, const token_range* runs, std::int32_t run_count, float* panel,
                      float* to) {
  lookahead none;
  for (int first = 0; first < count; first += panel_lanes) {
    const int columns = std::min(panel_lanes, count - first);
    with_storage<pack_columns>(type, keys + first, columns, rows.d, panel, nullptr, 0);
    for (const token_range* run = runs; run != runs + run_count; ++run) {
      const std::int64_t row = rows.first(run->first);
      multiply({left + row * rows.d, rows.d}, (run->end - run->first) * rows.group, panel, rows.d, columns, false,
               {to + row * tile_keys + first, tile_keys}, none);
    }
  }
}

/// One row's dS in place of its scores; 0 behind `seen`, to the end of `count` elements in whole vectors.
void differentiate_row(float* HWY_RESTRICT scores, const float* HWY_RESTRICT d_weights, int seen, int count,
                       float scale, float lse, float delta) {
  const float_tag d;
  const auto factor = hn::Set(d, scale), subtracted = hn::Set(d, lse), mean = hn::Set(d, delta);
  const int whole = vectors_of(count) * lanes;
  int i = 0;
  for (; i < seen; i += lanes) {
    const auto weight = exp2<false>(hn::MulSub(hn::Load(d, scores + i), factor, subtracted));
    const auto ds = hn::Mul(weight, hn::Sub(hn::Load(d, d_weights + i), mean));
    const auto present = hn::FirstN(d, static_cast<std::size_t>(std::min(lanes, seen - i)));
    hn::Store(hn::IfThenElseZero(present, ds), d, scores + i);
  }
  for (; i < whole; i += lanes) hn::Store(hn::Zero(d), d, scores + i);
}

void add_dq(const gradient_rows& rows, const gradient_tile& tile, const std::int32_t* seen, const token_range* runs,
            std::int32_t run_count, const gradient_scratch& scratch, float* dq) {
  multiply_columns(tile.keys, tile.type, tile.count, rows.queries, rows, runs, run_count, scratch.panel,
                   scratch.scores);
  multiply_columns(tile.values, tile.type, tile.count, rows.d_out, rows, runs, run_count, scratch.panel,
                   scratch.d_weights);
  for (const token_range* run = runs; run != runs + run_count; ++run) {
    for (std::int32_t token = run->first; token < run->end; ++token) {
      for (std::int64_t row = rows.first(token); row < rows.first(token + 1); ++row)
        differentiate_row(scratch.scores + row * tile_keys, scratch.d_weights + row * tile_keys, seen[token],
                          tile.count, rows.scale, rows.sums.lse[row], rows.sums.delta[row]);
    }
  }
  const std::int64_t stride = padded_columns(rows.d);
  lookahead none;
  for (int first = 0; first < rows.d; first += panel_lanes) {
    const int columns = std::min(panel_lanes, rows.d - first);
    with_storage<pack_rows>(tile.type, tile.keys, tile.count, first, columns, scratch.panel);
    for (const token_range* run = runs; run != runs + run_count; ++run) {
      const std::int64_t row = rows.first(run->first);
      multiply({scratch.scores + row * tile_keys, tile_keys}, (run->end - run->first) * rows.group, scratch.panel,
               tile.count, columns, true, {dq + row * stride + first, stride}, none);
    }
  }
}

/// Weights in place of the scores of `columns` rows against each key, dS in place of d_weights. Both [keys][stride].
void differentiate_columns(const row_tile& rows, int first, int columns, int keys, float scale, std::int64_t stride,
                           float* HWY_RESTRICT scores, float* HWY_RESTRICT d_weights) {
  const float_tag d;
  const auto factor = hn::Set(d, scale);
  for (int column = 0; column < columns; column += lanes) {
    const auto lse = hn::Load(d, rows.sums.lse + first + column), delta = hn::Load(d, rows.sums.delta + first + column);
    const auto seen = hn::Load(d, rows.seen + first + column);
    for (int key = 0; key < keys; ++key) {
      float* const score = scores + key * stride + first + column;
      float* const d_weight = d_weights + key * stride + first + column;
      const auto reads = hn::Lt(hn::Set(d, static_cast<float>(key)), seen);
      const auto weight = hn::IfThenElseZero(reads, exp2<false>(hn::MulSub(hn::Load(d, score), factor, lse)));
      const auto ds = hn::Mul(weight, hn::Sub(hn::Load(d, d_weight), delta));
      hn::Store(weight, d, score);
      hn::Store(hn::IfThenElseZero(reads, ds), d, d_weight);
    }
  }
}

void add_dk_dv(const gradient_keys& keys, const row_tile& rows, const gradient_scratch& scratch, float* dk, float* dv) {
  lookahead none;
  const std::int64_t stride = ceil_div(rows.count, panel_columns) * panel_columns, sums = padded_columns(keys.d);
  for (int first = 0; first < rows.count; first += panel_lanes) {
    const int columns = std::min(panel_lanes, rows.count - first);
    with_storage<pack_columns>(rows.query_type, rows.queries + first, columns, keys.d, scratch.panel, nullptr, 0);
    multiply({keys.keys, keys.d}, keys.count, scratch.panel, keys.d, columns, false, {scratch.scores + first, stride},
             none);
    with_storage<pack_columns>(rows.d_out_type, rows.d_out + first, columns, keys.d, scratch.panel, nullptr, 0);
    multiply({keys.values, keys.d}, keys.count, scratch.panel, keys.d, columns, false,
             {scratch.d_weights + first, stride}, none);
    differentiate_columns(rows, first, columns, keys.count, keys.scale, stride, scratch.scores, scratch.d_weights);
  }
  for (int first = 0; first < keys.d; first += panel_lanes) {
    const int columns = std::min(panel_lanes, keys.d - first);
    with_storage<pack_rows>(rows.d_out_type, rows.d_out, rows.count, first, columns, scratch.panel);
    multiply({scratch.scores, stride}, keys.count, scratch.panel, rows.count, columns, true, {dv + first, sums}, none);
    with_storage<pack_rows>(rows.query_type, rows.queries, rows.count, first, columns, scratch.panel);
    multiply({scratch.d_weights, stride}, keys.count, scratch.panel, rows.count, columns, true, {dk + first, sums},
             none);
  }
}

void store_scaled(float* values, float factor, std::int32_t d, msabench_dtype type, char* to) {
  const float_tag tag;
  const auto factors = hn::Set(tag, factor);
  for (std::int32_t c = 0; c < d; c += lanes) hn::Store(hn::Mul(hn::Load(tag, values + c), factors), tag, values + c);
  store_row(values, d, type, to);
}

}  // namespace msabench::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msabench::cpu {

HWY_EXPORT(product);
HWY_EXPORT(add_dq);
HWY_EXPORT(add_dk_dv);
HWY_EXPORT(store_scaled);

float product(const char* a, const char* b, msabench_dtype type, std::int32_t d) {
  return HWY_DYNAMIC_DISPATCH(product)(a, b, type, d);
}

void add_dq(const gradient_rows& rows, const gradient_tile& tile, const std::int32_t* seen, const token_range* runs,
            std::int32_t run_count, const gradient_scratch& scratch, float* dq) {
  HWY_DYNAMIC_DISPATCH(add_dq)(rows, tile, seen, runs, run_count, scratch, dq);
}

void add_dk_dv(const gradient_keys& keys, const row_tile& rows, const gradient_scratch& scratch, float* dk, float* dv) {
  HWY_DYNAMIC_DISPATCH(add_dk_dv)(keys, rows, scratch, dk, dv);
}

void store_scaled(float* values, float factor, std::int32_t d, msabench_dtype type, char* to) {
  HWY_DYNAMIC_DISPATCH(store_scaled)(values, factor, d, type, to);
}

}  // namespace msabench::cpu
#endif
