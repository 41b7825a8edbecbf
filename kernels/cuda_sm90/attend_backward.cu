// SPDX-License-Identifier: Apache-2.0
// Gradients of attention in one pass by blocks of keys (block_gradients.cu), which leaves dq of every reading in the
// scratch, and a sum of those by tokens. Each result has one writer and every sum one order.
//
// Why not dq by tokens, as in kernels/cuda: a token that gathers its own keys and values reads 64 KiB for each block, for
// 16 rows, and scores and dP are computed twice: 14 d FLOPs for each row and key. Here the block stays, and a reading
// moves 8 KiB of queries and dO, and 8 KiB of dq out and in again, a third of the bytes, for 10 d FLOPs.
#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_sm90/backward_run.cuh"
#include "kernels/cuda_sm90/operators.h"
#include "kernels/cuda_sm90/tensor_map.h"
#include "kernels/cuda_sm90/training_chunks.h"

namespace msabench::cuda_sm90 {
namespace {

using cuda::ceil_div;

constexpr int sum_threads = 128;
constexpr int batch = 8;  // loads of a thread on their way

/// Readings that a token has room for: where all keys are read, one in every list.
std::int64_t readings_of_token(const msabench_problem& p) {
  if (reads_all_keys(p)) return p.hkv * cuda::block_numbers::bound(p.total_kv, p.batch, block_keys);
  return p.hkv * std::max<std::int64_t>(1, std::min<std::int64_t>(p.topk, max_blocks(p)));
}

training_chunks chunks_of(const msabench_problem& p) {
  constexpr std::int64_t kept_readings = std::int64_t{1} << 18;  // of 8 KiB, with 16 heads each
  return {p.total_q, kept_readings, readings_of_token(p)};
}

bool takes_backward(const msabench_problem& p) {
  const std::int32_t group = p.hkv > 0 ? p.hq / p.hkv : 0;
  const bool fits = is_attention_backward(p.op) && block_size(p) == block_keys && p.d == head_columns &&
                    (group == 4 || group == 8 || group == 16);
  return fits && chunks_of(p).worthwhile();
}

/// dq of the tokens of a chunk: a thread block for each (token, KV head), slot after slot of its ids, or block after block.
__global__ void __launch_bounds__(sum_threads) add_readings(const __grid_constant__ backward_run r) {
  const backward_call& c = r.parts.call;
  const cuda::block_readers& readers = r.parts.readers;
  const std::int64_t items = (readers.end_row() - readers.first_row) * c.kv_heads;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t row = readers.first_row + item / c.kv_heads;
    const auto head = static_cast<std::int32_t>(item % c.kv_heads);
    const std::int32_t* const places = readers.places + item * c.topk;
    std::int64_t slots = c.topk, first_list = 0;
    if (!r.selected()) {
      const row_place at = c.rows.place(row);
      slots = visible_blocks(at, c.block);
      first_list = readers.list(head, readers.numbers.first(at.sequence));
    }
    const auto place_of = [&](std::int64_t slot) {
      return r.selected() ? std::int64_t{places[slot]} : (first_list + slot) * r.chunk + row - readers.first_row;
    };
    for (int i = threadIdx.x * 4; i < c.group * head_columns; i += sum_threads * 4) {
      float4 sum = make_float4(0, 0, 0, 0);
      for (std::int64_t first = 0; first < slots; first += batch) {
        float4 parts[batch];
#pragma unroll
        for (int j = 0; j < batch; ++j) {
          const std::int64_t place = first + j < slots ? place_of(first + j) : -1;
          parts[j] = place < 0 ? make_float4(0, 0, 0, 0)
                               : __ldcs(reinterpret_cast<const float4*>(r.dq + place * c.group * head_columns + i));
        }
#pragma unroll
        for (const float4& x : parts) sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
      }
      char* const line = c.dq.at(row, head * c.group + i / head_columns, c.gradient_type);
      const int column = i % head_columns;
      cuda::store_pair(line, c.gradient_type, column, sum.x * c.scale, sum.y * c.scale);
      cuda::store_pair(line, c.gradient_type, column + 2, sum.z * c.scale, sum.w * c.scale);
    }
  }
}

/// Addresses and sizes that a problem fixes.
backward_run cut(cuda::workspace_cutter& memory, const msabench_problem& p) {
  backward_run r{};
  r.chunk = chunks_of(p).tokens();
  r.parts.sums = memory.take<cuda::row_sums>(static_cast<double>(p.total_q) * p.hq);
  cuda::block_readers& readers = r.parts.readers;
  readers = cuda::block_readers::cut(memory, p, block_keys, r.chunk, least_piece);
  if (!reads_all_keys(p)) readers.places = memory.take<std::int32_t>(static_cast<double>(r.chunk) * p.hkv * p.topk);
  constexpr double list_values = 2.0 * block_keys * head_columns;
  r.parts.pieces.size = 2 * block_keys * head_columns;
  r.parts.pieces.data = memory.take<float>(static_cast<double>(readers.most_slots()) * list_values);
  const double readings = static_cast<double>(r.chunk) * static_cast<double>(readings_of_token(p));
  r.dq = memory.take<float>(readings * (p.hq / p.hkv) * p.d);
  if (r.chunk < p.total_q) r.kept = memory.take<float>(static_cast<double>(readers.lists()) * list_values);
  return r;
}

bool map_rows(CUtensorMap& map, const backward_call& c, const backward_call::token_tensor& rows) {
  // Without rows nothing is read, but the map is there.
  const bool empty = c.rows.row_bound == 0;
  const std::int64_t bytes = bytes_of(rows.type);
  return make_tensor_map(map, rows.type, empty ? c.keys.data : rows.data,
                         {{c.d, bytes, head_columns / 2},
                          {c.kv_heads * c.group, rows.head_stride * bytes, c.group},
                          {std::max<std::int64_t>(1, c.rows.row_bound), rows.row_stride * bytes, 1}});
}

template <class T>
void differentiate(backward_run& r, cudaStream_t stream) {
  const std::int64_t rows = r.parts.call.rows.row_bound;
  cuda::sum_rows<T>(r.parts, stream);
  // Without rows, keys have gradients still.
  for (std::int64_t first = 0; first == 0 || first < rows; first += r.chunk) {
    r.first = first == 0;
    r.last = first + r.chunk >= rows;
    r.parts.readers.first_row = first;
    r.parts.readers.find(stream);
    add_block_gradients<T>(r, stream);
    const std::int64_t items = std::min(r.chunk, rows - first) * r.parts.call.kv_heads;
    add_readings<<<cuda::grid_blocks(items, 1, 64), sum_threads, 0, stream>>>(r);
  }
}

}  // namespace

void attend_backward(const backward_call& call, const run_context& context) {
  if (!takes_backward(context.problem)) return cuda::attend_backward(call, context);
  if (call.rows.batch == 0 || (call.rows.row_bound == 0 && call.keys.extent == 0)) return;
  cuda::workspace_cutter memory(context.scratch);
  backward_run r = cut(memory, context.problem);
  r.parts.call = call;
  // Token tensors may have more rows than there can be tokens, for which nothing is kept.
  r.parts.call.rows.row_bound = std::min(call.rows.row_bound, context.problem.total_q);
  r.parts.readers.bind(r.parts.call.rows, call.keys.cu_seqlens_kv, call.block,
                       {call.ids, call.id_row_stride, call.id_head_stride, call.topk});
  if (!map_rows(r.q, r.parts.call, call.q) || !map_rows(r.d_out, r.parts.call, call.d_out)) return;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (same_type(call.q.type, bf16_type))
    differentiate<__nv_bfloat16>(r, stream);
  else
    differentiate<__half>(r, stream);
}

double attend_backward_scratch_bytes(const msabench_problem& p) {
  if (!takes_backward(p)) return cuda::backward_scratch_bytes(p);
  cuda::workspace_cutter memory(nullptr);
  cut(memory, p);
  return memory.bytes();
}

}  // namespace msabench::cuda_sm90
