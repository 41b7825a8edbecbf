// SPDX-License-Identifier: Apache-2.0
// Thread blocks of wide_attention: what they hold in shared memory, and who they consist of.
#pragma once

#include "kernels/cuda_sm90/barriers.cuh"
#include "kernels/cuda_sm90/shared_layout.h"

namespace msabench::cuda_sm90 {

inline constexpr int wide_tile_keys = 128;

/// `columns`: d, or more; those past d are 0. Tiles have a panel for each 64 columns or fewer.
template <class T, int columns_>
struct wide_shape {
  using value = T;
  static constexpr int columns = columns_, octets = columns / 8, column_steps = columns / 16;
  static constexpr int panel_columns = swizzle_row_bytes / 2, panels = (columns + panel_columns - 1) / panel_columns;
  static constexpr int tile_keys = wide_tile_keys, key_steps = tile_keys / 16;
  static constexpr int consumers = 2, group_rows = 64, rows = consumers * group_rows;
  static constexpr int group_threads = 128, threads = (1 + consumers) * group_threads;
  /// Of a thread, where each starts with 168: sums, scores and weights need more than that, and copying less.
  static constexpr int producer_registers = 40, consumer_registers = 232;

  static constexpr std::uint32_t key_panel_bytes = tile_keys * swizzle_row_bytes, tile_bytes = panels * key_panel_bytes;
  static constexpr std::uint32_t query_panel_bytes = rows * swizzle_row_bytes, query_bytes = panels * query_panel_bytes;
  static constexpr int stages = panels == 1 ? 4 : 2, query_stages = 2;

  struct memory {
    alignas(swizzle_atom_bytes) unsigned char keys[stages][tile_bytes];
    alignas(swizzle_atom_bytes) unsigned char values[stages][tile_bytes];
    alignas(swizzle_atom_bytes) unsigned char queries[query_stages][query_bytes];
    /// Ready when the copies are there, free when every warp of the consumers has multiplied.
    barrier keys_ready[stages], keys_free[stages], values_ready[stages], values_free[stages];
    barrier queries_ready[query_stages], queries_free[query_stages];

    __device__ void make_barriers() {
      constexpr int warps = consumers * 4;
      for (int i = 0; i < stages; ++i) {
        make_barrier(keys_ready + i, 1);
        make_barrier(keys_free + i, warps);
        make_barrier(values_ready + i, 1);
        make_barrier(values_free + i, warps);
      }
      for (int i = 0; i < query_stages; ++i) {
        make_barrier(queries_ready + i, 1);
        make_barrier(queries_free + i, warps);
      }
      publish_barriers();
    }
  };
  static_assert(sizeof(memory) <= 227 * 1024);
};

}  // namespace msabench::cuda_sm90
