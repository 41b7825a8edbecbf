// SPDX-License-Identifier: Apache-2.0
// A thread block has 128 rows, the heads of a KV head of as many neighbouring tokens as that is, 64 for each of two
// warpgroups, and sweeps the keys that they see, a tile of 128 at a time. Rows of one KV head share each tile, and hardly a
// key is multiplied that no row of the tile sees. Sums stay in registers from tile to tile.
//
// The products of a step are the scores of a tile and the weighted values of the one before. Warpgroups take turns at
// them, so that one has products while the other has exponentials. One more warpgroup has the copy engine bring the next
// tiles, and the queries of the next rows. Thread blocks stay for all the rows that there are.
#include <math_constants.h>

#include <cfloat>

#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/attention_spans.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/tensor_map.h"
#include "kernels/cuda_sm90/wgmma.cuh"
#include "kernels/cuda_sm90/wide_attention.h"
#include "kernels/cuda_sm90/wide_shape.cuh"

namespace msabench::cuda_sm90 {
namespace {

struct wide_call {
  attend_call attend;
  cuda::attention_grid grid;
  std::int64_t items;
  CUtensorMap queries;       // [T][Hq][d], boxes of the rows of a tile
  CUtensorMap keys, values;  // [pages][Hkv][keys of a page][d]; of contiguous keys one page
};

/// The items of a thread block, in rounds of one for each. The first items have the most keys; every other round goes back,
/// so that all get the same work.
class item_walk {
 public:
  __device__ explicit item_walk(const wide_call& w) : items_(w.items) {
    // Partial results have thread blocks of their own.
    if (w.grid.spans == 1) first_ = items_of_empty_tail(w);
  }
  __device__ bool more() const { return first_ + round_ * gridDim.x < items_; }
  __device__ void next() { ++round_; }
  /// May be beyond the last.
  __device__ std::int64_t item() const {
    return first_ + round_ * gridDim.x + (round_ % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
  }

 private:
  std::int64_t items_, first_ = 0, round_ = 0;

  /// There is a tile for each empty sequence. Those behind the last token come first, and can be many: vit3d has as many
  /// segments as there could be.
  static __device__ std::int64_t items_of_empty_tail(const wide_call& w) {
    const lengths& rows = w.attend.rows;
    const std::int64_t tokens = rows.tokens();
    std::int64_t filled = 0, end = rows.batch;  // sequences up to the last that has tokens
    while (filled < end) {
      const std::int64_t middle = (filled + end) / 2;
      if (rows.cu_seqlens_q[middle] < tokens)
        filled = middle + 1;
      else
        end = middle;
    }
    return (w.grid.tiles - (tokens / w.grid.tokens + filled)) * w.attend.kv_heads;
  }
};

/// What a thread block does for an item: tiles of keys of one KV head, from `first` on. One at least, so that rows without
/// keys are no case of their own; then every score of it is hidden.
struct tile_work {
  cuda::token_tile tile{};
  std::int64_t kv_head = 0;
  std::uint32_t first = 0, tiles = 0;

  __device__ tile_work(const wide_call& w, std::int64_t item) {
    if (item >= w.items) return;
    tile = w.grid.tile_of(w.attend, item, kv_head);
    if (tile.tokens == 0) return;
    const std::int64_t most = tile.limit(tile.tokens - 1), begin = min(blockIdx.y * w.grid.span_keys, most);
    const std::int64_t end = min(begin + w.grid.span_keys, most);
    // Spans are whole tiles, so only one that is behind the last key begins within one.
    first = static_cast<std::uint32_t>(begin);
    tiles = max(static_cast<std::uint32_t>((end - begin + wide_tile_keys - 1) / wide_tile_keys), 1u);
  }
};

/// Where the copy engine finds a tile.
struct tile_place {
  std::int32_t row = 0, page = 0;

  tile_place() = default;
  __device__ tile_place(const cache& from, const cuda::token_tile& tile, std::uint32_t key) {
    if (key >= tile.length) return;  // nothing is there, and there may be no page
    if (from.block_table == nullptr) {
      row = static_cast<std::int32_t>(from.cu_seqlens_kv[tile.sequence] + key);
    } else {
      const auto page_size = static_cast<std::uint32_t>(from.page_size);
      page = from.block_table[tile.sequence * from.table_stride + key / page_size];
      row = static_cast<std::int32_t>(key % page_size);
    }
  }
};

template <class S>
__device__ void copy_tile(const CUtensorMap& map, tile_place from, std::int64_t kv_head, unsigned char* to,
                          barrier* ready) {
  arrive_expecting(ready, S::tile_bytes);
#pragma unroll
  for (int panel = 0; panel < S::panels; ++panel)
    copy_box<4>(to + panel * S::key_panel_bytes, map,
                {panel * S::panel_columns, from.row, static_cast<std::int32_t>(kv_head), from.page}, ready);
}

/// Copies values of a tile that the sequence ends in, by a warp: zeros for what is behind its end, where anything may lie,
/// and a weight of 0 doesn't hide that.
template <class S>
__device__ void copy_last_values(const attend_call& call, const tile_work& work, std::uint32_t key, unsigned char* to,
                                 barrier* ready) {
  constexpr int chunks = swizzle_row_bytes / 16, pieces = S::panels * chunks;
  const cache& from = call.values;
  const std::int64_t left = work.tile.length - key;
  const char* const base = left > 0 ? cuda::key_address(from, work.tile.sequence, work.kv_head, key) : from.data;
  const std::uint32_t shared = cuda::shared_address(to);
#pragma unroll 8
  for (int i = threadIdx.x % 32; i < S::tile_keys * pieces; i += 32) {
    const int row = i / pieces, piece = i % pieces;
    const bool there = row < left && piece * 8 < call.d;
    cuda::copy_async(shared + piece / chunks * S::key_panel_bytes + swizzled(row, piece % chunks * 16),
                     there ? base + row * from.token_stride * 2 + piece * 16 : from.data, there);
  }
  cuda::commit_copies();
  cuda::wait_copies<0>();
  fence_for_async();
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(ready);
}

/// One warp.
template <class S>
__device__ void bring_tiles(const wide_call& w, typename S::memory& shared) {
  const attend_call& call = w.attend;
  const int lane = threadIdx.x % 32;
  ring_place<S::stages> at;
  ring_place<S::query_stages> queries_at;
  for (item_walk walk(w); walk.more(); walk.next()) {
    const tile_work work(w, walk.item());
    if (work.tiles == 0) continue;
    wait_for(shared.queries_free + queries_at.stage, queries_at.parity ^ 1);
    if (lane == 0) {
      barrier* const ready = shared.queries_ready + queries_at.stage;
      arrive_expecting(ready, S::panels * w.grid.tokens * call.group * swizzle_row_bytes);
#pragma unroll
      for (int panel = 0; panel < S::panels; ++panel)
        copy_box<3>(shared.queries[queries_at.stage] + panel * S::query_panel_bytes, w.queries,
                    {panel * S::panel_columns, static_cast<std::int32_t>(work.kv_head * call.group),
                     static_cast<std::int32_t>(work.tile.first)},
                    ready);
    }
    queries_at.next();
    tile_place ahead;  // of this lane's tile of the next 32: a table takes long to answer
    for (std::uint32_t i = 0; i < work.tiles; ++i, at.next()) {
      const std::uint32_t key = work.first + i * S::tile_keys;
      if (i % 32 == 0) {
        const std::uint32_t own = i + lane;
        ahead = own < work.tiles ? tile_place(call.keys, work.tile, work.first + own * S::tile_keys) : tile_place();
      }
      tile_place place;
      place.row = __shfl_sync(~0u, ahead.row, static_cast<int>(i % 32));
      place.page = __shfl_sync(~0u, ahead.page, static_cast<int>(i % 32));
      wait_for(shared.keys_free + at.stage, at.parity ^ 1);
      if (lane == 0) copy_tile<S>(w.keys, place, work.kv_head, shared.keys[at.stage], shared.keys_ready + at.stage);
      wait_for(shared.values_free + at.stage, at.parity ^ 1);
      if (key + S::tile_keys > work.tile.length)
        copy_last_values<S>(call, work, key, shared.values[at.stage], shared.values_ready + at.stage);
      else if (lane == 0)
        copy_tile<S>(w.values, place, work.kv_head, shared.values[at.stage], shared.values_ready + at.stage);
      __syncwarp();
    }
  }
}

/// Enqueues scores = queries * keys^T.
template <class S>
__device__ void score_tile(float (&scores)[S::tile_keys / 2], std::uint64_t queries, std::uint64_t keys) {
  constexpr int steps = S::panel_columns / 16;
#pragma unroll
  for (int k = 0; k < S::column_steps; ++k)
    multiply<typename S::value, S::tile_keys>(
        scores, queries + k / steps * (S::query_panel_bytes >> 4) + k % steps * k_major_step,
        keys + k / steps * (S::key_panel_bytes >> 4) + k % steps * k_major_step, k > 0);
}

/// Enqueues out += weights * values.
template <class S>
__device__ void add_values(float (&out)[S::columns / 2], const std::uint32_t (&weights)[S::key_steps][4],
                           std::uint64_t values) {
#pragma unroll
  for (int k = 0; k < S::key_steps; ++k)
    multiply<typename S::value, S::columns, major::mn>(out, weights[k], values + k * mn_major_step, 1);
}

/// Scores of keys that rows g and g + 8 do not see, those from `limits` of the tile on, become -infinity.
template <int count>
__device__ void hide_keys(float (&scores)[count], const int (&limits)[2]) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < count; ++i)
    if (i / 4 * 8 + t * 2 + i % 2 >= limits[i / 2 % 2]) scores[i] = -CUDART_INF_F;
}

/// Scores to weights; what has been weighed before is to be multiplied by `factors`. Sums are those of a lane, and greatest
/// scores are kept without their positive scale, which costs one instruction a score less.
template <int count>
__device__ void weigh_tile(float (&scores)[count], float scale, float (&most)[2], float (&sum)[2],
                           float (&factors)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float greatest[4] = {most[half], most[half], most[half], most[half]};  // chains of their own
#pragma unroll
    for (int n = 0; n < count / 4; ++n)
      greatest[n % 4] = fmaxf(greatest[n % 4], fmaxf(scores[n * 4 + half * 2], scores[n * 4 + half * 2 + 1]));
    const float now = cuda::row_maximum(fmaxf(fmaxf(greatest[0], greatest[1]), fmaxf(greatest[2], greatest[3])));
    // Both products rounded: the factor of a greatest score that stays has to be 1.
    const float reference = __fmul_rn(cuda::reference_score(now), scale);
    factors[half] = cuda::exp2_approximately(__fsub_rn(__fmul_rn(most[half], scale), reference));
    most[half] = now;
    float added[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < count / 4; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& x = scores[n * 4 + half * 2 + i];
        x = cuda::exp2_approximately(__fmaf_rn(x, scale, -reference));
        added[n % 2] += x;
      }
    sum[half] = __fmaf_rn(sum[half], factors[half], added[0] + added[1]);
  }
}

/// Weights as left operands of add_values. Rounds them.
template <class S>
__device__ void pack_weights(const float (&scores)[S::tile_keys / 2], std::uint32_t (&weights)[S::key_steps][4]) {
#pragma unroll
  for (int k = 0; k < S::key_steps; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      weights[k][i] = cuda::storage<typename S::value>::pack(scores[k * 8 + i * 2], scores[k * 8 + i * 2 + 1]);
}

/// Two warpgroups start products one after the other, each as often as the other. Named barriers 1 and 2 are their turns.
class product_turns {
 public:
  __device__ explicit product_turns(int consumer) : own_(1 + consumer), other_(2 - consumer) {
    if (consumer == 1) pass_on();
  }
  __device__ void wait() const { meet(own_, threads); }
  __device__ void pass_on() const { asm volatile("bar.arrive %0, %1;" ::"r"(other_), "r"(threads) : "memory"); }
  /// No arrival is left over.
  __device__ void end() const {
    if (own_ == 1) wait();
  }

 private:
  static constexpr int threads = 256;
  int own_, other_;
};

/// One of two warpgroups.
template <class S>
__device__ void attend_tiles(const wide_call& w, int consumer, typename S::memory& shared) {
  static_assert(S::consumers == 2);
  const attend_call& call = w.attend;
  const int lane = threadIdx.x % 32;
  const int first_row = consumer * S::group_rows + threadIdx.x % S::group_threads / 32 * 16;  // of the warp
  // No score of -infinity may meet a factor of 0.
  const float signed_scale = call.scale * static_cast<float>(CUDART_L2E), scale = fmaxf(fabsf(signed_scale), FLT_MIN);
  const product_turns turns(consumer);
  ring_place<S::stages> keys_at, values_at;
  ring_place<S::query_stages> queries_at;
  const auto release = [lane](barrier* b) {
    __syncwarp();
    if (lane == 0) arrive(b);
  };
  for (item_walk walk(w); walk.more(); walk.next()) {
    const tile_work work(w, walk.item());
    if (work.tiles == 0) continue;
    const std::uint32_t all_see = work.tile.limit(0);
    std::uint32_t limits[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) limits[half] = work.tile.limit((first_row + half * 8 + lane / 4) / call.group);
    const std::uint64_t queries = one_for_all(k_major_descriptor(
        cuda::shared_address(shared.queries[queries_at.stage]) + consumer * S::group_rows * swizzle_row_bytes));
    const auto keys_descriptor = [&] { return k_major_descriptor(cuda::shared_address(shared.keys[keys_at.stage])); };
    const auto values_descriptor = [&] {
      return mn_major_descriptor(cuda::shared_address(shared.values[values_at.stage]), S::key_panel_bytes);
    };
    float scores[S::tile_keys / 2], out[S::columns / 2];
    float most[2] = {-CUDART_INF_F, -CUDART_INF_F}, sum[2] = {0, 0}, factors[2];
    std::uint32_t weights[S::key_steps][4];
    std::uint32_t key = work.first;
    const auto weigh = [&] {
      if (signed_scale < 0)
#pragma unroll
        for (int j = 0; j < S::tile_keys / 2; ++j) scores[j] = -scores[j];
      if (key + S::tile_keys > all_see)
        hide_keys(scores, {static_cast<int>(limits[0] - key), static_cast<int>(limits[1] - key)});
      weigh_tile(scores, scale, most, sum, factors);
      key += S::tile_keys;
    };

    wait_for(shared.queries_ready + queries_at.stage, queries_at.parity);
    wait_for(shared.keys_ready + keys_at.stage, keys_at.parity);
    turns.wait();
    begin_products();
    score_tile<S>(scores, queries, keys_descriptor());
    commit_products();
    turns.pass_on();
    finish_products<0>();
    pin(scores);
    release(shared.keys_free + keys_at.stage);
    keys_at.next();
    weigh();
    pack_weights<S>(scores, weights);
#pragma unroll
    for (int j = 0; j < S::columns / 2; ++j) out[j] = 0;

    for (std::uint32_t i = 1; i < work.tiles; ++i) {
      wait_for(shared.keys_ready + keys_at.stage, keys_at.parity);
      wait_for(shared.values_ready + values_at.stage, values_at.parity);
      pin(out);
      turns.wait();
      begin_products();
      score_tile<S>(scores, queries, keys_descriptor());
      commit_products();
      add_values<S>(out, weights, values_descriptor());
      commit_products();
      turns.pass_on();
      finish_products<1>();
      pin(scores);
      release(shared.keys_free + keys_at.stage);
      keys_at.next();
      weigh();
      keep_before_wait(sum[0] + sum[1]);
      finish_products<0>();
      pin(out);
      release(shared.values_free + values_at.stage);
      values_at.next();
#pragma unroll
      for (int j = 0; j < S::columns / 2; ++j) out[j] *= factors[j / 2 % 2];
      pack_weights<S>(scores, weights);
    }

    release(shared.queries_free + queries_at.stage);
    queries_at.next();
    wait_for(shared.values_ready + values_at.stage, values_at.parity);
    pin(out);
    turns.wait();
    begin_products();
    add_values<S>(out, weights, values_descriptor());
    commit_products();
    turns.pass_on();
    finish_products<0>();
    pin(out);
    release(shared.values_free + values_at.stage);
    values_at.next();

    cuda::attention_rows<1, S::octets> rows;
#pragma unroll
    for (int j = 0; j < S::columns / 2; ++j) rows.out[0][j / 4][j % 4] = out[j];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.most[0][half] = most[half] * scale;
      rows.sum[0][half] = cuda::row_sum(sum[half]);
    }
    cuda::write_span(call, w.grid, work.tile, work.kv_head, first_row, 0, rows);
  }
  turns.end();
}

template <class S>
__global__ void __launch_bounds__(S::threads, 1) wide_tiles(const __grid_constant__ wide_call w) {
  extern __shared__ __align__(swizzle_atom_bytes) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename S::memory*>(memory);
  if (threadIdx.x == 0) {
    shared.make_barriers();
    prefetch_map(w.queries);
    prefetch_map(w.keys);
    prefetch_map(w.values);
  }
  __syncthreads();
  const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x / S::group_threads), 0);
  if (group == 0) {
    give_registers<S::producer_registers>();
    if (threadIdx.x < 32) bring_tiles<S>(w, shared);
  } else {
    take_registers<S::consumer_registers>();
    attend_tiles<S>(w, group - 1, shared);
  }
}

bool make_cache_map(CUtensorMap& map, const cache& c, const attend_call& call) {
  const bool paged = c.block_table != nullptr;
  // Without any key there may be no memory; what is read then is hidden.
  const void* const base = c.extent > 0 ? c.data : call.q;
  constexpr int panel_columns = swizzle_row_bytes / 2;
  return make_tensor_map(map, c.type, base,
                         {{call.d, 0, panel_columns},
                          {paged ? c.page_size : c.extent, c.token_stride * 2, wide_tile_keys},
                          {call.kv_heads, c.head_stride * 2, 1},
                          {paged ? c.extent : 1, paged ? c.page_stride * 2 : 16, 1}});
}

bool make_maps(wide_call& w) {
  const attend_call& call = w.attend;
  constexpr int panel_columns = swizzle_row_bytes / 2;
  return make_tensor_map(w.queries, call.q_type, call.q,
                         {{call.d, 0, panel_columns},
                          {std::int64_t{call.kv_heads} * call.group, call.q_head_stride * 2, call.group},
                          {call.rows.row_bound, call.q_row_stride * 2, w.grid.tokens}}) &&
         make_cache_map(w.keys, call.keys, call) && make_cache_map(w.values, call.values, call);
}

template <class S>
void launch(const attend_call& call, const run_context& context) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const cuda::attention_launch launch(call, context, cuda::plan_attention(context.problem), S::columns);
  if (launch.items == 0 || call.rows.row_bound == 0) return;
  wide_call w{call, launch.grid, launch.items, {}, {}, {}};
  if (!make_maps(w)) return;
  constexpr std::size_t bytes = sizeof(typename S::memory);
  cuda::allow_shared_memory(wide_tiles<S>, bytes);
  // Partial results have a thread block each.
  dim3 blocks = launch.blocks;
  if (launch.grid.spans == 1) blocks.x = std::min(blocks.x, static_cast<unsigned>(cuda::multiprocessors()));
  wide_tiles<S><<<blocks, S::threads, bytes, stream>>>(w);
  launch.combine(call, stream);
}

template <class T>
void attend_as(const attend_call& call, const run_context& context) {
  if (call.d <= 64)
    launch<wide_shape<T, 64>>(call, context);
  else if (call.d <= 80)  // that of a vision tower
    launch<wide_shape<T, 80>>(call, context);
  else
    launch<wide_shape<T, 128>>(call, context);
}

}  // namespace

void wide_attention(const attend_call& call, const run_context& context) {
  if (same_type(call.q_type, bf16_type))
    attend_as<__nv_bfloat16>(call, context);
  else
    attend_as<__half>(call, context);
}

}  // namespace msabench::cuda_sm90
