// SPDX-License-Identifier: Apache-2.0
// Scores of kl: a block of threads for each (piece of a list of readers, tile of 128 keys), whose keys of both branches lie in
// shared memory. Each warp takes 8 tokens at a time and never waits for another: token by token the product of the group's 16
// query heads with all keys of the tile, then that of the 8 index queries. Two kernels, since weights need the normalisers of
// whole rows: the first leaves what the scores of a tile sum up to, the second the differences of weights and what they add.
#include <math_constants.h>

#include "kernels/cuda/kl.cuh"

namespace msabench::cuda {
namespace {

constexpr int warps = 4, threads = warps * warp, batch_tokens = 8, steps = width / 16;
constexpr int key_tiles = kl_tile_keys / 8;  // of a product

template <class T>
using tile = shared_tile<T, width>;

/// Shared memory, in bytes from its start. Rows of weights are a little longer than a tile, so that lanes meet other banks.
constexpr int keys_bytes = kl_tile_keys * width * 2, queries_bytes = kl_heads * width * 2;
constexpr int weights_stride = kl_tile_keys + 8, weights_bytes = batch_tokens * weights_stride * 4;
constexpr int index_keys_at = keys_bytes, queries_at = 2 * keys_bytes, weights_at = queries_at + warps * queries_bytes;
constexpr int scoring_bytes = weights_at, comparing_bytes = weights_at + warps * weights_bytes;

/// 2^x to 2^-22 of itself, and 0 where that is no normal number.
__device__ float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

using scores = float[key_tiles][4];

/// A left operand of 16 rows in registers.
struct left_rows {
  std::uint32_t a[steps][4];
};

/// c [16][128] = rows * keys^T
template <class T>
__device__ void multiply_keys(scores& c, const left_rows& rows, const tile<T>& keys) {
  const lane_address lane = keys.lane_columns();
#pragma unroll
  for (int n = 0; n < key_tiles; ++n)
#pragma unroll
    for (float& x : c[n]) x = 0;
#pragma unroll
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int n = 0; n < key_tiles; n += 2) {
      std::uint32_t b[4];
      keys.right_transposed(b, lane, n * 8, step);
      mma<T>(c[n], rows.a[step], b[0], b[1]);
      mma<T>(c[n + 1], rows.a[step], b[2], b[3]);
    }
}

/// One warp with the readings of a tile of keys.
template <class T>
class tile_reader {
 public:
  __device__ tile_reader(const kl_run& run, const reading& task, int tile_of_block, char* memory)
      : r_(run),
        task_(task),
        tile_(tile_of_block),
        warp_(threadIdx.x / warp),
        keys_(shared_address(memory)),
        index_keys_(shared_address(memory) + index_keys_at),
        queries_(shared_address(memory) + queries_at + warp_ * queries_bytes) {}

  /// By all threads.
  __device__ void load_keys() const {
    const kl_call& c = r_.call;
    const key_rows keys(c.keys, task_.keys.sequence, task_.head), index_keys(c.index_keys, task_.keys.sequence, 0);
    for (int i = threadIdx.x; i < kl_tile_keys * tile<T>::chunks; i += threads) {
      const int key = i / tile<T>::chunks;
      const bool there = key < task_.keys.count;
      const std::int64_t j = task_.keys.first + (there ? key : 0);
      keys_.copy(key, i % tile<T>::chunks, keys.at(j), c.d, there);
      index_keys_.copy(key, i % tile<T>::chunks, index_keys.at(j), c.di, there);
    }
    commit_copies();
    wait_copies<0>();
    __syncthreads();
  }

  /// use_token(number in the batch, scores) for each token, then use_batch(first token, scores of the index branch) for each
  /// 8 of them, a row each. The next token's queries are on their way while one is used.
  template <class UseToken, class UseBatch>
  __device__ void read(const UseToken& use_token, const UseBatch& use_batch) {
    int i = warp_ * batch_tokens;
    load_queries(i);
    while (i < task_.tokens) {
      const int first = i;
      const left_rows index_queries = index_rows(first);
      scores c;
      for (int token = 0; token < batch_tokens && first + token < task_.tokens; ++token) {
        left_rows rows;
        wait_copies<0>();
        __syncwarp();
        const lane_address lane = queries_.lane_rows();
#pragma unroll
        for (int step = 0; step < steps; ++step) queries_.left(rows.a[step], lane, 0, step);
        __syncwarp();
        const bool last = token == batch_tokens - 1;
        load_queries(last ? first + warps * batch_tokens : first + token + 1);
        multiply_keys<T>(c, rows, keys_);
        use_token(first, token, c);
      }
      __syncwarp();
      multiply_keys<T>(c, index_queries, index_keys_);
      use_batch(first, c);
      __syncwarp();
      i += warps * batch_tokens;
    }
    wait_copies<0>();
  }

  /// Keys of the tile, the first ones, that token i sees; 0 behind the last token.
  __device__ int seen(int i) const {
    if (i >= task_.tokens) return 0;
    const std::int64_t end = r_.call.rows.cu_seqlens_q[task_.keys.sequence + 1];
    const std::int64_t seen = r_.call.rows.kv_lens[task_.keys.sequence] - end + task_.token(i) + 1 - task_.keys.first;
    return static_cast<int>(seen < 0 ? 0 : seen < task_.keys.count ? seen : task_.keys.count);
  }
  __device__ std::int64_t reading_at(int i) const { return r_.reading_at(task_, i, tile_); }
  __device__ const tile<T>& index_keys() const { return index_keys_; }

 private:
  /// Of token i, if there is one.
  __device__ void load_queries(int i) const {
    const kl_call& c = r_.call;
    const bool there = i < task_.tokens;
    const std::int64_t row = there ? task_.token(i) : 0;
    constexpr int rows = warp / tile<T>::chunks;
    const int lane = threadIdx.x % warp, chunk = lane % tile<T>::chunks, first = lane / tile<T>::chunks;
#pragma unroll
    for (int member = first; member < kl_heads; member += rows) {
      const bool present = there && member < c.group;
      queries_.copy(member, chunk, c.q.at(row, task_.head * c.group + (present ? member : 0)), c.d, present);
    }
    commit_copies();
  }

  /// Index queries of 8 tokens; the lower rows of the operand are 0.
  __device__ left_rows index_rows(int first) const {
    const kl_call& c = r_.call;
    const lane_place at;
    const bool there = first + at.g < task_.tokens;
    const char* const row = c.q_idx.at(there ? task_.token(first + at.g) : 0, task_.head);
    left_rows rows;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      rows.a[step][1] = rows.a[step][3] = 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = step * 16 + half * 8 + at.t * 2;
        rows.a[step][half * 2] = there && column < c.di ? *reinterpret_cast<const std::uint32_t*>(row + column * 2) : 0;
      }
    }
    return rows;
  }

  const kl_run& r_;
  const reading& task_;
  int tile_, warp_;
  tile<T> keys_, index_keys_, queries_;
};

/// What row `half` of a lane's part of the scores sums up to, over the keys that are seen.
__device__ normaliser sum_up(scores& c, int half, int seen, float scale) {
  const lane_place at;
  normaliser n{-CUDART_INF_F, 0};
#pragma unroll
  for (int i = 0; i < key_tiles * 2; ++i) {
    float& x = c[i / 2][half * 2 + i % 2];
    x = i / 2 * 8 + at.t * 2 + i % 2 < seen ? x * scale : -CUDART_INF_F;
    n.most = fmaxf(n.most, x);
  }
  for (int other = 1; other < 4; other *= 2) n.most = fmaxf(n.most, __shfl_xor_sync(~0u, n.most, other));
  const float reference = n.most == -CUDART_INF_F ? 0.0f : n.most;
#pragma unroll
  for (int i = 0; i < key_tiles * 2; ++i) n.sum += exp2_of(c[i / 2][half * 2 + i % 2] - reference);
  for (int other = 1; other < 4; other *= 2) n.sum += __shfl_xor_sync(~0u, n.sum, other);
  return n;
}

template <class T>
__global__ void __launch_bounds__(threads, 2) score(kl_run r) {
  extern __shared__ __align__(256) char memory[];
  const lane_place at;
  const float scale = r.call.scale * log2e, index_scale = r.call.index_scale * log2e;
  const std::int64_t items = r.readers.all_pieces() * r.tiles;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int tile_of_block = static_cast<int>(item % r.tiles);
    const reading task = r.readers.at(item / r.tiles, tile_of_block, kl_tile_keys);
    if (task.tokens == 0) continue;  // a tile behind the last key has readings too, of nothing
    tile_reader<T> reader(r, task, tile_of_block, memory);
    reader.load_keys();
    reader.read(
        [&](int first, int token, scores& c) {
          const int seen = reader.seen(first + token);
          normaliser* const to = r.parts + reader.reading_at(first + token) * kl_rows;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const normaliser found = sum_up(c, half, seen, scale);
            if (at.t == 0) to[at.g + half * 8] = found;
          }
        },
        [&](int first, scores& c) {
          const normaliser found = sum_up(c, 0, reader.seen(first + at.g), index_scale);
          if (at.t == 0 && first + at.g < task.tokens)
            r.parts[reader.reading_at(first + at.g) * kl_rows + kl_heads] = found;
        });
    __syncthreads();  // the next item uses the same memory
  }
}

/// Half of the sums of lanes that differ in the bit `step` of g, of 4 * step pairs: each keeps those that its bit says.
template <int step>
__device__ void give_half(float (&x)[key_tiles * 2]) {
  const bool upper = (lane_place().g & step) != 0;
#pragma unroll
  for (int i = 0; i < step * 4; ++i) {
    const float given = upper ? x[i] : x[i + step * 4];
    x[i] = (upper ? x[i + step * 4] : x[i]) + __shfl_xor_sync(~0u, given, step * 4);
  }
}

/// Sums of a product over its rows, 16 heads, into a row of weights. The 32 columns of lanes with the same t are spread over
/// them.
__device__ void sum_rows(const scores& c, float* weights) {
  const lane_place at;
  float x[key_tiles * 2];
#pragma unroll
  for (int i = 0; i < key_tiles * 2; ++i) x[i] = c[i / 2][i % 2] + c[i / 2][i % 2 + 2];
  give_half<4>(x);
  give_half<2>(x);
  give_half<1>(x);
#pragma unroll
  for (int n = 0; n < 2; ++n)
    *reinterpret_cast<float2*>(weights + (at.g * 2 + n) * 8 + at.t * 2) = make_float2(x[n * 2], x[n * 2 + 1]);
}

/// Parts of the differences of a row in the lane's order.
__device__ void store_parts(const std::uint32_t (&pairs)[key_tiles], std::uint16_t* to) {
  auto* const lines = reinterpret_cast<uint4*>(to);
#pragma unroll
  for (int i = 0; i < key_tiles / 4; ++i)
    lines[i] = make_uint4(pairs[i * 4], pairs[i * 4 + 1], pairs[i * 4 + 2], pairs[i * 4 + 3]);
}

template <class T>
__global__ void __launch_bounds__(threads, 2) compare(kl_run r) {
  extern __shared__ __align__(256) char memory[];
  const lane_place at;
  const float scale = r.call.scale * log2e, index_scale = r.call.index_scale * log2e;
  const float share = 1 / static_cast<float>(r.call.group);
  auto* const weights = reinterpret_cast<float*>(memory + weights_at + threadIdx.x / warp * weights_bytes);
  const std::int64_t items = r.readers.all_pieces() * r.tiles;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int tile_of_block = static_cast<int>(item % r.tiles);
    const reading task = r.readers.at(item / r.tiles, tile_of_block, kl_tile_keys);
    if (task.tokens == 0) continue;  // a tile behind the last key has readings too, of nothing
    tile_reader<T> reader(r, task, tile_of_block, memory);
    reader.load_keys();
    reader.read(
        [&](int first, int token, scores& c) {
          const float* const lse = r.lse_of(task.token(first + token), task.head);
          const float own[2] = {lse[at.g], lse[at.g + 8]};
#pragma unroll
          for (int n = 0; n < key_tiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) c[n][i] = exp2_of(c[n][i] * scale - own[i / 2]);
          sum_rows(c, weights + token * weights_stride);
        },
        [&](int first, scores& c) {
          const bool there = first + at.g < task.tokens;
          const int seen = reader.seen(first + at.g);
          const float lse = there ? r.lse_of(task.token(first + at.g), task.head)[kl_heads] : 0.0f;
          const std::int64_t to = there ? reader.reading_at(first + at.g) : 0;
          float loss = 0;
          std::uint32_t high[key_tiles], low[key_tiles];
#pragma unroll
          for (int n = 0; n < key_tiles; ++n) {
            const float2 pair = *reinterpret_cast<const float2*>(weights + at.g * weights_stride + n * 8 + at.t * 2);
            const float teacher[2] = {pair.x * share, pair.y * share};
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const bool sees = n * 8 + at.t * 2 + i < seen;
              const float exponent = c[n][i] * index_scale - lse;
              if (sees && teacher[i] > 0) loss += teacher[i] * (log2f(teacher[i]) - exponent);
              const split_value<T> parts(sees ? exp2_of(exponent) - teacher[i] : 0.0f);
              c[n][i] = parts.high;
              c[n][i + 2] = parts.low;  // one of the rows that no token has
            }
            high[n] = storage<T>::pack(c[n][0], c[n][1]);
            low[n] = storage<T>::pack(c[n][2], c[n][3]);
          }
          double sum = loss;
          for (int other = 1; other < 4; other *= 2) sum += __shfl_xor_sync(~0u, sum, other);
          if (there) {
            if (at.t == 0) r.loss_parts[to] = sum;
            std::uint16_t* const line = r.differences + to * 2 * kl_tile_keys + at.t * key_tiles * 2;
            store_parts(high, line);
            store_parts(low, line + kl_tile_keys);
          }
          float dq[width / 8][4] = {};
          add_products<T>(dq, c, reader.index_keys(), 0);
          if (!there) return;
#pragma unroll
          for (int n = 0; n < width / 8; ++n)
            *reinterpret_cast<float2*>(r.dq_parts + to * width + n * 8 + at.t * 2) =
                make_float2(dq[n][0] + dq[n][2], dq[n][1] + dq[n][3]);
        });
    __syncthreads();  // the next item uses the same memory
  }
}

}  // namespace

template <class T>
void score_readings(const kl_run& r, cudaStream_t stream) {
  allow_shared_memory(score<T>, scoring_bytes);
  score<T><<<grid_blocks(r.readers.most_pieces() * r.tiles, 1, 64), threads, scoring_bytes, stream>>>(r);
}

template <class T>
void compare_readings(const kl_run& r, cudaStream_t stream) {
  allow_shared_memory(compare<T>, comparing_bytes);
  compare<T><<<grid_blocks(r.readers.most_pieces() * r.tiles, 1, 64), threads, comparing_bytes, stream>>>(r);
}

template void score_readings<__nv_bfloat16>(const kl_run&, cudaStream_t);
template void score_readings<__half>(const kl_run&, cudaStream_t);
template void compare_readings<__nv_bfloat16>(const kl_run&, cudaStream_t);
template void compare_readings<__half>(const kl_run&, cudaStream_t);

}  // namespace msabench::cuda
