// SPDX-License-Identifier: Apache-2.0
// Scores for many query tokens: a product of two matrices whose result is never in memory. A thread block has 64 rows
// (token, head) of one sequence in the registers of each of its warps and sweeps the keys that they see, a tile of 128 at
// a time. Of a tile only the maxima of its blocks are left; 16 of them a row are kept in shared memory, then offered to
// the row's list of best blocks. Warps take turns at bringing the next tiles to shared memory: one that did nothing else
// would be the ninth, and cost each of the others a third of its registers.
#include "kernels/cuda/barriers.cuh"
#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda/scoring.h"
#include "kernels/cuda/sweep_rows.cuh"

namespace msabench::cuda {
namespace {

constexpr int most_warps = 8;
constexpr int row_tiles = 4;  // of 16 rows, of a warp
constexpr int warp_rows = 16 * row_tiles;
constexpr int unit_keys = 16;  // multiplied together
constexpr int most_stages = 4;

struct sweep_call {
  index_call index;
  int tile_tokens;  // of a thread block
  int splits;       // thread blocks that share the keys of those tokens
  int stages;       // tiles that shared memory has room for
  int warp_bytes;   // of shared memory
  rank* lists;      // [T][heads][splits][wanted], where keys are shared; else ids are written
};

/// Where warps meet: a stage is full when all lanes of the warp that fills it have copied, and empty when every warp has
/// read it.
struct ring {
  barrier full[most_stages], empty[most_stages];
};

/// Goes through the stages again and again; the parity is that of the full barriers' next completion.
struct ring_place {
  int stage = 0, parity = 0;

  __device__ void next(int stages) {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

/// A warp starts to copy a tile of keys.
template <int pieces>
__device__ void copy_tile(const index_keys& keys, std::int64_t first_key, std::int64_t end, int width, uint4* tile) {
  constexpr int part = 32;
  const char* const first = keys.key(first_key);
#pragma unroll 1
  for (int i = 0; i < tile_keys; i += part)
    copy_keys<part, pieces>(keys, first + i * keys.stride, first_key + i, end, width, tile + i * pieces);
}

template <class T, int groups>
__global__ void __launch_bounds__(most_warps * 32, 1) sweep(sweep_call s) {
  constexpr int pieces = 4 * groups, tile_size = tile_keys * pieces, unit_size = unit_keys * pieces;
  extern __shared__ uint4 tiles[];  // [stages], and then what the warps keep
  __shared__ ring meeting;
  const index_call& c = s.index;
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  // The last tokens see the most keys and come first.
  const std::int64_t item = std::int64_t{gridDim.x} - 1 - blockIdx.x, split = item % s.splits;
  __shared__ query_tile tokens;
  if (threadIdx.x == 0) tokens = tile_at(c.rows, item / s.splits, s.tile_tokens);
  if (threadIdx.x < s.stages) {
    make_barrier(&meeting.full[threadIdx.x], 32);
    make_barrier(&meeting.empty[threadIdx.x], warps);
  }
  __syncthreads();
  if (tokens.tokens == 0) return;

  const int end = keys_seen(c, tokens.first_sees, tokens.tokens - 1);
  const int all_see = keys_seen(c, tokens.first_sees, 0);
  // Of few blocks all are taken, whatever they score.
  const bool idle = c.scores == nullptr && (wanted_blocks(c.rule) == 0 || end <= c.rule.topk * c.rule.block);
  const std::int64_t count = idle ? 0 : ceil_div(end, tile_keys);
  const auto from = static_cast<int>(count * split / s.splits), to = static_cast<int>(count * (split + 1) / s.splits);

  char* const kept = reinterpret_cast<char*>(tiles + s.stages * tile_size) + warp * s.warp_bytes;
  sweep_rows rows[2] = {{c, tokens, warp * warp_rows, kept},
                        {c, tokens, warp * warp_rows + lane_rows, kept + s.warp_bytes / 2}};
  query_operands queries[row_tiles][groups];
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int j = 0; j < groups; ++j) {
      const int low = 16 * m % lane_rows + g;
      queries[m][j] = query_operands(rows[m / 2].query(low, 4 * j + t), rows[m / 2].query(low + 8, 4 * j + t));
    }

  const index_keys keys(c.keys, tokens.sequence);
  const int distance = s.stages > 3 ? 2 : 1;
  ring_place ahead, place;
  // Warps take turns at tiles.
  const auto fill = [&](int tile) {
    if (tile < to && (tile - from & warps - 1) == warp) {
      wait_for(&meeting.empty[ahead.stage], ahead.parity ^ 1);
      copy_tile<pieces>(keys, std::int64_t{tile} * tile_keys, end, c.width, tiles + ahead.stage * tile_size);
      arrive_after_copies(&meeting.full[ahead.stage]);
    }
    ahead.next(s.stages);
  };
  for (int i = 0; i < distance; ++i) fill(from + i);

  const int tile_blocks = tile_keys / c.rule.block;
  if (from < to) wait_for(&meeting.full[0], 0);
  unit_pieces<unit_keys / 8, groups> held(tiles);
  for (int tile = from; tile < to; ++tile) {
    const int first_key = tile * tile_keys;
    const int first_column = (tile - from) * tile_blocks % chunk, columns = first_column + tile_blocks;
    const uint4* const here = tiles + place.stage * tile_size;
    fill(tile + distance);
    // The last unit is in registers when the ones of the next tile are asked for.
    const auto change = [&]() -> const uint4* {
      __syncwarp();
      if (lane == 0) arrive(&meeting.empty[place.stage]);
      if (tile + 1 == to) return here;
      place.next(s.stages);
      wait_for(&meeting.full[place.stage], place.parity);
      return tiles + place.stage * tile_size;
    };
    // A group of the next unit comes into the registers of the one that has been multiplied.
    const auto multiply = [&](float(&products)[row_tiles][unit_keys / 8][4], int unit) {
      const uint4* const next = unit + unit_keys < tile_keys ? here + (unit / unit_keys + 1) * unit_size : change();
#pragma unroll
      for (int j = 0; j < groups; ++j) {
        multiply_group<T>(products, queries, held, j);
        held.load(j, next);
      }
    };
    float best[2][2][2];
#pragma unroll
    for (int i = 0; i < 8; ++i) best[i / 4][i / 2 % 2][i % 2] = -CUDART_INF_F;
    if (c.rule.block == tile_keys && first_key + tile_keys <= all_see) {
#pragma unroll
      for (int unit = 0; unit < tile_keys; unit += unit_keys) {
        float products[row_tiles][unit_keys / 8][4] = {};
        multiply(products, unit);
#pragma unroll
        for (int i = 0; i < 8; ++i)
          best[i / 4][i / 2 % 2][i % 2] = fmaxf(best[i / 4][i / 2 % 2][i % 2], best_of(products[i / 2], 0, i % 2));
      }
      rows[0].keep(best[0], first_column);
      rows[1].keep(best[1], first_column);
    } else {
#pragma unroll 1
      for (int unit = 0; unit < tile_keys; unit += unit_keys) {
        float products[row_tiles][unit_keys / 8][4] = {};
        multiply(products, unit);
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
          const int low = 16 * m % lane_rows + g;
          hide(products[m], first_key + unit + 2 * t, rows[m / 2].seen(low), rows[m / 2].seen(low + 8));
        }
#pragma unroll
        for (int i = 0; i < 8; ++i)
          best[i / 4][i / 2 % 2][i % 2] = fmaxf(best[i / 4][i / 2 % 2][i % 2], best_of(products[i / 2], 0, i % 2));
        if ((unit + unit_keys) % c.rule.block == 0) {
          const int column = first_column + unit / c.rule.block;
          rows[0].keep(best[0], column);
          rows[1].keep(best[1], column);
#pragma unroll
          for (int i = 0; i < 8; ++i) best[i / 4][i / 2 % 2][i % 2] = -CUDART_INF_F;
        }
      }
    }
    if (columns == chunk || tile + 1 == to)
#pragma unroll
      for (int i = 0; i < 2; ++i) rows[i].take((tile + 1) * tile_blocks - columns, columns);
  }

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sweep_rows& half = rows[i];
    if (c.scores != nullptr && split == s.splits - 1) half.write_unseen(to * tile_blocks);
    if (s.lists != nullptr)
      half.write_lists(s.lists, split, s.splits);
    else if (c.ids != nullptr)
      half.write_selected();
  }
}

std::size_t stage_bytes(const index_call& c) {
  return std::size_t{tile_keys} * groups_for(c.width) * 4 * sizeof(uint4);
}

std::size_t warp_bytes(const index_call& c) { return warp_rows / lane_rows * sweep_rows::bytes(c); }

std::size_t shared_bytes(const index_call& c, int warps, int stages) {
  return static_cast<std::size_t>(stages) * stage_bytes(c) + static_cast<std::size_t>(warps) * warp_bytes(c);
}

template <class T, int groups>
void sweep_as(const sweep_call& s, unsigned blocks, int warps, cudaStream_t stream) {
  const std::size_t shared = shared_bytes(s.index, warps, s.stages);
  allow_shared_memory(sweep<T, groups>, shared);
  sweep<T, groups><<<blocks, warps * 32, shared, stream>>>(s);
}

template <class T>
void sweep_of(const sweep_call& s, unsigned blocks, int warps, cudaStream_t stream) {
  if (groups_for(s.index.width) == 2)
    sweep_as<T, 2>(s, blocks, warps, stream);
  else
    sweep_as<T, 4>(s, blocks, warps, stream);
}

struct block_shape {
  int warps, stages;
  int resident;  // thread blocks on a multiprocessor
};

/// As many warps as the rows of a sequence can use and shared memory has room for, beside two tiles of keys at least. What
/// these warps leave of the registers is for more thread blocks, and shared memory that is left for more tiles.
block_shape choose_shape(const index_call& c, std::int64_t max_q_len) {
  const std::size_t fixed = sizeof(ring) + sizeof(query_tile), room = shared_memory_room() - fixed;
  int warps = most_warps, stages = 2;
  const auto fewer_do = [&] {
    const int rows = warps / 2 * warp_rows;
    return rows >= c.heads && (max_q_len * c.heads <= rows || shared_bytes(c, warps, stages) > room);
  };
  while (warps > 1 && fewer_do()) warps /= 2;
  const auto fitting = [&](int of_stages) { return resident_blocks(shared_bytes(c, warps, of_stages) + fixed); };
  const int resident = std::min(most_warps / warps, fitting(stages));
  while (stages < most_stages && shared_bytes(c, warps, stages + 1) <= room && fitting(stages + 1) >= resident)
    ++stages;
  return {warps, stages, resident};
}

/// The fewest parts of the keys that leave no more than a tenth of the places on multiprocessors without work. Where tokens
/// differ much in what they see, more of them even that out.
int choose_splits(std::int64_t tiles, std::int64_t most, int resident, bool uneven) {
  const std::int64_t processors = std::int64_t{multiprocessors()} * resident;
  for (std::int64_t splits = 1; splits < most; ++splits) {
    const std::int64_t items = tiles * splits, waves = ceil_div(items, processors);
    if (items * 10 >= waves * processors * 9 && (!uneven || waves >= 2)) return static_cast<int>(splits);
  }
  return static_cast<int>(most);
}

constexpr double most_list_bytes = 64.0 * (1 << 20);

double list_bytes(const msabench_problem& p) {
  return static_cast<double>(p.total_q) * p.hi * (p.topk - p.local_blocks - p.init_blocks) * sizeof(rank);
}

/// A part should have a few chunks of keys.
std::int64_t most_splits(const msabench_problem& p) {
  constexpr std::int64_t least_tiles = 8;
  const std::int64_t by_keys = std::clamp<std::int64_t>(p.max_kv_len / (least_tiles * tile_keys), 1, 256);
  const double bytes = list_bytes(p);
  return bytes == 0 ? by_keys
                    : std::clamp<std::int64_t>(static_cast<std::int64_t>(most_list_bytes / bytes), 1, by_keys);
}

}  // namespace

double sweep_scratch_bytes(const msabench_problem& p) {
  return most_splits(p) == 1 ? 0 : static_cast<double>(most_splits(p)) * list_bytes(p);
}

void sweep_scores(const index_call& call, void* scratch, const run_context& context) {
  const msabench_problem& p = context.problem;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (call.rows.batch == 0 || call.rows.row_bound == 0) return;
  const auto [warps, stages, resident] = choose_shape(call, p.max_q_len);
  const int tile_tokens = warps * warp_rows / call.heads;
  // Sequences begin tiles of their own, so at worst each leaves one empty.
  const std::int64_t tiles = call.rows.row_bound / tile_tokens + call.rows.batch;
  const std::int64_t busy = ceil_div(call.rows.row_bound, tile_tokens);
  const int splits = choose_splits(busy, most_splits(p), resident, 2 * p.max_q_len > p.max_kv_len);
  const sweep_call s{call,
                     tile_tokens,
                     splits,
                     stages,
                     static_cast<int>(warp_bytes(call)),
                     splits > 1 && call.ids != nullptr ? static_cast<rank*>(scratch) : nullptr};
  const auto blocks = static_cast<unsigned>(tiles * splits);
  if (same_type(call.q_type, bf16_type))
    sweep_of<__nv_bfloat16>(s, blocks, warps, stream);
  else
    sweep_of<__half>(s, blocks, warps, stream);
  if (s.lists != nullptr) merge_lists(call, s.lists, splits, stream);
}

}  // namespace msabench::cuda
