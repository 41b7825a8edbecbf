// SPDX-License-Identifier: Apache-2.0
// dk_idx: a block of threads for each (piece of a list of readers, tile of 128 keys), which makes the differences of weights
// again from the normalisers. Keys of both branches stay in shared memory, 16 of them for each warp; tokens come by, 16 at a
// time, their query heads in steps of 32 rows. What the pieces and heads of a block add up to is summed in a kernel of its
// own, in one order.
#include <math_constants.h>

#include "kernels/cuda/kl.cuh"

namespace msabench::cuda {
namespace {

constexpr int warps = 8, threads = warps * warp, step_rows = 32, batch_tokens = 16;
static_assert(kl_tile_keys == warps * 16);

template <class T>
using tile = shared_tile<T, width>;

/// What a batch has of each token beside its tile.
struct batch_token {
  float lse_idx;
  int seen;  ///< keys of the tile, the first ones, that the token sees
};

/// Shared memory, in bytes from its start.
constexpr int keys_bytes = kl_tile_keys * width * 2, step_bytes = step_rows * width * 2;
constexpr int batch_bytes = batch_tokens * width * 2;
constexpr int index_keys_at = keys_bytes, steps_at = 2 * keys_bytes, batches_at = steps_at + 2 * step_bytes;
constexpr int lse_at = batches_at + 2 * batch_bytes, tokens_at = lse_at + 2 * step_rows * 4;
constexpr int shared_bytes = tokens_at + 2 * batch_tokens * static_cast<int>(sizeof(batch_token));

template <class T>
__global__ void __launch_bounds__(threads, 1) add_differences(kl_run r, int tiles) {
  extern __shared__ __align__(256) char memory[];
  const kl_call& c = r.call;
  const std::uint32_t base = shared_address(memory);
  const int w = threadIdx.x / warp, own_keys = w * 16;
  const lane_place at;
  const tile<T> keys(base), index_keys(base + index_keys_at);
  const float scale = c.scale * log2e, index_scale = c.index_scale * log2e, share = 1 / static_cast<float>(c.group);
  // A token has one or two tiles of 8 columns in a product.
  const int token_rows = c.group > 8 ? 16 : 8, step_tokens = step_rows / token_rows;
  const int steps_of_batch = batch_tokens / step_tokens;

  const std::int64_t items = r.readers.all_pieces() * tiles;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const reading task = r.readers.at(item / tiles, static_cast<int>(item % tiles), kl_tile_keys);
    if (task.keys.count == 0) continue;
    const key_rows all_keys(c.keys, task.keys.sequence, task.head), all_index_keys(c.index_keys, task.keys.sequence, 0);
    for (int i = threadIdx.x; i < kl_tile_keys * tile<T>::chunks; i += threads) {
      const int key = i / tile<T>::chunks;
      const bool there = key < task.keys.count;
      const std::int64_t j = task.keys.first + (there ? key : 0);
      keys.copy(key, i % tile<T>::chunks, all_keys.at(j), c.d, there);
      index_keys.copy(key, i % tile<T>::chunks, all_index_keys.at(j), c.di, there);
    }
    const std::int64_t end = c.rows.cu_seqlens_q[task.keys.sequence + 1], length = c.rows.kv_lens[task.keys.sequence];

    // A thread has an eighth of the chunks of one row of a step, and one chunk of a batch.
    constexpr int sharers = threads / step_rows;
    static_assert(threads == batch_tokens * tile<T>::chunks);
    const int own_row = threadIdx.x / sharers, own_share = threadIdx.x % sharers;
    const auto load = [&](int step) {
      const int batch = step / steps_of_batch, first = batch * batch_tokens + step % steps_of_batch * step_tokens;
      const tile<T> queries(base + steps_at + step % 2 * step_bytes);
      const int i = first + own_row / token_rows, member = own_row % token_rows;
      const bool there = i < task.tokens && member < c.group;
      const std::int64_t row = there ? task.token(i) : 0;
      const std::int32_t head = task.head * c.group + (there ? member : 0);
#pragma unroll
      for (int chunk = own_share; chunk < tile<T>::chunks; chunk += sharers)
        queries.copy(own_row, chunk, c.q.at(row, head), c.d, there);
      // Rows without a head weigh nothing.
      if (own_share == 0)
        reinterpret_cast<float*>(memory + lse_at)[step % 2 * step_rows + own_row] =
            there ? r.lse_of(row, head) : CUDART_INF_F;
      if (step % steps_of_batch == 0) {
        const tile<T> index_queries(base + batches_at + batch % 2 * batch_bytes);
        const int own_token = threadIdx.x / tile<T>::chunks, chunk = threadIdx.x % tile<T>::chunks;
        const bool present = first + own_token < task.tokens;
        const std::int64_t token = present ? task.token(first + own_token) : 0;
        index_queries.copy(own_token, chunk, c.q_idx.at(token, task.head), c.di, present);
        if (chunk == 0) {
          const std::int64_t seen = length - end + token + 1 - task.keys.first;
          reinterpret_cast<batch_token*>(memory + tokens_at)[batch % 2 * batch_tokens + own_token] = {
              present ? r.lse_idx[token * c.kv_heads + task.head] : 0.0f,
              present ? static_cast<int>(seen < task.keys.count ? seen : task.keys.count) : 0};
        }
      }
      commit_copies();
    };

    const int steps = (task.tokens + batch_tokens - 1) / batch_tokens * steps_of_batch;
    float dk[width / 8][4] = {}, teacher[2][4] = {};  // of 16 keys: [keys][columns], [keys][tokens of the batch]
    load(0);
    for (int step = 0; step < steps; ++step) {
      load(step + 1);
      wait_copies<1>();
      __syncthreads();
      if (own_keys < task.keys.count) {
        const tile<T> queries(base + steps_at + step % 2 * step_bytes);
        const float* const lse = reinterpret_cast<const float*>(memory + lse_at) + step % 2 * step_rows;
        float weights[step_rows / 8][4], sums[step_rows / 8][2];  // sums of 8 rows, for keys g and g + 8
        multiply_rows(weights, keys, own_keys, queries, 0);
#pragma unroll
        for (int n = 0; n < step_rows / 8; ++n) {
          const float low = lse[n * 8 + at.t * 2], high = lse[n * 8 + at.t * 2 + 1];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float sum = exp2f(weights[n][half * 2] * scale - low) + exp2f(weights[n][half * 2 + 1] * scale - high);
            for (int other = 1; other < 4; other *= 2) sum += __shfl_xor_sync(~0u, sum, other);
            sums[n][half] = sum;
          }
        }
        // Of a token of the step to the lanes that have it as a column of the batch.
        const int inside = step % steps_of_batch;
#pragma unroll
        for (int n = 0; n < step_rows / 8; ++n) {
          if (token_rows == 16 && n % 2 == 1) continue;
          const int token = inside * step_tokens + (token_rows == 16 ? n / 2 : n);
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const int half = i / 2 % 2;
            if (token != i / 4 * 8 + at.t * 2 + i % 2) continue;
            teacher[i / 4][i % 4] = sums[n][half] + (token_rows == 16 ? sums[n | 1][half] : 0.0f);
          }
        }
        if (inside == steps_of_batch - 1) {
          const int batch = step / steps_of_batch;
          const tile<T> index_queries(base + batches_at + batch % 2 * batch_bytes);
          const auto* const tokens =
              reinterpret_cast<const batch_token*>(memory + tokens_at) + batch % 2 * batch_tokens;
          float differences[2][4], rest[2][4];
          multiply_rows(differences, index_keys, own_keys, index_queries, 0);
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const batch_token token = tokens[i / 4 * 8 + at.t * 2 + i % 2];
            const bool sees = own_keys + at.g + i / 2 % 2 * 8 < token.seen;
            const float weight = exp2f(differences[i / 4][i % 4] * index_scale - token.lse_idx);
            const split_value<T> parts(sees ? weight - teacher[i / 4][i % 4] * share : 0.0f);
            differences[i / 4][i % 4] = parts.high;
            rest[i / 4][i % 4] = parts.low;
          }
          add_products<T>(dk, differences, index_queries, 0);
          add_products<T>(dk, rest, index_queries, 0);
        }
      }
      __syncthreads();  // the step after the next one comes to the same place
    }
    wait_copies<0>();
    __syncthreads();

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = own_keys + at.g + half * 8;
      if (key >= task.keys.count) continue;
      float* const line = r.sums + (item * kl_tile_keys + key) * width;
#pragma unroll
      for (int n = 0; n < width / 8; ++n)
        *reinterpret_cast<float2*>(line + n * 8 + at.t * 2) = make_float2(dk[n][half * 2], dk[n][half * 2 + 1]);
    }
  }
}

/// Sums of keys over heads and pieces, and the gradients that are 0. A block for each (block number, tile of keys).
__global__ void __launch_bounds__(threads) store_index_key_gradients(kl_run r, int tiles) {
  const kl_call& c = r.call;
  const float factor = r.gradient_factor() / split_value<__half>::factor;
  for (std::int64_t item = blockIdx.x; item < r.readers.blocks * tiles; item += gridDim.x) {
    const std::int64_t number = item / tiles;
    const auto tile_of_block = static_cast<int>(item % tiles);
    const reading task = r.readers.at(r.readers.first_piece(0, number), tile_of_block, kl_tile_keys);
    for (int i = threadIdx.x; i < task.keys.count * width / 2; i += threads) {
      const int key = i / (width / 2), column = i % (width / 2) * 2;
      if (column >= c.di) continue;
      float x = 0, y = 0;
      for (std::int32_t head = 0; head < c.kv_heads; ++head) {
        const std::int64_t first = r.readers.first_piece(head, number);
        for (std::int64_t piece = 0; piece < r.readers.pieces_of(head, number); ++piece) {
          const std::int64_t at = ((first + piece) * tiles + tile_of_block) * kl_tile_keys + key;
          const float2 sums = *reinterpret_cast<const float2*>(r.sums + at * width + column);
          x += sums.x;
          y += sums.y;
        }
      }
      store_pair(c.dk_idx.at(task.first_key + key, 0, c.gradient_type), c.gradient_type, column, x * factor,
                 y * factor);
    }
    if (c.dk.data == nullptr) continue;
    const int pairs = c.d / 2;
    for (int i = threadIdx.x; i < task.keys.count * c.kv_heads * pairs; i += threads)
      store_pair(c.dk.at(task.first_key + i / pairs / c.kv_heads, i / pairs % c.kv_heads, c.gradient_type),
                 c.gradient_type, i % pairs * 2, 0, 0);
  }
}

}  // namespace

template <class T>
void add_index_key_gradients(const kl_run& r, cudaStream_t stream) {
  allow_shared_memory(add_differences<T>, shared_bytes);
  const auto tiles = static_cast<int>(ceil_div(r.block, kl_tile_keys));
  add_differences<T><<<grid_blocks(r.readers.most_pieces() * tiles, 1, 64), threads, shared_bytes, stream>>>(r, tiles);
  store_index_key_gradients<<<grid_blocks(r.readers.blocks * tiles, 1, 64), threads, 0, stream>>>(r, tiles);
}

template void add_index_key_gradients<__nv_bfloat16>(const kl_run&, cudaStream_t);
template void add_index_key_gradients<__half>(const kl_run&, cudaStream_t);

}  // namespace msabench::cuda
