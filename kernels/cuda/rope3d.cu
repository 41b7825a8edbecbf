// SPDX-License-Identifier: Apache-2.0
// Positions, segments and rotation of patches. One block of threads reads the grids: where items start, where segments
// end. Then a warp for each token finds its item, and each lane turns a pair of columns in all heads.
#include "kernels/cuda/rope3d.cuh"

#include <cub/block/block_scan.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/stored.cuh"

namespace msabench::cuda {
namespace {

constexpr int warp = 32, warps = 8, grid_threads = 256;
constexpr std::int64_t merge = 2;  // patches of a merge block lie next to each other

__host__ __device__ int pairs_of_axis(int d) { return d / 3 / 2; }

struct item_size {
  std::int64_t tokens, segments;
  __device__ item_size operator+(const item_size& other) const {
    return {tokens + other.tokens, segments + other.segments};
  }
};

/// One block.
__global__ void __launch_bounds__(grid_threads)
    read_grids(rope3d_call c, rope3d_workspace memory, padded_segments padded) {
  using scan = cub::BlockScan<item_size, grid_threads>;
  __shared__ typename scan::TempStorage shared;
  const int axis = pairs_of_axis(c.d);
  for (int i = threadIdx.x; i < axis; i += grid_threads)
    memory.frequencies[i] = static_cast<float>(pow(c.theta, -static_cast<double>(i) / axis));
  const auto end_segment = [&](std::int64_t segment, std::int64_t end) {
    if (c.cu_segments != nullptr) c.cu_segments[segment] = static_cast<std::int32_t>(end);
    if (padded.boundaries != nullptr) padded.boundaries[segment] = static_cast<std::int32_t>(end);
  };
  if (threadIdx.x == 0) end_segment(0, 0);
  item_size before{0, 0};  // of all items of earlier rounds
  for (std::int64_t first = 0; first < c.items.items; first += grid_threads) {
    const std::int64_t item = first + threadIdx.x;
    patch_grid g{0, 0, 0};
    if (item < c.items.items) g = c.items.at(item);
    const std::int64_t length = c.items.segment_length(g);
    const item_size own{g.tokens(), g.t > 0 ? (g.t - 1) / length + 1 : 0};
    item_size start, all;
    scan(shared).ExclusiveScan(
        own, start, item_size{0, 0}, [](const item_size& a, const item_size& b) { return a + b; }, all);
    __syncthreads();  // the next round uses the same memory
    start = start + before;
    before = before + all;
    if (item >= c.items.items) continue;
    memory.item_starts[item] = start.tokens;
    for (std::int64_t s = 1; s <= own.segments; ++s) {
      const std::int64_t patches = s * length < g.t ? s * length : g.t;
      end_segment(start.segments + s, start.tokens + patches * g.frame());
    }
  }
  if (threadIdx.x == 0) memory.item_starts[c.items.items] = before.tokens;
  if (padded.boundaries == nullptr) return;
  for (std::int64_t s = before.segments + 1 + threadIdx.x; s <= padded.bound; s += grid_threads)
    padded.boundaries[s] = static_cast<std::int32_t>(before.tokens);
}

/// The last item that starts at or before the token: items without tokens repeat a start.
__device__ std::int64_t item_of(const std::int64_t* starts, std::int64_t items, std::int64_t token) {
  std::int64_t first = 0, count = items;
  while (count > 0) {
    const std::int64_t half = count / 2;
    if (starts[first + half] <= token) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first - 1;
}

/// A patch by its number in an item: t counts from the first temporal patch of its segment.
__device__ patch_position position_in_item(const patch_grid& g, std::int64_t length, std::int64_t patch) {
  const std::int64_t inside_frame = patch % g.frame();
  const std::int64_t block = inside_frame / (merge * merge), inside = inside_frame % (merge * merge);
  const std::int64_t blocks_of_row = g.w / merge;
  return {patch / g.frame() % length, block / blocks_of_row * merge + inside / merge,
          block % blocks_of_row * merge + inside % merge};
}

template <class T>
__global__ void __launch_bounds__(warps* warp) rotate_tokens(rope3d_call c, rope3d_workspace memory) {
  const int lane = threadIdx.x % warp, axis = pairs_of_axis(c.d), pairs = 3 * axis;
  const std::int64_t tokens = memory.item_starts[c.items.items];
  for (std::int64_t token = std::int64_t{blockIdx.x} * warps + threadIdx.x / warp; token < tokens;
       token += std::int64_t{gridDim.x} * warps) {
    const std::int64_t item = item_of(memory.item_starts, c.items.items, token);
    const patch_grid g = c.items.at(item);
    const patch_position p = position_in_item(g, c.items.segment_length(g), token - memory.item_starts[item]);
    if (lane == 0 && c.positions != nullptr) {
      std::int32_t* const position = c.positions + token * c.position_stride;
      position[0] = static_cast<std::int32_t>(p.t);
      position[1] = static_cast<std::int32_t>(p.h);
      position[2] = static_cast<std::int32_t>(p.w);
    }
    for (int pair = lane; pair < pairs; pair += warp) {
      const std::int64_t coordinate = pair < axis ? p.t : pair < 2 * axis ? p.h : p.w;
      float sine, cosine;
      sincosf(static_cast<float>(coordinate) * memory.frequencies[pair % axis], &sine, &cosine);
      for (const rope3d_call::tensor& t : c.tensors) {
        const T* const x = reinterpret_cast<const T*>(t.x) + token * t.x_row_stride + pair;
        T* const y = reinterpret_cast<T*>(t.y) + token * t.y_row_stride + pair;
#pragma unroll 4
        for (int head = 0; head < c.heads; ++head) {
          const float low = static_cast<float>(x[head * t.x_head_stride]);
          const float high = static_cast<float>(x[head * t.x_head_stride + pairs]);
          y[head * t.y_head_stride] = static_cast<T>(low * cosine - high * sine);
          y[head * t.y_head_stride + pairs] = static_cast<T>(high * cosine + low * sine);
        }
      }
    }
    // What no axis has passes through.
    for (int column = 2 * pairs + lane; column < c.d; column += warp)
      for (const rope3d_call::tensor& t : c.tensors)
        for (int head = 0; head < c.heads; ++head)
          reinterpret_cast<T*>(t.y)[token * t.y_row_stride + head * t.y_head_stride + column] =
              reinterpret_cast<const T*>(t.x)[token * t.x_row_stride + head * t.x_head_stride + column];
  }
}

}  // namespace

rope3d_workspace rope3d_workspace::cut(workspace_cutter& memory, const msabench_problem& problem) {
  rope3d_workspace taken{};
  taken.item_starts = memory.take<std::int64_t>(static_cast<double>(problem.batch) + 1);
  taken.frequencies = memory.take<float>(pairs_of_axis(problem.d));
  return taken;
}

void rotate_patches(const rope3d_call& c, const rope3d_workspace& memory, const padded_segments& segments,
                    void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  read_grids<<<1, grid_threads, 0, on>>>(c, memory, segments);
  const unsigned blocks = grid_blocks(c.tokens, warps);
  with_stored(c.type,
              [&](auto stored) { rotate_tokens<decltype(stored)><<<blocks, warps * warp, 0, on>>>(c, memory); });
}

void rope3d(const rope3d_call& c, const run_context& context) {
  workspace_cutter memory(context.scratch);
  rotate_patches(c, rope3d_workspace::cut(memory, context.problem), {nullptr, 0}, context.stream);
}

double rope3d_scratch_bytes(const msabench_problem& problem) {
  workspace_cutter memory(nullptr);
  rope3d_workspace::cut(memory, problem);
  return memory.bytes();
}

}  // namespace msabench::cuda
