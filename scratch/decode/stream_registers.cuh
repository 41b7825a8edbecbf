// SPDX-License-Identifier: Apache-2.0
// NOT TO BE MERGED. The other way to stream keys: straight into registers, each group of loads replaced by the next unit's
// as soon as it is multiplied. For the bench only, eight rows.
#pragma once

#include "kernels/cuda_sm90/score_stream.cuh"

namespace msabench::cuda_sm90 {

template <class T, int warps_, int resident_>
struct register_shape {
  using value = T;
  static constexpr int octets = 1, rows = 8, warps = warps_, threads = 32 * warps, resident = resident_;
  static constexpr int unit_keys = 32, width = 128, pieces = 16, row_bytes = 256;
  struct memory {
    uint4 queries[rows * pieces];
    std::int64_t places[rows];
    int seen[rows];
  };
};

template <class S>
__global__ void __launch_bounds__(S::threads, S::resident) stream_registers(const __grid_constant__ score_stream_call s) {
  using T = typename S::value;
  __shared__ typename S::memory shared;
  const index_call& c = s.index;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  cuda::let_next_begin();
  prefetch_pages(c);
  sequence_blocks sequences(c);
  const auto share = block_share(sequences.all());
  const int begin = share.begin, end = share.end;
  if (begin >= end) return;
  sequences.seek(begin);
  const std::uint64_t policy = read_once();
  const int key_bytes = static_cast<int>(c.keys.token_stride * 2);
  unit_walk ahead(c, sequences, begin + warp, S::warps, end);
  uint4 keys[4][4];
  const auto load = [&](int j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const char* const from = ahead.address() + min(8 * i + g, ahead.keys() - 1) * key_bytes + (4 * j + t) * 16;
      uint4& x = keys[j][i];
      asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
                   : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                   : "l"(from), "l"(policy));
    }
  };
  if (ahead.there())
#pragma unroll
    for (int j = 0; j < 4; ++j) load(j);
  if (ahead.there()) ahead.next();
  for (;; sequences.next()) {
    const int from = max(sequences.begin, begin), to = min(sequences.end, end);
    if (from < to) {
      const std::int64_t first_row = c.rows.cu_seqlens_q[sequences.sequence];
      const std::int64_t tokens = c.rows.cu_seqlens_q[sequences.sequence + 1] - first_row;
      const std::int64_t first_sees = c.rows.kv_lens[sequences.sequence] - tokens + 1;
      const int rows = static_cast<int>(min(tokens, std::int64_t{S::rows / c.heads})) * c.heads;
      const int visible = sequences.keys(), all_see = cuda::keys_seen(c, first_sees, 0);
      __syncthreads();
      load_rows<S>(s, first_row, rows, first_sees, shared);
      __syncthreads();
      for (int block = from + (warp + S::warps - (from - begin) % S::warps) % S::warps; block < to; block += S::warps) {
        const int first_key = (block - sequences.begin) * decode_block;
        const int last_key = min(first_key + decode_block, visible);
        float best[1][2] = {{-CUDART_INF_F, -CUDART_INF_F}};
#pragma unroll 1
        for (int key = first_key; key < last_key; key += 32) {
          float products[2][1][4] = {};
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const cuda::query_operands low(keys[j][0], keys[j][1]), high(keys[j][2], keys[j][3]);
            const uint4 q = shared.queries[cuda::placed<16>(g, 4 * j + t)];
            cuda::mma<T>(products[0][0], low.first, q.x, q.y);
            cuda::mma<T>(products[1][0], high.first, q.x, q.y);
            cuda::mma<T>(products[0][0], low.second, q.z, q.w);
            cuda::mma<T>(products[1][0], high.second, q.z, q.w);
            if (ahead.there()) load(j);
          }
          if (ahead.there()) ahead.next();
          if (key + 32 > all_see || last_key - key < 32) hide_unseen<S>(key, shared.seen, products);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            best[0][i % 2] = fmaxf(best[0][i % 2], fmaxf(products[0][0][i], products[1][0][i]));
        }
        write_scores<S>(s, best, rows, block - sequences.begin, shared.places);
      }
    }
    if (sequences.end >= end) break;
  }
}

}  // namespace msabench::cuda_sm90
