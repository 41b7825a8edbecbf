// SPDX-License-Identifier: Apache-2.0
// Tiles in fp32: keys and values widened into panels, and a matrix product over panels. Included once per target of
// Highway's run-time dispatch; everything is in that target's namespace.
//
// A panel holds `panel_lanes` columns of the right-hand matrix, rows one after the other, so the innermost loop of the
// product reads it in sequence: for scores the columns are keys and the rows the elements of the head dimension, for
// values the columns are channels and the rows the keys. It is made right before it is used, and stays in the first-level
// cache. A panel has as many vectors as its columns need, and no space between its rows.
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
/// Four vectors of six rows need the fewest loads for a product, where there are registers for them.
constexpr int panel_vectors = lanes == 16 ? 4 : 2;
constexpr int panel_lanes = panel_vectors * lanes;
/// Rows of the left-hand matrix in one step, for so many vectors: as many accumulators as the registers hold.
constexpr int most_rows(int vectors) { return lanes == 8 || vectors > 2 ? 6 : 8; }

/// Columns of the panels of a product of so many rows. Few rows wait for memory, and what they will need next is asked for
/// during products: more, smaller products spread that better.
constexpr int panel_width(std::int64_t rows) { return rows < 32 ? std::min(2, panel_vectors) * lanes : panel_lanes; }

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
    const std::int64_t stride = vectors_of(count) * lanes;
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
                    panel + (c + i) * stride);
        }
      }
      if (c < d) call_rest(from, c, d - c, panel + c * stride, stride);
    }
  }

  /// The last elements, fewer than a step: no byte behind a row may be read.
  static HWY_NOINLINE void call_rest(const char* const* from, int first, int elements, float* HWY_RESTRICT to,
                                     std::int64_t stride) {
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
      hn::Store(Storage::widen(words[i / Storage::per_word], i % Storage::per_word), float_tag(), to + i * stride);
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
    if (columns == panel_lanes) return whole_vectors<panel_vectors>(rows, count, offset, to);
    if (columns == 2 * lanes) return whole_vectors<2>(rows, count, offset, to);
    const std::int64_t stride = vectors_of(columns) * lanes;
    for (int i = 0; i < count; ++i) {
      for (int column = 0; column < columns; column += lanes) {
        const char* element = rows[i] + offset + std::int64_t{column} * element_bytes;
        const int present = std::min(lanes, columns - column);
        hn::Store(present == lanes ? Storage::load(element) : load_some<Storage>(element, present), float_tag(),
                  to + i * stride + column);
      }
    }
  }

  template <int Vectors>
  static HWY_INLINE void whole_vectors(const char* const* rows, int count, std::int64_t offset,
                                       float* HWY_RESTRICT to) {
    for (int i = 0; i < count; ++i) {
      for (int v = 0; v < Vectors; ++v) {
        hn::Store(Storage::load(rows[i] + offset + v * lanes * std::int64_t{sizeof(typename Storage::element)}),
                  float_tag(), to + (std::int64_t{i} * Vectors + v) * lanes);
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

/// Rows of memory that a later step reads: each call of the innermost product asks for some of their cache lines, so that
/// they arrive while it computes. All at once would stall it; and the lines come in the order of memory, since then the
/// processor's own prefetcher follows and keeps more of them on their way than software may ask for.
class lookahead {
 public:
  lookahead() = default;
  /// `bytes` of each of `count` rows.
  lookahead(const char* const* rows, int count, int bytes)
      : rows_(rows), count_(count), lines_((bytes + line - 1) / line) {}

  /// `count` lines, the first one `offset` bytes into the first of the rows, each of so many bytes.
  struct part {
    const char* const* rows;
    int offset, bytes, count;
  };
  /// The next part, of `most` lines; count <= 0 if there is none.
  part next(int most) {
    const part given{rows_, offset_, lines_ * line, std::min(most, count_ * lines_ - offset_ / line)};
    const int at = offset_ / line + std::max(0, given.count);
    rows_ += at / lines_;
    count_ -= at / lines_;
    offset_ = at % lines_ * line;
    return given;
  }

 private:
  static constexpr int line = static_cast<int>(line_bytes);
  const char* const* rows_ = nullptr;
  int count_ = 0, lines_ = 1, offset_ = 0;
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
    __builtin_prefetch(*ahead.rows + ahead.offset, 0, 2);
    ahead.offset += static_cast<int>(line_bytes);
    if (ahead.offset == ahead.bytes) {
      ahead.offset = 0;
      ++ahead.rows;
    }
    multiply_step(left + k, left_stride, panel + std::int64_t{k} * Vectors * lanes, sums);
    multiply_step(left + k + 1, left_stride, panel + (std::int64_t{k} + 1) * Vectors * lanes, sums);
  }
  for (; k < terms; ++k) multiply_step(left + k, left_stride, panel + std::int64_t{k} * Vectors * lanes, sums);
  for (int i = 0; i < Rows; ++i) {
    for (int v = 0; v < Vectors; ++v) {
      float* to = sum + i * sum_stride + v * lanes;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sums[i][v]) : sums[i][v], d, to);
    }
  }
}

using block_function = void (*)(const float*, std::int64_t, const float*, int, bool, float*, std::int64_t,
                                lookahead::part);
template <int Vectors, bool Ahead, int Rows>
constexpr block_function block_of = multiply_block<std::min(Rows, most_rows(Vectors)), Vectors, Ahead>;
template <int Vectors, bool Ahead>
constexpr block_function block_functions[9] = {
    nullptr,
    block_of<Vectors, Ahead, 1>,
    block_of<Vectors, Ahead, 2>,
    block_of<Vectors, Ahead, 3>,
    block_of<Vectors, Ahead, 4>,
    block_of<Vectors, Ahead, 5>,
    block_of<Vectors, Ahead, 6>,
    block_of<Vectors, Ahead, 7>,
    block_of<Vectors, Ahead, 8>,
};

/// By rows, for panels that hold so many vectors.
template <bool Ahead>
HWY_INLINE const block_function* functions_for(int vectors) {
  switch (vectors) {
    case 1:
      return block_functions<1, Ahead>;
    case 2:
      return block_functions<2, Ahead>;
    case 3:
      return block_functions<std::min(3, panel_vectors), Ahead>;
    default:
      return block_functions<panel_vectors, Ahead>;
  }
}

/// sum (+)= left * panel: `rows` rows, as many columns as the panel has vectors for, `terms` terms.
HWY_INLINE void multiply(const_matrix left, int rows, const float* panel, int terms, int columns, bool add, matrix sum,
                         lookahead& ahead) {
  const int vectors = vectors_of(columns), step = most_rows(vectors);
  for (int k = 0; k < terms; k += chain_terms) {
    const int count = std::min(chain_terms, terms - k);
    for (int i = 0; i < rows; i += step) {
      const lookahead::part part = ahead.next(count / 2);
      const block_function* functions = part.count > 0 ? functions_for<true>(vectors) : functions_for<false>(vectors);
      functions[std::min(step, rows - i)](left.data + i * left.stride + k, left.stride,
                                          panel + std::int64_t{k} * vectors * lanes, count, add || k > 0,
                                          sum.data + i * sum.stride, sum.stride, part);
    }
  }
}

/// Products of few rows with `count` <= direct_keys keys at `keys`: sum = left * keys^T, bit by bit what packed columns and
/// `multiply` give. The keys are transposed in registers and not kept, since so few rows don't repay a panel; so the
/// processor still computes while memory answers. Meanwhile the first `near_count` keys at `near` are asked for, in the
/// order of memory: then its own prefetcher follows, and keeps more lines on their way than software may ask for.
constexpr int direct_groups = lanes == 16 ? 2 : 1;
constexpr int direct_keys = direct_groups * lanes;
constexpr int most_direct_rows = 4;

template <class Storage>
struct multiply_directly {
  static constexpr int step = 4 * Storage::per_word;
  static constexpr int element_bytes = static_cast<int>(sizeof(typename Storage::element));

  static HWY_INLINE void call(const char* const* keys, int count, const_matrix left, int rows, int d, matrix sum,
                              const char* const* near, int near_count) {
    const char* from[direct_keys];
    for (int i = 0; i < direct_keys; ++i) from[i] = keys[std::min(i, count - 1)];
    for (int i = 0; i < rows; i += most_direct_rows) {
      const const_matrix some{left.data + i * left.stride, left.stride};
      const matrix to{sum.data + i * sum.stride, sum.stride};
      switch (std::min(most_direct_rows, rows - i)) {
        case 1:
          block<1>(from, some, d, to, near, near_count);
          break;
        case 2:
          block<2>(from, some, d, to, near, near_count);
          break;
        case 3:
          block<3>(from, some, d, to, near, near_count);
          break;
        default:
          block<most_direct_rows>(from, some, d, to, near, near_count);
      }
      near_count = 0;
    }
  }

  template <int Rows>
  static HWY_NOINLINE void block(const char* const* from, const_matrix left, int d, matrix sum, const char* const* near,
                                 int near_count) {
    const float_tag tag;
    const int row_bytes = d * element_bytes, near_lines = (direct_keys * row_bytes * step / d + 63) / 64;
    int offset = 0;
    for (int first = 0; first < d; first += chain_terms) {
      float_vector sums[direct_groups][Rows];
      for (auto& group : sums) {
        for (auto& one : group) one = hn::Zero(tag);
      }
      for (int c = first; c < std::min(d, first + chain_terms); c += step) {
        for (int i = 0; i < near_lines && near_count > 0; ++i) {
          bring_near(*near + offset, 1);
          offset += static_cast<int>(line_bytes);
          if (offset < row_bytes) continue;
          offset = 0;
          ++near;
          --near_count;
        }
        for (int g = 0; g < direct_groups; ++g) {
          bits_vector words[4];
          transpose_words(from + g * lanes, std::int64_t{c} * element_bytes, words);
          for (int i = 0; i < step; ++i) {
            const auto key = Storage::widen(words[i / Storage::per_word], i % Storage::per_word);
            for (int r = 0; r < Rows; ++r) {
              sums[g][r] = hn::MulAdd(hn::Set(tag, left.data[r * left.stride + c + i]), key, sums[g][r]);
            }
          }
        }
      }
      for (int g = 0; g < direct_groups; ++g) {
        for (int r = 0; r < Rows; ++r) {
          float* to = sum.data + r * sum.stride + g * lanes;
          hn::StoreU(first > 0 ? hn::Add(hn::LoadU(tag, to), sums[g][r]) : sums[g][r], tag, to);
        }
      }
    }
  }
};

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
