// SPDX-License-Identifier: Apache-2.0
// A thread block for each piece of a list of readers. The 128 keys and values of the block stay in shared memory; rows
// (token, query head) that read it come by, 64 at a time, brought by a warp of their own. Two warpgroups have 64 keys each,
// and sums of their dk and dv in registers. Scores and dP are products of keys by rows, so that P and dS are left operands
// of these sums without leaving their lanes. dS goes to shared memory as well, where it is a left operand of rows by keys:
// each warpgroup then has half of the columns of dq of all 128 keys.
//
// Of a step, 64 rows: 10 * 64 * 128 * 128 FLOPs, all of them useful but those of hidden keys; 32 KiB come in, 32 KiB of dq
// go out.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/backward_run.cuh"
#include "kernels/cuda_sm90/block_tiles.cuh"

namespace msabench::cuda_sm90 {
namespace {

using cuda::piece_sums;
using cuda::reading;
using cuda::row_sums;

constexpr int multipliers = 2 * group_threads, threads = group_threads + multipliers;
constexpr int multiplier_registers = 240, copier_registers = 24;
constexpr int least_group = 4, most_tokens = step_rows / least_group;
constexpr int multipliers_meet = 1;  // id of their barrier

struct shared_memory {
  static constexpr int stages = 3;
  struct stage {
    row_tile queries, d_out;
  };
  key_tile keys, values;
  /// [key][row], by turns: one is written while another warpgroup may still read the one before.
  unsigned char ds[2][key_panel_bytes];
  stage rows[stages];
  row_sums sums[stages][step_rows];
  std::int32_t seen[stages][most_tokens];  ///< keys of the block, the first ones, that a token sees
  barrier full[stages], empty[stages];
};
static_assert(sizeof(row_sums) == 8);
constexpr int shared_bytes = sizeof(shared_memory) + swizzle_atom_bytes;

using ring = ring_place<shared_memory::stages>;

/// visit(item, reading) for the pieces of this thread block that have keys, and something to be done for them: no readers
/// leave what is kept as it is.
template <class Visit>
__device__ void for_each_piece(const backward_run& r, const Visit& visit) {
  const cuda::block_readers& readers = r.parts.readers;
  const std::int64_t items = readers.all_pieces();
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const reading task = readers.at(item, 0, block_keys);
    if (task.keys.count > 0 && (task.tokens > 0 || r.first || r.last)) visit(item, task);
  }
}

__device__ int tokens_of_step(const backward_call& c) { return step_rows / c.group; }

/// One warp. A lane copies what belongs to one token.
__device__ void copy_rows(const backward_run& r, shared_memory& m) {
  const backward_call& c = r.parts.call;
  constexpr int lanes = 32;
  const int lane = threadIdx.x % lanes, step_tokens = tokens_of_step(c);
  const auto sums_bytes = static_cast<std::uint32_t>(c.group * sizeof(row_sums));
  ring place;
  for_each_piece(r, [&](std::int64_t, const reading& task) {
    const std::int64_t end = c.rows.cu_seqlens_q[task.keys.sequence + 1], length = c.rows.kv_lens[task.keys.sequence];
    const std::int64_t first_hidden = length - end + 1 - task.keys.first;  // of the token in row 0, if it were there
    // Lists are read some steps ahead, as a reading takes as long as a good part of a step.
    const auto token_at = [&](int i) { return i < task.tokens ? static_cast<std::int32_t>(task.token(i)) : -1; };
    std::int32_t own = -1, next = token_at(lane);
    for (int first = 0; first < task.tokens; first += step_tokens, place.next()) {
      if (first % lanes == 0) {
        own = next;
        next = token_at(first + lanes + lane);
      }
      const std::int32_t token = __shfl_sync(~0u, own, (first + lane) % lanes);
      const bool mine = lane < step_tokens, there = mine && token >= 0;
      const int present = __popc(__ballot_sync(~0u, there));
      barrier* const full = &m.full[place.stage];
      row_sums* const sums = m.sums[place.stage] + lane * c.group;
      wait_for(&m.empty[place.stage], place.parity ^ 1);
      if (mine) {
        const std::int64_t seen = there ? first_hidden + token : 0;
        m.seen[place.stage][lane] = static_cast<std::int32_t>(min(seen, std::int64_t{task.keys.count}));
        if (!there) {
          for (int i = 0; i < c.group; ++i) sums[i] = {0, 0};
          fence_for_async();  // before a copy of a later step
        }
      }
      arrive_all_expecting(full, sizeof(shared_memory::stage) + present * sums_bytes);
      __syncwarp();
      if (mine) {
        // Rows before the first one read as zeros.
        const std::int32_t head = task.head * c.group, row = there ? token : -1;
        shared_memory::stage& to = m.rows[place.stage];
#pragma unroll
        for (int panel = 0; panel < 2; ++panel) {
          const int at = lane * c.group * static_cast<int>(swizzle_row_bytes);
          copy_box<3>(to.queries.panel[panel] + at, r.q, {panel * head_columns / 2, head, row}, full);
          copy_box<3>(to.d_out.panel[panel] + at, r.d_out, {panel * head_columns / 2, head, row}, full);
        }
        if (there)
          ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, sums, &r.parts.sums_of(token, head), sums_bytes,
                             full);
      }
      __syncwarp();
    }
  });
}

/// By all that multiply.
__device__ void copy_keys(const backward_call& c, const reading& task, shared_memory& m) {
  const int thread = threadIdx.x - group_threads;
  copy_key_tile<multipliers>(m.keys, {c.keys, task.keys.sequence, task.head}, task, thread);
  copy_key_tile<multipliers>(m.values, {c.values, task.keys.sequence, task.head}, task, thread);
  finish_key_tiles();
}

/// dq of the rows of a step, of which there are so many, half of the columns.
__device__ void store_dq(const group_place& at, const float (&dq)[lane_values], float* to, int rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (at.row(half) >= rows) continue;
    float* const line = to + at.row(half) * head_columns + at.group * (head_columns / 2);
#pragma unroll
    for (int n = 0; n < lane_values / 4; ++n)
      __stcs(reinterpret_cast<float2*>(line + at.column(n)),
             make_float2(dq[n * 4 + half * 2], dq[n * 4 + half * 2 + 1]));
  }
}

/// dk and dv of a piece: to its slot, or to where those of its list belong.
__device__ void store_sums(const backward_run& r, const group_place& at, std::int64_t list, const reading& task,
                           const float (&dk)[sum_values], const float (&dv)[sum_values]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = at.group * group_keys + at.row(half);
    if (key >= task.keys.count) continue;
#pragma unroll
    for (int n = 0; n < sum_values / 4; ++n) {
      const int column = at.column(n), i = n * 4 + half * 2;
      const float2 k = make_float2(dk[i], dk[i + 1]), v = make_float2(dv[i], dv[i + 1]);
      if (task.slot >= 0) {
        float* const sums = r.parts.pieces.at(task.slot) + key * head_columns + column;
        *reinterpret_cast<float2*>(sums) = k;
        *reinterpret_cast<float2*>(sums + block_keys * head_columns) = v;
      } else {
        r.finish(list, task.first_key + key, task.head, key, column, k, v);
      }
    }
  }
}

/// One of the warpgroups that multiply.
template <class T>
__device__ void multiply_rows(const backward_run& r, shared_memory& m) {
  const backward_call& c = r.parts.call;
  const group_place at;
  const int step_tokens = tokens_of_step(c), group_shift = __ffs(c.group) - 1;
  const float scale = c.scale * cuda::log2e;
  const std::uint32_t own_keys = at.group * group_keys * swizzle_row_bytes;
  const std::uint64_t keys = k_major_descriptor(cuda::shared_address(&m.keys) + own_keys);
  const std::uint64_t values = k_major_descriptor(cuda::shared_address(&m.values) + own_keys);
  const std::uint64_t key_columns = mn_major_descriptor(cuda::shared_address(m.keys.panel[at.group]), 0);
  // Of the matrices of 8 by 8 that a warp stores at a time, the second and fourth are of the next 8 keys, the third and
  // fourth of the next 8 rows.
  const int stored_key = at.group * group_keys + at.first_row + at.lane % 16;
  const std::uint32_t stored_at = cuda::shared_address(m.ds) + swizzled(stored_key, at.lane / 16 * 16);
  constexpr std::uint32_t ds_bytes = sizeof m.ds[0];
  ring place;
  int turn = 0;
  for_each_piece(r, [&](std::int64_t item, const reading& task) {
    meet(multipliers_meet, multipliers);  // all are done with the keys before
    copy_keys(c, task, m);
    meet(multipliers_meet, multipliers);
    float dk[sum_values] = {}, dv[sum_values] = {};
    const std::int64_t list = r.list_of(item);
    float* dq_at = r.dq + r.first_place(task, list) * c.group * head_columns;
    for (int first = 0; first < task.tokens; first += step_tokens, dq_at += step_rows * head_columns) {
      const shared_memory::stage& rows = m.rows[place.stage];
      const std::uint32_t queries = cuda::shared_address(&rows.queries), d_out = cuda::shared_address(&rows.d_out);
      wait_for(&m.full[place.stage], place.parity);
      float p[lane_values], ds[lane_values], dq[lane_values];
      begin_products();
      multiply_by_rows<T>(p, keys, k_major_descriptor(queries));
      multiply_by_rows<T>(ds, values, k_major_descriptor(d_out));
      finish_products<1>();
      pin(p);
      const row_sums* const sums = m.sums[place.stage];
      const std::int32_t* const seen = m.seen[place.stage];
#pragma unroll
      for (int n = 0; n < lane_values / 4; ++n) {
        const float4 two = *reinterpret_cast<const float4*>(sums + at.column(n));
        const int hidden = seen[at.column(n) >> group_shift] - at.group * group_keys;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float weight = power_of_2(p[n * 4 + i] * scale - (i % 2 == 0 ? two.x : two.z));
          p[n * 4 + i] = at.row(i / 2) < hidden ? weight : 0;
        }
      }
      std::uint32_t operand[row_steps][4];
      pack<T>(operand, p);
      begin_products();
      add_rows<T>(dv, operand, mn_major_descriptor(d_out, row_panel_bytes));
      finish_products<1>();
      pin(ds);
#pragma unroll
      for (int n = 0; n < lane_values / 4; ++n) {
        const float4 two = *reinterpret_cast<const float4*>(sums + at.column(n));
#pragma unroll
        for (int i = 0; i < 4; ++i) ds[n * 4 + i] = p[n * 4 + i] * (ds[n * 4 + i] - (i % 2 == 0 ? two.y : two.w));
      }
      std::uint32_t ds_operand[row_steps][4];
      pack<T>(ds_operand, ds);
#pragma unroll
      for (int step = 0; step < row_steps; ++step)
        store_matrices((stored_at + turn * ds_bytes) ^ (step * 32), ds_operand[step]);
      begin_products();
      add_rows<T>(dk, ds_operand, mn_major_descriptor(queries, row_panel_bytes));
      fence_for_async();
      meet(multipliers_meet, multipliers);
      const std::uint64_t rows_by_keys = mn_major_descriptor(cuda::shared_address(m.ds[turn]), 0);
      begin_products();
#pragma unroll
      for (int step = 0; step < key_steps; ++step)
        multiply<T, head_columns / 2, major::mn, major::mn>(dq, rows_by_keys + step * mn_major_step,
                                                            key_columns + step * mn_major_step, step > 0);
      commit_products();
      finish_products<0>();
      pin(dk);
      pin(dv);
      pin(dq);
      arrive(&m.empty[place.stage]);
      store_dq(at, dq, dq_at, (task.tokens - first) * c.group);
      place.next();
      turn ^= 1;
    }
    store_sums(r, at, list, task, dk, dv);
  });
}

template <class T>
__global__ void __launch_bounds__(threads, 1) block_gradients(const __grid_constant__ backward_run r) {
  extern __shared__ char shared[];
  auto& m = aligned_memory<shared_memory>(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < shared_memory::stages; ++i) {
      make_barrier(&m.full[i], 32);
      make_barrier(&m.empty[i], multipliers);
    }
    publish_barriers();
    prefetch_map(r.q);
    prefetch_map(r.d_out);
  }
  __syncthreads();
  if (threadIdx.x < group_threads) {
    give_registers<copier_registers>();
    if (threadIdx.x < 32) copy_rows(r, m);
  } else {
    take_registers<multiplier_registers>();
    multiply_rows<T>(r, m);
  }
}

/// dk and dv of the keys of long lists, piece after piece: a thread block for each list.
__global__ void __launch_bounds__(multipliers) add_pieces(const __grid_constant__ backward_run r) {
  const cuda::block_readers& readers = r.parts.readers;
  for (std::int64_t list = blockIdx.x; list < readers.lists(); list += gridDim.x) {
    if (readers.slots[list] < 0) continue;
    const std::int64_t number = list % readers.blocks;
    const auto head = static_cast<std::int32_t>(list / readers.blocks);
    const reading task = readers.at(readers.first_piece(head, number), 0, block_keys);
    const std::int64_t pieces = readers.pieces_of(head, number);
    for (int i = threadIdx.x; i < task.keys.count * head_columns / 2; i += multipliers) {
      float2 dk = make_float2(0, 0), dv = make_float2(0, 0);
      for (std::int64_t piece = 0; piece < pieces; ++piece) {
        const auto* const sums = reinterpret_cast<const float2*>(r.parts.pieces.at(task.slot + piece)) + i;
        const float2 k = sums[0], v = sums[block_keys * head_columns / 2];
        dk = make_float2(dk.x + k.x, dk.y + k.y);
        dv = make_float2(dv.x + v.x, dv.y + v.y);
      }
      const int key = i / (head_columns / 2), column = i % (head_columns / 2) * 2;
      r.finish(list, task.first_key + key, head, key, column, dk, dv);
    }
  }
}

}  // namespace

template <class T>
void add_block_gradients(const backward_run& r, cudaStream_t stream) {
  cuda::allow_shared_memory(block_gradients<T>, shared_bytes);
  const cuda::block_readers& readers = r.parts.readers;
  block_gradients<T><<<cuda::grid_blocks(readers.most_pieces(), 1, 64), threads, shared_bytes, stream>>>(r);
  if (readers.most_slots() > 0) add_pieces<<<cuda::grid_blocks(readers.lists(), 1), multipliers, 0, stream>>>(r);
}

template void add_block_gradients<__nv_bfloat16>(const backward_run&, cudaStream_t);
template void add_block_gradients<__half>(const backward_run&, cudaStream_t);

}  // namespace msabench::cuda_sm90
