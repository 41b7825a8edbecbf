// SPDX-License-Identifier: Apache-2.0
// 32 rows (token, head) of a warp that sweeps keys: maxima of the last blocks, and the best blocks so far. Both are in
// shared memory; what is one number a row is in a lane.
#pragma once

#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/query_tiles.cuh"

namespace msabench::cuda {

constexpr int lane_rows = 32;
constexpr int chunk = 16;         // blocks whose maxima are kept before they are looked at
constexpr int pitch = chunk + 1;  // of a row of maxima, so that a column is spread over all banks

class sweep_rows {
 public:
  /// Bytes of shared memory.
  static std::size_t bytes(const index_call& c) {
    return lane_rows * (pitch * sizeof(float) + (c.ids == nullptr ? 0 : wanted_blocks(c.rule) * sizeof(rank)));
  }

  /// The rows are those from `first` on, of the tile's tokens and all heads.
  __device__ sweep_rows(const index_call& call, const query_tile& tile, int first, char* shared)
      : c_(call), tile_(tile), first_(first), maxima_(reinterpret_cast<float*>(shared)) {
    floor_ = CUDART_NAN_F;
    if (c_.ids == nullptr) return;
    lists_ = reinterpret_cast<rank*>(maxima_ + lane_rows * pitch);
    for (int i = lane(); i < lane_rows * wanted_blocks(c_.rule); i += 32) lists_[i] = no_block;
    __syncwarp();
  }

  /// Keys that row r sees; none if it is behind the last token.
  __device__ int seen(int r) const {
    const int token = (first_ + r) / c_.heads;
    return token < tile_.tokens ? keys_seen(c_, tile_.first_sees, token) : 0;
  }

  __device__ uint4 query(int r, int piece) const {
    const int token = (first_ + r) / c_.heads;
    return token < tile_.tokens ? query_piece(c_, tile_.first_row + token, (first_ + r) % c_.heads, piece) : uint4{};
  }

  /// Keeps the maxima of a block, of which each thread has those of its products with rows g, g + 8, g + 16, g + 24; they
  /// go to the quad's threads 0, 1, 2, 3.
  __device__ void keep(const float (&best)[2][2], int column) {
    const int g = lane() / 4, t = lane() % 4;
    const bool upper = t & 2, odd = t & 1;
    float pair[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float given = upper ? best[0][half] : best[1][half];
      pair[half] = fmaxf(upper ? best[1][half] : best[0][half], __shfl_xor_sync(all_lanes, given, 2));
    }
    const float other = __shfl_xor_sync(all_lanes, odd ? pair[0] : pair[1], 1);
    // Of nothing but NaN the maximum is -infinity.
    const float value = fmaxf(fmaxf(odd ? pair[1] : pair[0], other), -CUDART_INF_F);
    maxima_[(8 * t + g) * pitch + column] = fabsf(c_.scale) * value;
  }

  /// Takes the maxima of blocks first .. first + count - 1 out of columns 0 .. count - 1.
  __device__ void take(std::int64_t first, int count) {
    __syncwarp();
    if (c_.scores != nullptr) write_scores(first, count);
    if (lists_ != nullptr) raise_lists(first, count);
    __syncwarp();
  }

  /// Scores of the blocks from `first` on, which none of the rows sees.
  __device__ void write_unseen(std::int64_t first) const {
    for (int r = 0; r < lane_rows && there(r); ++r)
      for (std::int64_t b = first + lane(); b < c_.max_blocks; b += 32) score_row(r)[b] = -CUDART_INF_F;
  }

  __device__ void write_selected() const {
    for (int r = 0; r < lane_rows && there(r); ++r)
      write_ids(c_.rule, blocks(r), listed(r),
                c_.ids + token(r) * c_.id_row_stride + (first_ + r) % c_.heads * c_.id_head_stride);
  }

  /// For others to merge: list `split` of each row, of `splits`.
  __device__ void write_lists(rank* to, std::int64_t split, std::int64_t splits) const {
    const int wanted = wanted_blocks(c_.rule);
    for (int r = 0; r < lane_rows && there(r); ++r) {
      const std::int64_t row = token(r) * c_.heads + (first_ + r) % c_.heads;
      const rank mine = listed(r);
      if (lane() < wanted) to[(row * splits + split) * wanted + lane()] = mine;
    }
  }

 private:
  static __device__ int lane() { return threadIdx.x % 32; }
  /// Rows that are not are behind all others.
  __device__ bool there(int r) const { return (first_ + r) / c_.heads < tile_.tokens; }
  __device__ std::int64_t token(int r) const { return tile_.first_row + (first_ + r) / c_.heads; }
  __device__ std::int64_t blocks(int r) const { return (seen(r) + c_.rule.block - 1) / c_.rule.block; }
  __device__ float* score_row(int r) const {
    return c_.scores + (first_ + r) % c_.heads * c_.score_head_stride + token(r) * c_.score_row_stride;
  }
  /// The list of a row, as top_list has it; by whole warps.
  __device__ rank listed(int r) const {
    return top_list::sorted(lane() < wanted_blocks(c_.rule) ? lists_[lane() * lane_rows + r] : no_block);
  }

  __device__ void write_scores(std::int64_t first, int count) const {
    for (int r = 0; r < lane_rows && there(r); ++r)
      if (lane() < count && first + lane() < c_.max_blocks) score_row(r)[first + lane()] = maxima_[r * pitch + lane()];
  }

  __device__ void raise_lists(std::int64_t first, int count) {
    const free_blocks free(c_.rule, blocks(lane()));
    const float* const row = maxima_ + lane() * pitch;
    // Each lane looks through its own row.
    unsigned better = 0;
#pragma unroll
    for (int i = 0; i < chunk; ++i) better |= (row[i] <= floor_ ? 0u : 1u) << i;
    const auto from = static_cast<int>(max(std::int64_t{0}, min(free.first - first, std::int64_t{chunk})));
    const auto to = static_cast<int>(max(std::int64_t{0}, min(free.end - first, std::int64_t{count})));
    better &= to > from ? all_lanes >> (32 - to) & all_lanes << from : 0;
    for (; better != 0; better &= better - 1) {
      const int i = __ffs(better) - 1;
      replace_worst(rank_of(row[i], first + i));
    }
  }

  /// Of this lane's row. The worst of a list is at its first place, so that is all that most candidates are compared with.
  __device__ void replace_worst(rank candidate) {
    rank* const list = lists_ + lane();
    if (candidate < list[0]) return;
    const int wanted = wanted_blocks(c_.rule);
    rank worst = candidate;
    int place = 0;
#pragma unroll 4
    for (int i = 1; i < wanted; ++i) {
      const rank other = list[i * lane_rows];
      place = other < worst ? i : place;
      worst = min(other, worst);
    }
    if (place != 0) list[place * lane_rows] = candidate;
    list[0] = worst;
    if (worst != no_block) floor_ = score_of(worst);
  }

  const index_call& c_;
  const query_tile& tile_;
  int first_;
  float* maxima_;          // [lane_rows][pitch]
  rank* lists_ = nullptr;  // [wanted][lane_rows]; nullptr: no ids are wanted
  // The least score in the list of this lane's row, NaN until it is full. No other that is not greater has a place, since
  // ids rise.
  float floor_;
};

}  // namespace msabench::cuda
