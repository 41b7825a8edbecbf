// SPDX-License-Identifier: Apache-2.0
#include "kernels/cudnn/form.cuh"

#include <math_constants.h>

#include <algorithm>

#include "kernels/cudnn/operators.h"

namespace msabench::cudnn {
namespace {

constexpr int threads = 256;

/// Rows and words of 16 bytes in them: all tensors here are packed and of 16 bits.
constexpr std::int64_t word_values = 8;

unsigned blocks_for(std::int64_t items) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((items + threads - 1) / threads, 1, 2048));
}

__device__ std::int64_t first() { return blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; }
__device__ std::int64_t step() { return std::int64_t{gridDim.x} * blockDim.x; }

/// Of a sequence. Patches are keys of their own segment.
__device__ std::int64_t keys_of(const lengths& rows, std::int64_t sequence) {
  return rows.kv_lens != nullptr ? rows.kv_lens[sequence]
                                 : rows.cu_seqlens_q[sequence + 1] - rows.cu_seqlens_q[sequence];
}

/// Of a sequence in the packed order; paged ones have none of their own.
__device__ std::int64_t start_of_keys(std::int64_t sequence, const lengths& rows, const cache& keys) {
  if (keys.block_table == nullptr) return keys.cu_seqlens_kv[sequence];
  std::int64_t sum = 0;
  for (std::int64_t b = 0; b < sequence; ++b) sum += keys_of(rows, b);
  return sum;
}

__global__ void fill_lengths(form f, lengths rows, cache keys) {
  const std::int64_t q_token = std::int64_t{f.heads} * f.d, kv_token = std::int64_t{f.kv_heads} * f.d;
  for (std::int64_t b = first(); b <= f.batch; b += step()) {
    const std::int64_t i = b < rows.batch ? b : rows.batch;
    f.q_offsets[b] = rows.cu_seqlens_q[i] * q_token;
    // Only where the graph has them: of paged keys each one is a sum over the sequences before.
    if (f.has_kv_offsets()) f.kv_offsets[b] = start_of_keys(i, rows, keys) * kv_token;
    if (b == f.batch) continue;
    const bool has = b < rows.batch;
    f.q_lengths[b] = has ? rows.cu_seqlens_q[b + 1] - rows.cu_seqlens_q[b] : 0;
    f.kv_lengths[b] = has ? static_cast<std::int32_t>(keys_of(rows, b)) : 0;
  }
  for (std::int64_t i = first(); i < f.batch * f.pages; i += step()) {
    const std::int64_t b = i / f.pages, page = i % f.pages;
    // Entries behind the last page in use may be anything.
    const bool used = b < rows.batch && page * f.page_size < keys_of(rows, b);
    f.table[i] = used ? keys.block_table[b * keys.table_stride + page] : 0;
  }
}

/// One (sequence, row, head) of the form, and where the caller has it; tokens of padding see no key.
struct place {
  std::int64_t sequence, token, head, row;
  bool there, empty;
};

__device__ place place_of(std::int64_t item, const form& f, const lengths& rows) {
  place p{};
  p.head = item % f.heads;
  p.token = item / f.heads % f.longest;
  p.sequence = item / f.heads / f.longest;
  const std::int64_t start = rows.cu_seqlens_q[p.sequence], count = rows.cu_seqlens_q[p.sequence + 1] - start;
  p.row = start + p.token;
  p.there = p.token < count;
  p.empty = keys_of(rows, p.sequence) - count + p.token < 0;
  return p;
}

__device__ uint4* words_of(const caller_rows& to, const place& p) {
  return reinterpret_cast<uint4*>(to.data + 2 * (p.row * to.row_stride + p.head * to.head_stride));
}
__device__ std::int64_t stats_at(const form& f, const place& p) {
  return (p.sequence * f.heads + p.head) * f.longest + p.token;
}

__global__ void pad(form f, lengths rows, caller_rows q) {
  const std::int64_t words = f.d / word_values, all = rows.batch * f.longest * f.heads * words;
  for (std::int64_t i = first(); i < all; i += step()) {
    const place p = place_of(i / words, f, rows);
    // Rows that are nobody's share tiles with others, and what a tile does may hang on all of its rows.
    reinterpret_cast<uint4*>(f.q)[i] = p.there ? words_of(q, p)[i % words] : uint4{0, 0, 0, 0};
  }
}

__global__ void gather_tokens(form f, lengths rows, cache from, char* to) {
  const std::int64_t words = f.d / word_values, token_words = f.kv_heads * words;
  std::int64_t next = 0;
  for (std::int64_t b = 0; b < rows.batch; next += rows.kv_lens[b++])
    for (std::int64_t i = first(); i < rows.kv_lens[b] * token_words; i += step()) {
      const std::int64_t token = i / token_words, head = i / words % f.kv_heads;
      const auto* const source = reinterpret_cast<const uint4*>(from.token(b, head, token));
      reinterpret_cast<uint4*>(to)[next * token_words + i] = source[i % words];
    }
  for (std::int64_t i = next * token_words + first(); i < f.tokens * token_words; i += step())
    reinterpret_cast<uint4*>(to)[i] = {0, 0, 0, 0};
}

__global__ void finish(form f, lengths rows, caller_rows out, caller_stats lse) {
  const std::int64_t words = f.d / word_values, all = rows.batch * f.longest * f.heads * words;
  for (std::int64_t i = first(); i < all; i += step()) {
    const place p = place_of(i / words, f, rows);
    if (!p.there) continue;
    const std::int64_t word = i % words;
    if (p.empty)
      words_of(out, p)[word] = {0, 0, 0, 0};
    else if (f.padded)
      words_of(out, p)[word] = reinterpret_cast<const uint4*>(f.out)[i];
    if (word == 0 && lse.data != nullptr)
      lse.data[p.row * lse.row_stride + p.head * lse.head_stride] = p.empty ? -CUDART_INF_F : f.stats[stats_at(f, p)];
  }
}

__global__ void copy_stats(form f, lengths rows, caller_stats lse) {
  for (std::int64_t i = first(); i < f.batch * f.longest * f.heads; i += step()) {
    const std::int64_t sequence = i / f.heads / f.longest;
    const place p = sequence < rows.batch ? place_of(i, f, rows) : place{};
    const bool sees = p.there && !p.empty;
    const std::int64_t to = (sequence * f.heads + i % f.heads) * f.longest + i / f.heads % f.longest;
    f.stats[to] = sees ? lse.data[p.row * lse.row_stride + p.head * lse.head_stride] : CUDART_INF_F;
  }
}

__global__ void clear(form f, lengths rows, caller_rows dq) {
  const std::int64_t words = f.d / word_values, all = rows.batch * f.longest * f.heads * words;
  for (std::int64_t i = first(); i < all; i += step()) {
    const place p = place_of(i / words, f, rows);
    if (p.there && p.empty) words_of(dq, p)[i % words] = {0, 0, 0, 0};
  }
}

/// Of a caller's row beside which key it lies; below 0: it sees none.
__device__ std::int64_t shift_of(const lengths& rows) {
  return rows.kv_lens[0] - (rows.cu_seqlens_q[1] - rows.cu_seqlens_q[0]);
}

__global__ void align(form f, backward_call c) {
  const std::int64_t words = f.d / word_values, all = f.longest * f.heads * words;
  const std::int64_t count = c.rows.cu_seqlens_q[1] - c.rows.cu_seqlens_q[0], shift = shift_of(c.rows);
  for (std::int64_t i = first(); i < all; i += step()) {
    const std::int64_t word = i % words, head = i / words % f.heads, at = i / words / f.heads, row = at - shift;
    const bool there = row >= 0 && row < count;
    const auto put = [&](char* to, const backward_call::token_tensor& from) {
      reinterpret_cast<uint4*>(to)[i] =
          there ? reinterpret_cast<const uint4*>(from.at(row, head))[word] : uint4{0, 0, 0, 0};
    };
    put(f.q, c.q);
    put(f.out, c.out);
    put(f.d_out, c.d_out);
    if (word == 0)
      f.stats[head * f.longest + at] = there ? c.lse[row * c.lse_row_stride + head * c.lse_head_stride] : CUDART_INF_F;
  }
}

__global__ void take(form f, backward_call c) {
  const std::int64_t words = f.d / word_values, shift = shift_of(c.rows), keys = c.rows.kv_lens[0];
  const std::int64_t of_rows = (c.rows.cu_seqlens_q[1] - c.rows.cu_seqlens_q[0]) * f.heads * words;
  for (std::int64_t i = first(); i < of_rows; i += step()) {
    const std::int64_t word = i % words, head = i / words % f.heads, row = i / words / f.heads, at = row + shift;
    reinterpret_cast<uint4*>(c.dq.at(row, head, c.q.type))[word] =
        at < 0 ? uint4{0, 0, 0, 0} : reinterpret_cast<const uint4*>(f.dq)[(at * f.heads + head) * words + word];
  }
  for (std::int64_t i = first(); i < keys * f.kv_heads * words; i += step()) {
    const std::int64_t word = i % words, head = i / words % f.kv_heads, key = i / words / f.kv_heads;
    reinterpret_cast<uint4*>(c.dk.at(key, head, c.q.type))[word] = reinterpret_cast<const uint4*>(f.dk)[i];
    reinterpret_cast<uint4*>(c.dv.at(key, head, c.q.type))[word] = reinterpret_cast<const uint4*>(f.dv)[i];
  }
}

/// What all sequences can have, and a tile more: cuDNN's last one may end behind them.
std::int64_t most_tokens(const msabench_problem& p) {
  constexpr std::int64_t tile = 256;
  return (p.batch == 1 ? p.max_kv_len : std::min(p.total_kv, p.batch * p.max_kv_len)) + tile;
}

}  // namespace

form::form(const msabench_problem& p, void* memory)
    : batch(p.batch),
      longest(p.max_q_len),
      pages(pages_of_sequence(p)),
      page_size(p.page_size),
      heads(p.hq),
      kv_heads(p.hkv),
      d(p.d),
      padded(rows_of(p) == query_rows::padded),
      gathered(gathers(p)),
      aligned(rows_of(p) == query_rows::aligned),
      tokens(gathered || aligned ? most_tokens(p) : 0) {
  // A number, since without memory only the sizes are wanted.
  auto next = reinterpret_cast<std::uintptr_t>(memory);
  const auto take = [&next]<class T>(T*& to, std::int64_t count) {
    constexpr std::uint64_t line = 256;
    to = reinterpret_cast<T*>(next);
    next += (static_cast<std::uint64_t>(count) * sizeof(T) + line - 1) / line * line;
  };
  const std::int64_t all_rows = batch * longest * heads * d * 2, row_bytes = padded || aligned ? all_rows : 0;
  const std::int64_t key_bytes = tokens * kv_heads * d * 2;
  take(q_offsets, batch + 1);
  take(kv_offsets, batch + 1);
  take(q_lengths, batch);
  take(kv_lengths, batch);
  take(table, batch * pages);
  take(stats, batch * longest * heads);
  take(q, row_bytes);
  take(out, row_bytes);
  take(d_out, aligned ? all_rows : 0);
  take(dq, aligned ? all_rows : 0);
  take(k, key_bytes);
  take(v, key_bytes);
  take(dk, aligned ? key_bytes : 0);
  take(dv, aligned ? key_bytes : 0);
  graph_workspace = reinterpret_cast<char*>(next);
  bytes = next - reinterpret_cast<std::uintptr_t>(memory);
}

double form_bytes(const msabench_problem& problem) { return static_cast<double>(form(problem).bytes); }

void form::append_lengths(graph::pointers& to) const {
  if (aligned) return;
  to.insert(to.end(), {{q_lengths_id, q_lengths}, {kv_lengths_id, kv_lengths}});
  if (!padded) to.emplace_back(q_offsets_id, q_offsets);
  if (pages > 0) to.emplace_back(table_id, table);
  if (has_kv_offsets()) to.emplace_back(kv_offsets_id, kv_offsets);
}

void make_lengths(const form& f, const lengths& rows, const cache& keys, cudaStream_t stream) {
  fill_lengths<<<blocks_for(std::max(f.batch + 1, f.batch * f.pages)), threads, 0, stream>>>(f, rows, keys);
}

void gather(const form& f, const lengths& rows, const cache& from, char* to, cudaStream_t stream) {
  gather_tokens<<<blocks_for(f.tokens * f.kv_heads * f.d / word_values), threads, 0, stream>>>(f, rows, from, to);
}

void pad_rows(const form& f, const lengths& rows, const caller_rows& q, cudaStream_t stream) {
  pad<<<blocks_for(rows.batch * f.longest * f.heads * f.d / word_values), threads, 0, stream>>>(f, rows, q);
}

void finish_rows(const form& f, const lengths& rows, const caller_rows& out, const caller_stats& lse,
                 cudaStream_t stream) {
  finish<<<blocks_for(rows.batch * f.longest * f.heads * f.d / word_values), threads, 0, stream>>>(f, rows, out, lse);
}

void read_stats(const form& f, const lengths& rows, const caller_stats& lse, cudaStream_t stream) {
  copy_stats<<<blocks_for(f.batch * f.longest * f.heads), threads, 0, stream>>>(f, rows, lse);
}

void clear_empty_rows(const form& f, const lengths& rows, const caller_rows& dq, cudaStream_t stream) {
  clear<<<blocks_for(rows.batch * f.longest * f.heads * f.d / word_values), threads, 0, stream>>>(f, rows, dq);
}

void align_rows(const form& f, const backward_call& c, cudaStream_t stream) {
  align<<<blocks_for(f.longest * f.heads * f.d / word_values), threads, 0, stream>>>(f, c);
}

void take_gradients(const form& f, const backward_call& c, cudaStream_t stream) {
  take<<<blocks_for(f.longest * f.heads * f.d / word_values), threads, 0, stream>>>(f, c);
}

}  // namespace msabench::cudnn
