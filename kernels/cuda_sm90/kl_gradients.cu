// SPDX-License-Identifier: Apache-2.0
// Losses and gradients of readings, once the normalisers of rows are known: a thread block for each piece of a list of
// readers. The block's keys of both branches stay in shared memory; 64 rows, four tokens' heads, come by at a time, brought by
// four warps of their own. Two warpgroups have 64 keys each. Scores are products of keys by rows, so that the mean over heads,
// which are columns, takes few exchanges: each lane gets that of one token for two keys.
//
// After 16 such steps a warpgroup has the teacher of 64 tokens, in shared memory, takes the student from their index queries,
// and has differences P' - P as a left operand of dk_idx. They go to shared memory as well, where they are a left operand of
// tokens by keys: each warpgroup then has half of the columns of dq_idx of all 128 keys.
#include <cfloat>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/kl_run.cuh"

namespace msabench::cuda_sm90 {
namespace {

using cuda::reading;

constexpr int multipliers = 2 * group_threads, threads = group_threads + multipliers;
constexpr int multiplier_registers = 232, copier_registers = 40;
constexpr int multipliers_meet = 1;  // id of their barrier

struct shared_memory {
  static constexpr int stages = 6;
  key_tile keys, index_keys;
  /// High and low part of differences, [key][column] each, see split_value. While steps go on the teacher lies there, each
  /// warp's where its differences will be.
  unsigned char differences[2][key_panel_bytes];
  row_tile queries[stages], index_queries;
  float lse[stages][step_rows];
  float index_lse[batch_tokens];
  std::int32_t seen[batch_tokens];  ///< keys of the block, the first ones, that the token of a column sees
  barrier full[stages], empty[stages];
  /// Index queries of a batch are there, and are done with; differences of a batch are done with.
  barrier batch_full, batch_empty, compared;
};
constexpr int shared_bytes = sizeof(shared_memory) + swizzle_atom_bytes;
constexpr std::uint32_t part_bytes = key_panel_bytes;

/// Columns of a batch. Lane t of four gets the teacher of token t of each step, and has columns 8n + 2t and the next one of
/// a product: those of steps 2n and 2n + 1.
__device__ int column_of(int token) {
  const int step = token / step_tokens;
  return step / 2 * 8 + token % step_tokens * 2 + step % 2;
}
__device__ int token_of(int column) { return (column / 8 * 2 + column % 2) * step_tokens + column % 8 / 2; }

/// Steps of a batch that has so many tokens; they go in pairs.
__device__ int steps_of(int tokens) { return min((tokens + 2 * step_tokens - 1) / (2 * step_tokens) * 2, batch_steps); }

/// A warp of four.
__device__ void copy_rows(const kl_run& r, shared_memory& m) {
  const bool first_lane = threadIdx.x % 32 == 0;
  ring_place<shared_memory::stages> place;
  std::uint32_t batch_parity = 0;
  for_each_piece(r, [&](std::int64_t, const reading& task) {
    batch_reader batch(r, task);
    for (int first = 0; first < task.tokens; first += batch_tokens, batch_parity ^= 1) {
      batch.begin(first);
      const int column = column_of(batch.place());
      const float index_lse = batch.token() < 0 ? 0.0f : r.parts.lse_of(batch.token(), task.head)[cuda::kl_heads];
      const int steps = steps_of(task.tokens - first);
      // Index queries come when the batch before is done with its own, as it is when half of the steps are.
      const int with_index = min(steps - 1, batch_steps / 2);
      for (int step = 0; step < steps; ++step, place.next()) {
        const std::int32_t token = batch.token_of(step);
        constexpr std::uint32_t lse_bytes = kl_heads * sizeof(float);
        row_tile& queries = m.queries[place.stage];
        float* const lse = m.lse[place.stage] + batch.warp() * kl_heads;
        barrier* const full = &m.full[place.stage];
        wait_for(&m.empty[place.stage], place.parity ^ 1);
        if (first_lane) {
          if (token < 0) {
            for (int head = 0; head < kl_heads; ++head) lse[head] = 0;
            fence_for_async();  // before a copy of a later step
          }
          arrive_expecting(full, copied_bytes + (token < 0 ? 0 : lse_bytes));
          copy_heads(queries, batch.warp() * kl_heads, r, task.head, token, full);
          if (token >= 0)
            ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, lse, r.parts.lse_of(token, task.head), lse_bytes,
                               full);
        }
        __syncwarp();
        if (step != with_index) continue;
        wait_for(&m.batch_empty, batch_parity ^ 1);
        if (batch.has_place()) {
          m.seen[column] = batch.seen();
          m.index_lse[column] = index_lse;
        }
        arrive_all_expecting(&m.batch_full, copied_bytes);
        __syncwarp();
        if (batch.has_place()) copy_index_head(m.index_queries, column, r, task.head, batch.token(), &m.batch_full);
        __syncwarp();
      }
    }
  });
}

/// Of a lane's columns of a step.
using lane_lse = float2[lane_values / 4];

__device__ void load_lse(lane_lse& lse, const float* from) {
#pragma unroll
  for (int n = 0; n < lane_values / 4; ++n)
    lse[n] = *reinterpret_cast<const float2*>(from + n * 8 + threadIdx.x % 4 * 2);
}

/// Of the products of a step, weights summed over heads: of one token for two keys.
__device__ float2 sum_heads(const float (&products)[lane_values], const lane_lse& lse, float scale) {
  const int t = threadIdx.x % 4;
  float sums[step_tokens][2];
#pragma unroll
  for (int token = 0; token < step_tokens; ++token) {
    sums[token][0] = sums[token][1] = 0;
#pragma unroll
    for (int n = token * 2; n < token * 2 + 2; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        sums[token][half] += power_of_2(fmaf(products[n * 4 + half * 2], scale, -lse[n].x)) +
                             power_of_2(fmaf(products[n * 4 + half * 2 + 1], scale, -lse[n].y));
    }
  }
  // Lanes give away the tokens of others: two of four, then one of two.
  const bool upper = t >= 2, odd = t % 2 != 0;
  float result[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float kept[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      kept[i] = (upper ? sums[i + 2][half] : sums[i][half]) +
                __shfl_xor_sync(~0u, upper ? sums[i][half] : sums[i + 2][half], 2);
    result[half] = (odd ? kept[1] : kept[0]) + __shfl_xor_sync(~0u, odd ? kept[0] : kept[1], 1);
  }
  return make_float2(result[0], result[1]);
}

/// Of a normal number. The instruction is off by 2^-22 between 1/2 and 2, and by more elsewhere.
__device__ float log2_of(float x) {
  const int bits = __float_as_int(x);
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(__int_as_float((bits & 0x7fffff) | 0x3f800000)));
  return y + static_cast<float>((bits >> 23) - 127);
}

/// dq of the tokens of a batch, half of the columns.
__device__ void store_dq(const kl_run& r, const group_place& at, const piece_readings& readings, int tokens, int first,
                         const float (&dq)[lane_values]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int token = first + token_of(at.row(half));
    if (token >= tokens) continue;
    float* const line = r.parts.dq_parts + readings.at(token) * head_columns + at.group * (head_columns / 2);
#pragma unroll
    for (int n = 0; n < lane_values / 4; ++n)
      __stcs(reinterpret_cast<float2*>(line + at.column(n)),
             make_float2(dq[n * 4 + half * 2], dq[n * 4 + half * 2 + 1]));
  }
}

/// One of the warpgroups that multiply.
template <class T>
class multiplier {
 public:
  __device__ multiplier(const kl_run& run, shared_memory& memory)
      : r_(run),
        m_(memory),
        scale_(run.parts.call.scale * cuda::log2e),
        index_scale_(run.parts.call.index_scale * cuda::log2e) {
    const std::uint32_t own_keys = at_.group * group_keys * swizzle_row_bytes;
    keys_ = k_major_descriptor(cuda::shared_address(&m_.keys) + own_keys);
    index_keys_ = k_major_descriptor(cuda::shared_address(&m_.index_keys) + own_keys);
    key_columns_ = mn_major_descriptor(cuda::shared_address(m_.index_keys.panel[at_.group]), 0);
    const int first_key = at_.group * group_keys + at_.first_row;
    teacher_at_ = cuda::shared_address(m_.differences) + first_key * swizzle_row_bytes + at_.lane * sizeof(float4);
    // Of the matrices of 8 by 8 that a warp stores at a time, the second and fourth are of the next 8 keys, the third and
    // fourth of the next 8 columns.
    stored_at_ = cuda::shared_address(m_.differences) + swizzled(first_key + at_.lane % 16, at_.lane / 16 * 16);
  }

  __device__ void run() {
    for_each_piece(r_, [&](std::int64_t item, const reading& task) {
      meet(multipliers_meet, multipliers);  // all are done with the keys before
      int thread = threadIdx.x - group_threads;
      asm volatile("" : "+r"(thread));  // places of its copies are not kept in registers until the next piece
      copy_keys<multipliers>(r_, task, m_.keys, m_.index_keys, thread);
      meet(multipliers_meet, multipliers);
      const piece_readings readings(r_, task);
      float dk[sum_values] = {};
      double loss = 0;
      for (int first = 0; first < task.tokens; first += batch_tokens) {
        take_teacher(steps_of(task.tokens - first));
        loss += compare(task, readings, first, dk);
        batch_parity_ ^= 1;
      }
      store_sums(item, dk, loss);
    });
  }

 private:
  /// The place of four values of the teacher: of steps 2n and 2n + 1 for two keys.
  __device__ float4* teacher(int n) const {
    constexpr int lines = 4;  // of 512 bytes in a warp's 16 keys
    const std::uint32_t at = teacher_at_ + n / lines * part_bytes + n % lines * 32 * sizeof(float4);
    return static_cast<float4*>(__cvta_shared_to_generic(at));
  }

  /// A step's products are enqueued; its queries are free as soon as these are done.
  __device__ void begin_step(float (&products)[lane_values], lane_lse& lse) {
    wait_for(&m_.full[place_.stage], place_.parity);
    begin_products();
    multiply_by_rows<T>(products, one_for_all(keys_),
                        one_for_all(k_major_descriptor(cuda::shared_address(&m_.queries[place_.stage]))));
    load_lse(lse, m_.lse[place_.stage]);
    place_.next();
  }
  template <int pending>
  __device__ float2 finish_step(float (&products)[lane_values], const lane_lse& lse, int stage) const {
    finish_products<pending>();
    pin(products);
    arrive(&m_.empty[stage]);
    return sum_heads(products, lse, scale_);
  }

  __device__ void take_teacher(int steps) {
    for (int step = 0; step < steps; step += 2) {
      float first[lane_values], second[lane_values];
      lane_lse first_lse, second_lse;
      const int first_stage = place_.stage;
      begin_step(first, first_lse);
      const int second_stage = place_.stage;
      begin_step(second, second_lse);
      const float2 even = finish_step<1>(first, first_lse, first_stage);
      keep_before_wait(even.x);
      const float2 odd = finish_step<0>(second, second_lse, second_stage);
      // Another warpgroup may still multiply differences of the batch before.
      if (step == 0) wait_for(&m_.compared, batch_parity_ ^ 1);
      *teacher(step / 2) = make_float4(even.x, odd.x, even.y, odd.y);
    }
  }

  /// The tokens of a batch. Returns what this lane has of their losses.
  __device__ double compare(const reading& task, const piece_readings& readings, int first, float (&dk)[sum_values]) {
    const std::uint32_t queries = cuda::shared_address(&m_.index_queries);
    wait_for(&m_.batch_full, batch_parity_);
    float products[lane_values];
    begin_products();
    multiply_by_rows<T>(products, index_keys_, k_major_descriptor(queries));
    finish_products<0>();
    pin(products);
    std::uint32_t high[row_steps][4], low[row_steps][4];  // left operands
    float loss = 0;
#pragma unroll
    for (int n = 0; n < lane_values / 4; ++n) {
      constexpr float share = 1.0f / kl_heads;
      const float4 four = *teacher(n);
      const float weights[4] = {four.x, four.y, four.z, four.w};
      const float2 lse = *reinterpret_cast<const float2*>(m_.index_lse + at_.column(n));
      const int2 seen = *reinterpret_cast<const int2*>(m_.seen + at_.column(n));
      float parts[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool sees = at_.group * group_keys + at_.row(i / 2) < (i % 2 == 0 ? seen.x : seen.y);
        const float exponent = fmaf(products[n * 4 + i], index_scale_, -(i % 2 == 0 ? lse.x : lse.y));
        const float weight = weights[i] * share;
        // What is below the normal numbers has no exponentials either.
        loss += sees && weight >= FLT_MIN ? weight * (log2_of(weight) - exponent) : 0.0f;
        const cuda::split_value<T> difference(sees ? power_of_2(exponent) - weight : 0.0f);
        parts[0][i] = difference.high;
        parts[1][i] = difference.low;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        high[n / 2][n % 2 * 2 + half] = cuda::storage<T>::pack(parts[0][half * 2], parts[0][half * 2 + 1]);
        low[n / 2][n % 2 * 2 + half] = cuda::storage<T>::pack(parts[1][half * 2], parts[1][half * 2 + 1]);
      }
    }
    const std::uint64_t rows = mn_major_descriptor(queries, row_panel_bytes);
    begin_products();
    add_rows<T>(dk, high, rows);
    add_rows<T>(dk, low, rows);
    __syncwarp();  // all lanes have their teacher
#pragma unroll
    for (int step = 0; step < row_steps; ++step) {
      store_matrices(stored_at_ ^ (step * 32), high[step]);
      store_matrices((stored_at_ + part_bytes) ^ (step * 32), low[step]);
    }
    fence_for_async();
    meet(multipliers_meet, multipliers);
    float dq[lane_values];
    const std::uint64_t tokens_by_keys = mn_major_descriptor(cuda::shared_address(&m_.differences), 0);
    begin_products();
#pragma unroll
    for (int part = 0; part < 2; ++part)
#pragma unroll
      for (int step = 0; step < key_steps; ++step)
        multiply<T, head_columns / 2, major::mn, major::mn>(
            dq, tokens_by_keys + (part * part_bytes >> 4) + step * mn_major_step, key_columns_ + step * mn_major_step,
            part + step > 0);
    commit_products();
    finish_products<0>();
    pin(dk);
    pin(dq);
    arrive(&m_.batch_empty);
    arrive(&m_.compared);
    store_dq(r_, at_, readings, task.tokens, first, dq);
    return loss;
  }

  __device__ void store_sums(std::int64_t item, const float (&dk)[sum_values], double loss) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* const line = r_.dk_pieces + (item * block_keys + at_.group * group_keys + at_.row(half)) * head_columns;
#pragma unroll
      for (int n = 0; n < sum_values / 4; ++n)
        __stcs(reinterpret_cast<float2*>(line + at_.column(n)),
               make_float2(dk[n * 4 + half * 2], dk[n * 4 + half * 2 + 1]));
    }
    for (int other = 1; other < 32; other *= 2) loss += __shfl_xor_sync(~0u, loss, other);
    if (at_.lane == 0)
      r_.losses[r_.chunk * r_.loss_items() + item * kl_run::loss_warps + threadIdx.x / 32 - group_threads / 32] = loss;
  }

  const kl_run& r_;
  shared_memory& m_;
  float scale_, index_scale_;
  group_place at_;
  std::uint64_t keys_, index_keys_, key_columns_;
  std::uint32_t teacher_at_, stored_at_;
  ring_place<shared_memory::stages> place_;
  std::uint32_t batch_parity_ = 0;
};

template <class T>
__global__ void __launch_bounds__(threads, 1) compare(const __grid_constant__ kl_run r) {
  extern __shared__ char shared[];
  auto& m = aligned_memory<shared_memory>(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < shared_memory::stages; ++i) {
      make_barrier(&m.full[i], copying_warps);
      make_barrier(&m.empty[i], multipliers);
    }
    make_barrier(&m.batch_full, copying_warps * 32);
    make_barrier(&m.batch_empty, multipliers);
    make_barrier(&m.compared, multipliers);
    publish_barriers();
    prefetch_map(r.q);
    prefetch_map(r.q_idx);
  }
  __syncthreads();
  if (threadIdx.x < group_threads) {
    give_registers<copier_registers>();
    copy_rows(r, m);
  } else {
    take_registers<multiplier_registers>();
    multiplier<T>(r, m).run();
  }
}

}  // namespace

template <class T>
void compare_readings(const kl_run& r, cudaStream_t stream) {
  cuda::allow_shared_memory(compare<T>, shared_bytes);
  compare<T><<<cuda::grid_blocks(r.parts.readers.most_pieces(), 1, 64), threads, shared_bytes, stream>>>(r);
}

template void compare_readings<__nv_bfloat16>(const kl_run&, cudaStream_t);
template void compare_readings<__half>(const kl_run&, cudaStream_t);

}  // namespace msabench::cuda_sm90
