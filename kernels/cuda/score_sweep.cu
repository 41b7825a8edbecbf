// SPDX-License-Identifier: Apache-2.0
// Scores for many query tokens: a product of two matrices whose result is never in memory. A thread block has 32 rows
// (token, head) of one sequence in the registers of each of its warps and sweeps the keys that they see, a tile of 128 at
// a time. Of a tile only the maxima of its blocks are left; 32 of them a row are kept in shared memory, then offered to
// the row's list of best blocks. One more warp brings the next tiles to shared memory meanwhile.
#include "kernels/cuda/barriers.cuh"
#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda/scoring.h"
#include "kernels/cuda/sweep_rows.cuh"

namespace msabench::cuda {
namespace {

constexpr int most_warps = 8;
constexpr int most_stages = 4;

struct sweep_call {
  index_call index;
  int tile_tokens;  // of a thread block
  int splits;       // thread blocks that share the keys of those tokens
  int stages;       // tiles that shared memory has room for
  int warp_bytes;   // of shared memory
  rank* lists;      // [T][heads][splits][wanted], where keys are shared; else ids are written
};

/// Where the two kinds of warps meet: a stage is full when all lanes of the producer have copied, and empty when every
/// other warp has read it.
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

template <int pieces>
__device__ void produce(const index_keys& keys, int from, int to, std::int64_t end, int width, uint4* tiles, int stages,
                        ring& shared) {
  ring_place place;
  for (int tile = from; tile < to; ++tile, place.next(stages)) {
    const std::int64_t first_key = std::int64_t{tile} * tile_keys;
    const char* const first = keys.key(first_key);
    wait_for(&shared.empty[place.stage], place.parity ^ 1);
    copy_keys<tile_keys, pieces>(keys, first, first_key, end, width, tiles + place.stage * tile_keys * pieces);
    arrive_after_copies(&shared.full[place.stage]);
  }
  commit_copies();
  wait_copies<0>();
}

/// Maxima of a tile of one block that all rows see: without branches, so that those of a unit are taken while the next one
/// is multiplied. Nearly all tiles of a long context are such.
template <class T, int groups>
__device__ void whole_tile(const query_operands (&queries)[2][groups], const uint4* tile, float (&best)[2][2]) {
#pragma unroll
  for (int unit = 0; unit < tile_keys; unit += unit_keys) {
    float products[2][4][4] = {};
    multiply<T>(products, queries, unit_pieces<groups>(tile + unit * 4 * groups));
#pragma unroll
    for (int i = 0; i < 8; ++i)
      best[i / 4][i / 2 % 2] = fmaxf(best[i / 4][i / 2 % 2], best_of(products[i / 4], i % 2, i / 2 % 2));
  }
}

/// Any other tile: `keep` takes the maxima of each of its blocks.
template <class T, int groups, class Keep>
__device__ void any_tile(const query_operands (&queries)[2][groups], const uint4* tile, int first_key,
                         const int (&seen)[2][2], int block, const Keep& keep) {
  float best[2][2] = {{-CUDART_INF_F, -CUDART_INF_F}, {-CUDART_INF_F, -CUDART_INF_F}};
#pragma unroll 1
  for (int unit = 0; unit < tile_keys; unit += unit_keys) {
    float products[2][4][4] = {};
    multiply<T>(products, queries, unit_pieces<groups>(tile + unit * 4 * groups));
    float parts[2][2][2];  // [16 keys][m][row]
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      hide(products[m], first_key + unit + 2 * (threadIdx.x % 4), seen[m][0], seen[m][1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) parts[i / 2][m][i % 2] = best_of(products[m], i / 2, i % 2);
    }
    if (block == half_unit) {
      keep(parts[0], unit / half_unit);
      keep(parts[1], unit / half_unit + 1);
      continue;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      best[i / 2][i % 2] = fmaxf(best[i / 2][i % 2], fmaxf(parts[0][i / 2][i % 2], parts[1][i / 2][i % 2]));
    if ((unit + unit_keys) % block == 0) {
      keep(best, unit / block);
      for (auto& pair : best) pair[0] = pair[1] = -CUDART_INF_F;
    }
  }
}

template <class T, int groups>
__global__ void __launch_bounds__(most_warps * 32 + 32, 1) sweep(sweep_call s) {
  constexpr int pieces = 4 * groups, tile_size = tile_keys * pieces;
  extern __shared__ uint4 tiles[];  // [stages], and then what the warps keep
  __shared__ ring meeting;
  const index_call& c = s.index;
  const int warps = blockDim.x / 32 - 1, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
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

  if (warp == warps) {
    produce<pieces>(index_keys(c.keys, tokens.sequence), from, to, end, c.width, tiles, s.stages, meeting);
    return;
  }

  char* const kept = reinterpret_cast<char*>(tiles + s.stages * tile_size);
  sweep_rows rows(c, tokens, warp * warp_rows, kept + warp * s.warp_bytes);
  query_operands queries[2][groups];
  int seen[2][2];
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const int low = 16 * m + g;
    seen[m][0] = rows.seen(low);
    seen[m][1] = rows.seen(low + 8);
#pragma unroll
    for (int j = 0; j < groups; ++j)
      queries[m][j] = query_operands(rows.query(low, 4 * j + t), rows.query(low + 8, 4 * j + t));
  }

  const int tile_blocks = tile_keys / c.rule.block;
  ring_place place;
  for (int tile = from; tile < to; ++tile, place.next(s.stages)) {
    const int first_key = tile * tile_keys;
    const int first_column = (tile - from) * tile_blocks % chunk, columns = first_column + tile_blocks;
    wait_for(&meeting.full[place.stage], place.parity);
    if (c.rule.block == tile_keys && first_key + tile_keys <= all_see) {
      float best[2][2] = {{-CUDART_INF_F, -CUDART_INF_F}, {-CUDART_INF_F, -CUDART_INF_F}};
      whole_tile<T>(queries, tiles + place.stage * tile_size, best);
      rows.keep(best, first_column);
    } else {
      any_tile<T>(queries, tiles + place.stage * tile_size, first_key, seen, c.rule.block,
                  [&](const float(&best)[2][2], int block) { rows.keep(best, first_column + block); });
    }
    __syncwarp();
    if (lane == 0) arrive(&meeting.empty[place.stage]);
    if (columns == chunk || tile + 1 == to) rows.take((tile + 1) * tile_blocks - columns, columns);
  }

  if (c.scores != nullptr && split == s.splits - 1) rows.write_unseen(to * tile_blocks);
  if (s.lists != nullptr)
    rows.write_lists(s.lists, split, s.splits);
  else if (c.ids != nullptr)
    rows.write_selected();
}

std::size_t stage_bytes(const index_call& c) {
  return std::size_t{tile_keys} * groups_for(c.width) * 4 * sizeof(uint4);
}

template <class T, int groups>
void sweep_as(const sweep_call& s, unsigned blocks, int warps, cudaStream_t stream) {
  const std::size_t shared = s.stages * stage_bytes(s.index) + static_cast<std::size_t>(warps) * s.warp_bytes;
  allow_shared_memory(sweep<T, groups>, shared);
  sweep<T, groups><<<blocks, (warps + 1) * 32, shared, stream>>>(s);
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
};

/// As many warps as the rows of a sequence can use and shared memory has room for, beside two tiles of keys at least.
block_shape choose_shape(const index_call& c, std::int64_t max_q_len) {
  const std::size_t room = shared_memory_room() - sizeof(ring), stage = stage_bytes(c), warp = sweep_rows::bytes(c);
  int warps = most_warps;
  const auto fewer_do = [&] {
    const int rows = warps / 2 * warp_rows;
    return rows >= c.heads && (max_q_len * c.heads <= rows || 2 * stage + warps * warp > room);
  };
  while (warps > 1 && fewer_do()) warps /= 2;
  return {warps, static_cast<int>(std::clamp<std::size_t>((room - warps * warp) / stage, 2, most_stages))};
}

/// The fewest parts of the keys that leave no more than a tenth of the multiprocessors without work. Where tokens differ
/// much in what they see, more of them even that out.
int choose_splits(std::int64_t tiles, std::int64_t most, bool uneven) {
  const std::int64_t processors = multiprocessors();
  for (std::int64_t splits = 1; splits < most; ++splits) {
    const std::int64_t items = tiles * splits, waves = ceil_div(items, processors);
    if (items * 10 >= waves * processors * 9 && (!uneven || waves >= 4)) return static_cast<int>(splits);
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
  const std::int64_t by_keys = std::clamp<std::int64_t>(p.max_kv_len / (least_tiles * tile_keys), 1, 64);
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
  const auto [warps, stages] = choose_shape(call, p.max_q_len);
  const int tile_tokens = warps * warp_rows / call.heads;
  // Sequences begin tiles of their own, so at worst each leaves one empty.
  const std::int64_t tiles = call.rows.row_bound / tile_tokens + call.rows.batch;
  const std::int64_t busy = ceil_div(call.rows.row_bound, tile_tokens);
  const int splits = choose_splits(busy, most_splits(p), 2 * p.max_q_len > p.max_kv_len);
  const sweep_call s{call,
                     tile_tokens,
                     splits,
                     stages,
                     static_cast<int>(sweep_rows::bytes(call)),
                     splits > 1 && call.ids != nullptr ? static_cast<rank*>(scratch) : nullptr};
  const auto blocks = static_cast<unsigned>(tiles * splits);
  if (same_type(call.q_type, bf16_type))
    sweep_of<__nv_bfloat16>(s, blocks, warps, stream);
  else
    sweep_of<__half>(s, blocks, warps, stream);
  if (s.lists != nullptr) merge_lists(call, s.lists, splits, stream);
}

}  // namespace msabench::cuda
