// SPDX-License-Identifier: Apache-2.0
// A counting sort of (block, token) by block. Tokens are cut into chunks; every chunk counts its own, sums over chunks tell
// each where in a list its tokens go, and there one warp of a chunk puts them, token after token. So lists ascend, whatever
// runs when, and what sums over them is the same every time.
#include "kernels/cuda/readers.cuh"

#include <algorithm>
#include <cub/block/block_scan.cuh>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cuda/launch.cuh"

namespace msabench::cuda {
namespace {

constexpr int warp = 32, count_warps = 8, scan_threads = 1024;

/// visit(slot, list) for the slots of a token's ids, by the lanes of a warp; list -1: no block, or one that was there before.
template <class Visit>
__device__ void for_each_slot(const block_readers& r, std::int64_t row, std::int32_t head, const Visit& visit) {
  const row_place place = r.rows.place(row);
  const std::int64_t visible = visible_blocks(place, r.numbers.block);
  const std::int32_t* const ids = r.ids.row(row, head);
  for (std::int32_t slot = threadIdx.x % warp; slot < r.ids.topk; slot += warp) {
    const bool counts = selected_ids::counts(ids, slot, visible);
    visit(slot, counts ? r.list(head, r.numbers.first(place.sequence) + ids[slot]) : std::int64_t{-1});
  }
}

/// A block for each (chunk, head).
__global__ void __launch_bounds__(count_warps* warp) count_readers(block_readers r) {
  const std::int64_t chunk = blockIdx.x / r.heads, first = r.first_row + chunk * r.chunk_rows;
  const std::int64_t end = first + r.chunk_rows < r.end_row() ? first + r.chunk_rows : r.end_row();
  const auto head = static_cast<std::int32_t>(blockIdx.x % r.heads);
  std::int32_t* const counts = r.counts + chunk * r.lists();
  for (std::int64_t row = first + threadIdx.x / warp; row < end; row += count_warps)
    for_each_slot(r, row, head, [&](std::int32_t, std::int64_t list) {
      if (list >= 0) atomicAdd(counts + list, 1);
    });
}

/// Counts of a list in place of those of its chunks before, and its length in place of its start. A warp for each list.
__global__ void __launch_bounds__(count_warps* warp) sum_chunks(block_readers r) {
  const int lane = threadIdx.x % warp;
  for (std::int64_t list = std::int64_t{blockIdx.x} * count_warps + threadIdx.x / warp; list < r.lists();
       list += std::int64_t{gridDim.x} * count_warps) {
    std::int32_t before = 0;
    for (std::int64_t first = 0; first < r.chunks; first += warp) {
      const bool there = first + lane < r.chunks;
      std::int32_t* const count = r.counts + (first + lane) * r.lists() + list;
      const std::int32_t own = there ? *count : 0;
      std::int32_t sum = own;
      for (int step = 1; step < warp; step *= 2) {
        const std::int32_t other = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += other;
      }
      if (there) *count = before + sum - own;
      before += __shfl_sync(~0u, sum, warp - 1);
    }
    if (lane == 0) r.starts[list] = before;
  }
}

struct list_size {
  std::int64_t tokens;
  std::int32_t pieces, slots;
  __device__ list_size operator+(const list_size& o) const {
    return {tokens + o.tokens, pieces + o.pieces, slots + o.slots};
  }
};

/// One block.
__global__ void __launch_bounds__(scan_threads) cut_pieces(block_readers r) {
  using scan = cub::BlockScan<list_size, scan_threads>;
  __shared__ typename scan::TempStorage shared;
  list_size before{0, 0, 0};  // of all lists of earlier rounds
  for (std::int64_t first = 0; first < r.lists(); first += scan_threads) {
    const std::int64_t list = first + threadIdx.x;
    const bool there = list < r.lists();
    const std::int64_t length = there ? r.starts[list] : 0;
    // A list without tokens has a piece too: somebody has to write that its keys have no gradient.
    const auto pieces = static_cast<std::int32_t>(length <= r.piece_rows ? 1 : (length - 1) / r.piece_rows + 1);
    list_size start, all;
    scan(shared).ExclusiveScan(
        list_size{length, there ? pieces : 0, pieces > 1 ? pieces : 0}, start, list_size{0, 0, 0},
        [](const list_size& a, const list_size& b) { return a + b; }, all);
    __syncthreads();  // the next round uses the same memory
    start = start + before;
    before = before + all;
    if (!there) continue;
    r.starts[list] = start.tokens;
    r.firsts[list] = start.pieces;
    r.slots[list] = pieces > 1 ? start.slots : -1;
    for (std::int32_t i = 0; i < pieces; ++i) {
      const std::int64_t done = i * r.piece_rows, left = length - done;
      r.pieces[start.pieces + i] = {start.tokens + done, static_cast<std::int32_t>(list),
                                    static_cast<std::int32_t>(left < r.piece_rows ? left : r.piece_rows),
                                    pieces > 1 ? start.slots + i : -1};
    }
  }
  if (threadIdx.x == 0) {
    r.starts[r.lists()] = before.tokens;
    r.firsts[r.lists()] = before.pieces;
  }
}

/// A warp for each (chunk, head).
__global__ void __launch_bounds__(warp) list_readers(block_readers r) {
  const std::int64_t chunk = blockIdx.x / r.heads, first = r.first_row + chunk * r.chunk_rows;
  const std::int64_t end = first + r.chunk_rows < r.end_row() ? first + r.chunk_rows : r.end_row();
  const auto head = static_cast<std::int32_t>(blockIdx.x % r.heads);
  std::int32_t* const next = r.counts + chunk * r.lists();
  for (std::int64_t row = first; row < end; ++row) {
    std::int32_t* const places =
        r.places == nullptr ? nullptr : r.places + ((row - r.first_row) * r.heads + head) * r.ids.topk;
    // Blocks of a token differ, so lanes never meet.
    for_each_slot(r, row, head, [&](std::int32_t slot, std::int64_t list) {
      const std::int64_t place = list < 0 ? -1 : r.starts[list] + next[list]++;
      if (list >= 0) r.tokens[place] = static_cast<std::int32_t>(row);
      if (places != nullptr) places[slot] = static_cast<std::int32_t>(place);
    });
    __syncwarp();
  }
}

}  // namespace

block_readers block_readers::cut(workspace_cutter& memory, const msabench_problem& p, std::int32_t block,
                                 std::int64_t row_count, std::int64_t least_piece) {
  constexpr std::int64_t most_chunks = 512, pieces_of_all = 128;
  block_readers r{};
  r.heads = p.hkv;
  r.blocks = block_numbers::bound(p.total_kv, p.batch, block);
  r.row_count = row_count;
  if (reads_all_keys(p)) return r;
  r.chunk_rows = std::max<std::int64_t>(1, ceil_div(row_count, most_chunks));
  r.chunks = ceil_div(row_count, r.chunk_rows);
  const std::int64_t most_tokens = row_count * std::min<std::int64_t>(p.topk, max_blocks(p));
  r.piece_rows = std::max(least_piece, ceil_div(most_tokens, pieces_of_all));
  // A list of more than one piece has at most twice as many as its tokens fill.
  r.slots_of_head = 2 * (most_tokens / r.piece_rows);
  const auto lists = static_cast<double>(r.heads) * static_cast<double>(r.blocks);
  r.counts = memory.take<std::int32_t>(static_cast<double>(r.chunks) * lists);
  r.starts = memory.take<std::int64_t>(lists + 1);
  r.tokens = memory.take<std::int32_t>(static_cast<double>(most_tokens) * r.heads);
  r.pieces = memory.take<reader_piece>(lists + static_cast<double>(r.most_slots()));
  r.firsts = memory.take<std::int32_t>(lists + 1);
  r.slots = memory.take<std::int32_t>(lists);
  return r;
}

void block_readers::bind(const lengths& batch, const std::int32_t* cu_seqlens_kv, std::int32_t block,
                         const selected_ids& selected) {
  rows = batch;
  numbers = {cu_seqlens_kv, batch.kv_lens, batch.batch, block};
  ids = selected;
}

void block_readers::find(void* stream) const {
  if (ids.data == nullptr) return;
  const auto on = static_cast<cudaStream_t>(stream);
  cudaMemsetAsync(counts, 0, static_cast<std::size_t>(chunks * lists()) * sizeof *counts, on);
  const auto parts = static_cast<unsigned>(std::max<std::int64_t>(1, chunks * heads));
  count_readers<<<parts, count_warps * warp, 0, on>>>(*this);
  sum_chunks<<<grid_blocks(lists(), count_warps), count_warps * warp, 0, on>>>(*this);
  cut_pieces<<<1, scan_threads, 0, on>>>(*this);
  list_readers<<<parts, warp, 0, on>>>(*this);
}

}  // namespace msabench::cuda
