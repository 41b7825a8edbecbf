// SPDX-License-Identifier: Apache-2.0
// Sizes that the kernels share, and a run's scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace msabench::cpu {

/// Keys whose scores and values are computed together. In fp32 a tile of keys takes 64 KiB at d = 128: it stays in a
/// second-level cache while its panels pass through the first.
inline constexpr int tile_keys = 128;

/// Query rows that share a tile, where so many see it.
inline constexpr int tile_rows = 128;

/// The same for dense: fewer, larger tiles read keys less often.
inline constexpr int dense_rows = 256;

/// Query rows of the tokens that share selected blocks: their sums should stay in a second-level cache.
inline constexpr int sharing_rows = 512;

/// Blocks of at least so many keys are tiles of their own. Smaller ones are joined to tiles.
inline constexpr int least_block_tile = 64;

/// Longest chain of dependent additions in a product; longer sums are sums of such chains.
inline constexpr int chain_terms = 128;

/// Bytes between what two threads write.
inline constexpr std::size_t line_bytes = 64;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

/// Columns of a panel at the most: four vectors of 512 bits.
inline constexpr int panel_columns = 64;

/// Elements of a row that is added to in whole panels.
constexpr std::int64_t padded_columns(std::int64_t d) { return ceil_div(d, panel_columns) * panel_columns; }

/// Tiles that are summed up before they are added to a row's result. It depends on the row's own number of tiles only, so
/// neither the threads nor the rest of the batch change a bit; and no row has more than `most_chunks`.
inline constexpr std::int64_t most_chunks = 64;
constexpr std::int64_t chunk_tiles(std::int64_t tiles) {
  return std::max<std::int64_t>(4, ceil_div(tiles, most_chunks));
}

/// Asks for memory into the second-level cache: the first one is full of what is being computed.
inline void bring_near(const char* from, int bytes) {
  for (int line = 0; line < bytes; line += static_cast<int>(line_bytes)) __builtin_prefetch(from + line, 0, 2);
}

/// Hands out pieces of a block of memory, each at the start of a cache line; without memory it only counts. The count is
/// a double, since sizes that no machine has must not wrap around.
class carver {
 public:
  explicit carver(void* memory) : memory_(static_cast<char*>(memory)) {}

  template <class T>
  T* take(double count) {
    char* taken = memory_ == nullptr ? nullptr : memory_ + static_cast<std::size_t>(bytes_);
    const double lines = count * static_cast<double>(sizeof(T)) / static_cast<double>(line_bytes);
    // One line more than it needs at the most, so no rounding to whole lines beyond 2^53 bytes matters.
    bytes_ += static_cast<double>(line_bytes) *
              (lines < 1e15 ? static_cast<double>(static_cast<std::int64_t>(lines) + 1) : lines);
    return reinterpret_cast<T*>(taken);
  }

  double bytes() const { return bytes_; }

 private:
  char* memory_;
  double bytes_ = 0;
};

/// Pieces of one size, one for each thread.
struct thread_slices {
  char* first;
  double slice_bytes;

  carver of(int thread) const { return carver(first + static_cast<std::int64_t>(slice_bytes) * thread); }
};

/// `take(carver)` says what a thread needs.
template <class Take>
thread_slices take_slices(carver& memory, int threads, const Take& take) {
  carver slice(nullptr);
  take(slice);
  return {memory.take<char>(slice.bytes() * threads), slice.bytes()};
}

}  // namespace msabench::cpu
