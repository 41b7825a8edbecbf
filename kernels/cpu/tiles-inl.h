// SPDX-License-Identifier: Apache-2.0
// Tiles in fp32: keys and values widened into panels, and a matrix product over panels. Included once per target of
// Highway's run-time dispatch; everything is in that target's namespace.
//
// A panel holds `panel_lanes` columns of the right-hand matrix, rows one after the other, so the innermost loop of the
// product reads it in sequence: for scores the columns are keys and the rows the elements of the head dimension, for
// values the columns are channels and the rows the keys. It is made right before it is used, and stays in the first-level
// cache. The last panel may hold fewer vectors; its rows keep the width.
//
// A sum is a chain of at most `chain_terms` fused multiply-adds, and what these chains give is added in order.

#if defined(MSABENCH_KERNELS_CPU_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MSABENCH_KERNELS_CPU_TILES_INL_H
#undef MSABENCH_KERNELS_CPU_TILES_INL_H
#else
#define MSABENCH_KERNELS_CPU_TILES_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/common/types.h"
#include "kernels/cpu/tile.h"

HWY_BEFORE_NAMESPACE();
namespace msabench::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using float_tag = hn::ScalableTag<float>;
using bits_tag = hn::ScalableTag<std::uint32_t>;
using float_vector = hn::Vec<float_tag>;
using bits_vector = hn::Vec<bits_tag>;

constexpr int lanes = static_cast<int>(hn::MaxLanes(float_tag()));
static_assert(lanes == 1 || lanes == 4 || lanes == 8 || lanes == 16, "rows are transposed by so many");
constexpr int panel_vectors = 2;
constexpr int panel_lanes = panel_vectors * lanes;
/// Rows of the left-hand matrix in one step: as many accumulators as the registers hold.
constexpr int most_rows = lanes == 8 ? 6 : 8;

constexpr int vectors_of(int columns) { return (columns + lanes - 1) / lanes; }

/// Storage types: how many elements share 32 bits, and how those become vectors of fp32.
struct fp32_storage {
  static constexpr int per_word = 1;
  using element = float;
  static HWY_INLINE float_vector widen(bits_vector words, int) { return hn::BitCast(float_tag(), words); }
  static HWY_INLINE float_vector load(const char* from) {
    return hn::LoadU(float_tag(), reinterpret_cast<const float*>(from));
  }
};

struct bf16_storage {
  static constexpr int per_word = 2;
  using element = std::uint16_t;
  static HWY_INLINE float_vector widen(bits_vector words, int which) {
    const bits_tag d;
    return hn::BitCast(float_tag(), which == 0 ? hn::ShiftLeft<16>(words) : hn::And(words, hn::Set(d, 0xffff0000u)));
  }
  static HWY_INLINE float_vector load(const char* from) {
    const hn::Rebind<std::uint16_t, float_tag> half;
    return widen(hn::PromoteTo(bits_tag(), hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(from))), 0);
  }
};

struct fp16_storage {
  static constexpr int per_word = 2;
  using element = std::uint16_t;
  using half_tag = hn::Rebind<std::uint16_t, float_tag>;
  using half_float_tag = hn::Rebind<hwy::float16_t, float_tag>;
  static HWY_INLINE float_vector widen(bits_vector words, int which) {
    const bits_vector low = which == 0 ? hn::And(words, hn::Set(bits_tag(), 0xffffu)) : hn::ShiftRight<16>(words);
    return hn::PromoteTo(float_tag(), hn::BitCast(half_float_tag(), hn::TruncateTo(half_tag(), low)));
  }
  static HWY_INLINE float_vector load(const char* from) {
    const auto bits = hn::LoadU(half_tag(), reinterpret_cast<const std::uint16_t*>(from));
    return hn::PromoteTo(float_tag(), hn::BitCast(half_float_tag(), bits));
  }
};

/// `count` < lanes elements and zeros; no byte behind them is read.
template <class Storage>
HWY_INLINE float_vector load_some(const char* from, int count) {
  HWY_ALIGN typename Storage::element held[lanes] = {};
  std::memcpy(held, from, static_cast<std::size_t>(count) * sizeof held[0]);
  return Storage::load(reinterpret_cast<const char*>(held));
}

/// The function `Function<Storage>::call` for a storage type.
template <template <class> class Function, class... Args>
HWY_INLINE void with_storage(msabench_dtype type, Args... args) {
  if (kernels::same_type(type, kernels::bf16_type)) return Function<bf16_storage>::call(args...);
  if (kernels::same_type(type, kernels::fp16_type)) return Function<fp16_storage>::call(args...);
  Function<fp32_storage>::call(args...);
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void transpose_words(const char* const* rows, std::int64_t offset, bits_vector (&to)[4]) {
  std::uint32_t words[4];
  std::memcpy(words, rows[0] + offset, sizeof words);
  for (int i = 0; i < 4; ++i) to[i] = hn::Set(bits_tag(), words[i]);
}
#else
/// 16 bytes of one row for every four lanes: of row 0, row 4 and so on.
template <class D>
HWY_INLINE hn::Vec<D> gather_rows(D d, const char* const* rows, std::int64_t offset) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(rows[0] + offset));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, gather_rows(half, rows + hn::MaxLanes(half), offset), gather_rows(half, rows, offset));
  }
}

/// Four words of each of `lanes` rows, one vector per word.
HWY_INLINE void transpose_words(const char* const* rows, std::int64_t offset, bits_vector (&to)[4]) {
  const bits_tag d;
  const hn::Repartition<std::uint64_t, bits_tag> pairs;
  const auto a = gather_rows(d, rows, offset), b = gather_rows(d, rows + 1, offset),
             c = gather_rows(d, rows + 2, offset), e = gather_rows(d, rows + 3, offset);
  const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
  const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
  const auto ce_low = hn::BitCast(pairs, hn::InterleaveLower(d, c, e));
  const auto ce_high = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  to[0] = hn::BitCast(d, hn::InterleaveLower(pairs, ab_low, ce_low));
  to[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, ab_low, ce_low));
  to[2] = hn::BitCast(d, hn::InterleaveLower(pairs, ab_high, ce_high));
  to[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, ab_high, ce_high));
}
#endif

/// A panel of the transpose of `count` <= panel_lanes rows of d elements: [d][panel_lanes]. Columns that are missing in
/// the last vector repeat the last row, since no other memory may be read. Meanwhile the first `near_count` <= count rows
/// at `near` are brought near.
template <class Storage>
struct pack_columns {
  static constexpr int step = 4 * Storage::per_word;
  static constexpr int element_bytes = static_cast<int>(sizeof(typename Storage::element));

  static HWY_INLINE void call(const char* const* rows, int count, int d, float* HWY_RESTRICT to,
                              const char* const* near, int near_count) {
    const int near_rows = (lanes * step + d - 1) / d;  // in a step
    for (int column = 0; column < count; column += lanes) {
      const int present = std::min(lanes, count - column), near_end = std::min(column + lanes, near_count);
      int next = column;
      float* HWY_RESTRICT panel = to + column;
      const char* from[lanes];
      for (int i = 0; i < lanes; ++i) from[i] = rows[column + std::min(i, present - 1)];
      bits_vector words[4];
      int c = 0;
      for (; c + step <= d; c += step) {
        for (int i = 0; i < near_rows && next < near_end; ++i, ++next) bring_near(near[next], d * element_bytes);
        transpose_words(from, std::int64_t{c} * element_bytes, words);
        for (int i = 0; i < step; ++i) {
          hn::Store(Storage::widen(words[i / Storage::per_word], i % Storage::per_word), float_tag(),
                    panel + std::int64_t{c + i} * panel_lanes);
        }
      }
      if (c < d) call_rest(from, c, d - c, panel + std::int64_t{c} * panel_lanes);
    }
  }

  /// The last elements, fewer than a step: no byte behind a row may be read.
  static HWY_NOINLINE void call_rest(const char* const* from, int first, int elements, float* HWY_RESTRICT to) {
    char rest[lanes][16] = {};
    const char* rows[lanes];
    for (int i = 0; i < lanes; ++i) {
      std::memcpy(rest[i], from[i] + std::int64_t{first} * element_bytes,
                  static_cast<std::size_t>(elements) * element_bytes);
      rows[i] = rest[i];
    }
    bits_vector words[4];
    transpose_words(rows, 0, words);
    for (int i = 0; i < elements; ++i) {
      hn::Store(Storage::widen(words[i / Storage::per_word], i % Storage::per_word), float_tag(), to + i * panel_lanes);
    }
  }
};

/// A panel of some columns of `count` rows: `columns` <= panel_lanes elements from `from` on, [count][panel_lanes]. Missing
/// columns of the last vector are 0.
template <class Storage>
struct pack_rows {
  static HWY_INLINE void call(const char* const* rows, int count, int from, int columns, float* HWY_RESTRICT to) {
    constexpr int element_bytes = static_cast<int>(sizeof(typename Storage::element));
    const std::int64_t offset = std::int64_t{from} * element_bytes;
    if (columns == panel_lanes) {
      for (int i = 0; i < count; ++i) {
        for (int v = 0; v < panel_vectors; ++v) {
          hn::Store(Storage::load(rows[i] + offset + std::int64_t{v} * lanes * element_bytes), float_tag(),
                    to + std::int64_t{i} * panel_lanes + v * lanes);
        }
      }
      return;
    }
    for (int i = 0; i < count; ++i) {
      for (int column = 0; column < columns; column += lanes) {
        const char* element = rows[i] + offset + std::int64_t{column} * element_bytes;
        const int present = std::min(lanes, columns - column);
        hn::Store(present == lanes ? Storage::load(element) : load_some<Storage>(element, present), float_tag(),
                  to + std::int64_t{i} * panel_lanes + column);
      }
    }
  }
};

/// One row of d elements, widened and multiplied by a power of two or -1.
template <class Storage>
struct widen_row {
  static HWY_INLINE void call(const char* row, int d, float factor, float* to) {
    constexpr int element_bytes = static_cast<int>(sizeof(typename Storage::element));
    const float_tag tag;
    for (int column = 0; column < d; column += lanes) {
      const char* from = row + std::int64_t{column} * element_bytes;
      const int present = std::min(lanes, d - column);
      const auto value =
          hn::Mul(hn::Set(tag, factor), present == lanes ? Storage::load(from) : load_some<Storage>(from, present));
      if (present == lanes) {
        hn::StoreU(value, tag, to + column);
      } else {
        HWY_ALIGN float held[lanes];
        hn::Store(value, tag, held);
        std::copy(held, held + present, to + column);
      }
    }
  }
};

/// Matrices in rows; `stride` in elements.
struct matrix {
  float* data;
  std::int64_t stride;
};
struct const_matrix {
  const float* data;
  std::int64_t stride;
};

/// Rows of memory that a later step reads: each call of the innermost product asks for a cache line of some of them, so
/// that they arrive while it computes. All at once would stall it.
class lookahead {
 public:
  lookahead() = default;
  /// `bytes` of each of `count` rows.
  lookahead(const char* const* rows, int count, int bytes)
      : rows_(rows), count_(count), lines_((bytes + line - 1) / line) {}

  struct part {
    const char* const* rows;  ///< [count]
    int offset, count;
  };
  /// The next part, of `most` rows.
  part next(int most) {
    if (first_ >= count_) return {nullptr, 0, 0};
    const part given{rows_ + first_, offset_, std::min(most, count_ - first_)};
    offset_ += line;
    if (offset_ == lines_ * line) {
      offset_ = 0;
      first_ += most;
    }
    return given;
  }

 private:
  static constexpr int line = static_cast<int>(line_bytes);
  const char* const* rows_ = nullptr;
  int count_ = 0, lines_ = 0, first_ = 0, offset_ = 0;
};

/// sums += one column of the left-hand matrix times one row of the panel.
template <int Rows, int Vectors>
HWY_INLINE void multiply_step(const float* HWY_RESTRICT left, std::int64_t left_stride, const float* HWY_RESTRICT panel,
                              float_vector (&sums)[Rows][Vectors]) {
  const float_tag d;
  float_vector right[Vectors];
  for (int v = 0; v < Vectors; ++v) right[v] = hn::Load(d, panel + v * lanes);
  for (int i = 0; i < Rows; ++i) {
    const auto one = hn::Set(d, left[i * left_stride]);
    for (int v = 0; v < Vectors; ++v) sums[i][v] = hn::MulAdd(one, right[v], sums[i][v]);
  }
}

/// sum (+)= left * panel over `terms` rows of one panel, for Rows rows and Vectors vectors of columns.
template <int Rows, int Vectors, bool Ahead>
void multiply_block(const float* HWY_RESTRICT left, std::int64_t left_stride, const float* HWY_RESTRICT panel,
                    int terms, bool add, float* HWY_RESTRICT sum, std::int64_t sum_stride, lookahead::part ahead) {
  const float_tag d;
  float_vector sums[Rows][Vectors];
  for (int i = 0; i < Rows; ++i) {
    for (int v = 0; v < Vectors; ++v) sums[i][v] = hn::Zero(d);
  }
  int k = 0;
  for (int i = 0; Ahead && i < ahead.count; ++i, k += 2) {
    bring_near(ahead.rows[i] + ahead.offset, 1);
    multiply_step(left + k, left_stride, panel + std::int64_t{k} * panel_lanes, sums);
    multiply_step(left + k + 1, left_stride, panel + (std::int64_t{k} + 1) * panel_lanes, sums);
  }
  for (; k < terms; ++k) multiply_step(left + k, left_stride, panel + std::int64_t{k} * panel_lanes, sums);
  for (int i = 0; i < Rows; ++i) {
    for (int v = 0; v < Vectors; ++v) {
      float* to = sum + i * sum_stride + v * lanes;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sums[i][v]) : sums[i][v], d, to);
    }
  }
}

using block_function = void (*)(const float*, std::int64_t, const float*, int, bool, float*, std::int64_t,
                                lookahead::part);
template <int Vectors, bool Ahead>
constexpr block_function block_functions[9] = {
    nullptr,
    multiply_block<1, Vectors, Ahead>,
    multiply_block<2, Vectors, Ahead>,
    multiply_block<3, Vectors, Ahead>,
    multiply_block<4, Vectors, Ahead>,
    multiply_block<5, Vectors, Ahead>,
    multiply_block<6, Vectors, Ahead>,
    multiply_block<std::min(7, most_rows), Vectors, Ahead>,
    multiply_block<std::min(8, most_rows), Vectors, Ahead>,
};

/// sum (+)= left * panel: `rows` rows, as many columns as the panel has vectors for, `terms` terms.
HWY_INLINE void multiply(const_matrix left, int rows, const float* panel, int terms, int columns, bool add, matrix sum,
                         lookahead& ahead) {
  const bool wide = columns > lanes;
  for (int k = 0; k < terms; k += chain_terms) {
    const int count = std::min(chain_terms, terms - k);
    for (int i = 0; i < rows; i += most_rows) {
      const lookahead::part part = ahead.next(count / 2);
      const block_function* functions =
          part.count > 0 ? (wide ? block_functions<panel_vectors, true> : block_functions<1, true>)
                         : (wide ? block_functions<panel_vectors, false> : block_functions<1, false>);
      functions[std::min(most_rows, rows - i)](left.data + i * left.stride + k, left.stride,
                                               panel + std::int64_t{k} * panel_lanes, count, add || k > 0,
                                               sum.data + i * sum.stride, sum.stride, part);
    }
  }
}

/// Greatest of `count` > 0 elements; NaN never is. -infinity if there is none.
HWY_INLINE float maximum_of(const float* from, int count) {
  const float_tag d;
  auto greatest = hn::Set(d, -std::numeric_limits<float>::infinity());
  int i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = hn::LoadU(d, from + i);
    greatest = hn::IfThenElse(hn::Gt(value, greatest), value, greatest);
  }
  float result = hn::GetLane(hn::MaxOfLanes(d, greatest));
  for (; i < count; ++i) result = from[i] > result ? from[i] : result;
  return result;
}

}  // namespace msabench::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
