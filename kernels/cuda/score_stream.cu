// SPDX-License-Identifier: Apache-2.0
// Scores for few query tokens, as in decode: memory is the limit, so each key is read once for all rows (token, head) of a
// sequence, and enough of them are on their way at any time.
//
// The tiles of all sequences are divided evenly among thread blocks, one a multiprocessor. Warps are on their own: each
// takes every so-manieth tile, in units of 32 keys, which it copies to its ring in shared memory.
#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda/scoring.h"
#include "kernels/cuda/sequence_tiles.cuh"

namespace msabench::cuda {
namespace {

constexpr int most_warps = 8;
constexpr int unit_keys = 32;  // multiplied together
constexpr int stages = 2;      // units of a warp that are on their way

struct stream_call {
  index_call index;
  float* scores;
  std::int64_t head_stride, row_stride;
  bool whole_rows;
};

/// Bytes of shared memory: the rings, and the queries in tiles of 16 rows.
std::size_t shared_bytes(int width, int warps, std::int64_t rows) {
  const std::size_t row = groups_for(width) * 4 * sizeof(uint4);
  return row * (warps * stages * unit_keys + ceil_div(std::max<std::int64_t>(rows, 1), 16) * 16);
}

/// The units of a warp in the order in which it multiplies them. It is ahead of the products, and where a tile lies is
/// looked up while the one before it is copied.
class unit_walk {
 public:
  __device__ unit_walk(const index_call& c, const sequence_tiles& at, int first, int step, int end)
      : c_(c), sequence_(at), next_(first), step_(step), end_(end), tile_(look_up()), later_(look_up()) {}

  /// Starts to copy the unit, if it has keys.
  template <int pieces>
  __device__ void copy(uint4* to, std::uint64_t policy) const {
    if (tile_.key >= tile_.end) return;
    const index_keys keys(c_.keys, tile_.sequence);
    copy_keys<unit_keys, pieces>(keys, tile_.first, tile_.key, tile_.end, c_.width, to, policy);
  }
  __device__ void next() {
    tile_.key += unit_keys;
    tile_.first += unit_keys * c_.keys.token_stride * 2;
    if (tile_.key % tile_keys != 0) return;
    tile_ = later_;
    later_ = look_up();
  }

 private:
  struct tile {
    int sequence, key, end;  // which key of its sequence is the first, and how many are seen; none: no tile
    const char* first;
  };

  __device__ tile look_up() {
    if (next_ >= end_) return {};
    while (next_ >= sequence_.end) sequence_.next();
    const int key = (next_ - sequence_.begin) * tile_keys;
    next_ += step_;
    return {sequence_.sequence, key, sequence_.keys(), c_.keys.token(sequence_.sequence, 0, key)};
  }

  const index_call& c_;
  sequence_tiles sequence_;
  int next_, step_, end_;
  tile tile_, later_;
};

/// Brings the entries of the block table closer that this thread block needs if all sequences are as long as they can
/// be: which ones it does need is known only when the lengths are there.
__device__ inline void prefetch_pages(const index_call& c) {
  const kernels::cache& keys = c.keys;
  if (keys.block_table == nullptr) return;
  const int columns = static_cast<int>((c.max_blocks * c.rule.block + tile_keys - 1) / tile_keys);
  const block_share share(static_cast<int>(c.rows.batch) * columns);
  const int tile = share.begin + static_cast<int>(threadIdx.x);
  if (tile >= share.end) return;
  const std::int64_t page = std::int64_t{tile % columns} * tile_keys / keys.page_size;
  if (page < keys.table_stride)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(keys.block_table + tile / columns * keys.table_stride + page));
}

/// The rest of whole rows: blocks of which no token of their sequence sees a key.
__device__ inline void write_unseen(const stream_call& s) {
  const index_call& c = s.index;
  const sequence_tiles sequences(c);
  const std::int64_t all = c.rows.tokens() * c.heads;
  for (std::int64_t i = blockIdx.x; i < all; i += gridDim.x) {
    const std::int64_t row = i / c.heads, head = i % c.heads;
    float* const scores = s.scores + row * s.row_stride + head * s.head_stride;
    const std::int64_t seen =
        std::int64_t{sequences.tiles(static_cast<int>(c.rows.place(row).sequence))} * (tile_keys / c.rule.block);
    for (std::int64_t block = seen + threadIdx.x; block < c.max_blocks; block += blockDim.x)
      scores[block] = -CUDART_INF_F;
  }
}

/// `row_tiles`: of 16 rows. With one, there are registers left for the kernels that come next.
template <class T, int groups, int row_tiles>
__global__ void __launch_bounds__(most_warps * 32, row_tiles == 1 ? 2 : 1) stream(stream_call s) {
  constexpr int pieces = 4 * groups, unit_size = unit_keys * pieces;
  extern __shared__ uint4 shared[];
  const index_call& c = s.index;
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  uint4 *const ring = shared + warp * stages * unit_size, *const queries = shared + warps * stages * unit_size;
  let_next_begin();
  prefetch_pages(c);
  sequence_tiles sequences(c);
  const block_share share(sequences.all());
  if (share.begin < share.end) sequences.seek(share.begin);

  unit_walk ahead(c, sequences, share.begin + warp, warps, share.end);
  const std::uint64_t policy = read_once();
  const auto fill = [&](int stage) {
    ahead.copy<pieces>(ring + stage * unit_size, policy);
    commit_copies();
    ahead.next();
  };
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) fill(stage);

  const float scale = fabsf(c.scale);
  int stage = 0;
  for (; share.begin < share.end; sequences.next()) {
    if (sequences.begin == sequences.end) continue;
    const int from = max(sequences.begin, share.begin), to = min(sequences.end, share.end);
    const std::int64_t first_row = c.rows.cu_seqlens_q[sequences.sequence];
    const std::int64_t after = c.rows.cu_seqlens_q[sequences.sequence + 1];
    const int tokens = static_cast<int>(min(after - first_row, std::int64_t{stream_rows / c.heads}));
    const int rows = tokens * c.heads;
    const std::int64_t first_sees = c.rows.kv_lens[sequences.sequence] - (after - first_row) + 1;
    const int end = sequences.keys(), all_see = keys_seen(c, first_sees, 0);
    __syncthreads();  // the queries of the sequence before are done with
    for (int i = threadIdx.x; i < (rows + 15) / 16 * 16 * pieces; i += blockDim.x) {
      const int row = i / pieces, piece = i % pieces;
      queries[placed<pieces>(row, piece)] =
          row < rows ? query_piece(c, first_row + row / c.heads, row % c.heads, piece) : uint4{};
    }
    __syncthreads();

    int seen[row_tiles][2];
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
      for (int half = 0; half < 2; ++half) seen[m][half] = keys_seen(c, first_sees, (16 * m + 8 * half + g) / c.heads);
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
    for (int tile = from + (warp + warps - (from - share.begin) % warps) % warps; tile < to; tile += warps) {
      const int tile_key = (tile - sequences.begin) * tile_keys;
#pragma unroll 1
      for (int unit = 0; unit < tile_keys; unit += unit_keys) {
        const int unit_key = tile_key + unit;
        wait_copies<stages - 1>();
        __syncwarp();  // for the copies of the other lanes
        const unit_pieces<unit_keys / 8, groups> held(ring + stage * unit_size);
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
        __syncwarp();  // all lanes have read the unit
        fill(stage);
        stage = stage + 1 == stages ? 0 : stage + 1;
      }
    }
    if (sequences.end >= share.end) break;
  }
  wait_copies<0>();
  if (s.whole_rows) write_unseen(s);
}

template <class T, int groups, int row_tiles>
void stream_as(const stream_call& s, std::int64_t rows, cudaStream_t stream_of_run) {
  int warps = most_warps;
  while (warps > 1 && shared_bytes(s.index.width, warps, rows) > most_shared_memory()) warps /= 2;
  const std::int64_t tiles = s.index.rows.batch * ceil_div(s.index.max_blocks * s.index.rule.block, tile_keys);
  const dim3 blocks(static_cast<unsigned>(std::min<std::int64_t>(multiprocessors(), tiles)));
  const std::size_t shared = shared_bytes(s.index.width, warps, rows);
  launch_chained(stream<T, groups, row_tiles>,
                 {blocks, static_cast<unsigned>(32 * warps), shared, stream_of_run, false}, s);
}

template <class T, int groups>
void stream_rows_of(const stream_call& s, std::int64_t rows, cudaStream_t stream_of_run) {
  if (rows <= 16)
    stream_as<T, groups, 1>(s, rows, stream_of_run);
  else
    stream_as<T, groups, stream_rows / 16>(s, rows, stream_of_run);
}

template <class T>
void stream_of(const stream_call& s, std::int64_t rows, cudaStream_t stream_of_run) {
  if (groups_for(s.index.width) == 2)
    stream_rows_of<T, 2>(s, rows, stream_of_run);
  else
    stream_rows_of<T, 4>(s, rows, stream_of_run);
}

}  // namespace

bool streams(const msabench_problem& p) {
  constexpr double most_tiles = 1 << 30;  // are counted in 32 bits
  return p.max_q_len * p.hi <= stream_rows &&
         static_cast<double>(p.batch) * static_cast<double>(p.max_kv_len) <= most_tiles * tile_keys;
}

void stream_scores(const index_call& call, float* scores, std::int64_t head_stride, std::int64_t row_stride,
                   bool whole_rows, const run_context& context) {
  if (call.rows.batch == 0 || call.rows.row_bound == 0 || call.max_blocks == 0) return;
  const stream_call s{call, scores, head_stride, row_stride, whole_rows};
  const std::int64_t rows = context.problem.max_q_len * call.heads;
  const auto stream_of_run = static_cast<cudaStream_t>(context.stream);
  if (same_type(call.q_type, bf16_type))
    stream_of<__nv_bfloat16>(s, rows, stream_of_run);
  else
    stream_of<__half>(s, rows, stream_of_run);
}

}  // namespace msabench::cuda
