// SPDX-License-Identifier: Apache-2.0
// Scores of blocks for few query tokens, at the pace at which memory gives keys: each is read once for all rows (token,
// head) of its sequence.
//
// The blocks of all sequences are numbered one after the other. Warps are on their own: each takes a block at a time, in
// units of 32 keys, which the copy engine brings to its ring in shared memory. Keys are the rows of the products and
// queries their columns, so that eight queries cost no more than there are.
//
// Which blocks are whose: the first two of each warp are known from the start. Memory doesn't serve all multiprocessors
// alike, so the others are handed out as they are asked for.
#pragma once

#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda_sm90/bulk_copies.cuh"
#include "kernels/cuda_sm90/decode_rows.cuh"
#include "kernels/cuda_sm90/widening.cuh"

namespace msabench::cuda_sm90 {

struct score_stream_call {
  index_call index;
  float* scores;
  std::int64_t head_stride, row_stride;
  bool whole_rows;  ///< -infinity past the visible blocks as well
  int page_blocks;  ///< of a page
  // 0 when the kernel before is done; nullptr if there is none.
  std::uint32_t* handed;  ///< blocks handed out beyond the first ones; nullptr: each warp has every so-manieth
  std::uint32_t* done;    ///< [sequences] blocks whose scores are there; nullptr = not wanted
};

/// A block of keys and the rows that it is multiplied with.
struct stream_block {
  std::int32_t first_row;  ///< the sequence's first token
  std::int32_t tokens;     ///< 0: no block, and none after it
  std::int32_t length;     ///< keys of the sequence
  std::int32_t block;      ///< of the sequence
  std::int32_t sequence;

  __device__ int first_sees() const { return length - tokens + 1; }  ///< keys that the first token sees
};
struct alignas(16) stream_unit {
  stream_block block;
  std::int32_t key;  ///< the first of the unit
};

template <class Stored, int octets_, int stages_>
struct stream_shape {
  using value = multiplied<Stored>;
  static constexpr bool is_e4m3 = cuda_sm90::is_e4m3<Stored>;
  static constexpr int octets = octets_, rows = 8 * octets;
  static constexpr int parts = (octets + 3) / 4,
                       part_octets = octets / parts;  ///< whose queries registers have room for
  static constexpr int warps = 8, threads = 32 * warps, stages = stages_;
  static constexpr int first_blocks = 2;  ///< of each warp
  static constexpr bool brings_closer = true;
  static constexpr int unit_keys = 32, tiles = unit_keys / 16;
  static constexpr int width = 128, groups = width / 32;                             ///< of 16-bit pieces
  static constexpr int row_bytes = width * sizeof(Stored), pieces = row_bytes / 16;  ///< as they are stored
  /// Thread blocks on a multiprocessor: one, and where registers are enough, room for the kernel that comes next.
  static constexpr int resident = octets <= 2 ? 2 : 1;

  struct memory {
    alignas(128) uint4 ring[warps][stages][unit_keys * pieces];
    stream_unit units[warps][stages];
    float scales[warps][stages][is_e4m3 ? unit_keys : 1];
    barrier full[warps][stages];
  };
};

/// From the number of a block to its sequence. Numbers that are asked for rise. Sequences are in the lanes of a warp, 32
/// at a time.
class block_finder {
 public:
  __device__ explicit block_finder(const index_call& c) : rows_(c.rows), most_keys_(c.max_blocks * decode_block) {}

  /// Before the first find.
  __device__ void load() {
    const int lane = threadIdx.x % 32, batch = static_cast<int>(rows_.batch);
    const int of = min(base_ + lane, batch - 1);
    // All at once, not one after the other.
    const int after = rows_.cu_seqlens_q[of + 1];
    first_ = rows_.cu_seqlens_q[of];
    // What lies behind the last column of scores is cut off, as keys_seen does.
    length_ = min(rows_.kv_lens[of], most_keys_);
    tokens_ = base_ + lane < batch ? after - first_ : 0;
    blocks_ = tokens_ > 0 ? (max(0, length_) + decode_block - 1) / decode_block : 0;
    int with_own = blocks_;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int left = __shfl_up_sync(cuda::all_lanes, with_own, distance);
      if (lane >= distance) with_own += left;
    }
    end_ = before_ + with_own;
  }

  /// Each lane may ask for another block, those with `asks`; greater lanes for greater numbers. Without rows if there is
  /// no such block.
  __device__ stream_block find(int number, bool asks) {
    stream_block found{};
    for (;;) {
      int at = 0;  // how many of these sequences end at or before it
#pragma unroll
      for (int step = 16; step > 0; step /= 2)
        if (__shfl_sync(cuda::all_lanes, end_, at + step - 1) <= number) at += step;
      const int end = __shfl_sync(cuda::all_lanes, end_, at), blocks = __shfl_sync(cuda::all_lanes, blocks_, at);
      const int first = __shfl_sync(cuda::all_lanes, first_, at), length = __shfl_sync(cuda::all_lanes, length_, at);
      const int tokens = __shfl_sync(cuda::all_lanes, tokens_, at);
      if (asks && number < end) {
        found = {first, tokens, length, number - (end - blocks), base_ + at};
        asks = false;
      }
      if (base_ + 32 >= rows_.batch || !__any_sync(cuda::all_lanes, asks)) return found;
      before_ = __shfl_sync(cuda::all_lanes, end_, 31);
      base_ += 32;
      load();
    }
  }

 private:
  const lengths& rows_;
  int most_keys_;
  int base_ = 0, before_ = 0;                   // the first of these sequences, and blocks before it
  int first_, tokens_, length_, blocks_, end_;  // of this lane's
};

/// Where the keys of blocks lie.
class block_keys {
 public:
  __device__ explicit block_keys(const score_stream_call& s) : keys_(s.index.keys), page_blocks_(s.page_blocks) {}

  /// The page, or the first key of the sequence.
  __device__ int origin(int sequence, int block) const {
    if (keys_.block_table == nullptr) return keys_.cu_seqlens_kv[sequence];
    const int page = page_blocks_ == 1 ? block : block / page_blocks_;
    return keys_.block_table[sequence * keys_.table_stride + page];
  }
  /// Whether there is memory for it, whatever it holds.
  __device__ bool has_origin(int block) const {
    return keys_.block_table == nullptr || block < keys_.table_columns * page_blocks_;
  }
  /// Of a block's first key, or its scale.
  template <class Strides>
  __device__ std::int64_t element(const Strides& s, int origin, int block) const {
    const bool paged = keys_.block_table != nullptr;
    const int behind = paged ? (page_blocks_ == 1 ? 0 : block % page_blocks_) : block;  // blocks
    return origin * (paged ? s.page_stride : s.token_stride) + std::int64_t{behind} * decode_block * s.token_stride;
  }

 private:
  const cache& keys_;
  int page_blocks_;
};

/// Whether keys have a scale each, which their products are multiplied by before the greatest is looked for.
template <class S>
__device__ bool has_key_scales(const score_stream_call& s) {
  return S::is_e4m3 && s.index.keys.scale.token_stride != 0;
}

/// What a row's products are multiplied by.
template <class S>
__device__ float row_factor(const score_stream_call& s, std::int64_t row, int head) {
  const index_call& c = s.index;
  float factor = c.scale;
  if (c.q_scale != nullptr) factor *= c.q_scale[row * c.q_scale_row_stride + head * c.q_scale_head_stride];
  if (c.keys.scale.data != nullptr && !has_key_scales<S>(s)) factor *= c.keys.scale.data[0];
  return factor;
}

/// Brings a warp its blocks. It is ahead of the products, and looks up where the next block lies while the copies of one
/// are started.
template <class S>
class block_carrier {
 public:
  __device__ block_carrier(const score_stream_call& s, int warp, typename S::memory& shared)
      : s_(s),
        scales_(&shared.scales[warp][0][0]),
        ring_(&shared.ring[warp][0][0]),
        units_(shared.units[warp]),
        full_(shared.full[warp]),
        keys_(s),
        key_bytes_(s.index.keys.token_stride * element_bytes),
        policy_(read_once()),
        finder_(s.index) {
    // If all sequences are as long as they can be, this is where the first blocks lie; so the lengths need not be waited
    // for first.
    const index_call& c = s.index;
    const int lane = threadIdx.x % 32, turn = static_cast<int>(gridDim.x) * S::warps;
    const int number = static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) * warp + lane * turn;
    const bool asks = lane < S::first_blocks;
    const int columns = static_cast<int>(c.max_blocks), sequence = number / columns,
              block = number - sequence * columns;
    const bool is_guessed = asks && sequence < c.rows.batch && keys_.has_origin(block);
    int origin = is_guessed ? keys_.origin(sequence, block) : 0;
    finder_.load();
    const stream_block mine = finder_.find(number, asks);
    if (mine.tokens > 0 && !(is_guessed && mine.sequence == sequence && mine.block == block))
      origin = keys_.origin(mine.sequence, mine.block);
    next_ = lane_block(mine, 0);
    next_origin_ = __shfl_sync(cuda::all_lanes, origin, 0);
    take();
    next_ = lane_block(mine, 1);
    next_origin_ = __shfl_sync(cuda::all_lanes, origin, 1);
    number_ = static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) * warp + S::first_blocks * turn;
  }

  /// Starts the copy of the next unit, or says that there is none.
  __device__ void fill(int stage) {
    const int lane = threadIdx.x % 32;
    barrier* const full = full_ + stage;
    if (lane == 0) units_[stage] = {now_, key_};
    if (now_.tokens == 0) {
      if (lane == 0) arrive(full);
      if (has_key_scales<S>(s_)) arrive(full);
      return;
    }
    const int keys = min(S::unit_keys, now_.length - key_);
    uint4* const to = ring_ + stage * S::unit_keys * S::pieces;
    if (lane == 0) arrive_expecting(full, keys * S::row_bytes);
    if (key_bytes_ == S::row_bytes) {
      if (lane == 0) copy_bytes(to, from_, keys * S::row_bytes, full, policy_);
    } else if (lane < keys) {
      copy_bytes(to + lane * S::pieces, from_ + lane * key_bytes_, S::row_bytes, full, policy_);
    }
    if (has_key_scales<S>(s_)) {
      if (lane < keys)
        copy_word(scales_ + stage * S::unit_keys + lane, scale_ + lane * s_.index.keys.scale.token_stride);
      arrive_when_copied(full);
      scale_ += S::unit_keys * s_.index.keys.scale.token_stride;
    }
    key_ += S::unit_keys;
    from_ += S::unit_keys * key_bytes_;
    if (key_ % decode_block == 0 || key_ >= now_.length) {
      take();
      if (now_.tokens > 0) look_ahead();
    }
  }

  /// The rest of the present block to the second-level cache.
  __device__ void bring_closer() const {
    const int keys = min(decode_block - key_ % decode_block, now_.length - key_);
    if (now_.tokens > 0 && key_bytes_ == S::row_bytes && threadIdx.x % 32 == 0)
      prefetch_bytes(from_, keys * S::row_bytes, policy_);
  }

  /// Asks for the block after the next, if that has not been done.
  __device__ void claim() {
    if (has_claim_) return;
    has_claim_ = true;
    if (s_.handed == nullptr) {
      claimed_ = number_;
      number_ += static_cast<int>(gridDim.x) * S::warps;
      return;
    }
    cuda::wait_for_previous();
    if (threadIdx.x % 32 == 0) claimed_ = static_cast<int>(atomicAdd(s_.handed, 1u));
  }

 private:
  static __device__ stream_block lane_block(const stream_block& b, int lane) {
    const auto get = [=](int x) { return __shfl_sync(cuda::all_lanes, x, lane); };
    return {get(b.first_row), get(b.tokens), get(b.length), get(b.block), get(b.sequence)};
  }

  __device__ void take() {
    now_ = next_;
    key_ = now_.block * decode_block;
    const cache& keys = s_.index.keys;
    from_ = keys.data + keys_.element(keys, next_origin_, now_.block) * element_bytes;
    if (has_key_scales<S>(s_)) scale_ = keys.scale.data + keys_.element(keys.scale, next_origin_, now_.block);
  }

  __device__ void look_ahead() {
    claim();
    const int first = s_.handed == nullptr ? 0 : S::first_blocks * S::warps * static_cast<int>(gridDim.x);
    next_ = finder_.find(first + __shfl_sync(cuda::all_lanes, claimed_, 0), true);
    has_claim_ = false;
    if (next_.tokens == 0) return;
    claim();
    next_origin_ = keys_.origin(next_.sequence, next_.block);
  }

  static constexpr int element_bytes = S::row_bytes / S::width;

  const score_stream_call& s_;
  float* scales_;
  uint4* ring_;
  stream_unit* units_;
  barrier* full_;
  block_keys keys_;
  std::int64_t key_bytes_;
  std::uint64_t policy_;
  block_finder finder_;
  stream_block now_, next_;
  const char* from_;  // of the next unit's first key
  const float* scale_ = nullptr;
  int key_, next_origin_;
  int number_, claimed_ = 0;
  bool has_claim_ = false;
};

/// What a lane multiplies with: pieces t, t + 4, ... of row g of each octet.
template <class S>
struct stream_queries {
  uint4 pieces[S::part_octets][S::groups];

  __device__ void load(const score_stream_call& s, const stream_block& b, int part) {
    const index_call& c = s.index;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < S::part_octets; ++n) {
      const int row = 8 * (part * S::part_octets + n) + g, token = row / c.heads, head = row - token * c.heads;
      const std::int64_t of_row = std::int64_t{b.first_row} + token;
      const bool there = token < b.tokens;
      if constexpr (S::is_e4m3) {
        const char* const from = c.q + of_row * c.q_row_stride + head * c.q_head_stride;
        // A negative factor makes the least product the best, so it turns the signs.
        const std::uint32_t signs = there && row_factor<S>(s, of_row, head) < 0 ? 0x80808080u : 0;
#pragma unroll
        for (int j = 0; j < S::pieces / 4; ++j) {
          const uint4 piece = there ? __ldg(reinterpret_cast<const uint4*>(from) + 4 * j + t) : uint4{};
          pieces[n][2 * j] = widen<typename S::value>(piece.x ^ signs, piece.y ^ signs);
          pieces[n][2 * j + 1] = widen<typename S::value>(piece.z ^ signs, piece.w ^ signs);
        }
      } else {
#pragma unroll
        for (int j = 0; j < S::groups; ++j)
          pieces[n][j] = there ? cuda::query_piece(c, of_row, head, 4 * j + t) : uint4{};
      }
    }
  }
};

/// Products of two tiles of 16 keys with the rows of a part. Added up in the order in which the kernels of cuda do it.
template <class S>
__device__ void multiply_unit(const uint4* unit, const stream_queries<S>& queries,
                              float (&products)[S::tiles][S::part_octets][4]) {
  using T = typename S::value;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  // Rows are a multiple of all banks long: odd ones read the other half of 128 bytes first, and then change both over.
  const bool is_odd = g % 2 != 0;
  const uint4 *const first = unit + g * S::pieces + (is_odd ? 4 : 0) + t, *const other = unit + g * S::pieces +
                                                                                         (is_odd ? 0 : 4) + t;
#pragma unroll
  for (auto& tile : products)
#pragma unroll
    for (auto& octet : tile)
#pragma unroll
      for (float& x : octet) x = 0;
  const auto add = [&](const uint4(&keys)[2 * S::tiles], int group) {
    cuda::query_operands operands[S::tiles];
#pragma unroll
    for (int tile = 0; tile < S::tiles; ++tile)
      operands[tile] = cuda::query_operands(keys[2 * tile], keys[2 * tile + 1]);
#pragma unroll
    for (int n = 0; n < S::part_octets; ++n) {
      const uint4& q = queries.pieces[n][group];
#pragma unroll
      for (int tile = 0; tile < S::tiles; ++tile) cuda::mma<T>(products[tile][n], operands[tile].first, q.x, q.y);
#pragma unroll
      for (int tile = 0; tile < S::tiles; ++tile) cuda::mma<T>(products[tile][n], operands[tile].second, q.z, q.w);
    }
  };
#pragma unroll
  for (int pair = 0; pair < S::pieces / 8; ++pair) {
    uint4 keys[2][2 * S::tiles];
#pragma unroll
    for (int i = 0; i < 2 * S::tiles; ++i) {
      const uint4 a = first[8 * i * S::pieces + 8 * pair], b = other[8 * i * S::pieces + 8 * pair];
      keys[0][i] = {is_odd ? b.x : a.x, is_odd ? b.y : a.y, is_odd ? b.z : a.z, is_odd ? b.w : a.w};
      keys[1][i] = {is_odd ? a.x : b.x, is_odd ? a.y : b.y, is_odd ? a.z : b.z, is_odd ? a.w : b.w};
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (S::is_e4m3) {
        uint4 widened[2][2 * S::tiles];
#pragma unroll
        for (int i = 0; i < 2 * S::tiles; ++i) {
          widened[0][i] = widen<T>(keys[half][i].x, keys[half][i].y);
          widened[1][i] = widen<T>(keys[half][i].z, keys[half][i].w);
        }
        add(widened[0], 4 * pair + 2 * half);
        add(widened[1], 4 * pair + 2 * half + 1);
      } else {
        add(keys[half], 2 * pair + half);
      }
    }
  }
}

/// Products times the scales of their keys.
template <class S>
__device__ void scale_keys(const float* scales, float (&products)[S::tiles][S::part_octets][4]) {
  const int g = threadIdx.x % 32 / 4;
#pragma unroll
  for (int i = 0; i < 2 * S::tiles; ++i) {
    const float scale = scales[8 * i + g];
#pragma unroll
    for (int n = 0; n < S::part_octets; ++n)
#pragma unroll
      for (int column = 0; column < 2; ++column) products[i / 2][n][i % 2 * 2 + column] *= scale;
  }
}

/// Products of keys that a row does not see become -infinity. `row`: the part's first.
template <class S>
__device__ void hide_unseen(const index_call& c, const stream_unit& unit, int row,
                            float (&products)[S::tiles][S::part_octets][4]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < S::part_octets; ++n)
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const int sees = cuda::keys_seen(c, unit.block.first_sees(), (row + 8 * n + 2 * t + column) / c.heads);
#pragma unroll
      for (int i = 0; i < 2 * S::tiles; ++i)
        if (unit.key + 8 * i + g >= sees) products[i / 2][n][i % 2 * 2 + column] = -CUDART_INF_F;
    }
}

/// Writes the scores of a block: lane 4g + t has the maxima of rows 2t and 2t + 1 of each octet over its keys.
template <class S>
__device__ void write_scores(const score_stream_call& s, const float (&best)[S::octets][2], const stream_block& b) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, heads = s.index.heads;
#pragma unroll
  for (int n = 0; n < S::octets; ++n) {
    const bool odd = g % 2 != 0;
    float most = odd ? best[n][1] : best[n][0];
    most = fmaxf(most, __shfl_xor_sync(cuda::all_lanes, odd ? best[n][0] : best[n][1], 4));
    most = fmaxf(most, __shfl_xor_sync(cuda::all_lanes, most, 8));
    most = fmaxf(most, __shfl_xor_sync(cuda::all_lanes, most, 16));
    const int row = 8 * n + 2 * t + g, token = row / heads, head = row - token * heads;
    if (g >= 2 || token >= b.tokens) continue;
    const std::int64_t of_row = std::int64_t{b.first_row} + token;
    const float factor = fabsf(S::is_e4m3 ? row_factor<S>(s, of_row, head) : s.index.scale);
    s.scores[of_row * s.row_stride + head * s.head_stride + b.block] = most == -CUDART_INF_F ? most : factor * most;
  }
}

/// What a warp does.
template <class S>
__device__ void score_blocks(const score_stream_call& s, int warp, typename S::memory& shared) {
  const index_call& c = s.index;
  const int lane = threadIdx.x % 32;
  block_carrier<S> carrier(s, warp, shared);
#pragma unroll 1
  for (int stage = 0; stage < S::stages; ++stage) carrier.fill(stage);
  if (S::brings_closer) carrier.bring_closer();
  carrier.claim();
  if (s.handed != nullptr) cuda::let_next_begin();  // which may read `done`

  stream_queries<S> queries;
  float best[S::octets][2];
#pragma unroll
  for (auto& pair : best) pair[0] = pair[1] = -CUDART_INF_F;
  int of_row = -1, written = -1;  // first row of the queries; sequence of the block before
#pragma unroll 1
  for (ring_place<S::stages> place;; place.next()) {
    wait_for(&shared.full[warp][place.stage], place.parity);
    const stream_unit unit = shared.units[warp][place.stage];
    const stream_block& b = unit.block;
    if (b.tokens == 0) break;
    const bool hides = unit.key + S::unit_keys > cuda::keys_seen(c, b.first_sees(), 0);
#pragma unroll
    for (int part = 0; part < S::parts; ++part) {
      if (S::parts > 1 || b.first_row != of_row) queries.load(s, b, part);
      float products[S::tiles][S::part_octets][4];
      multiply_unit<S>(shared.ring[warp][place.stage], queries, products);
      if (has_key_scales<S>(s)) scale_keys<S>(shared.scales[warp][place.stage], products);
      if (hides) hide_unseen<S>(c, unit, part * S::part_octets * 8, products);
#pragma unroll
      for (int n = 0; n < S::part_octets; ++n)
#pragma unroll
        for (int tile = 0; tile < S::tiles; ++tile)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float& most = best[part * S::part_octets + n][i % 2];
            most = fmaxf(most, products[tile][n][i]);
          }
    }
    of_row = b.first_row;
    __syncwarp();  // all lanes have read the unit
    carrier.fill(place.stage);
    if ((unit.key + S::unit_keys) % decode_block != 0 && unit.key + S::unit_keys < b.length) continue;
    write_scores<S>(s, best, b);
    // Not at once: they have to be in memory.
    if (s.done != nullptr && written >= 0 && lane == 0) add_one(s.done + written);
    written = b.sequence;
#pragma unroll
    for (auto& pair : best) pair[0] = pair[1] = -CUDART_INF_F;
  }
  if (s.done != nullptr && written >= 0) {
    __syncwarp();
    if (lane == 0) add_one(s.done + written);
  }
}

/// The rest of whole rows: blocks that no token of their sequence sees.
__device__ inline void write_unseen(const score_stream_call& s) {
  const index_call& c = s.index;
  const std::int64_t all = c.rows.tokens() * c.heads;
  for (std::int64_t i = blockIdx.x; i < all; i += gridDim.x) {
    const std::int64_t row = i / c.heads, head = i % c.heads;
    float* const scores = s.scores + row * s.row_stride + head * s.head_stride;
    const std::int64_t length = c.rows.kv_lens[c.rows.place(row).sequence];
    const std::int64_t seen = cuda::ceil_div(max(std::int64_t{0}, length), std::int64_t{decode_block});
    for (std::int64_t block = seen + threadIdx.x; block < c.max_blocks; block += blockDim.x)
      scores[block] = -CUDART_INF_F;
  }
}

template <class S>
__global__ void __launch_bounds__(S::threads, S::resident) stream_scores(const __grid_constant__ score_stream_call s) {
  extern __shared__ __align__(128) unsigned char stream_memory[];
  auto& shared = *reinterpret_cast<typename S::memory*>(stream_memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (s.handed == nullptr) cuda::let_next_begin();
  if (lane < S::stages) {
    make_barrier(&shared.full[warp][lane], has_key_scales<S>(s) ? 1 + 32 : 1);
    publish_barriers();
  }
  __syncwarp();
  score_blocks<S>(s, warp, shared);
  if (s.whole_rows) write_unseen(s);
}

}  // namespace msabench::cuda_sm90
