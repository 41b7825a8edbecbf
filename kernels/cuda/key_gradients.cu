// SPDX-License-Identifier: Apache-2.0
// dk and dv: a block of threads for each (piece of a list of readers, tile of 128 keys). Keys and values stay in shared
// memory, 16 of them for each warp; the rows (token, query head) that read them come by, 32 at a time, the next ones on
// their way while these are computed. A warp has the transposed products, [keys][rows], so that P and dS are left operands of
// the sums without leaving their lanes.
#include "kernels/cuda/backward.cuh"

namespace msabench::cuda {
namespace {

constexpr int warps = 8, threads = warps * warp, tile_keys = warps * 16, step_rows = 32;

template <class T>
using tile = shared_tile<T, width>;

/// What a step has of each row beside its tiles.
struct step_row {
  row_sums sums;
  int seen;  ///< keys of the tile, the first ones, that the row sees
};

/// Shared memory, in bytes from its start.
constexpr int keys_bytes = tile_keys * width * 2, step_bytes = step_rows * width * 2;
constexpr int keys_at = 0, values_at = keys_bytes, steps_at = 2 * keys_bytes;
constexpr int rows_at = steps_at + 2 * 2 * step_bytes;
constexpr int shared_bytes = rows_at + 2 * step_rows * static_cast<int>(sizeof(step_row));

template <class T>
__global__ void __launch_bounds__(threads, 1) key_gradients(backward_run r, int tiles) {
  extern __shared__ __align__(256) char memory[];
  const backward_call& c = r.call;
  const std::uint32_t base = shared_address(memory);
  const int w = threadIdx.x / warp, own_keys = w * 16;
  const lane_place at;
  const tile<T> keys(base + keys_at), values(base + values_at);

  const std::int64_t items = r.readers.all_pieces() * tiles;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const reading task = r.readers.at(item / tiles, static_cast<int>(item % tiles), tile_keys);
    if (task.keys.count == 0) continue;
    const key_rows all_keys(c.keys, task.keys.sequence, task.head);
    const key_rows all_values(c.values, task.keys.sequence, task.head);
    for (int i = threadIdx.x; i < tile_keys * tile<T>::chunks; i += threads) {
      const int key = i / tile<T>::chunks;
      const bool there = key < task.keys.count;
      const std::int64_t j = task.keys.first + (there ? key : 0);
      keys.copy(key, i % tile<T>::chunks, all_keys.at(j), c.d, there);
      values.copy(key, i % tile<T>::chunks, all_values.at(j), c.d, there);
    }

    // Rows are (token, member of the group), one after the other. A thread has a quarter of the chunks of one row.
    const int rows = task.tokens * c.group, steps = (rows + step_rows - 1) / step_rows;
    const std::int64_t end = c.rows.cu_seqlens_q[task.keys.sequence + 1], length = c.rows.kv_lens[task.keys.sequence];
    constexpr int sharers = threads / step_rows;
    const int own_row = threadIdx.x / sharers, share = threadIdx.x % sharers;
    const auto token_at = [&](int step) {
      const int i = step * step_rows + own_row;
      return i < rows ? task.token(i / c.group) : -1;
    };
    std::int64_t token = token_at(0);  // of the step that is loaded next
    const auto load = [&](int step) {
      const int buffer = step % 2;
      const tile<T> queries(base + steps_at + buffer * 2 * step_bytes);
      const tile<T> d_out(base + steps_at + (buffer * 2 + 1) * step_bytes);
      const bool there = token >= 0;
      const std::int64_t row = there ? token : 0;
      const std::int32_t head = task.head * c.group + (step * step_rows + own_row) % c.group;
#pragma unroll
      for (int chunk = share; chunk < tile<T>::chunks; chunk += sharers) {
        queries.copy(own_row, chunk, c.q.at(row, head), c.d, there);
        d_out.copy(own_row, chunk, c.d_out.at(row, head), c.d, there);
      }
      commit_copies();
      if (share == 0) {
        const std::int64_t seen = length - end + row + 1 - task.keys.first;
        auto* const to = reinterpret_cast<step_row*>(memory + rows_at) + buffer * step_rows + own_row;
        *to = {there ? r.sums_of(row, head) : row_sums{0, 0},
               there ? static_cast<int>(seen < task.keys.count ? seen : task.keys.count) : 0};
      }
      token = token_at(step + 1);
    };

    float dk[width / 8][4] = {}, dv[width / 8][4] = {};
    load(0);
    for (int step = 0; step < steps; ++step) {
      wait_copies<0>();
      __syncthreads();  // all have this step, and are done with the one before
      load(step + 1);
      if (own_keys < task.keys.count) {
        const int buffer = step % 2;
        const tile<T> queries(base + steps_at + buffer * 2 * step_bytes);
        const tile<T> d_out(base + steps_at + (buffer * 2 + 1) * step_bytes);
        const auto* const info = reinterpret_cast<const step_row*>(memory + rows_at) + buffer * step_rows;
        float weights[step_rows / 8][4], ds[step_rows / 8][4];
        multiply_rows(weights, keys, own_keys, queries, 0);
        multiply_rows(ds, values, own_keys, d_out, 0);
#pragma unroll
        for (int n = 0; n < step_rows / 8; ++n)
#pragma unroll
          for (int column = 0; column < 2; ++column) {
            const step_row row = info[n * 8 + at.t * 2 + column];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              float &weight = weights[n][half * 2 + column], &d_weight = ds[n][half * 2 + column];
              const bool sees = own_keys + at.g + half * 8 < row.seen;
              weight = sees ? exp2f(weight * (c.scale * log2e) - row.sums.lse) : 0.0f;
              d_weight = sees ? weight * (d_weight - row.sums.delta) : 0.0f;
            }
          }
        add_products<T>(dv, weights, d_out, 0);
        add_products<T>(dk, ds, queries, 0);
      }
    }
    wait_copies<0>();
    __syncthreads();  // the next item uses the same memory

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = own_keys + at.g + half * 8;
      if (key >= task.keys.count) continue;
      char* const dk_line = c.dk.at(task.first_key + key, task.head, c.gradient_type);
      char* const dv_line = c.dv.at(task.first_key + key, task.head, c.gradient_type);
      float* const sums = r.pieces.at(std::int64_t{task.slot} * tiles + item % tiles) + key * width;
#pragma unroll
      for (int n = 0; n < width / 8; ++n) {
        const int column = n * 8 + at.t * 2;
        if (column >= c.d) continue;
        const float2 k = make_float2(dk[n][half * 2], dk[n][half * 2 + 1]);
        const float2 v = make_float2(dv[n][half * 2], dv[n][half * 2 + 1]);
        if (task.slot >= 0) {
          *reinterpret_cast<float2*>(sums + column) = k;
          *reinterpret_cast<float2*>(sums + tile_keys * width + column) = v;
        } else {
          store_pair(dk_line, c.gradient_type, column, k.x * c.scale, k.y * c.scale);
          store_pair(dv_line, c.gradient_type, column, v.x, v.y);
        }
      }
    }
  }
}

/// Sums of the keys of long lists, piece after piece. A block for each (list, tile of keys).
__global__ void __launch_bounds__(threads) add_pieces(backward_run r, int tiles) {
  const backward_call& c = r.call;
  for (std::int64_t item = blockIdx.x; item < r.readers.lists() * tiles; item += gridDim.x) {
    const std::int64_t list = item / tiles, number = list % r.readers.blocks;
    if (r.readers.slots[list] < 0) continue;
    const auto head = static_cast<std::int32_t>(list / r.readers.blocks);
    const reading task = r.readers.at(r.readers.first_piece(head, number), static_cast<int>(item % tiles), tile_keys);
    for (int i = threadIdx.x; i < task.keys.count * width / 2; i += threads) {
      const int key = i / (width / 2), column = i % (width / 2) * 2;
      if (column >= c.d) continue;
      float2 dk = make_float2(0, 0), dv = make_float2(0, 0);
      for (std::int64_t piece = 0; piece < r.readers.pieces_of(head, number); ++piece) {
        const float* const sums = r.pieces.at((task.slot + piece) * tiles + item % tiles) + key * width + column;
        const float2 k = *reinterpret_cast<const float2*>(sums);
        const float2 v = *reinterpret_cast<const float2*>(sums + tile_keys * width);
        dk = make_float2(dk.x + k.x, dk.y + k.y);
        dv = make_float2(dv.x + v.x, dv.y + v.y);
      }
      const std::int64_t row = task.first_key + key;
      store_pair(c.dk.at(row, head, c.gradient_type), c.gradient_type, column, dk.x * c.scale, dk.y * c.scale);
      store_pair(c.dv.at(row, head, c.gradient_type), c.gradient_type, column, dv.x, dv.y);
    }
  }
}

}  // namespace

template <class T>
void add_key_gradients(const backward_run& r, cudaStream_t stream) {
  allow_shared_memory(key_gradients<T>, shared_bytes);
  const auto tiles = static_cast<int>(ceil_div(r.call.block, tile_keys));
  const std::int64_t items = r.readers.most_pieces() * tiles;
  key_gradients<T><<<grid_blocks(items, 1, 64), threads, shared_bytes, stream>>>(r, tiles);
  if (r.readers.most_slots() > 0)
    add_pieces<<<grid_blocks(r.readers.lists() * tiles, 1, 64), threads, 0, stream>>>(r, tiles);
}

template void add_key_gradients<__nv_bfloat16>(const backward_run&, cudaStream_t);
template void add_key_gradients<__half>(const backward_run&, cudaStream_t);

}  // namespace msabench::cuda
