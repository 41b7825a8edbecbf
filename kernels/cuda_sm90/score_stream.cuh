// SPDX-License-Identifier: Apache-2.0
// Scores of blocks for few query tokens, at the pace at which memory gives keys: each is read once for all rows (token,
// head) of its sequence.
//
// The blocks of all sequences are divided evenly among thread blocks, one a multiprocessor. Warps are on their own:
// each takes every so-manieth block, in units of 32 keys, which the copy engine brings to its ring in shared memory.
// Keys are the rows of the products and queries their columns, so that eight queries cost no more than there are.
#pragma once

#include <type_traits>

#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda_sm90/bulk_copies.cuh"
#include "kernels/cuda_sm90/decode_rows.cuh"

namespace msabench::cuda_sm90 {

struct score_stream_call {
  index_call index;
  float* scores;
  std::int64_t head_stride, row_stride;
  bool whole_rows;  ///< -infinity past the visible blocks as well
};

/// `octets`: of rows. Keys in e4m3 may have a scale each.
template <class T, int octets_, int warps_, int ring_bytes, bool has_key_scales = false>
struct stream_shape {
  using value = T;
  static constexpr bool is_e4m3 = sizeof(T) == 1, scales_keys = has_key_scales;
  /// What is multiplied: fp16 has every value of e4m3.
  using operand = std::conditional_t<is_e4m3, __half, T>;
  static constexpr int octets = octets_, rows = 8 * octets;
  static constexpr int unit_keys = 32, width = 128;
  static constexpr int row_bytes = width * sizeof(T), pieces = row_bytes / sizeof(uint4);  ///< of a key
  static constexpr int query_pieces = width / cuda::piece_elements;
  static constexpr int warps = warps_, threads = 32 * warps, stages = ring_bytes / (unit_keys * row_bytes);
  /// Thread blocks on a multiprocessor: one, and where registers are enough, room for the kernel that comes next.
  static constexpr int resident = octets <= 2 ? 2 : 1;

  struct memory {
    alignas(128) uint4 ring[warps][stages][unit_keys * pieces];
    uint4 queries[rows * query_pieces];  ///< of the present sequence, as cuda::placed has them
    std::int64_t places[rows];           ///< of their first scores
    int seen[rows];                      ///< keys that they see
    float factors[rows];                 ///< of their products
    float scales[scales_keys ? warps : 1][stages][unit_keys];
    barrier full[warps][stages];
  };
};

/// Starts a copy of one number, 0 where it is not there; it is there as copies of cuda::wait_copies are.
__device__ inline void copy_scale(float* to, const float* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(cuda::shared_address(to)), "l"(from),
               "r"(there ? 4 : 0)
               : "memory");
}

/// The units of a warp in the order in which it multiplies them. It is ahead of the products, and looks up where a
/// block lies while the copies of the one before it are started.
template <class S>
class unit_walk {
 public:
  __device__ unit_walk(const index_call& call, const sequence_blocks& at, int first, int step, int end)
      : call_(call), next_sequence_(at), next_(first), step_(step), end_(end) {
    look_up();
    take_block();
  }

  __device__ bool there() const { return there_; }
  __device__ int keys() const { return min(32, visible_ - key_); }
  __device__ const char* address() const { return address_; }
  __device__ const float* scale() const { return scale_; }
  __device__ void next() {
    key_ += 32;
    address_ += 32 * call_.keys.token_stride * sizeof(typename S::value);
    if constexpr (S::scales_keys) scale_ += 32 * call_.keys.scale.token_stride;
    if (key_ % decode_block == 0 || key_ >= visible_) take_block();
  }

 private:
  __device__ void look_up() {
    if (next_ >= end_) return;
    while (next_ >= next_sequence_.end) next_sequence_.next();
    const cache& keys = call_.keys;
    const std::int64_t sequence = next_sequence_.sequence;
    const int key = (next_ - next_sequence_.begin) * decode_block;
    next_origin_ = keys.block_table == nullptr
                       ? keys.cu_seqlens_kv[sequence]
                       : keys.block_table[sequence * keys.table_stride + key / static_cast<int>(keys.page_size)];
  }

  __device__ void take_block() {
    there_ = next_ < end_;
    if (!there_) return;
    const cache& keys = call_.keys;
    key_ = (next_ - next_sequence_.begin) * decode_block;
    visible_ = next_sequence_.keys();
    address_ = keys.data + first_element(keys) * sizeof(typename S::value);
    if constexpr (S::scales_keys) scale_ = keys.scale.data + first_element(keys.scale);
    next_ += step_;
    look_up();
  }

  template <class Strides>
  __device__ std::int64_t first_element(const Strides& s) const {
    const cache& keys = call_.keys;
    return keys.block_table == nullptr
               ? (std::int64_t{next_origin_} + key_) * s.token_stride
               : next_origin_ * s.page_stride + key_ % static_cast<int>(keys.page_size) * s.token_stride;
  }

  const index_call& call_;
  sequence_blocks next_sequence_;
  int next_, step_, end_;
  int next_origin_ = 0;  // page, or first key of the sequence
  int key_ = 0, visible_ = 0;
  const char* address_ = nullptr;
  const float* scale_ = nullptr;
  bool there_ = false;
};

/// Pairs of e4m3 as pairs of fp16, the lower two of four first.
__device__ inline uint2 widened(std::uint32_t four) {
  uint2 pairs;
  asm("{.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\tcvt.rn.f16x2.e4m3x2 %0, low;\n\tcvt.rn.f16x2.e4m3x2 %1, "
      "high;}"
      : "=r"(pairs.x), "=r"(pairs.y)
      : "r"(four));
  return pairs;
}

/// What the products of a row are multiplied by, but for scales that keys have of their own.
template <class S>
__device__ float row_factor(const index_call& c, std::int64_t row, int head) {
  float factor = c.scale;
  if constexpr (S::is_e4m3) {
    if (c.q_scale != nullptr) factor *= c.q_scale[row * c.q_scale_row_stride + head * c.q_scale_head_stride];
    if (!S::scales_keys && c.keys.scale.data != nullptr) factor *= c.keys.scale.data[0];
  }
  return factor;
}

/// What a sequence's rows are multiplied with, and where their scores go. A negative factor makes the least product the
/// best, so it turns the signs.
template <class S>
__device__ void load_rows(const score_stream_call& s, std::int64_t first_row, int rows, std::int64_t first_sees,
                          typename S::memory& shared) {
  const index_call& c = s.index;
  constexpr int query_pieces = S::query_pieces;
  for (int i = threadIdx.x; i < S::rows * S::pieces; i += S::threads) {
    const int row = i / S::pieces, piece = i % S::pieces, head = row % c.heads;
    const std::int64_t token = first_row + row / c.heads;
    if constexpr (S::is_e4m3) {
      uint4 q{};
      if (row < rows) {
        q = __ldg(reinterpret_cast<const uint4*>(c.q + token * c.q_row_stride + head * c.q_head_stride) + piece);
        constexpr std::uint32_t signs = 0x80808080u;
        if (row_factor<S>(c, token, head) < 0) q.x ^= signs, q.y ^= signs, q.z ^= signs, q.w ^= signs;
      }
      const uint2 pairs[4] = {widened(q.x), widened(q.y), widened(q.z), widened(q.w)};
      shared.queries[cuda::placed<query_pieces>(row, piece)] = {pairs[0].x, pairs[0].y, pairs[1].x, pairs[1].y};
      shared.queries[cuda::placed<query_pieces>(row, piece + S::pieces)] = {pairs[2].x, pairs[2].y, pairs[3].x,
                                                                            pairs[3].y};
    } else {
      shared.queries[cuda::placed<query_pieces>(row, piece)] =
          row < rows ? cuda::query_piece(c, token, head, piece) : uint4{};
    }
  }
  for (int row = threadIdx.x; row < S::rows; row += S::threads) {
    shared.places[row] = (first_row + row / c.heads) * s.row_stride + row % c.heads * s.head_stride;
    shared.seen[row] = cuda::keys_seen(c, first_sees, row / c.heads);
    if (row < rows) shared.factors[row] = fabsf(row_factor<S>(c, first_row + row / c.heads, row % c.heads));
  }
}

/// 16 bytes of key 8i + g of a unit, piece t of four neighbours or the one four further on, for each i. Rows are a
/// multiple of all banks long: odd ones read the other half of 128 bytes first, and then change both over.
template <class S>
__device__ void load_pieces(const uint4* unit, int first_piece, uint4 (&keys)[2][4]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const bool is_odd = g % 2 != 0;
  const uint4* const from = unit + g * S::pieces + first_piece + t;
  const uint4 *const first = from + (is_odd ? 4 : 0), *const other = from + (is_odd ? 0 : 4);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4 a = first[8 * i * S::pieces], b = other[8 * i * S::pieces];
    keys[0][i] = {is_odd ? b.x : a.x, is_odd ? b.y : a.y, is_odd ? b.z : a.z, is_odd ? b.w : a.w};
    keys[1][i] = {is_odd ? a.x : b.x, is_odd ? a.y : b.y, is_odd ? a.z : b.z, is_odd ? a.w : b.w};
  }
}

/// Adds the products of one such piece of each key. In the order in which the kernels of cuda do it.
template <class S>
__device__ void add_products(const uint4 (&k)[4], const uint4* queries, int first_piece,
                             float (&products)[2][S::octets][4]) {
  using T = typename S::operand;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const cuda::query_operands low(k[0], k[1]), high(k[2], k[3]);
#pragma unroll
  for (int n = 0; n < S::octets; ++n) {
    const uint4 q = queries[cuda::placed<S::query_pieces>(8 * n + g, first_piece + t)];
    cuda::mma<T>(products[0][n], low.first, q.x, q.y);
    cuda::mma<T>(products[1][n], high.first, q.x, q.y);
    cuda::mma<T>(products[0][n], low.second, q.z, q.w);
    cuda::mma<T>(products[1][n], high.second, q.z, q.w);
  }
}

/// Products of two tiles of 16 keys with all rows.
template <class S>
__device__ void multiply_unit(const uint4* unit, const uint4* queries, float (&products)[2][S::octets][4]) {
#pragma unroll
  for (auto& tile : products)
#pragma unroll
    for (auto& octet : tile)
#pragma unroll
      for (float& x : octet) x = 0;
#pragma unroll S::octets == 1 ? 2 : 1
  for (int pair = 0; pair < S::pieces / 8; ++pair) {
    uint4 keys[2][4];
    load_pieces<S>(unit, 8 * pair, keys);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (S::is_e4m3) {
        // Elements 0..7 of each piece of 16, and then the others; so are the queries.
        uint4 of_fp16[2][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint4& k = keys[half][i];
          const uint2 pairs[4] = {widened(k.x), widened(k.y), widened(k.z), widened(k.w)};
          of_fp16[0][i] = {pairs[0].x, pairs[0].y, pairs[1].x, pairs[1].y};
          of_fp16[1][i] = {pairs[2].x, pairs[2].y, pairs[3].x, pairs[3].y};
        }
        add_products<S>(of_fp16[0], queries, 4 * half, products);
        add_products<S>(of_fp16[1], queries, S::pieces + 4 * half, products);
      } else {
        add_products<S>(keys[half], queries, 8 * pair + 4 * half, products);
      }
    }
  }
}

/// Multiplies the products of each key with its scale.
template <class S>
__device__ void scale_keys(const float* scales, float (&products)[2][S::octets][4]) {
  const int g = threadIdx.x % 32 / 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float scale = scales[8 * i + g];
#pragma unroll
    for (int n = 0; n < S::octets; ++n)
#pragma unroll
      for (int column = 0; column < 2; ++column) products[i / 2][n][i % 2 * 2 + column] *= scale;
  }
}

/// Products of keys that a row does not see become -infinity. `key`: of the unit.
template <class S>
__device__ void hide_unseen(int key, const int* seen, float (&products)[2][S::octets][4]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < S::octets; ++n)
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const int sees = seen[8 * n + 2 * t + column];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (key + 8 * i + g >= sees) products[i / 2][n][i % 2 * 2 + column] = -CUDART_INF_F;
    }
}

/// Writes the scores of a block: lane 4g + t has the maxima of rows 2t and 2t + 1 of each octet over its keys.
template <class S>
__device__ void write_scores(const score_stream_call& s, const float (&best)[S::octets][2], int rows, int block,
                             const typename S::memory& shared) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < S::octets; ++n) {
    const bool odd = g % 2 != 0;
    float most = odd ? best[n][1] : best[n][0];
    most = fmaxf(most, __shfl_xor_sync(cuda::all_lanes, odd ? best[n][0] : best[n][1], 4));
    most = fmaxf(most, __shfl_xor_sync(cuda::all_lanes, most, 8));
    most = fmaxf(most, __shfl_xor_sync(cuda::all_lanes, most, 16));
    const int row = 8 * n + 2 * t + g;
    if (g < 2 && row < rows)
      s.scores[shared.places[row] + block] = most == -CUDART_INF_F ? most : shared.factors[row] * most;
  }
}

/// The rest of whole rows: blocks that no token of their sequence sees.
__device__ inline void write_unseen(const score_stream_call& s, const sequence_blocks& sequences) {
  const index_call& c = s.index;
  const std::int64_t all = c.rows.tokens() * c.heads;
  for (std::int64_t i = blockIdx.x; i < all; i += gridDim.x) {
    const std::int64_t row = i / c.heads, head = i % c.heads;
    float* const scores = s.scores + row * s.row_stride + head * s.head_stride;
    const std::int64_t seen = sequences.blocks(static_cast<int>(c.rows.place(row).sequence));
    for (std::int64_t block = seen + threadIdx.x; block < c.max_blocks; block += blockDim.x)
      scores[block] = -CUDART_INF_F;
  }
}

/// Brings the entries of the block table closer that this thread block needs if all sequences are as long as they can
/// be: which ones it does need is known only when the lengths are there.
__device__ inline void prefetch_pages(const index_call& c) {
  const cache& keys = c.keys;
  if (keys.block_table == nullptr || threadIdx.x >= 32) return;
  const int columns = static_cast<int>(c.max_blocks);
  const block_share share(static_cast<int>(c.rows.batch) * columns);
  const int block =
      share.begin + static_cast<int>(threadIdx.x) * 32;  // a line of entries, or more where pages are larger
  if (block >= share.end) return;
  const int page = block % columns * decode_block / static_cast<int>(keys.page_size);
  if (page < keys.table_stride)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(keys.block_table + block / columns * keys.table_stride + page));
}

template <class S>
__global__ void __launch_bounds__(S::threads, S::resident) stream_scores(const __grid_constant__ score_stream_call s) {
  extern __shared__ __align__(128) unsigned char stream_memory[];
  auto& shared = *reinterpret_cast<typename S::memory*>(stream_memory);
  const index_call& c = s.index;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  cuda::let_next_begin();
  if (lane == 0) {
    for (barrier& b : shared.full[warp]) make_barrier(&b, 1);
    publish_barriers();
  }
  __syncwarp();

  // Blocks begin .. end are this thread block's.
  prefetch_pages(c);
  sequence_blocks sequences(c);
  const auto [begin, end] = block_share(sequences.all());
  if (begin < end) {
    sequences.seek(begin);

    const std::int64_t key_bytes = c.keys.token_stride * sizeof(typename S::value);
    const std::uint64_t policy = read_once();
    unit_walk<S> ahead(c, sequences, begin + warp, S::warps, end);
    const auto fill = [&](int stage) {
      if constexpr (S::scales_keys) {
        const bool is_there = ahead.there() && lane < ahead.keys();
        copy_scale(&shared.scales[warp][stage][lane],
                   is_there ? ahead.scale() + lane * c.keys.scale.token_stride : c.keys.scale.data, is_there);
        cuda::commit_copies();
      }
      if (!ahead.there()) return;
      barrier* const full = &shared.full[warp][stage];
      uint4* const to = shared.ring[warp][stage];
      const int keys = ahead.keys();
      const char* const from = ahead.address();
      if (lane == 0) arrive_expecting(full, keys * S::row_bytes);
      if (key_bytes == S::row_bytes) {
        if (lane == 0) copy_bytes(to, from, keys * S::row_bytes, full, policy);
      } else if (lane < keys) {
        copy_bytes(to + lane * S::pieces, from + lane * key_bytes, S::row_bytes, full, policy);
      }
      ahead.next();
    };
#pragma unroll 1
    for (int stage = 0; stage < S::stages; ++stage) fill(stage);

    ring_place<S::stages> place;
    for (;; sequences.next()) {
      const int from = max(sequences.begin, begin), to = min(sequences.end, end);
      if (from < to) {
        const std::int64_t first_row = c.rows.cu_seqlens_q[sequences.sequence];
        const std::int64_t tokens = c.rows.cu_seqlens_q[sequences.sequence + 1] - first_row;
        const std::int64_t first_sees = c.rows.kv_lens[sequences.sequence] - tokens + 1;
        const int rows = static_cast<int>(min(tokens, std::int64_t{S::rows / c.heads})) * c.heads;
        const int visible = sequences.keys(), all_see = cuda::keys_seen(c, first_sees, 0);
        __syncthreads();  // the rows of the sequence before are done with
        load_rows<S>(s, first_row, rows, first_sees, shared);
        __syncthreads();

        for (int block = from + (warp + S::warps - (from - begin) % S::warps) % S::warps; block < to;
             block += S::warps) {
          const int first_key = (block - sequences.begin) * decode_block;
          const int last_key = min(first_key + decode_block, visible);
          float best[S::octets][2];
#pragma unroll
          for (auto& pair : best) pair[0] = pair[1] = -CUDART_INF_F;
#pragma unroll 1
          for (int key = first_key; key < last_key; key += S::unit_keys) {
            wait_for(&shared.full[warp][place.stage], place.parity);
            float products[2][S::octets][4];
            multiply_unit<S>(shared.ring[warp][place.stage], shared.queries, products);
            if constexpr (S::scales_keys) {
              cuda::wait_copies<S::stages - 1>();
              __syncwarp();
              scale_keys<S>(shared.scales[warp][place.stage], products);
            }
            if (key + S::unit_keys > all_see) hide_unseen<S>(key, shared.seen, products);
#pragma unroll
            for (int n = 0; n < S::octets; ++n)
#pragma unroll
              for (int i = 0; i < 4; ++i)
                best[n][i % 2] = fmaxf(best[n][i % 2], fmaxf(products[0][n][i], products[1][n][i]));
            __syncwarp();  // all lanes have read the unit
            fill(place.stage);
            place.next();
          }
          write_scores<S>(s, best, rows, block - sequences.begin, shared);
        }
      }
      if (sequences.end >= end) break;
    }
  }
  if (s.whole_rows) write_unseen(s, sequence_blocks(c));
}

}  // namespace msabench::cuda_sm90
