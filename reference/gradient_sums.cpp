// SPDX-License-Identifier: Apache-2.0
#include "reference/gradient_sums.h"

#include <algorithm>
#include <cmath>

namespace msabench::reference {

void widened_tile::reset(std::int64_t channels) {
  if (channels == channels_) return;
  channels_ = channels;
  width_ = padded(channels);
  rows_.assign(static_cast<std::size_t>(tile_keys * width_), 0.0);
  groups_.assign(static_cast<std::size_t>(tile_keys * width_), 0.0);
}

void widened_tile::set(std::int64_t i, const tensor_view& from, std::int64_t offset) {
  double* const row = rows_.data() + i * width_;
  widen(from.data, from.desc.type, offset, channels_, row);
  for (std::int64_t channel = 0; channel < width_; channel += lanes)
    std::copy_n(row + channel, lanes, groups_.data() + channel * tile_keys + i * lanes);
}

void gradient_sums::reset(std::int64_t lines, std::int64_t width) {
  width_ = width;
  tile_.assign(static_cast<std::size_t>(lines * gauges * width), 0.0);
  sums_.reset(tile_.size());
  total_ = {};
}

void gradient_sums::set(std::int64_t line, const widened_tile& x, std::int64_t n, const gradient_weights& weights) {
  double* const to = tile_.data() + line * gauges * width_;
  for (std::int64_t c = 0; c < width_; c += lanes)
    gradient_tile(x.group(c), n, weights,
                  {to + c, to + width_ + c, to + 2 * width_ + c, to + 3 * width_ + c, to + 4 * width_ + c});
}

void gradient_sums::end_tile() { sums_.add(tile_); }

void gradient_sums::finish(std::int64_t line, double scale, gradient& g, std::size_t to) {
  if (total_.empty()) total_ = sums_.total();
  const double* from = total_.data() + line * gauges * width_;
  const auto channels = static_cast<std::size_t>(g.channels);
  const auto scaled = [&](std::vector<double>& gauge, double factor) {
    for (std::size_t c = 0; c < channels; ++c) gauge[to * channels + c] = factor * from[c];
    from += width_;
  };
  scaled(g.value, scale);
  scaled(g.magnitude, std::abs(scale));
  scaled(g.error, std::abs(scale));
  scaled(g.fine_error, std::abs(scale));
  scaled(g.spread, scale * scale);
}

void mean_sums::reset(std::int64_t lines, std::int64_t width) {
  width_ = width;
  tile_.assign(static_cast<std::size_t>(lines * width), 0.0);
  sums_.reset(tile_.size());
}

void mean_sums::set(std::int64_t line, const widened_tile& x, std::int64_t n, const double* weight) {
  for (std::int64_t c = 0; c < width_; c += lanes) mean_tile(x.group(c), n, weight, tile_.data() + line * width_ + c);
}

}  // namespace msabench::reference
