// SPDX-License-Identifier: Apache-2.0
// Scores for many query tokens: a product of two matrices whose result is never in memory. A thread block has 32 rows
// (token, head) of one sequence in the registers of each of its warps and sweeps the keys that they see, a tile of 128 at
// a time, while the next one is on its way to shared memory. Of a tile only the maxima of its blocks are left; 32 of
// them a row are kept in shared memory, then offered to the row's list of best blocks.
#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda/scoring.h"

namespace msabench::cuda {
namespace {

constexpr int most_warps = 8, warp_rows = 32;
constexpr int chunk = 32;         // blocks whose maxima are kept before they are looked at
constexpr int pitch = chunk + 1;  // of a row of maxima, so that a column is spread over all banks

struct sweep_call {
  index_call index;
  int tile_tokens;  // of a thread block
  int splits;       // thread blocks that share the keys of those tokens
  rank* lists;      // [T][heads][splits][wanted], where keys are shared; else ids are written
};

/// Consecutive tokens of one sequence.
struct token_tile {
  std::int64_t sequence, first_row, first_sees;
  int tokens;
};

/// Sequence b begins at tile cu_seqlens_q[b] / tile_tokens + b. That leaves each enough tiles, some of them empty, and
/// spares counting those of the sequences before it.
__device__ token_tile tile_at(const lengths& rows, std::int64_t tile, int tile_tokens) {
  const std::int32_t* const starts = rows.cu_seqlens_q;
  std::int64_t b = 0, most = rows.batch - 1;
  while (b < most) {
    const std::int64_t middle = (b + most + 1) / 2;
    if (starts[middle] / tile_tokens + middle <= tile)
      b = middle;
    else
      most = middle - 1;
  }
  const std::int64_t after = starts[b + 1];
  const std::int64_t first = starts[b] + (tile - starts[b] / tile_tokens - b) * tile_tokens;
  const std::int64_t tokens = max(std::int64_t{0}, min(after - first, std::int64_t{tile_tokens}));
  return {b, first, rows.kv_lens[b] - (after - first) + 1, static_cast<int>(tokens)};
}

/// Starts to copy a tile of keys, row after row of `pieces` pieces of 16 bytes; zeros from key `end` on. Odd rows have the
/// halves of their 128 bytes changed over, so that a quarter of a warp reads all banks at once.
template <int pieces>
__device__ void copy_tile(const index_keys& keys, std::int64_t first_key, std::int64_t end, int width, uint4* to) {
  const char* const tile = keys.tile(first_key);
  for (int i = threadIdx.x; i < tile_keys * pieces; i += blockDim.x) {
    const int row = i / pieces, piece = i % pieces;
    const bool there = first_key + row < end && piece * piece_elements < width;
    const char* const from = there ? keys.key(tile, first_key, row) + piece * 16 : tile;
    copy_async(shared_address(to + row * pieces + (piece ^ (row & 1) * 4)), from, there);
  }
}

/// What a warp knows of its rows; lane r has row r.
struct warp_row {
  std::int64_t row;  // of the token
  int head;
  bool there;
  int seen;             // keys
  std::int64_t blocks;  // that are visible
  float floor;          // score of the last block in a full list: what is not greater has no place in it
  bool full;
};

/// The maxima of blocks first .. first + count - 1 for the rows of a warp.
__device__ void take_chunk(const index_call& c, warp_row& mine, const float* maxima, rank* lists, std::int64_t first,
                           int count) {
  const int lane = threadIdx.x % 32;
  __syncwarp();
  if (c.scores != nullptr) {
    for (int r = 0; r < warp_rows; ++r) {
      const std::int64_t row = __shfl_sync(all_lanes, mine.row, r), head = __shfl_sync(all_lanes, mine.head, r);
      if (__shfl_sync(all_lanes, mine.there, r) && lane < count && first + lane < c.max_blocks)
        c.scores[head * c.score_head_stride + row * c.score_row_stride + first + lane] = maxima[r * pitch + lane];
    }
  }
  if (lists != nullptr) {
    const free_blocks free(c.rule, mine.blocks);
    // Each lane looks through its own row, and the warp takes what is left of it.
    unsigned better = 0;
    for (int i = 0; i < chunk; ++i) better |= (maxima[lane * pitch + i] > mine.floor ? 1u : 0u) << i;
    if (!mine.full) better = all_lanes;
    const auto from = static_cast<int>(max(std::int64_t{0}, min(free.first - first, std::int64_t{chunk})));
    const auto to = static_cast<int>(max(std::int64_t{0}, min(free.end - first, std::int64_t{count})));
    better &= to > from ? all_lanes >> (chunk - to) & all_lanes << from : 0;
    if (free.wanted == 0) better = 0;
    const int wanted = c.rule.topk - c.rule.initial - c.rule.local;
    for (unsigned rows = __ballot_sync(all_lanes, better != 0); rows != 0; rows &= rows - 1) {
      const int r = __ffs(rows) - 1;
      rank* const list = lists + r * wanted;
      top_list best{lane < wanted ? list[lane] : no_block};
      best.offer(rank_of(maxima[r * pitch + lane], first + lane), __shfl_sync(all_lanes, better, r));
      if (lane < wanted) list[lane] = best.mine;
      const rank last = __shfl_sync(all_lanes, best.mine, wanted - 1);
      if (lane == r && last != no_block) {
        mine.floor = score_of(last);
        mine.full = true;
      }
    }
  }
  __syncwarp();
}

template <class T, int groups>
__global__ void __launch_bounds__(most_warps * 32, 1) sweep(sweep_call s) {
  constexpr int pieces = 4 * groups;
  extern __shared__ uint4 shared[];
  const index_call& c = s.index;
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  // The last tokens see the most keys and come first.
  const std::int64_t item = std::int64_t{gridDim.x} - 1 - blockIdx.x, split = item % s.splits;
  const token_tile tokens = tile_at(c.rows, item / s.splits, s.tile_tokens);
  if (tokens.tokens == 0) return;

  const int wanted = c.rule.topk - c.rule.initial - c.rule.local;
  const bool selects = c.ids != nullptr;
  uint4* const tiles = shared;  // two of them
  float* const all_maxima = reinterpret_cast<float*>(tiles + 2 * tile_keys * pieces);
  float* const maxima = all_maxima + warp * warp_rows * pitch;
  rank* const lists =
      selects ? reinterpret_cast<rank*>(all_maxima + warps * warp_rows * pitch) + warp * warp_rows * wanted : nullptr;
  if (selects)
    for (int i = lane; i < warp_rows * wanted; i += 32) lists[i] = no_block;

  const int own = warp * warp_rows + lane;
  warp_row mine{};
  mine.row = tokens.first_row + own / c.heads;
  mine.head = own % c.heads;
  mine.there = own / c.heads < tokens.tokens;
  mine.seen = mine.there ? keys_seen(c, tokens.first_sees, own / c.heads) : 0;
  mine.blocks = (mine.seen + c.rule.block - 1) / c.rule.block;
  mine.floor = -CUDART_INF_F;

  query_operands queries[2][groups];
  int seen[2][2];
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) seen[m][half] = __shfl_sync(all_lanes, mine.seen, 16 * m + 8 * half + g);
#pragma unroll
    for (int j = 0; j < groups; ++j) {
      uint4 pair[2];
      for (int half = 0; half < 2; ++half) {
        const int row = warp * warp_rows + 16 * m + 8 * half + g, token = row / c.heads;
        pair[half] =
            token < tokens.tokens ? query_piece(c, tokens.first_row + token, row % c.heads, 4 * j + t) : uint4{};
      }
      queries[m][j] = query_operands(pair[0], pair[1]);
    }
  }

  const std::int64_t end = keys_seen(c, tokens.first_sees, tokens.tokens - 1);
  const std::int64_t all_see = keys_seen(c, tokens.first_sees, 0);
  // Of few blocks all are taken, whatever they score.
  const bool idle = c.scores == nullptr && (wanted == 0 || end <= std::int64_t{c.rule.topk} * c.rule.block);
  const std::int64_t count = idle ? 0 : ceil_div(end, tile_keys);
  const std::int64_t from = count * split / s.splits, to = count * (split + 1) / s.splits;
  const int tile_blocks = tile_keys / c.rule.block;
  const index_keys keys(c.keys, tokens.sequence);
  const float scale = fabsf(c.scale);

  /// This thread's maxima of a block over rows g, g + 8, g + 16, g + 24 go to the quad's threads 0, 1, 2, 3.
  const auto keep = [&](const float(&best)[2][2], int column) {
    const bool upper = t & 2, odd = t & 1;
    float pair[2];
    for (int half = 0; half < 2; ++half) {
      const float given = upper ? best[0][half] : best[1][half];
      pair[half] = fmaxf(upper ? best[1][half] : best[0][half], __shfl_xor_sync(all_lanes, given, 2));
    }
    const float other = __shfl_xor_sync(all_lanes, odd ? pair[0] : pair[1], 1);
    const float value = fmaxf(fmaxf(odd ? pair[1] : pair[0], other), -CUDART_INF_F);
    maxima[(16 * (t >> 1) + 8 * (t & 1) + g) * pitch + column] = scale * value;
  };

  if (from < to) copy_tile<pieces>(keys, from * tile_keys, end, c.width, tiles);
  commit_copies();
  for (std::int64_t tile = from; tile < to; ++tile) {
    wait_copies<0>();
    __syncthreads();
    const int stage = static_cast<int>(tile - from) & 1;
    if (tile + 1 < to)
      copy_tile<pieces>(keys, (tile + 1) * tile_keys, end, c.width, tiles + (stage ^ 1) * tile_keys * pieces);
    commit_copies();

    const auto first_key = static_cast<int>(tile * tile_keys);
    const int first_column = static_cast<int>(tile - from) * tile_blocks % chunk;
    const bool masked = first_key + tile_keys > all_see;
    // Piece 4j + t of key g; where g is odd, j is even or odd the other way.
    const uint4* const row = tiles + (stage * tile_keys + g) * pieces + t;
    const uint4 *const even = row + (g & 1) * 4, *const odd = row - (g & 1) * 4;
    float best[2][2] = {{-CUDART_INF_F, -CUDART_INF_F}, {-CUDART_INF_F, -CUDART_INF_F}};
#pragma unroll 2
    for (int unit = 0; unit < tile_keys; unit += unit_keys) {
      float products[2][4][4] = {};
#pragma unroll
      for (int j = 0; j < groups; ++j) {
        uint4 held[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) held[n] = (j % 2 == 0 ? even : odd)[(unit + 8 * n) * pieces + 4 * j];
#pragma unroll
        for (int n = 0; n < 4; ++n)
          for (int m = 0; m < 2; ++m) mma<T>(products[m][n], queries[m][j].first, held[n].x, held[n].y);
#pragma unroll
        for (int n = 0; n < 4; ++n)
          for (int m = 0; m < 2; ++m) mma<T>(products[m][n], queries[m][j].second, held[n].z, held[n].w);
      }
      if (masked) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const int column = first_key + unit + 2 * t;
          hide(products[m][0], products[m][1], column, seen[m][0], seen[m][1]);
          hide(products[m][2], products[m][3], column + half_unit, seen[m][0], seen[m][1]);
        }
      }
      float halves[2][2][2];  // [16 keys][m][row]
#pragma unroll
      for (int i = 0; i < 8; ++i)
        halves[i / 4][i / 2 % 2][i % 2] =
            best_of_four(products[i / 2 % 2][i / 4 * 2], products[i / 2 % 2][i / 4 * 2 + 1], i % 2);
      if (c.rule.block == half_unit) {
        keep(halves[0], first_column + unit / half_unit);
        keep(halves[1], first_column + unit / half_unit + 1);
        continue;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
        best[i / 2][i % 2] = fmaxf(best[i / 2][i % 2], fmaxf(halves[0][i / 2][i % 2], halves[1][i / 2][i % 2]));
      if ((unit + unit_keys) % c.rule.block == 0) {
        keep(best, first_column + unit / c.rule.block);
        for (auto& pair : best) pair[0] = pair[1] = -CUDART_INF_F;
      }
    }
    const int columns = first_column + tile_blocks;
    if (columns == chunk || tile + 1 == to)
      take_chunk(c, mine, maxima, lists, (tile + 1) * tile_blocks - columns, columns);
  }

  const bool is_last = split == s.splits - 1;
  for (int r = 0; r < warp_rows; ++r) {
    if (!__shfl_sync(all_lanes, mine.there, r)) continue;
    const std::int64_t token = __shfl_sync(all_lanes, mine.row, r), head = __shfl_sync(all_lanes, mine.head, r);
    if (c.scores != nullptr && is_last)
      for (std::int64_t b = to * tile_blocks + lane; b < c.max_blocks; b += 32)
        c.scores[head * c.score_head_stride + token * c.score_row_stride + b] = -CUDART_INF_F;
    if (!selects) continue;
    const rank best = lane < wanted ? lists[r * wanted + lane] : no_block;
    if (s.lists == nullptr)
      write_ids(c.rule, __shfl_sync(all_lanes, mine.blocks, r), best,
                c.ids + token * c.id_row_stride + head * c.id_head_stride);
    else if (lane < wanted)
      s.lists[((token * c.heads + head) * s.splits + split) * wanted + lane] = best;
  }
}

/// The best of the lists of a row; a warp a row.
__global__ void __launch_bounds__(most_warps * 32) merge_lists(sweep_call s) {
  const index_call& c = s.index;
  const int lane = threadIdx.x % 32, wanted = c.rule.topk - c.rule.initial - c.rule.local;
  const std::int64_t rows = c.rows.tokens() * c.heads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * most_warps + threadIdx.x / 32; i < rows;
       i += std::int64_t{gridDim.x} * most_warps) {
    const std::int64_t row = i / c.heads, head = i % c.heads;
    const std::int64_t visible = min(visible_blocks(c.rows.place(row), c.rule.block), c.max_blocks);
    top_list best;
    if (visible > c.rule.topk) {
      const rank* const lists = s.lists + i * s.splits * wanted;
      for (int split = 0; split < s.splits; ++split)
        best.merge(lane < wanted ? lists[split * wanted + lane] : no_block);
    }
    write_ids(c.rule, visible, best.mine, c.ids + row * c.id_row_stride + head * c.id_head_stride);
  }
}

int wanted_blocks(const selection_rule& rule) { return rule.topk - rule.initial - rule.local; }

std::size_t shared_bytes(const index_call& c, int warps) {
  const std::size_t row = pitch * sizeof(float) + (c.ids == nullptr ? 0 : wanted_blocks(c.rule) * sizeof(rank));
  return std::size_t{2} * tile_keys * groups_for(c.width) * 4 * sizeof(uint4) + row * warps * warp_rows;
}

template <class T, int groups>
void sweep_as(const sweep_call& s, unsigned blocks, int warps, cudaStream_t stream) {
  const std::size_t shared = shared_bytes(s.index, warps);
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

/// As many warps as the rows of a sequence can use and shared memory has room for.
int choose_warps(const index_call& c, std::int64_t max_q_len) {
  int device = 0, most_bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  int warps = most_warps;
  const auto fewer_do = [&] {
    const int rows = warps / 2 * warp_rows;
    return rows >= c.heads &&
           (max_q_len * c.heads <= rows || shared_bytes(c, warps) > static_cast<std::size_t>(most_bytes));
  };
  while (warps > 1 && fewer_do()) warps /= 2;
  return warps;
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
  const int warps = choose_warps(call, p.max_q_len);
  const int tile_tokens = warps * warp_rows / call.heads;
  // Sequences begin tiles of their own, so at worst each leaves one empty.
  const std::int64_t tiles = call.rows.row_bound / tile_tokens + call.rows.batch;
  const std::int64_t busy = ceil_div(call.rows.row_bound, tile_tokens);
  const int splits = choose_splits(busy, most_splits(p), 2 * p.max_q_len > p.max_kv_len);
  const sweep_call s{call, tile_tokens, splits, splits > 1 ? static_cast<rank*>(scratch) : nullptr};
  const auto blocks = static_cast<unsigned>(tiles * splits);
  if (same_type(call.q_type, bf16_type))
    sweep_of<__nv_bfloat16>(s, blocks, warps, stream);
  else
    sweep_of<__half>(s, blocks, warps, stream);
  if (splits > 1 && call.ids != nullptr)
    merge_lists<<<grid_blocks(call.rows.row_bound * call.heads, most_warps), most_warps * 32, 0, stream>>>(s);
}

}  // namespace msabench::cuda
