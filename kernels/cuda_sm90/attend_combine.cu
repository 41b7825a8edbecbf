// SPDX-License-Identifier: Apache-2.0
// What a token has of its blocks, added up in ascending order: a warp for each token of a KV head, one token after the
// other. Results of blocks come by the copy engine into a ring of each warp; while the warp adds up a token, those of
// the next one are on their way, and what is to be known of the one behind that: so memory never waits for a token.
//
// Between ranges of blocks the sums wait rounded to 24 bits: 16 of them where the output will be, 8 in the workspace.
#include <math_constants.h>

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/attend_kernels.h"
#include "kernels/cuda_sm90/bulk_copies.cuh"
#include "kernels/cuda_sm90/overlap.cuh"

namespace msabench::cuda_sm90 {
namespace {

constexpr int combine_warps = 8, stages = 6, parts = 8;
/// Rows of a pair's statistics that a lane has: of every second block.
constexpr int most_pairs_of_lane = most_listed / 2;

struct combine_shared {
  uint4 results[combine_warps][stages][parts][32];
  float weights[combine_warps][most_listed][token_heads];
  barrier ready[combine_warps][stages];
};
static_assert(sizeof(combine_shared) <= 227 * 1024);

/// A token of this warp, as it is in memory.
struct token_entry {
  listed_token token;
  listed_block block;  ///< lane's
};

/// What a token has in a pass: the blocks of lanes first .. first + count - 1.
struct token_blocks {
  std::uint32_t row = 0, place = 0;
  int first = 0, count = 0;
  bool has_earlier = false, has_later = false;

  token_blocks() = default;
  __device__ token_blocks(const token_entry& entry, std::uint32_t range)
      : row(entry.token.row), place(entry.block.place) {
    const int lane = threadIdx.x % 32;
    const bool is_block = lane < static_cast<int>(entry.token.count);
    const unsigned own = __ballot_sync(~0u, is_block && entry.block.pass == range);
    first = __ffs(static_cast<int>(own)) - 1;
    count = __popc(own);
    has_earlier = __any_sync(~0u, is_block && entry.block.pass < range);
    has_later = __any_sync(~0u, is_block && entry.block.pass > range);
  }
};

/// Sums of a token as the lanes of a warp have them: rows g and g + 8 of columns 8n + 2t and + 1, lane 4g + t.
template <class T>
struct token_sums {
  float out[64];

  static __device__ constexpr int place(int part, int i) { return (part % 4 * 4 + i) * 4 + part / 4 * 2; }

  __device__ void add(const uint4& four, int part, float factor) {
    const std::uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 values = cuda::storage<T>::widen(reinterpret_cast<const typename cuda::storage<T>::pair&>(words[i]));
      const int first = place(part, i);
      out[first] = __fmaf_rn(values.x, factor, out[first]);
      out[first + 1] = __fmaf_rn(values.y, factor, out[first + 1]);
    }
  }

  /// Where the lane's 16 bytes of a part are in the output of a token.
  static __device__ char* output(const attend_call& call, std::int64_t row, std::int64_t head, int part) {
    const int lane = threadIdx.x % 32, r = lane / 4 + part / 4 * 8;
    return call.out + (row * call.out_row_stride + (head * call.group + r) * call.out_head_stride) * 2 +
           (part % 4 * 4 + lane % 4) * 16;
  }
  static __device__ bool has_row(const attend_call& call, int part) {
    return static_cast<int>(threadIdx.x % 32 / 4 + part / 4 * 8) < call.group;
  }

  /// Rounded to 24 bits, 16 of them significant: into the memory of the output, and 8 bits each to `low`.
  __device__ void leave(const attend_call& call, std::int64_t row, std::int64_t head, uint4* low) const {
    std::uint32_t lower[parts / 2][4];
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      std::uint32_t upper[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t x = rounded(out[place(part, i)]), y = rounded(out[place(part, i) + 1]);
        upper[i] = __byte_perm(x, y, 0x7632);
        std::uint32_t& two = lower[part / 2][part % 2 * 2 + i / 2];
        two = i % 2 == 0 ? __byte_perm(x, y, 0x0051) : __byte_perm(two, __byte_perm(x, y, 0x0051), 0x5410);
      }
      transpose_words(upper);
      if (has_row(call, part))
        *reinterpret_cast<uint4*>(output(call, row, head, part)) = {upper[0], upper[1], upper[2], upper[3]};
    }
#pragma unroll
    for (int i = 0; i < parts / 2; ++i)
      low[i * 32 + threadIdx.x % 32] = {lower[i][0], lower[i][1], lower[i][2], lower[i][3]};
  }
  __device__ void take_up(const attend_call& call, std::int64_t row, std::int64_t head, const uint4* low) {
    uint4 upper[parts], lower[parts / 2];
#pragma unroll
    for (int part = 0; part < parts; ++part)
      upper[part] =
          has_row(call, part) ? __ldcg(reinterpret_cast<const uint4*>(output(call, row, head, part))) : uint4{};
#pragma unroll
    for (int i = 0; i < parts / 2; ++i) lower[i] = __ldcg(low + i * 32 + threadIdx.x % 32);
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      std::uint32_t up[4] = {upper[part].x, upper[part].y, upper[part].z, upper[part].w};
      const std::uint32_t down[4] = {lower[part / 2].x, lower[part / 2].y, lower[part / 2].z, lower[part / 2].w};
      transpose_words(up);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // Bytes 0 and 1 or 2 and 3 of a word are those of two neighbouring columns.
        const std::uint32_t four = down[part % 2 * 2 + i / 2];
        out[place(part, i)] = __uint_as_float(__byte_perm(four << 8, up[i], i % 2 == 0 ? 0x5410 : 0x5430) & ~0xffu);
        out[place(part, i) + 1] = __uint_as_float(__byte_perm(four, up[i], i % 2 == 0 ? 0x7610 : 0x7632) & ~0xffu);
      }
    }
  }

 private:
  /// To the nearest word with eight zeros at its end; NaN stays what it is.
  static __device__ std::uint32_t rounded(float x) { return __float_as_uint(x) + (x == x ? 0x80 : 0); }
};

template <class T>
class combiner {
 public:
  __device__ combiner(const attend_call& call, const attend_chunk& chunk, attend_pass pass, combine_shared& shared)
      : call_(call),
        chunk_(chunk),
        range_(pass.range),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        results_(shared.results[threadIdx.x / 32]),
        weights_(shared.weights[threadIdx.x / 32]),
        ready_(shared.ready[threadIdx.x / 32]),
        policy_(read_once()) {
    const std::int64_t tokens = chunk.tokens_of_head();
    item_ = pass.group * chunk.heads_of_group * tokens + std::int64_t{warp_} * gridDim.x + blockIdx.x;
    end_ = min((pass.group + 1) * chunk.heads_of_group, chunk.heads) * tokens;
    step_ = std::int64_t{gridDim.x} * combine_warps;
  }

  __device__ void run() {
    // Lists are older than the kernel before.
    token_blocks next(entry_at(item_), range_);
    token_entry behind = entry_at(item_ + step_);
    begin_in_turn();
    float2 stats[most_pairs_of_lane];
    load_stats(next, stats);
    for (; item_ < end_; item_ += step_) {
      const token_blocks own = next;
      int asked = asked_of_next_;
      float2 before{-CUDART_INF_F, 0};
      const std::int64_t head = item_ / chunk_.tokens_of_head(), local = item_ % chunk_.tokens_of_head();
      float2* const state_stats = chunk_.state_stats + local * token_heads + lane_ % token_heads;
      if (own.has_earlier && own.count > 0) before = __ldcg(state_stats);
      fill(own, asked);
      const float2 all = weigh(own, stats, before);

      next = token_blocks(behind, range_);
      asked_of_next_ = 0;
      load_stats(next, stats);
      behind = entry_at(item_ + 2 * step_);
      if (own.count == 0) continue;
      fill(own, asked);
      if (asked == own.count) fill(next, asked_of_next_);

      token_sums<T> sums{};
      uint4* const low = chunk_.state_low + local * (parts / 2) * 32;
      const int g = lane_ / 4;
      if (own.has_earlier) {
        sums.take_up(call_, own.row, head, low);
        const float factor = cuda::exp2_approximately(before.x - cuda::reference_score(all.x));
        const float factors[2] = {__shfl_sync(~0u, factor, g), __shfl_sync(~0u, factor, g + 8)};
#pragma unroll
        for (int j = 0; j < 64; ++j) sums.out[j] *= factors[j / 2 % 2];
      }
      for (int i = 0; i < own.count; ++i) {
        wait_for(ready_ + from_.stage, from_.parity);
        const float factors[2] = {weights_[i][g], weights_[i][g + 8]};
#pragma unroll
        for (int part = 0; part < parts; ++part) sums.add(results_[from_.stage][part][lane_], part, factors[part / 4]);
        __syncwarp();
        from_.next();
        ++free_;
        fill(own, asked);
        if (asked == own.count) fill(next, asked_of_next_);
      }
      if (own.has_later) {
        sums.leave(call_, own.row, head, low);
        if (lane_ < token_heads) *state_stats = all;
        continue;
      }
      const float inverses[2] = {cuda::inverse_sum(__shfl_sync(~0u, all.y, g)),
                                 cuda::inverse_sum(__shfl_sync(~0u, all.y, g + 8))};
      write_token<T>(call_, own.row, head, sums.out, inverses);
      if (lane_ < call_.group) write_lse(call_, own.row, head, lane_, all.x, all.y);
    }
  }

 private:
  __device__ token_entry entry_at(std::int64_t item) const {
    token_entry entry{};
    if (item >= end_) return entry;
    entry.token = chunk_.tokens[item];
    if (lane_ < chunk_.topk) entry.block = chunk_.blocks[item * chunk_.topk + lane_];
    return entry;
  }

  /// Greatest score and sum of row `lane % 16` of every second block, to be used later.
  __device__ void load_stats(const token_blocks& of, float2 (&stats)[most_pairs_of_lane]) const {
#pragma unroll
    for (int i = 0; i < most_pairs_of_lane; ++i) {
      if (i * 2 >= of.count) break;
      const int block = i * 2 + lane_ / token_heads;
      const std::uint32_t place = __shfl_sync(~0u, of.place, (of.first + block) % 32);
      stats[i] = block < of.count
                     ? __ldcs(chunk_.partial_stats + std::int64_t{place} * token_heads + lane_ % token_heads)
                     : float2{-CUDART_INF_F, 0};
    }
  }

  /// Weights of the blocks; greatest score and sum of row `lane % 16`, of those before as well.
  __device__ float2 weigh(const token_blocks& of, const float2 (&stats)[most_pairs_of_lane], float2 before) {
    const int row = lane_ % token_heads;
    float most = before.x;
#pragma unroll
    for (int i = 0; i < most_pairs_of_lane; ++i) {
      if (i * 2 >= of.count) break;
      most = fmaxf(most, stats[i].x);
    }
    most = fmaxf(most, __shfl_xor_sync(~0u, most, token_heads));
    const float reference = cuda::reference_score(most);
#pragma unroll
    for (int i = 0; i < most_pairs_of_lane; ++i) {
      if (i * 2 >= of.count) break;
      weights_[i * 2 + lane_ / token_heads][row] = stats[i].y * cuda::exp2_approximately(stats[i].x - reference);
    }
    __syncwarp();
    float sum = before.y * cuda::exp2_approximately(before.x - reference);
    for (int i = 0; i < of.count; ++i) sum += weights_[i][row];
    return {most, sum};
  }

  /// Asks for results of a token, in the order of its blocks, as long as there is room.
  __device__ void fill(const token_blocks& of, int& asked) {
    for (; free_ > 0 && asked < of.count; --free_, ++asked, to_.next()) {
      const std::uint32_t place = __shfl_sync(~0u, of.place, of.first + asked);
      if (lane_ != 0) continue;
      constexpr std::uint32_t bytes = sizeof(results_[0]);
      arrive_expecting(ready_ + to_.stage, bytes);
      copy_bytes(results_[to_.stage], chunk_.partial_out + std::int64_t{place} * parts * 32, bytes, ready_ + to_.stage,
                 policy_);
    }
  }

  const attend_call& call_;
  const attend_chunk& chunk_;
  const std::uint32_t range_;
  const int warp_, lane_;
  uint4 (&results_)[stages][parts][32];
  float (&weights_)[most_listed][token_heads];
  barrier (&ready_)[stages];
  const std::uint64_t policy_;
  std::int64_t item_, end_, step_;
  ring_place<stages> from_, to_;
  int free_ = stages, asked_of_next_ = 0;
};

template <class T>
__global__ void __launch_bounds__(32 * combine_warps, 1)
    combine_blocks(const __grid_constant__ attend_call call, const __grid_constant__ attend_chunk chunk,
                   attend_pass pass) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<combine_shared*>(memory);
  if (threadIdx.x == 0) {
    for (auto& of_warp : shared.ready)
      for (barrier& b : of_warp) make_barrier(&b, 1);
    publish_barriers();
  }
  __syncthreads();
  if (pass.first_work(chunk) == pass.end_work(chunk)) {
    begin_in_turn();
    return;
  }
  combiner<T>(call, chunk, pass, shared).run();
}

template <class T>
void combine_as(const attend_call& call, const attend_chunk& chunk, attend_pass pass, cudaStream_t stream) {
  cuda::allow_shared_memory(combine_blocks<T>, sizeof(combine_shared));
  const std::int64_t tokens = chunk.heads_of_group * chunk.tokens_of_head();
  const auto blocks =
      static_cast<unsigned>(std::min<std::int64_t>(cuda::multiprocessors(), cuda::ceil_div(tokens, combine_warps)));
  launch_in_turn(combine_blocks<T>, blocks, 32 * combine_warps, sizeof(combine_shared), stream, call, chunk, pass);
}

}  // namespace

void combine_scattered_tokens(const attend_call& call, const attend_chunk& chunk, attend_pass pass,
                              cudaStream_t stream) {
  if (same_type(call.q_type, bf16_type))
    combine_as<__nv_bfloat16>(call, chunk, pass, stream);
  else
    combine_as<__half>(call, chunk, pass, stream);
}

}  // namespace msabench::cuda_sm90
