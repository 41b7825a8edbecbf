// SPDX-License-Identifier: Apache-2.0
// Scores for few query tokens, as in decode: memory is the limit, so keys go straight from there into registers, once for
// all rows of a sequence. Warps are on their own; each takes tiles of keys that are far apart.
#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda/scoring.h"

namespace msabench::cuda {
namespace {

constexpr int warps = 4, blocks_per_multiprocessor = 4;
constexpr int row_tiles = stream_rows / 16;

struct stream_call {
  index_call index;
  float* scores;
  std::int64_t head_stride, row_stride;
  int splits;  // thread blocks that share a sequence
  bool whole_rows;
};

/// Keys are read once, and nothing is gained by keeping them.
__device__ inline uint4 load_passing(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

template <class T, int groups>
__global__ void __launch_bounds__(warps * 32, blocks_per_multiprocessor) stream(stream_call s) {
  constexpr int pieces = 4 * groups;
  __shared__ uint4 queries[stream_rows][pieces];
  const index_call& c = s.index;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, odd = g & 1;
  const std::int64_t sequence = blockIdx.x / s.splits, split = blockIdx.x % s.splits;
  const std::int64_t first_row = c.rows.cu_seqlens_q[sequence], after = c.rows.cu_seqlens_q[sequence + 1];
  const int tokens = static_cast<int>(min(after - first_row, std::int64_t{stream_rows / c.heads}));
  const int rows = tokens * c.heads;
  if (rows == 0) return;
  const std::int64_t first_sees = c.rows.kv_lens[sequence] - (after - first_row) + 1;

  // Odd rows have the halves of their 128 bytes changed over, so that a quarter of a warp reads all banks at once.
  for (int i = threadIdx.x; i < stream_rows * pieces; i += warps * 32) {
    const int row = i / pieces, piece = i % pieces;
    queries[row][piece ^ (row & 1) * 4] =
        row < rows ? query_piece(c, first_row + row / c.heads, row % c.heads, piece) : uint4{};
  }
  __syncthreads();

  int seen[row_tiles][2];
  for (int m = 0; m < row_tiles; ++m)
    for (int half = 0; half < 2; ++half) seen[m][half] = keys_seen(c, first_sees, (16 * m + 8 * half + g) / c.heads);
  const std::int64_t end = keys_seen(c, first_sees, tokens - 1), all_see = keys_seen(c, first_sees, 0);
  const std::int64_t last = s.whole_rows ? c.max_blocks * c.rule.block : end;
  const index_keys keys(c.keys, sequence);
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
  for (int m = 0; m < row_tiles; ++m) best[m][0] = best[m][1] = -CUDART_INF_F;
  const std::int64_t step = std::int64_t{s.splits} * warps * tile_keys;
  for (std::int64_t first = (split * warps + threadIdx.x / 32) * tile_keys; first < last; first += step) {
    const char* const tile = first < end ? keys.tile(first) : nullptr;
#pragma unroll 1
    for (int unit = 0; unit < tile_keys; unit += unit_keys) {
      const int unit_key = static_cast<int>(first) + unit;
      uint4 held[groups][4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int i = unit + 8 * n + g;
        const bool there = first + i < end;
        const char* const key = there ? keys.key(tile, first, i) : nullptr;
#pragma unroll
        for (int j = 0; j < groups; ++j) {
          const int piece = 4 * j + t;
          held[j][n] = there && piece * piece_elements < c.width ? load_passing(key + piece * 16) : uint4{};
        }
      }
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        if (16 * m >= rows) break;
        float products[4][4] = {};
#pragma unroll
        for (int j = 0; j < groups; ++j) {
          const int piece = 4 * (j ^ odd) + t;
          const query_operands q(queries[16 * m + g][piece], queries[16 * m + 8 + g][piece]);
          for (int n = 0; n < 4; ++n) mma<T>(products[n], q.first, held[j][n].x, held[j][n].y);
          for (int n = 0; n < 4; ++n) mma<T>(products[n], q.second, held[j][n].z, held[j][n].w);
        }
        if (unit_key + unit_keys > all_see) {
          hide(products[0], products[1], unit_key + 2 * t, seen[m][0], seen[m][1]);
          hide(products[2], products[3], unit_key + 16 + 2 * t, seen[m][0], seen[m][1]);
        }
        float least[2][2];  // [16 keys][row]
        for (int part = 0; part < 2; ++part)
          for (int half = 0; half < 2; ++half)
            least[part][half] = best_of_four(products[2 * part], products[2 * part + 1], half);
        if (c.rule.block == half_unit) {
          write(m, least[0][0], least[0][1], unit_key / half_unit);
          write(m, least[1][0], least[1][1], unit_key / half_unit + 1);
          continue;
        }
        for (int half = 0; half < 2; ++half)
          best[m][half] = fmaxf(best[m][half], fmaxf(least[0][half], least[1][half]));
        if ((unit + unit_keys) % c.rule.block == 0) {
          write(m, best[m][0], best[m][1], unit_key / c.rule.block);
          best[m][0] = best[m][1] = -CUDART_INF_F;
        }
      }
    }
  }
}

template <class T>
void stream_as(const stream_call& s, unsigned blocks, cudaStream_t stream_of_run) {
  if (groups_for(s.index.width) == 2)
    stream<T, 2><<<blocks, warps * 32, 0, stream_of_run>>>(s);
  else
    stream<T, 4><<<blocks, warps * 32, 0, stream_of_run>>>(s);
}

}  // namespace

bool streams(const msabench_problem& p) { return p.max_q_len * p.hi <= stream_rows; }

void stream_scores(const index_call& call, float* scores, std::int64_t head_stride, std::int64_t row_stride,
                   bool whole_rows, const run_context& context) {
  const std::int64_t batch = call.rows.batch;
  if (batch == 0 || call.rows.row_bound == 0 || call.max_blocks == 0) return;
  const std::int64_t all = std::int64_t{multiprocessors()} * blocks_per_multiprocessor;
  const std::int64_t most = ceil_div(call.max_blocks * call.rule.block, std::int64_t{warps} * tile_keys);
  const auto splits = static_cast<int>(std::clamp<std::int64_t>(all / batch, 1, most));
  const stream_call s{call, scores, head_stride, row_stride, splits, whole_rows};
  const auto blocks = static_cast<unsigned>(batch * splits);
  const auto stream_of_run = static_cast<cudaStream_t>(context.stream);
  if (same_type(call.q_type, bf16_type))
    stream_as<__nv_bfloat16>(s, blocks, stream_of_run);
  else
    stream_as<__half>(s, blocks, stream_of_run);
}

}  // namespace msabench::cuda
