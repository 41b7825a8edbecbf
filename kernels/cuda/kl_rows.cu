// SPDX-License-Identifier: Apache-2.0
// Losses and dq_idx: a block of threads for each (token, KV head) goes twice over its keys, once for the normalisers and
// once for what they weigh. The query heads of the group are the 16 rows of a tile. The student has one row only, so there
// keys are the rows of the product and the token its one column, and each lane has one key of a piece of 32.
#include <math_constants.h>

#include "kernels/cuda/kl.cuh"

namespace msabench::cuda {
namespace {

constexpr int warps = 4, tile_rows = 16, steps = width / 16;

template <class T>
using tile = shared_tile<T, width>;

/// Shared memory, in bytes from its start.
constexpr int queries_bytes = tile_rows * width * 2, piece_bytes = piece_keys * width * 2;
constexpr int index_query_at = queries_bytes, pieces_at = index_query_at + width * 2;
constexpr int ids_at = pieces_at + warps * 2 * piece_bytes;

/// The sum of 2^x over what was added, as its greatest x and the sum of 2^(x - greatest).
struct normaliser {
  float most, sum;

  __device__ void merge(float other_most, float other_sum) {
    const float greatest = fmaxf(most, other_most);
    if (greatest == -CUDART_INF_F) return;
    sum = sum * exp2f(most - greatest) + other_sum * exp2f(other_most - greatest);
    most = greatest;
  }
  /// Lanes that differ in the bits of `first`, 2 * first, ... below `end`.
  __device__ void merge_lanes(int first, int end) {
    for (int other = first; other < end; other *= 2)
      merge(__shfl_xor_sync(~0u, most, other), __shfl_xor_sync(~0u, sum, other));
  }
  __device__ float log() const { return static_cast<float>(most + log2(static_cast<double>(sum))); }
};

/// The key of a piece that a lane has.
__device__ int own_key(const lane_place& at) { return at.g / 2 * 8 + at.t * 2 + at.g % 2; }

/// Sums over the rows of a product [16][32] for the own key. Eight columns are spread over the lanes with the same t: in each
/// step a lane gives half of what it has away.
__device__ float sum_of_rows(const float (&c)[piece_keys / 8][4], const lane_place& at) {
  float x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = c[i / 2][i % 2] + c[i / 2][i % 2 + 2];
#pragma unroll
  for (int count = 4; count > 0; count /= 2) {
    const bool upper = (at.g & count) != 0;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float given = upper ? x[i] : x[i + count];
      x[i] = (upper ? x[i + count] : x[i]) + __shfl_xor_sync(~0u, given, count * 4);
    }
  }
  return x[0];
}

/// The index query as a right operand of one column.
struct index_query {
  std::uint32_t b[steps][2];

  __device__ index_query(const char* values, const lane_place& at) {
#pragma unroll
    for (int step = 0; step < steps; ++step)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        b[step][half] =
            at.g == 0 ? *reinterpret_cast<const std::uint32_t*>(values + (step * 16 + half * 8 + at.t * 2) * 2) : 0;
  }
};

/// The student's product for the own key.
template <class T>
__device__ float score_student(const tile<T>& keys, const index_query& query, const lane_place& at) {
  float c[2][4] = {};
  const lane_address rows = keys.lane_rows();
#pragma unroll
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t a[4];
      keys.left(a, rows, half * 16, step);
      mma<T>(c[half], a, query.b[step][0], query.b[step][1]);
    }
  // Column 0 is in the lanes with t = 0.
  const int key = own_key(at), from = key % 8 * 4;
  float found = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float value = __shfl_sync(~0u, c[i / 2][i % 2 * 2], from);
    if (key / 8 == i) found = value;
  }
  return found;
}

/// sum [di] += keys^T differences, `difference` that of the own key. Columns of the tile are rows of the product, whose first
/// two columns are the parts of the differences.
template <class T>
__device__ void add_keys(float (&sum)[steps][4], float difference, const tile<T>& keys, const lane_place& at) {
  const split_value<T> own(difference);
  float v[8];
  const lane_address columns = keys.lane_columns();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float high = __shfl_sync(~0u, own.high, i * 4 + at.t), low = __shfl_sync(~0u, own.low, i * 4 + at.t);
    v[i] = at.g == 0 ? high : at.g == 1 ? low : 0.0f;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t first = storage<T>::pack(v[half * 4], v[half * 4 + 1]);
    const std::uint32_t second = storage<T>::pack(v[half * 4 + 2], v[half * 4 + 3]);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      std::uint32_t a[4];
      keys.left_transposed(a, columns, half * 16, step);
      mma<T>(sum[step], a, first, second);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(warps* warp, 3) compare(kl_run r) {
  extern __shared__ __align__(256) char memory[];
  __shared__ int id_count;
  __shared__ normaliser parts[warps][tile_rows + 1];
  __shared__ float lse[tile_rows + 1];
  __shared__ float part_sums[warps][width];
  __shared__ double part_losses[warps];
  const kl_call& c = r.call;
  const std::uint32_t base = shared_address(memory);
  const int w = threadIdx.x / warp, lane = threadIdx.x % warp;
  const lane_place at;
  const tile<T> queries(base), keys(base + pieces_at + w * 2 * piece_bytes);
  const tile<T> index_keys(base + pieces_at + (w * 2 + 1) * piece_bytes);
  auto* const blocks = reinterpret_cast<std::int32_t*>(memory + ids_at);
  const float scale = c.scale * log2e, index_scale = c.index_scale * log2e;

  const std::int64_t tokens = c.rows.tokens(), items = tokens * c.kv_heads;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    // Later tokens see more keys, and long tasks come first; a head's keys stay in the cache.
    const std::int64_t row = tokens - 1 - item % tokens;
    const auto kv_head = static_cast<std::int32_t>(item / tokens);
    const row_place place = c.rows.place(row);
    const std::int64_t visible = visible_blocks(place, r.block);

    for (int i = threadIdx.x; i < tile_rows * tile<T>::chunks; i += warps * warp) {
      const int member = i / tile<T>::chunks;
      const std::int32_t head = kv_head * c.group + (member < c.group ? member : 0);
      queries.copy(member, i % tile<T>::chunks, c.q.at(row, head), c.d, member < c.group);
    }
    if (threadIdx.x < tile<T>::chunks) {
      const bool there = threadIdx.x * 8 < c.di;
      const char* const from = c.q_idx.at(row, kv_head);
      copy_async(base + index_query_at + threadIdx.x * 16, from + (there ? threadIdx.x * 16 : 0), there);
    }
    commit_copies();
    if (r.selected() && w == 0) {
      const int count = collect_blocks(r.readers.ids.row(row, kv_head), c.topk, visible, blocks);
      if (lane == 0) id_count = count;
    }
    wait_copies<0>();
    __syncthreads();
    const index_query query(memory + index_query_at, at);
    const key_rows all_keys(c.keys, place.sequence, kv_head), all_index_keys(c.index_keys, place.sequence, 0);
    const row_keys own(r.selected() ? blocks : nullptr, r.selected() ? id_count : static_cast<int>(visible), r.block,
                       place.position);

    // use(keys, scores, student's score of the own key) for each piece of this warp; the next one is on its way meanwhile.
    const auto for_each_piece = [&](const auto& use) {
      key_piece now = own.at(w);
      load_piece<T>(keys, all_keys, now, c.d);
      load_piece<T>(index_keys, all_index_keys, now, c.di);
      for (int piece = w; piece < own.pieces; piece += warps) {
        const key_piece next = own.at(piece + warps);
        float scores[piece_keys / 8][4];
        wait_copies<1>();
        __syncwarp();
        multiply_rows(scores, queries, 0, keys, 0);
        __syncwarp();
        load_piece<T>(keys, all_keys, next, c.d);
        wait_copies<1>();
        __syncwarp();
        use(now, scores, score_student<T>(index_keys, query, at));
        __syncwarp();
        load_piece<T>(index_keys, all_index_keys, next, c.di);
        now = next;
      }
      wait_copies<0>();
      __syncwarp();
    };

    const normaliser nothing{-CUDART_INF_F, 0};
    normaliser teacher[2] = {nothing, nothing}, student = nothing;
    for_each_piece([&](const key_piece& present, float(&scores)[piece_keys / 8][4], float index_score) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = -CUDART_INF_F, sum = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float& x = scores[i / 2][half * 2 + i % 2];
          x = i / 2 * 8 + at.t * 2 + i % 2 < present.count ? x * scale : -CUDART_INF_F;
          most = fmaxf(most, x);
        }
        const float reference = most == -CUDART_INF_F ? 0.0f : most;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += exp2f(scores[i / 2][half * 2 + i % 2] - reference);
        teacher[half].merge(most, sum);
      }
      if (own_key(at) < present.count) student.merge(index_score * index_scale, 1.0f);
    });
    for (normaliser& one : teacher) one.merge_lanes(1, 4);
    student.merge_lanes(1, warp);
    if (at.t == 0)
      for (int half = 0; half < 2; ++half) parts[w][at.g + half * 8] = teacher[half];
    if (lane == 0) parts[w][tile_rows] = student;
    __syncthreads();
    if (threadIdx.x <= tile_rows) {
      normaliser all = parts[0][threadIdx.x];
      for (int other = 1; other < warps; ++other)
        all.merge(parts[other][threadIdx.x].most, parts[other][threadIdx.x].sum);
      const bool is_student = threadIdx.x == tile_rows, there = is_student || threadIdx.x < c.group;
      const float log = all.log();
      // Rows without a head weigh nothing.
      lse[threadIdx.x] = there ? log : CUDART_INF_F;
      if (is_student)
        r.lse_idx[row * c.kv_heads + kv_head] = log;
      else if (there)
        r.lse_of(row, kv_head * c.group + threadIdx.x) = log;
    }
    __syncthreads();

    const float teacher_lse[2] = {lse[at.g], lse[at.g + 8]}, student_lse = lse[tile_rows];
    const float share = 1 / static_cast<float>(c.group);
    float dq[steps][4] = {};
    double loss = 0;
    for_each_piece([&](const key_piece& present, float(&scores)[piece_keys / 8][4], float index_score) {
#pragma unroll
      for (int n = 0; n < piece_keys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[n][i] = exp2f(scores[n][i] * scale - teacher_lse[i / 2]);
      const float weight = sum_of_rows(scores, at) * share, exponent = index_score * index_scale - student_lse;
      const bool there = own_key(at) < present.count;
      if (there && weight > 0) loss += static_cast<double>(weight * (log2f(weight) - exponent));
      add_keys<T>(dq, there ? exp2f(exponent) - weight : 0.0f, index_keys, at);
    });
    for (int other = 1; other < warp; other *= 2) loss += __shfl_xor_sync(~0u, loss, other);
    if (lane == 0) part_losses[w] = loss;
    if (at.t == 0)
#pragma unroll
      for (int step = 0; step < steps; ++step)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          part_sums[w][step * 16 + half * 8 + at.g] = dq[step][half * 2] + dq[step][half * 2 + 1];
    __syncthreads();
    if (threadIdx.x == 0) {
      double sum = 0;
      for (const double part : part_losses) sum += part;
      r.losses[row * c.kv_heads + kv_head] = sum * CUDART_LN2;
    }
    const float factor = r.gradient_factor() / split_value<T>::factor;
    for (int column = threadIdx.x * 2; column < c.di; column += warps * warp * 2) {
      float x = 0, y = 0;
      for (const auto& part : part_sums) {
        x += part[column];
        y += part[column + 1];
      }
      store_pair(c.dq_idx.at(row, kv_head, c.gradient_type), c.gradient_type, column, x * factor, y * factor);
    }
    if (c.dq.data != nullptr)
      for (int i = threadIdx.x; i < c.group * c.d / 2; i += warps * warp)
        store_pair(c.dq.at(row, kv_head * c.group + i / (c.d / 2), c.gradient_type), c.gradient_type, i % (c.d / 2) * 2,
                   0, 0);
    __syncthreads();  // the next item uses the same memory
  }
}

}  // namespace

template <class T>
void compare_rows(const kl_run& r, cudaStream_t stream) {
  const std::size_t bytes = ids_at + (r.call.ids == nullptr ? 0 : std::size_t(r.call.topk) * sizeof(std::int32_t));
  allow_shared_memory(compare<T>, bytes);
  compare<T><<<grid_blocks(r.call.rows.row_bound * r.call.kv_heads, 1, 64), warps * warp, bytes, stream>>>(r);
}

template void compare_rows<__nv_bfloat16>(const kl_run&, cudaStream_t);
template void compare_rows<__half>(const kl_run&, cudaStream_t);

}  // namespace msabench::cuda
