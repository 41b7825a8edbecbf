// SPDX-License-Identifier: Apache-2.0
// What the kernels that go by blocks of keys share: tiles of keys and of the rows that read them, and the products of a
// warpgroup, which has 64 keys, with 64 rows. Sums of keys by rows lie in the lanes as a left operand of what comes next.
#pragma once

#include "kernels/cuda/training.cuh"
#include "kernels/cuda_sm90/barriers.cuh"
#include "kernels/cuda_sm90/shared_layout.h"
#include "kernels/cuda_sm90/wgmma.cuh"

namespace msabench::cuda_sm90 {

inline constexpr int block_keys = 128, head_columns = 128;
inline constexpr int group_threads = 128, step_rows = 64, group_keys = block_keys / 2;
inline constexpr int k_steps = head_columns / 16, row_steps = step_rows / 16, key_steps = block_keys / 16;
inline constexpr int lane_values =
    step_rows / 2;  // of a product of 64 keys by the rows, and of 64 rows by half the columns
inline constexpr int sum_values = head_columns / 2;  // of 64 keys or rows by all columns
inline constexpr std::uint32_t key_panel_bytes = block_keys * swizzle_row_bytes,
                               row_panel_bytes = step_rows * swizzle_row_bytes;

/// Heads are two panels of 64 columns.
struct key_tile {
  unsigned char panel[2][key_panel_bytes];
};
struct row_tile {
  unsigned char panel[2][row_panel_bytes];
};
static_assert(sizeof(key_tile) % swizzle_atom_bytes == 0 && sizeof(row_tile) % swizzle_atom_bytes == 0);

/// Shared memory of a thread block as a struct that begins with tiles; it needs swizzle_atom_bytes more than its size.
template <class Memory>
__device__ Memory& aligned_memory(char* shared) {
  const std::uint32_t past = cuda::shared_address(shared) % swizzle_atom_bytes;
  return *reinterpret_cast<Memory*>(shared + (swizzle_atom_bytes - past) % swizzle_atom_bytes);
}

/// Starts the copy of the keys or values of a block, zeros behind its last one, by so many threads.
template <int threads>
__device__ void copy_key_tile(key_tile& to, const cuda::key_rows& from, const cuda::reading& task, int thread) {
  constexpr int chunks = head_columns / 8, panel_chunks = chunks / 2;
#pragma unroll 4
  for (int i = thread; i < block_keys * chunks; i += threads) {
    const int key = i / chunks, chunk = i % chunks;
    const bool there = key < task.keys.count;
    const std::int64_t j = task.keys.first + (there ? key : 0);
    unsigned char* const panel = to.panel[chunk / panel_chunks];
    cuda::copy_async(cuda::shared_address(panel) + swizzled(key, chunk % panel_chunks * 16), from.at(j) + chunk * 16,
                     there);
  }
}
/// What this thread copied is there for wgmma, after a barrier.
__device__ inline void finish_key_tiles() {
  cuda::commit_copies();
  cuda::wait_copies<0>();
  fence_for_async();
}

/// c [64][64] = keys times rows, transposed.
template <class T>
__device__ void multiply_by_rows(float (&c)[lane_values], std::uint64_t keys, std::uint64_t rows) {
  constexpr int panel_steps = k_steps / 2;
  constexpr std::uint64_t key_panel = key_panel_bytes >> 4, row_panel = row_panel_bytes >> 4;
#pragma unroll
  for (int step = 0; step < k_steps; ++step)
    multiply<T, step_rows>(c, keys + step / panel_steps * key_panel + step % panel_steps * k_major_step,
                           rows + step / panel_steps * row_panel + step % panel_steps * k_major_step, step > 0);
  commit_products();
}

/// c [64][128] = rows times keys, transposed.
template <class T>
__device__ void multiply_rows(float (&c)[sum_values], std::uint64_t rows, std::uint64_t keys) {
  constexpr int panel_steps = k_steps / 2;
  constexpr std::uint64_t key_panel = key_panel_bytes >> 4, row_panel = row_panel_bytes >> 4;
#pragma unroll
  for (int step = 0; step < k_steps; ++step)
    multiply<T, block_keys>(c, rows + step / panel_steps * row_panel + step % panel_steps * k_major_step,
                            keys + step / panel_steps * key_panel + step % panel_steps * k_major_step, step > 0);
  commit_products();
}

/// sums [64][128] += weights of 64 keys by rows, times rows.
template <class T>
__device__ void add_rows(float (&sums)[sum_values], const std::uint32_t (&weights)[row_steps][4], std::uint64_t rows) {
#pragma unroll
  for (int step = 0; step < row_steps; ++step)
    multiply<T, head_columns, major::mn>(sums, weights[step], rows + step * mn_major_step, 1);
  commit_products();
}

/// What a lane has of a product of keys by rows, as left operand.
template <class T>
__device__ void pack(std::uint32_t (&a)[row_steps][4], const float (&c)[lane_values]) {
#pragma unroll
  for (int step = 0; step < row_steps; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[step][i] = cuda::storage<T>::pack(c[step * 8 + i * 2], c[step * 8 + i * 2 + 1]);
}

/// 2^x; what is below the normal numbers is 0.
__device__ inline float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// To `to`, each lane the row of 8 values whose address it has, as ldmatrix reads them.
__device__ inline void store_matrices(std::uint32_t to, const std::uint32_t (&a)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a[0]), "r"(a[1]),
               "r"(a[2]), "r"(a[3])
               : "memory");
}

/// A warpgroup: its keys and columns, and where this lane's values lie.
struct group_place {
  int group, lane, first_row;  ///< of the warp's 16 rows among the group's 64

  /// By whole warps: the assembler is shown that the group is the same in all lanes.
  __device__ group_place()
      : group(__shfl_sync(~0u, static_cast<int>(threadIdx.x) / group_threads - 1, 0)),
        lane(threadIdx.x % 32),
        first_row(threadIdx.x % group_threads / 32 * 16) {}
  __device__ int row(int half) const { return first_row + lane / 4 + half * 8; }
  __device__ int column(int n) const { return n * 8 + lane % 4 * 2; }
};

}  // namespace msabench::cuda_sm90
