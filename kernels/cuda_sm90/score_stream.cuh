// SPDX-License-Identifier: Apache-2.0
// Scores of blocks for few query tokens, at the pace at which memory gives keys: each is read once for all rows (token,
// head) of its sequence.
//
// The blocks of all sequences are numbered one after the other. One warp of a thread block brings blocks to a ring in
// shared memory by the copy engine and writes their scores; eight warps multiply, 16 keys of each block. Keys are the
// rows of the products and queries their columns, so that eight queries cost no more than there are.
//
// Which blocks are whose: the first few of each thread block are known from the start. Memory doesn't serve all
// multiprocessors alike, so the others are handed out as they are asked for.
#pragma once

#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda_sm90/bulk_copies.cuh"
#include "kernels/cuda_sm90/decode_rows.cuh"

namespace msabench::cuda_sm90 {

struct score_stream_call {
  index_call index;
  float* scores;
  std::int64_t head_stride, row_stride;
  bool whole_rows;  ///< -infinity past the visible blocks as well
  int page_blocks;  ///< of a page
  // 0 when the kernel before is done; nullptr if there is none.
  std::uint32_t* handed;  ///< blocks handed out beyond the first ones; nullptr: each thread block has every so-manieth
  std::uint32_t* done;    ///< [sequences] blocks whose scores are there; nullptr = not wanted
};

/// A block of keys and the rows that it is multiplied with.
struct stream_block {
  std::int32_t first_row;   ///< the sequence's first token
  std::int32_t tokens;      ///< 0: no block, and none after it
  std::int32_t first_sees;  ///< keys that the first token sees
  std::int32_t visible;     ///< keys of the sequence that any of them sees
  std::int32_t block;       ///< of the sequence
  std::int32_t sequence;
};

template <class T, int octets_, int stages_>
struct stream_shape {
  using value = T;
  static constexpr int octets = octets_, rows = 8 * octets;
  static constexpr int parts = (octets + 3) / 4,
                       part_octets = octets / parts;                 ///< whose queries registers have room for
  static constexpr int warps = 8, warp_keys = decode_block / warps;  ///< of those that multiply
  static constexpr int threads = 32 * (warps + 1), stages = stages_;
  static constexpr int first_blocks =
      8;  ///< of a thread block; those that have no stage yet go to the second-level cache
  static constexpr int width = 128, pieces = width / cuda::piece_elements, groups = pieces / 4;
  static constexpr int row_bytes = width * 2;
  /// Thread blocks on a multiprocessor: one, and where registers are enough, room for the kernel that comes next.
  static constexpr int resident = octets <= 2 ? 2 : 1;
  static_assert(warp_keys == 16);

  struct memory {
    alignas(128) uint4 ring[stages][decode_block * pieces];
    float best[stages][warps][rows];  ///< products of a warp's keys
    stream_block blocks[stages];
    barrier full[stages], empty[stages];
  };
};

/// From the number of a block to its sequence. Numbers that are asked for rise. Sequences are in the lanes of a warp, 32
/// at a time.
class block_finder {
 public:
  __device__ explicit block_finder(const index_call& c) : rows_(c.rows), most_keys_(c.max_blocks * decode_block) {
    load();
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
        found = {first, tokens, length - tokens + 1, min(length, most_keys_), number - (end - blocks), base_ + at};
        asks = false;
      }
      if (base_ + 32 >= rows_.batch || !__any_sync(cuda::all_lanes, asks)) return found;
      before_ = __shfl_sync(cuda::all_lanes, end_, 31);
      base_ += 32;
      load();
    }
  }

 private:
  __device__ void load() {
    const int lane = threadIdx.x % 32, batch = static_cast<int>(rows_.batch);
    const int of = min(base_ + lane, batch - 1);
    // All at once, not one after the other.
    const int after = rows_.cu_seqlens_q[of + 1];
    first_ = rows_.cu_seqlens_q[of];
    length_ = rows_.kv_lens[of];
    tokens_ = base_ + lane < batch ? after - first_ : 0;
    // What lies behind the last column of scores is cut off, as keys_seen does.
    blocks_ = tokens_ > 0 ? (max(0, min(length_, most_keys_)) + decode_block - 1) / decode_block : 0;
    int with_own = blocks_;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int left = __shfl_up_sync(cuda::all_lanes, with_own, distance);
      if (lane >= distance) with_own += left;
    }
    end_ = before_ + with_own;
  }

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
  __device__ const char* address(int origin, int block) const {
    const bool paged = keys_.block_table != nullptr;
    const int behind = paged ? (page_blocks_ == 1 ? 0 : block % page_blocks_) : block;  // blocks
    return keys_.data + (origin * (paged ? keys_.page_stride : keys_.token_stride) +
                         std::int64_t{behind} * decode_block * keys_.token_stride) *
                            2;
  }

 private:
  const cache& keys_;
  int page_blocks_;
};

/// The warp that brings blocks and writes their scores.
template <class S>
class block_carrier {
 public:
  __device__ block_carrier(const score_stream_call& s, typename S::memory& shared)
      : s_(s), shared_(shared), keys_(s), key_bytes_(s.index.keys.token_stride * 2), policy_(read_once()) {}

  __device__ void run() {
    const int lane = threadIdx.x % 32, turn = static_cast<int>(gridDim.x);
    const int number = static_cast<int>(blockIdx.x) + lane * turn;
    const bool asks = lane < S::first_blocks;
    // If all sequences are as long as they can be, this is where it lies; so the lengths need not be waited for first.
    const index_call& c = s_.index;
    const int columns = static_cast<int>(c.max_blocks), sequence = number / columns,
              block = number - sequence * columns;
    const bool is_guessed = asks && sequence < c.rows.batch && keys_.has_origin(block);
    const int guess = is_guessed ? keys_.origin(sequence, block) : 0;
    block_finder finder(c);
    const stream_block mine = finder.find(number, asks);
    int origin = guess;
    if (mine.tokens > 0 && !(is_guessed && mine.sequence == sequence && mine.block == block))
      origin = keys_.origin(mine.sequence, mine.block);
    if (lane < S::stages)
      start(lane, mine, origin);
    else
      bring_closer(mine, origin);
    prefetch_queries(mine);
    __syncwarp();

    // The one after those, whose place is looked up while others are on their way.
    cuda::wait_for_previous();
    cuda::let_next_begin();  // which may read `done`
    int in_turn = static_cast<int>(blockIdx.x) + S::first_blocks * turn;
    const auto claim = [&] {
      if (s_.handed != nullptr) return lane == 0 ? static_cast<int>(atomicAdd(s_.handed, 1u)) : 0;
      in_turn += turn;
      return in_turn - turn;
    };
    const int handed_from = s_.handed != nullptr ? S::first_blocks * turn : 0;
    stream_block ahead{};
    int ahead_origin = 0, claimed = claim();
    const auto look_ahead = [&] {
      const int next = __shfl_sync(cuda::all_lanes, claimed, 0) + handed_from, before = ahead.first_row;
      ahead = finder.find(next, true);
      if (ahead.tokens == 0) return;
      claimed = claim();
      ahead_origin = keys_.origin(ahead.sequence, ahead.block);
      if (ahead.first_row != before) prefetch_queries(ahead);
    };
    look_ahead();

    ring_place<S::stages> place;
    int written = -1;  // the sequence of the block before
#pragma unroll 1
    for (int next = S::stages;; ++next, place.next()) {
      const stream_block block = shared_.blocks[place.stage];
      if (block.tokens != 0) wait_for(&shared_.empty[place.stage], place.parity);
      // Not at once: its scores have to be in memory.
      if (s_.done != nullptr && written >= 0 && lane == 0) add_one(s_.done + written);
      if (block.tokens == 0) return;
      written = block.sequence;
      write_scores(block, shared_.best[place.stage]);
      __syncwarp();
      if (next < S::first_blocks) {
        if (lane == next) start(place.stage, mine, origin);
      } else {
        if (lane == 0) start(place.stage, ahead, ahead_origin);
        if (ahead.tokens > 0) look_ahead();
      }
      __syncwarp();
    }
  }

 private:
  __device__ int keys_of(const stream_block& b) const { return min(decode_block, b.visible - b.block * decode_block); }

  /// By one lane.
  __device__ void start(int stage, const stream_block& b, int origin) {
    barrier* const full = &shared_.full[stage];
    shared_.blocks[stage] = b;
    if (b.tokens == 0) return arrive(full);
    const int keys = keys_of(b);
    const char* const from = keys_.address(origin, b.block);
    uint4* const to = shared_.ring[stage];
    arrive_expecting(full, keys * S::row_bytes);
    if (key_bytes_ == S::row_bytes) return copy_bytes(to, from, keys * S::row_bytes, full, policy_);
#pragma unroll 1
    for (int key = 0; key < keys; ++key)
      copy_bytes(to + key * S::pieces, from + key * key_bytes_, S::row_bytes, full, policy_);
  }

  __device__ void bring_closer(const stream_block& b, int origin) {
    if (b.tokens > 0 && key_bytes_ == S::row_bytes)
      prefetch_bytes(keys_.address(origin, b.block), keys_of(b) * S::row_bytes, policy_);
  }

  /// Of the sequence of lane 0's block.
  __device__ void prefetch_queries(const stream_block& b) const {
    const index_call& c = s_.index;
    const int first = __shfl_sync(cuda::all_lanes, b.first_row, 0), tokens = __shfl_sync(cuda::all_lanes, b.tokens, 0);
    constexpr int lines = S::row_bytes / 128;
    const int line = threadIdx.x % lines;
    for (int row = threadIdx.x % 32 / lines; row < min(tokens * c.heads, S::rows); row += 32 / lines) {
      const int token = row / c.heads, head = row - token * c.heads;
      asm volatile("prefetch.global.L2 [%0];" ::"l"(
          c.q + ((std::int64_t{first} + token) * c.q_row_stride + head * c.q_head_stride) * 2 + line * 128));
    }
  }

  __device__ void write_scores(const stream_block& b, const float (&best)[S::warps][S::rows]) const {
    const int heads = s_.index.heads, rows = min(b.tokens * heads, S::rows / heads * heads);
    const float scale = fabsf(s_.index.scale);
#pragma unroll 1
    for (int row = threadIdx.x % 32; row < rows; row += 32) {
      float most = best[0][row];
#pragma unroll
      for (int warp = 1; warp < S::warps; ++warp) most = fmaxf(most, best[warp][row]);
      const int token = row / heads, head = row - token * heads;
      s_.scores[(std::int64_t{b.first_row} + token) * s_.row_stride + head * s_.head_stride + b.block] =
          most == -CUDART_INF_F ? most : scale * most;
    }
  }

  const score_stream_call& s_;
  typename S::memory& shared_;
  block_keys keys_;
  std::int64_t key_bytes_;
  std::uint64_t policy_;
};

/// What a lane multiplies with: pieces t, t + 4, ... of row g of each octet.
template <class S>
struct stream_queries {
  uint4 pieces[S::part_octets][S::groups];

  __device__ void load(const index_call& c, const stream_block& b, int part) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < S::part_octets; ++n) {
      const int row = 8 * (part * S::part_octets + n) + g, token = row / c.heads, head = row - token * c.heads;
#pragma unroll
      for (int j = 0; j < S::groups; ++j)
        pieces[n][j] =
            token < b.tokens ? cuda::query_piece(c, std::int64_t{b.first_row} + token, head, 4 * j + t) : uint4{};
    }
  }
};

/// Products of a warp's 16 keys with the rows of a part. Added up in the order in which the kernels of cuda do it.
template <class S>
__device__ void multiply_keys(const uint4* keys, const stream_queries<S>& queries,
                              float (&products)[S::part_octets][4]) {
  using T = typename S::value;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  // Rows are a multiple of all banks long: odd ones read the other half of 128 bytes first, and then change both over.
  const bool is_odd = g % 2 != 0;
  const uint4 *const first = keys + g * S::pieces + (is_odd ? 4 : 0) + t, *const other = keys + g * S::pieces +
                                                                                         (is_odd ? 0 : 4) + t;
#pragma unroll
  for (auto& octet : products)
#pragma unroll
    for (float& x : octet) x = 0;
#pragma unroll
  for (int pair = 0; pair < S::groups / 2; ++pair) {
    uint4 k[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 a = first[8 * i * S::pieces + 8 * pair], b = other[8 * i * S::pieces + 8 * pair];
      k[0][i] = {is_odd ? b.x : a.x, is_odd ? b.y : a.y, is_odd ? b.z : a.z, is_odd ? b.w : a.w};
      k[1][i] = {is_odd ? a.x : b.x, is_odd ? a.y : b.y, is_odd ? a.z : b.z, is_odd ? a.w : b.w};
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const cuda::query_operands operands(k[half][0], k[half][1]);
#pragma unroll
      for (int n = 0; n < S::part_octets; ++n) {
        const uint4& q = queries.pieces[n][2 * pair + half];
        cuda::mma<T>(products[n], operands.first, q.x, q.y);
        cuda::mma<T>(products[n], operands.second, q.z, q.w);
      }
    }
  }
}

/// Products of keys that a row does not see become -infinity. `key`: the warp's first; `row`: the part's.
template <class S>
__device__ void hide_unseen(const index_call& c, const stream_block& b, int key, int row,
                            float (&products)[S::part_octets][4]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < S::part_octets; ++n)
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const int sees = cuda::keys_seen(c, b.first_sees, (row + 8 * n + 2 * t + column) / c.heads);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (key + 8 * i + g >= sees) products[n][2 * i + column] = -CUDART_INF_F;
    }
}

/// A warp that multiplies.
template <class S>
__device__ void multiply_blocks(const score_stream_call& s, int warp, typename S::memory& shared) {
  const index_call& c = s.index;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  stream_queries<S> queries;
  int of_row = -1;
#pragma unroll 1
  for (ring_place<S::stages> place;; place.next()) {
    wait_for(&shared.full[place.stage], place.parity);
    const stream_block b = shared.blocks[place.stage];
    if (b.tokens == 0) return;
#pragma unroll 1
    for (int part = 0; part < S::parts; ++part) {
      if (S::parts > 1 || b.first_row != of_row) queries.load(c, b, part);
      float products[S::part_octets][4];
      multiply_keys<S>(shared.ring[place.stage] + warp * S::warp_keys * S::pieces, queries, products);
      const int row = part * S::part_octets * 8;
      if ((b.block + 1) * decode_block > cuda::keys_seen(c, b.first_sees, 0))
        hide_unseen<S>(c, b, b.block * decode_block + warp * S::warp_keys, row, products);
#pragma unroll
      for (int n = 0; n < S::part_octets; ++n) {
        const float even = fmaxf(fmaxf(products[n][0], products[n][2]), -CUDART_INF_F);
        const float odd = fmaxf(fmaxf(products[n][1], products[n][3]), -CUDART_INF_F);
        float most = fmaxf(g % 2 != 0 ? odd : even, __shfl_xor_sync(cuda::all_lanes, g % 2 != 0 ? even : odd, 4));
        most = fmaxf(most, __shfl_xor_sync(cuda::all_lanes, most, 8));
        most = fmaxf(most, __shfl_xor_sync(cuda::all_lanes, most, 16));
        if (g < 2) shared.best[place.stage][warp][row + 8 * n + 2 * t + g] = most;
      }
    }
    of_row = b.first_row;
    __syncwarp();
    if (lane == 0) arrive(&shared.empty[place.stage]);
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
  if (threadIdx.x < 32) {
    if (threadIdx.x < S::stages) {
      make_barrier(&shared.full[threadIdx.x], 1);
      make_barrier(&shared.empty[threadIdx.x], S::warps);
      publish_barriers();
    }
    __syncwarp();
    arrive_at(1, S::threads);
    block_carrier<S>(s, shared).run();
  } else {
    meet(1, S::threads);
    multiply_blocks<S>(s, static_cast<int>(threadIdx.x) / 32 - 1, shared);
  }
  if (s.whole_rows) write_unseen(s);
}

}  // namespace msabench::cuda_sm90
