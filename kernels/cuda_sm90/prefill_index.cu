// SPDX-License-Identifier: Apache-2.0
// Score and select for many query tokens, as one product of matrices whose result is never in memory. A thread block has up
// to 256 rows (token, head) of one sequence, 64 for each warpgroup that multiplies, and sweeps the keys that they see, a
// tile of 128 at a time, which is a block. Of a tile each row's maximum is left, which goes straight into the row's list of
// best blocks if it is above the worst there. One more warpgroup has the copy engine bring the next tiles.
#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/cuda/index_keys.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/query_tiles.cuh"
#include "kernels/cuda/scoring.h"
#include "kernels/cuda_sm90/barriers.cuh"
#include "kernels/cuda_sm90/key_scales.cuh"
#include "kernels/cuda_sm90/prefill_index.h"
#include "kernels/cuda_sm90/quad_list.cuh"
#include "kernels/cuda_sm90/row_maxima.cuh"
#include "kernels/cuda_sm90/shared_layout.h"
#include "kernels/cuda_sm90/tensor_map.h"
#include "kernels/cuda_sm90/wgmma.cuh"

namespace msabench::cuda_sm90 {
namespace {

using cuda::ceil_div;
using cuda::query_tile;

constexpr int tile_keys = product_columns;
constexpr int group_threads = 128;
constexpr int group_rows = 64;
constexpr int step_bytes = 32, panel_steps = swizzle_row_bytes / step_bytes;  // along k, of an instruction
// Of a thread, where 640 start with 96 each, 60 Ki in all: sums and lists need more than that, and copying less.
constexpr int multiplier_registers = 112, copier_registers = 32;

struct sweep_call {
  index_call index;
  CUtensorMap keys;  // [pages][keys of a page][di]; of contiguous keys one page
  int tiles, tile_tokens;
  int parts;    // of each tile's keys, a thread block each
  rank* lists;  // [T][heads][parts][wanted], where there are several; else ids are written
};

/// Shared memory of a thread block, and who it consists of. `panels` of 128 bytes make a key or a query; keys may have a
/// scale each.
template <int panels_of_row, int groups_of_rows, bool has_key_scales = false>
struct sweep_shape {
  static constexpr int panels = panels_of_row, row_groups = groups_of_rows;
  static constexpr bool scales_keys = has_key_scales;
  static constexpr int threads = (row_groups + 1) * group_threads;
  static constexpr int panel_bytes = tile_keys * swizzle_row_bytes;
  static constexpr int stage_bytes = panels * panel_bytes;
  static constexpr int query_panel_bytes = group_rows * swizzle_row_bytes;
  static constexpr int group_bytes = panels * query_panel_bytes;
  static constexpr int scale_bytes = scales_keys ? sizeof(key_scales) : 0;

  static constexpr int room = 227 * 1024 - swizzle_atom_bytes;  // but for aligning
  static constexpr int barrier_room = 256;
  static constexpr int stages =
      std::min(8, (room - barrier_room - row_groups * group_bytes) / (stage_bytes + scale_bytes));

  // Offsets: tiles of keys, then the queries of each group, then scales of keys, then barriers.
  static constexpr int queries = stages * stage_bytes;
  static constexpr int scales = queries + row_groups * group_bytes;
  static constexpr int barriers = scales + stages * scale_bytes;
  static constexpr int bytes = barriers + barrier_room + swizzle_atom_bytes;

  // A stage is full when the copies are there, and the scales of all lanes of a warp; it is empty when every warp has
  // multiplied.
  struct ring {
    barrier full[stages], empty[stages];
  };
  static constexpr int fillers = 1 + (scales_keys ? 32 : 0);
  static_assert(sizeof(ring) <= barrier_room);

  static constexpr bool moves_registers = row_groups == 4;
};

/// What a thread block computes: tokens, and a part of the keys that they see, in tiles from .. to - 1. None where all
/// blocks are taken, whatever they score.
struct block_work {
  query_tile tokens;
  int part, from = 0, to = 0;
  int end = 0;  // behind the last key that some token sees

  __device__ explicit block_work(const sweep_call& s) {
    const index_call& c = s.index;
    // The last tokens see the most keys and come first.
    const auto item = static_cast<int>(gridDim.x - 1 - blockIdx.x);
    tokens = cuda::tile_at(c.rows, item / s.parts, s.tile_tokens);
    part = item % s.parts;
    if (tokens.tokens == 0 || cuda::wanted_blocks(c.rule) == 0) return;
    end = cuda::keys_seen(c, tokens.first_sees, tokens.tokens - 1);
    if (end <= c.rule.topk * c.rule.block) return;
    const std::int64_t tiles = (end + tile_keys - 1) / tile_keys;
    from = static_cast<int>(tiles * part / s.parts);
    to = static_cast<int>(tiles * (part + 1) / s.parts);
  }
};

/// Where a tile of keys begins. No page ends within it.
struct tile_place {
  std::int32_t row = 0, page = 0;  // of contiguous keys the row among those of all sequences

  tile_place() = default;
  __device__ tile_place(const kernels::cache& keys, std::int64_t sequence, int tile) {
    const int key = tile * tile_keys;
    if (keys.block_table == nullptr) {
      row = keys.cu_seqlens_kv[sequence] + key;
    } else {
      const auto page_size = static_cast<int>(keys.page_size);
      page = keys.block_table[sequence * keys.table_stride + key / page_size];
      row = key % page_size;
    }
  }
};

/// One warp; its first lane starts the copies.
template <class T, class shape>
__device__ void copy_keys(const sweep_call& s, const block_work& work, char* tiles, typename shape::ring& ring) {
  const int lane = threadIdx.x % 32;
  ring_place<shape::stages> place;
  tile_place place_of_lane;  // of the tile this many ahead
  for (int tile = work.from; tile < work.to; ++tile, place.next()) {
    const int ahead = (tile - work.from) % 32;
    // Tables are read 32 tiles at a time, as each reading takes as long as a good part of a tile.
    if (ahead == 0) place_of_lane = tile_place(s.index.keys, work.tokens.sequence, min(tile + lane, work.to - 1));
    const std::int32_t row = __shfl_sync(all_lanes, place_of_lane.row, ahead);
    const std::int32_t page = __shfl_sync(all_lanes, place_of_lane.page, ahead);
    if (lane != 0) continue;
    barrier* const full = &ring.full[place.stage];
    wait_for(&ring.empty[place.stage], place.parity ^ 1);
    arrive_expecting(full, shape::stage_bytes);
#pragma unroll
    for (int panel = 0; panel < shape::panels; ++panel)
      copy_box<3>(tiles + place.stage * shape::stage_bytes + panel * shape::panel_bytes, s.keys,
                  {static_cast<std::int32_t>(panel * swizzle_row_bytes / sizeof(T)), row, page}, full);
  }
}

template <class shape>
__device__ key_scales& scales_of(char* tiles, int stage) {
  return *reinterpret_cast<key_scales*>(tiles + shape::scales + stage * shape::scale_bytes);
}

/// One of three warps, which take turns at tiles. A warp reads the scales of its next tile before it waits for room for
/// those of this one, as the way to them through a table takes longer than a tile.
template <class shape>
__device__ void copy_scales(const sweep_call& s, const block_work& work, char* tiles, typename shape::ring& ring) {
  constexpr int warps = 3, each = tile_keys / 32;
  static_assert(shape::stages >= warps);
  const int lane = threadIdx.x % 32, first = static_cast<int>(threadIdx.x) / 32 - 1;
  const auto read = [&](int tile, float(&to)[each]) {
    if (tile >= work.to) return;
    const kernels::scales& all = s.index.keys.scale;
    const tile_place at(s.index.keys, work.tokens.sequence, tile);
    const float* const from = all.data + at.page * all.page_stride + (at.row + lane) * all.token_stride;
#pragma unroll
    for (int i = 0; i < each; ++i)
      to[i] = tile * tile_keys + 32 * i + lane < work.end ? from[32 * i * all.token_stride] : 0;
  };
  ring_place<shape::stages> place;
  for (int i = 0; i < first; ++i) place.next();
  float scales[each] = {}, next[each] = {};
  read(work.from + first, scales);
#pragma unroll 1
  for (int tile = work.from + first; tile < work.to; tile += warps) {
    read(tile + warps, next);
    wait_for(&ring.empty[place.stage], place.parity ^ 1);
    scales_of<shape>(tiles, place.stage).fill(scales);
    arrive(&ring.full[place.stage]);
#pragma unroll
    for (int i = 0; i < each; ++i) scales[i] = next[i];
#pragma unroll
    for (int i = 0; i < warps; ++i) place.next();
  }
}

/// What the products of a row are multiplied by, but for scales that keys have of their own.
template <class T, class shape>
__device__ float row_factor(const index_call& c, std::int64_t row, int head) {
  float factor = c.scale;
  if constexpr (sizeof(T) == 1) {
    if (c.q_scale != nullptr) factor *= c.q_scale[row * c.q_scale_row_stride + head * c.q_scale_head_stride];
    if (!shape::scales_keys && c.keys.scale.data != nullptr) factor *= c.keys.scale.data[0];
  }
  return factor;
}

/// 16 bytes of a query; where a negative factor makes the least product the best, with the other sign.
template <class T, class shape>
__device__ uint4 query_piece(const index_call& c, std::int64_t row, int head, int piece) {
  if constexpr (sizeof(T) == 2) {
    return cuda::query_piece(c, row, head, piece);
  } else {
    if (piece * static_cast<int>(sizeof(uint4)) >= c.width) return {};
    uint4 q = __ldg(reinterpret_cast<const uint4*>(c.q + row * c.q_row_stride + head * c.q_head_stride) + piece);
    constexpr std::uint32_t signs = 0x80808080u;
    if (row_factor<T, shape>(c, row, head) < 0) q.x ^= signs, q.y ^= signs, q.z ^= signs, q.w ^= signs;
    return q;
  }
}

/// Rows `first` .. `first` + 63 of a tile of tokens, by their warpgroup, to `to`; zeros behind the last token.
template <class T, class shape>
__device__ void copy_queries(const index_call& c, const query_tile& tokens, int first, char* to) {
  constexpr int chunks = swizzle_row_bytes / sizeof(uint4), pieces = shape::panels * chunks;
#pragma unroll 4
  for (int i = threadIdx.x % group_threads; i < group_rows * pieces; i += group_threads) {
    const int row = i / pieces, piece = i % pieces;
    const int token = (first + row) / c.heads, head = (first + row) % c.heads;
    char* const panel = to + piece / chunks * shape::query_panel_bytes;
    *reinterpret_cast<uint4*>(panel + swizzled(row, piece % chunks * sizeof(uint4))) =
        token < tokens.tokens ? query_piece<T, shape>(c, tokens.first_row + token, head, piece) : uint4{};
  }
}

/// Queries in e4m3 of the first steps along k, as left operands in registers: from shared memory a product reads half as many
/// bytes of them as of keys. As many as there are registers for.
template <class T, class shape>
struct held_queries {
  static constexpr int steps = sizeof(T) == 2 ? 0 : shape::scales_keys ? 1 : panel_steps;
  std::uint32_t values[steps > 0 ? steps : 1][4];

  /// From the queries of the group, which are there.
  __device__ explicit held_queries(const char* queries) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % group_threads / 32 * 16 + lane / 4;
#pragma unroll
    for (int step = 0; step < steps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[step][i] = *reinterpret_cast<const std::uint32_t*>(
            queries + swizzled(row + i % 2 * 8, step * step_bytes + i / 2 * 16 + lane % 4 * 4));
  }
};

/// products [64][128] = queries of the group times keys of the tile, transposed. They are there after finish_products.
template <class T, class shape>
__device__ void start_products(float (&products)[product_values], const held_queries<T, shape>& held,
                               std::uint64_t queries, std::uint64_t keys) {
  begin_products();
#pragma unroll
  for (int panel = 0; panel < shape::panels; ++panel)
#pragma unroll
    for (int step = 0; step < panel_steps; ++step) {
      const std::uint64_t right = keys + panel * (shape::panel_bytes >> 4) + step * k_major_step;
      if (panel == 0 && step < held.steps)
        multiply<T, tile_keys>(products, held.values[step], right, step > 0);
      else
        multiply<T, tile_keys>(products, queries + panel * (shape::query_panel_bytes >> 4) + step * k_major_step, right,
                               panel + step > 0);
    }
  commit_products();
}

/// What a row sees: keys, and how many blocks from rule.initial on are taken by rank.
struct row_view {
  int seen;
  unsigned ranked;

  __device__ row_view(const index_call& c, const query_tile& tokens, int row) {
    const int token = row / c.heads;
    seen = token < tokens.tokens ? cuda::keys_seen(c, tokens.first_sees, token) : 0;
    const cuda::free_blocks free(c.rule, (seen + tile_keys - 1) / tile_keys);
    ranked = static_cast<unsigned>(free.end - free.first);
  }
};

/// The lists of a warp's 16 rows, from `first` on, for others to merge.
__device__ void write_lists(const sweep_call& s, const query_tile& tokens, int first, int part,
                            const quad_list (&best)[2]) {
  const index_call& c = s.index;
  const int lane = threadIdx.x % 32, wanted = cuda::wanted_blocks(c.rule);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + 8 * half + lane / 4;
    if (row / c.heads >= tokens.tokens) continue;
    const std::int64_t place = (tokens.first_row + row / c.heads) * c.heads + row % c.heads;
    rank* const to = s.lists + (place * s.parts + part) * wanted;
#pragma unroll
    for (int i = 0; i < quad_list::each; ++i) {
      const int at = lane % 4 * quad_list::each + i - (quad_list::places - wanted);
      if (at >= 0) to[at] = best[half].held(i);
    }
  }
}

/// The ids of these rows.
__device__ void write_selected(const index_call& c, const query_tile& tokens, int first, const quad_list (&best)[2]) {
  const int lane = threadIdx.x % 32, wanted = cuda::wanted_blocks(c.rule);
  const int place = (lane + quad_list::places - wanted) % quad_list::places;  // used by the lanes before `wanted`
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll 1
    for (int quad = 0; quad < 8; ++quad) {
      const rank mine = best[half].at(quad, place);
      const int row = first + 8 * half + quad, token = row / c.heads;
      if (token >= tokens.tokens) continue;
      const int visible = (cuda::keys_seen(c, tokens.first_sees, token) + tile_keys - 1) / tile_keys;
      cuda::write_ids(c.rule, visible, mine,
                      c.ids + (tokens.first_row + token) * c.id_row_stride + row % c.heads * c.id_head_stride);
    }
}

/// One of the warpgroups that multiply.
template <class T, class shape>
__device__ void sweep_tiles(const sweep_call& s, const block_work& work, char* tiles, typename shape::ring& ring) {
  const index_call& c = s.index;
  // As what all lanes have in common, so that addresses and descriptors are too.
  const int group = __shfl_sync(all_lanes, static_cast<int>(threadIdx.x) / group_threads, 0) - 1;
  const int lane = threadIdx.x % 32;
  const int first_row = group * group_rows + threadIdx.x % group_threads / 32 * 16;  // of the warp
  char* const queries = tiles + shape::queries + group * shape::group_bytes;
  const std::uint64_t query_descriptor = k_major_descriptor(cuda::shared_address(queries));
  const std::uint32_t tiles_at = cuda::shared_address(tiles);
  const query_tile& tokens = work.tokens;
  if (tokens.tokens == 0) return;
  copy_queries<T, shape>(c, tokens, group * group_rows, queries);
  fence_for_async();
  meet(1 + group, group_threads);
  const held_queries<T, shape> held(queries);

  const row_view rows[2] = {row_view(c, tokens, first_row + lane / 4), row_view(c, tokens, first_row + 8 + lane / 4)};
  float factors[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + 8 * half + lane / 4;
    // One number for all rows without scales, so the compiler need not keep two.
    factors[half] = fabsf(sizeof(T) == 2 || row / c.heads >= tokens.tokens
                              ? c.scale
                              : row_factor<T, shape>(c, tokens.first_row + row / c.heads, row % c.heads));
  }
  const int all_see = cuda::keys_seen(c, tokens.first_sees, 0);
  quad_list best[2] = {quad_list(cuda::wanted_blocks(c.rule)), quad_list(cuda::wanted_blocks(c.rule))};
  ring_place<shape::stages> place;
  for (int tile = work.from; tile < work.to; ++tile, place.next()) {
    wait_for(&ring.full[place.stage], place.parity);
    float products[product_values];
    start_products<T, shape>(products, held, query_descriptor,
                             k_major_descriptor(tiles_at + place.stage * shape::stage_bytes));
    key_scales::limits limits;
    if constexpr (shape::scales_keys) limits = scales_of<shape>(tiles, place.stage).load_limits();
    finish_products<0>();
    pin(products);

    const bool is_seen = (tile + 1) * tile_keys <= all_see;  // whole, by all rows
    float scores[2];
    bool taken[2];
    const auto look_up = [&] {  // which scores have a place
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        scores[half] *= factors[half];
        const bool ranked = static_cast<unsigned>(tile - c.rule.initial) < rows[half].ranked;
        taken[half] = ranked && best[half].takes(scores[half]);
      }
      return taken[0] || taken[1];
    };
    bool can_be_taken = true;  // by the warp
    if constexpr (shape::scales_keys) {
      if (is_seen) {
        key_scales::row_bounds(products, limits, scores);
        can_be_taken = __any_sync(all_lanes, look_up());
      }
      if (can_be_taken) scales_of<shape>(tiles, place.stage).multiply(products);
      __syncwarp();  // all lanes have read
    }
    if (lane == 0) arrive(&ring.empty[place.stage]);
    if (!can_be_taken) continue;
    if (!is_seen) hide_unseen(products, {rows[0].seen - tile * tile_keys, rows[1].seen - tile * tile_keys});
    const bool are_right = quick_row_maxima(products, scores);
    if (!__any_sync(all_lanes, look_up() || !are_right)) continue;
    if (__any_sync(all_lanes, !are_right)) {
#pragma unroll
      for (int half = 0; half < 2; ++half) scores[half] = careful_row_maximum(products, half);
      look_up();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) best[half].insert(taken[half] ? cuda::rank_of(scores[half], tile) : no_block);
  }
  if (s.lists != nullptr)
    write_lists(s, tokens, first_row, work.part, best);
  else
    write_selected(c, tokens, first_row, best);
}

template <class T, class shape>
__global__ void __launch_bounds__(shape::threads, 1) sweep(const __grid_constant__ sweep_call s) {
  extern __shared__ char shared[];
  char* const tiles =
      shared + (swizzle_atom_bytes - cuda::shared_address(shared) % swizzle_atom_bytes) % swizzle_atom_bytes;
  auto& ring = *reinterpret_cast<typename shape::ring*>(tiles + shape::barriers);
  if (threadIdx.x == 0) {
    for (int i = 0; i < shape::stages; ++i) {
      make_barrier(&ring.full[i], shape::fillers);
      make_barrier(&ring.empty[i], shape::row_groups * 4);
    }
    publish_barriers();
    prefetch_map(s.keys);
  }
  __syncthreads();
  const block_work work(s);
  if (threadIdx.x < group_threads) {
    if constexpr (shape::moves_registers) give_registers<copier_registers>();
    if (threadIdx.x < 32)
      copy_keys<T, shape>(s, work, tiles, ring);
    else if constexpr (shape::scales_keys)
      copy_scales<shape>(s, work, tiles, ring);
  } else {
    if constexpr (shape::moves_registers) take_registers<multiplier_registers>();
    sweep_tiles<T, shape>(s, work, tiles, ring);
  }
}

template <class T, class shape>
void launch(const sweep_call& s, cudaStream_t stream) {
  cuda::allow_shared_memory(sweep<T, shape>, shape::bytes);
  sweep<T, shape><<<static_cast<unsigned>(s.tiles * s.parts), shape::threads, shape::bytes, stream>>>(s);
}

template <class T>
void launch_shape(const sweep_call& s, int groups, int panels, cudaStream_t stream) {
  if (groups == 4 && panels == 2) return launch<T, sweep_shape<2, 4>>(s, stream);
  if (groups == 4) return launch<T, sweep_shape<1, 4>>(s, stream);
  if (panels == 2) return launch<T, sweep_shape<2, 2>>(s, stream);
  launch<T, sweep_shape<1, 2>>(s, stream);
}

void launch_shape_e4m3(const sweep_call& s, int groups, bool has_key_scales, cudaStream_t stream) {
  using T = __nv_fp8_e4m3;
  if (groups == 4 && has_key_scales) return launch<T, sweep_shape<1, 4, true>>(s, stream);
  if (groups == 4) return launch<T, sweep_shape<1, 4>>(s, stream);
  if (has_key_scales) return launch<T, sweep_shape<1, 2, true>>(s, stream);
  launch<T, sweep_shape<1, 2>>(s, stream);
}

/// How a run is cut up, by what the problem says of it.
struct sweep_plan {
  int groups, tile_tokens, parts;
};

double list_bytes(const msabench_problem& p) {
  return static_cast<double>(p.total_q) * p.hi * (p.topk - p.local_blocks - p.init_blocks) * sizeof(rank);
}

/// Parts of the keys of a row: of a few tiles at least, and as many as there is scratch for their lists.
std::int64_t most_parts(const msabench_problem& p) {
  constexpr std::int64_t least_tiles = 8, most = 128;
  constexpr double most_bytes = 64.0 * (1 << 20);
  const double bytes = list_bytes(p);
  if (bytes == 0) return 1;
  const std::int64_t by_keys = std::clamp<std::int64_t>(p.max_kv_len / (least_tiles * tile_keys), 1, most);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(most_bytes / bytes), 1, by_keys);
}

sweep_plan plan_sweep(const msabench_problem& p) {
  sweep_plan plan{};
  // Half as many rows where that is enough, as the rest would be multiplied for nothing.
  plan.groups = p.max_q_len * p.hi > 2 * group_rows ? 4 : 2;
  plan.tile_tokens = plan.groups * group_rows / p.hi;
  const std::int64_t processors = cuda::multiprocessors(), most = most_parts(p);
  const std::int64_t tiles = std::max<std::int64_t>(
      1, std::min(p.total_q / plan.tile_tokens + p.batch, p.batch * ceil_div(p.max_q_len, plan.tile_tokens)));
  // The fewest parts that leave no more than a tenth of the multiprocessors without work. Where tokens differ much in what
  // they see, more of them even that out.
  const bool uneven = 2 * p.max_q_len > p.max_kv_len;
  const auto is_enough = [&](std::int64_t parts) {
    const std::int64_t items = tiles * parts, waves = ceil_div(items, processors);
    return items * 10 >= waves * processors * 9 && (!uneven || waves >= 4);
  };
  std::int64_t parts = 1;
  while (parts < most && !is_enough(parts)) ++parts;
  plan.parts = static_cast<int>(parts);
  return plan;
}

}  // namespace

bool takes_prefill_index(const msabench_problem& p) {
  const bool is_e4m3 = same_type(p.q_idx, e4m3_type);
  const bool indexes = p.op == MSABENCH_OP_INDEX || p.op == MSABENCH_OP_MSA;
  const int wanted = p.topk - p.local_blocks - p.init_blocks;
  constexpr std::int64_t most_keys = 1 << 30;
  // A piece of a query in e4m3 is 16 dims.
  const bool is_taken_type = is_e4m3 ? p.di % 16 == 0 : !cuda::streams(p);
  return indexes && is_taken_type && p.block == tile_keys && wanted <= quad_list::places &&
         p.page_size % tile_keys == 0 && p.max_kv_len <= most_keys;
}

double prefill_index_scratch_bytes(const msabench_problem& p) {
  const sweep_plan plan = plan_sweep(p);
  return plan.parts == 1 ? 0 : plan.parts * list_bytes(p);
}

void prefill_index(const index_call& call, const run_context& context) {
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (call.rows.batch == 0 || call.rows.row_bound == 0) return;
  const sweep_plan plan = plan_sweep(context.problem);
  sweep_call s{};
  s.index = call;
  // Sequences begin tiles of their own, so at worst each leaves one empty.
  s.tiles = static_cast<int>(call.rows.row_bound / plan.tile_tokens + call.rows.batch);
  s.tile_tokens = plan.tile_tokens;
  s.parts = plan.parts;
  s.lists = plan.parts > 1 ? static_cast<rank*>(context.scratch) : nullptr;
  const kernels::cache& keys = call.keys;
  const bool paged = keys.block_table != nullptr, empty = keys.extent == 0;
  const std::int64_t bytes = kernels::bytes_of(keys.type),
                     page_keys = paged ? keys.page_size : std::max<std::int64_t>(keys.extent, 1);
  const std::int64_t stride = keys.token_stride * bytes;
  // No key is read where there is none, but the map is there.
  const auto panel_values = static_cast<std::int32_t>(swizzle_row_bytes / bytes);
  if (!make_tensor_map(s.keys, keys.type, empty ? call.q : keys.data,
                       {{call.width, bytes, panel_values},
                        {page_keys, stride, tile_keys},
                        {paged ? keys.extent : 1, paged ? keys.page_stride * bytes : page_keys * stride, 1}}))
    return;
  const int panels = static_cast<int>(ceil_div(call.width, panel_values));
  if (same_type(call.q_type, bf16_type))
    launch_shape<__nv_bfloat16>(s, plan.groups, panels, stream);
  else if (same_type(call.q_type, e4m3_type))
    launch_shape_e4m3(s, plan.groups, keys.scale.data != nullptr && keys.scale.token_stride != 0, stream);
  else
    launch_shape<__half>(s, plan.groups, panels, stream);
  if (s.lists != nullptr) cuda::merge_lists(call, s.lists, plan.parts, stream);
  if (call.lse != nullptr) cuda::log_sums_of_selected(call, stream);
}

}  // namespace msabench::cuda_sm90
