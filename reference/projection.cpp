// SPDX-License-Identifier: Apache-2.0
#include "reference/projection.h"

#include <algorithm>

#include "core/error.h"
#include "reference/pairwise.h"
#include "reference/parallel.h"
#include "reference/tile_kernels.h"

namespace msabench::reference {
namespace {

constexpr std::int64_t tile_tokens = 128, tile_inputs = 128, tile_outputs = tile_keys;

struct scratch {
  std::vector<double> weights;         // [outputs][inputs]
  std::vector<double> line;            // [inputs] of one token
  std::vector<double> products, size;  // [tokens][outputs]; sizes of the products, which nobody asks for here
  pairwise_vectors total;
};

struct range {
  std::int64_t first, count;
};

range tile_of(std::int64_t index, std::int64_t size, std::int64_t whole) {
  return {index * size, std::min(size, whole - index * size)};
}
std::int64_t tiles(std::int64_t size, std::int64_t whole) { return (whole + size - 1) / size; }

void load_row(const tensor_view& from, std::int64_t row, const range& columns, std::int64_t width, double* to) {
  widen(from.data, from.desc.type, from.offset(row, columns.first), columns.count, to);
  std::fill(to + columns.count, to + width, 0.0);
}

void project_tile(const tensor_view& x, const tensor_view& weight, const range& tokens, const range& outputs,
                  double* result, scratch& s) {
  const std::int64_t inputs = weight.desc.shape[1], stride = weight.desc.shape[0];
  s.weights.resize(tile_outputs * tile_inputs);
  s.line.resize(tile_inputs);
  s.size.resize(tile_outputs);
  s.products.resize(static_cast<std::size_t>(tokens.count * outputs.count));
  s.total.reset(s.products.size());
  for (std::int64_t tile = 0; tile < tiles(tile_inputs, inputs); ++tile) {
    const range columns = tile_of(tile, tile_inputs, inputs);
    const std::int64_t width = padded(columns.count);
    for (std::int64_t o = 0; o < outputs.count; ++o)
      load_row(weight, outputs.first + o, columns, width, s.weights.data() + o * width);
    for (std::int64_t t = 0; t < tokens.count; ++t) {
      load_row(x, tokens.first + t, columns, width, s.line.data());
      score_tile(s.weights.data(), outputs.count, width, s.line.data(), s.products.data() + t * outputs.count,
                 s.size.data(), nullptr);
    }
    s.total.add(s.products);
  }
  const auto sums = s.total.total();
  for (std::int64_t t = 0; t < tokens.count; ++t)
    std::copy_n(sums.data() + t * outputs.count, outputs.count, result + (tokens.first + t) * stride + outputs.first);
}

}  // namespace

std::vector<double> project(const tensor_view& x, const tensor_view& weight) {
  const auto is_rows = [](const tensor_view& t) { return t.desc.shape.size() == 2 && t.desc.strides[1] == 1; };
  if (!is_rows(x) || !is_rows(weight) || x.desc.shape[1] != weight.desc.shape[1])
    throw suite_error("project: x and weight must be [T,in] and [out,in]");
  const std::int64_t tokens = x.desc.shape[0], outputs = weight.desc.shape[0];
  std::vector<double> y(static_cast<std::size_t>(tokens * outputs));
  const std::int64_t output_tiles = tiles(tile_outputs, outputs);
  parallel_for<scratch>(tiles(tile_tokens, tokens) * output_tiles, tokens * outputs * x.desc.shape[1],
                        [&](std::int64_t unit, scratch& s) {
                          project_tile(x, weight, tile_of(unit / output_tiles, tile_tokens, tokens),
                                       tile_of(unit % output_tiles, tile_outputs, outputs), y.data(), s);
                        });
  return y;
}

}  // namespace msabench::reference
