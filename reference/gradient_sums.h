// SPDX-License-Identifier: Apache-2.0
// Sums over tiles of at most 128 terms, for gradients and their gauges: rows widened once, then used by every head or
// key of the tile; pairwise over tiles.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor_view.h"
#include "reference/gradient.h"
#include "reference/pairwise.h"
#include "reference/tile_kernels.h"

namespace msabench::reference {

// Up to 128 rows of a tensor, widened: row after row for products, and in groups of `lanes` channels for sums.
class widened_tile {
 public:
  // Rows of this many channels; those beyond, up to width(), are zero in both forms.
  void reset(std::int64_t channels);
  void set(std::int64_t i, const tensor_view& from, std::int64_t offset);
  std::int64_t width() const { return width_; }
  const double* row(std::int64_t i) const { return rows_.data() + i * width_; }
  const double* rows() const { return rows_.data(); }
  // [128][lanes] of the channels from `channel` on, a multiple of `lanes`.
  const double* group(std::int64_t channel) const { return groups_.data() + channel * tile_keys; }

 private:
  std::int64_t channels_ = 0, width_ = 0;
  std::vector<double> rows_, groups_;
};

// Weights of a tile's terms, one after the other.
struct weight_columns {
  std::array<double, tile_keys> value{}, error{}, fine_error{}, spread{};
  gradient_weights view() const { return {value.data(), error.data(), fine_error.data(), spread.data()}; }
  void set(std::int64_t i, double w, double e, double f, double t) {
    const auto at = static_cast<std::size_t>(i);
    value[at] = w, error[at] = e, fine_error[at] = f, spread[at] = t;
  }
};

// Adds up `lines` lines of a gradient and their gauges.
class gradient_sums {
 public:
  void reset(std::int64_t lines, std::int64_t width);
  // The terms of this tile in one line; once for each line and tile.
  void set(std::int64_t line, const widened_tile& x, std::int64_t n, const gradient_weights& weights);
  void end_tile();
  // Line `line` times `scale` into the line of g; no set or end_tile after the first.
  void finish(std::int64_t line, double scale, gradient& g, std::size_t to);

 private:
  static constexpr std::int64_t gauges = 5;
  std::int64_t width_ = 0;
  std::vector<double> tile_;  // [line][gauge][width]
  pairwise_vectors sums_;
  std::span<const double> total_;
};

// Plain weighted sums, line by line as above.
class mean_sums {
 public:
  void reset(std::int64_t lines, std::int64_t width);
  void set(std::int64_t line, const widened_tile& x, std::int64_t n, const double* weight);
  void end_tile() { sums_.add(tile_); }
  // [lines][width]; valid until the next reset.
  std::span<const double> total() { return sums_.total(); }

 private:
  std::int64_t width_ = 0;
  std::vector<double> tile_;
  pairwise_vectors sums_;
};

}  // namespace msabench::reference
