// SPDX-License-Identifier: Apache-2.0
// Scores for few query tokens, as in decode: memory is the limit, so each key is read once for all rows (token, head) of a
// sequence, and enough of them are on their way at any time. Warps are on their own: each takes tiles that are far apart,
// and has a ring of units of 32 keys in shared memory.
#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda/scoring.h"

namespace msabench::cuda {
namespace {

constexpr int warps = 2;
constexpr int stages = 3;  // units of a warp: one that is multiplied, the others on their way
constexpr int row_tiles = stream_rows / 16;
constexpr int unit_keys = 32;  // multiplied together
constexpr int tile_units = tile_keys / unit_keys;

struct stream_call {
  index_call index;
  float* scores;
  std::int64_t head_stride, row_stride;
  int splits;  // thread blocks that share a sequence
  bool whole_rows;
};

/// Bytes of shared memory: the rings, and the queries in tiles of 16 rows.
std::size_t shared_bytes(int width, std::int64_t rows) {
  const std::size_t row = groups_for(width) * 4 * sizeof(uint4);
  return row * (warps * stages * unit_keys + ceil_div(std::max<std::int64_t>(rows, 1), 16) * 16);
}

/// The units of a warp, one after the other: whole tiles, `step` keys apart.
struct unit_walk {
  const index_keys& keys;
  std::int64_t tile, step;
  const char* first;  // key of the tile
  int unit = 0;

  __device__ unit_walk(const index_keys& all, std::int64_t first_tile, std::int64_t distance, std::int64_t end)
      : keys(all), tile(first_tile), step(distance), first(tile < end ? keys.key(tile) : nullptr) {}

  __device__ std::int64_t key() const { return tile + unit * unit_keys; }
  __device__ const char* address() const { return first + unit * unit_keys * keys.stride; }
  __device__ void next(std::int64_t end) {
    if (++unit < tile_units) return;
    unit = 0;
    tile += step;
    if (tile < end) first = keys.key(tile);
  }
};

template <class T, int groups>
__global__ void __launch_bounds__(warps * 32) stream(stream_call s) {
  constexpr int pieces = 4 * groups, unit_size = unit_keys * pieces;
  extern __shared__ uint4 shared[];
  const index_call& c = s.index;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  uint4 *const ring = shared + warp * stages * unit_size, *const queries = shared + warps * stages * unit_size;
  let_next_begin();
  const std::int64_t sequence = blockIdx.x / s.splits, split = blockIdx.x % s.splits;
  const std::int64_t first_row = c.rows.cu_seqlens_q[sequence], after = c.rows.cu_seqlens_q[sequence + 1];
  const int tokens = static_cast<int>(min(after - first_row, std::int64_t{stream_rows / c.heads}));
  const int rows = tokens * c.heads;
  if (rows == 0) return;
  const std::int64_t first_sees = c.rows.kv_lens[sequence] - (after - first_row) + 1;
  const std::int64_t end = keys_seen(c, first_sees, tokens - 1), all_see = keys_seen(c, first_sees, 0);
  const std::int64_t last = s.whole_rows ? c.max_blocks * c.rule.block : end;
  const index_keys keys(c.keys, sequence);

  const std::int64_t step = std::int64_t{s.splits} * warps * tile_keys;
  unit_walk ahead(keys, (split * warps + warp) * tile_keys, step, end);
  std::int64_t tile = ahead.tile;
  int to_fill = 0;
  const auto fill = [&] {
    if (ahead.key() < end)
      copy_keys<unit_keys, pieces>(keys, ahead.address(), ahead.key(), end, c.width, ring + to_fill * unit_size);
    commit_copies();
    ahead.next(end);
    to_fill = (to_fill + 1) % stages;
  };
  for (int i = 0; i < stages - 1; ++i) fill();

  for (int i = threadIdx.x; i < (rows + 15) / 16 * 16 * pieces; i += warps * 32) {
    const int row = i / pieces, piece = i % pieces;
    queries[placed<pieces>(row, piece)] =
        row < rows ? query_piece(c, first_row + row / c.heads, row % c.heads, piece) : uint4{};
  }
  __syncthreads();

  int seen[row_tiles][2];
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
    for (int half = 0; half < 2; ++half) seen[m][half] = keys_seen(c, first_sees, (16 * m + 8 * half + g) / c.heads);
  const float scale = fabsf(c.scale);
  /// Maxima over the quads of rows g and g + 8, of which thread t = 0 and thread t = 1 of each write one.
  const auto write = [&](int m, float low, float high, std::int64_t block) {
    const float mine = quad_best(t & 1 ? high : low, t & 1 ? low : high);
    const int row = 16 * m + 8 * t + g;
    if (t < 2 && row < rows && block < c.max_blocks)
      s.scores[(first_row + row / c.heads) * s.row_stride + row % c.heads * s.head_stride + block] = scale * mine;
  };

  float best[row_tiles][2];
#pragma unroll
  for (auto& pair : best) pair[0] = pair[1] = -CUDART_INF_F;
  int filled = 0;
  for (; tile < last; tile += step) {
#pragma unroll 1
    for (int unit = 0; unit < tile_keys; unit += unit_keys) {
      const int unit_key = static_cast<int>(tile) + unit;
      wait_copies<stages - 2>();
      __syncwarp();  // for the copies of the other lanes, and for what they read of the unit that is filled next
      fill();
      const unit_pieces<unit_keys / 8, groups> held(ring + filled * unit_size);
      filled = (filled + 1) % stages;
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        if (16 * m >= rows) break;
        float products[1][4][4] = {};
        if (unit_key < end) {
          query_operands operands[1][groups];
#pragma unroll
          for (int j = 0; j < groups; ++j)
            operands[0][j] = query_operands(queries[placed<pieces>(16 * m + g, 4 * j + t)],
                                            queries[placed<pieces>(16 * m + 8 + g, 4 * j + t)]);
#pragma unroll
          for (int j = 0; j < groups; ++j) multiply_group<T>(products, operands, held, j);
        }
        if (unit_key + unit_keys > all_see) hide(products[0], unit_key + 2 * t, seen[m][0], seen[m][1]);
        float parts[2][2];  // [16 keys][row]
#pragma unroll
        for (int i = 0; i < 4; ++i) parts[i / 2][i % 2] = best_of(products[0], i / 2, i % 2);
        if (c.rule.block == least_block) {
          write(m, parts[0][0], parts[0][1], unit_key / least_block);
          write(m, parts[1][0], parts[1][1], unit_key / least_block + 1);
          continue;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half)
          best[m][half] = fmaxf(best[m][half], fmaxf(parts[0][half], parts[1][half]));
        if ((unit + unit_keys) % c.rule.block == 0) {
          write(m, best[m][0], best[m][1], unit_key / c.rule.block);
          best[m][0] = best[m][1] = -CUDART_INF_F;
        }
      }
    }
  }
  wait_copies<0>();
}

template <class T, int groups>
void stream_as(stream_call s, std::int64_t rows, cudaStream_t stream_of_run) {
  const std::size_t shared = shared_bytes(s.index.width, rows);
  allow_shared_memory(stream<T, groups>, shared);
  const std::int64_t batch = s.index.rows.batch, places = std::int64_t{multiprocessors()} * resident_blocks(shared);
  const std::int64_t most = ceil_div(s.index.max_blocks * s.index.rule.block, std::int64_t{warps} * tile_keys);
  s.splits = static_cast<int>(std::clamp<std::int64_t>(places / batch, 1, most));
  stream<T, groups><<<static_cast<unsigned>(batch * s.splits), warps * 32, shared, stream_of_run>>>(s);
}

template <class T>
void stream_of(const stream_call& s, std::int64_t rows, cudaStream_t stream_of_run) {
  if (groups_for(s.index.width) == 2)
    stream_as<T, 2>(s, rows, stream_of_run);
  else
    stream_as<T, 4>(s, rows, stream_of_run);
}

}  // namespace

bool streams(const msabench_problem& p) { return p.max_q_len * p.hi <= stream_rows; }

void stream_scores(const index_call& call, float* scores, std::int64_t head_stride, std::int64_t row_stride,
                   bool whole_rows, const run_context& context) {
  if (call.rows.batch == 0 || call.rows.row_bound == 0 || call.max_blocks == 0) return;
  const stream_call s{call, scores, head_stride, row_stride, 1, whole_rows};
  const std::int64_t rows = context.problem.max_q_len * call.heads;
  const auto stream_of_run = static_cast<cudaStream_t>(context.stream);
  if (same_type(call.q_type, bf16_type))
    stream_of<__nv_bfloat16>(s, rows, stream_of_run);
  else
    stream_of<__half>(s, rows, stream_of_run);
}

}  // namespace msabench::cuda
