// SPDX-License-Identifier: Apache-2.0
#include "reference/layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "reference/attend.h"
#include "reference/index.h"
#include "reference/projection.h"
#include "reference/qk_norm_rope.h"

namespace msabench::reference {
namespace {

// A few rows at a time, since results come with gauges that nobody asks for here; at most 64 times, since every call
// looks at the lengths of all rows.
template <class Body>
void in_pieces(std::int64_t rows, const Body& body) {
  const std::int64_t piece = std::max<std::int64_t>(64, (rows + 63) / 64);
  std::vector<std::int64_t> some;
  for (std::int64_t first = 0; first < rows; first += piece) {
    some.clear();
    for (std::int64_t row = first; row < std::min(rows, first + piece); ++row) some.push_back(row);
    body(some);
  }
}

tensor_view view(const std::vector<double>& values, std::vector<std::int64_t> shape) {
  return {values.data(), packed(fp64, std::move(shape))};
}

// Prompts as operators see them.
struct lengths {
  explicit lengths(const layer_inputs& in) {
    const std::int64_t tokens = in.hidden.desc.shape[0];
    cu = {0, static_cast<std::int32_t>(tokens)};
    if (in.cu_seqlens) {
      cu.clear();
      for (std::int64_t b = 0; b < in.cu_seqlens.desc.elements(); ++b) cu.push_back(in.cu_seqlens.int_at(b));
    }
    if (cu.empty() || cu.back() != tokens) throw suite_error("layer: cu_seqlens must end at the number of tokens");
    for (std::size_t b = 0; b + 1 < cu.size(); ++b) lens.push_back(cu[b + 1] - cu[b]);
  }
  tensor_view cu_seqlens() const { return {cu.data(), packed(i32, {std::ssize(cu)})}; }
  tensor_view kv_lens() const { return {lens.data(), packed(i32, {std::ssize(lens)})}; }
  std::int64_t longest() const { return lens.empty() ? 0 : *std::ranges::max_element(lens); }

  std::vector<std::int32_t> cu, lens;
};

void require_shapes(const layer_inputs& in) {
  const problem& p = in.p;
  if (p.hq < 1 || p.hkv < 1 || p.hq % p.hkv != 0 || p.hi != p.hkv || p.d < 1 || p.di < 1)
    throw suite_error("layer: the problem has no valid shape");
  if (in.hidden.desc.shape.size() != 2) throw suite_error("layer: hidden must be [T,hidden]");
  const std::int64_t hidden = in.hidden.desc.shape[1];
  const auto require = [](const tensor_view& w, std::int64_t out, std::int64_t from, const char* name) {
    if (w.desc.shape != std::vector{out, from})
      throw suite_error(fmt::format("layer: weight {} must be [{},{}]", name, out, from));
  };
  require(in.weights.q, std::int64_t{p.hq} * p.d, hidden, "q");
  require(in.weights.k, std::int64_t{p.hkv} * p.d, hidden, "k");
  require(in.weights.v, std::int64_t{p.hkv} * p.d, hidden, "v");
  require(in.weights.out, hidden, std::int64_t{p.hq} * p.d, "out");
  require(in.weights.q_idx, std::int64_t{p.hi} * p.di, hidden, "q_idx");
  require(in.weights.k_idx, p.di, hidden, "k_idx");
}

// Tensors of the layer between its projections, each [T, heads, dim].
struct activations {
  std::vector<double> q, k, q_idx, k_idx;
};

// Norm and rotation, in place.
void prepare(const layer_inputs& in, const lengths& of, activations& x) {
  const problem& p = in.p;
  const std::int64_t tokens = in.hidden.desc.shape[0];
  const auto table = angle_table(of.longest(), p.rope_dims, p.rope_theta);
  const layer_weights& w = in.weights;
  const qk_norm_rope_inputs prologue{p,
                                     view(x.q, {tokens, p.hq, p.d}),
                                     view(x.k, {tokens, p.hkv, p.d}),
                                     view(x.q_idx, {tokens, p.hi, p.di}),
                                     view(x.k_idx, {tokens, p.di}),
                                     w.q_norm,
                                     w.k_norm,
                                     w.q_idx_norm,
                                     w.k_idx_norm,
                                     view(table, {of.longest(), p.rope_dims}),
                                     of.cu_seqlens(),
                                     of.kv_lens()};
  const auto store = [](std::vector<double>& to, std::int64_t at, const std::vector<double>& y) {
    std::ranges::copy(y, to.begin() + at * std::ssize(y));
  };
  in_pieces(tokens, [&](std::span<const std::int64_t> rows) {
    for (const auto& r : qk_norm_rope(prologue, rows)) {
      if (r.output == slot::q_rope) store(x.q, r.row * p.hq + r.head, r.y);
      if (r.output == slot::k_rope) store(x.k, r.row * p.hkv + r.head, r.y);
      if (r.output == slot::q_idx_rope) store(x.q_idx, r.row * p.hi + r.head, r.y);
      if (r.output == slot::k_idx_rope) store(x.k_idx, r.row, r.y);
    }
  });
}

std::vector<std::int32_t> select_blocks(const problem& p, const lengths& of, const activations& x,
                                        std::int64_t tokens) {
  index_inputs in;
  in.p = p;
  in.q_idx = view(x.q_idx, {tokens, p.hi, p.di});
  in.k_idx = view(x.k_idx, {tokens, p.di});
  in.cu_seqlens_q = in.cu_seqlens_kv = of.cu_seqlens();
  in.kv_lens = of.kv_lens();
  std::vector<std::int32_t> ids;
  in_pieces(tokens, [&](std::span<const std::int64_t> rows) {
    for (const auto& r : index(in, rows, {}, {})) ids.insert(ids.end(), r.ids.begin(), r.ids.end());
  });
  return ids;
}

std::vector<double> attend_selected(const problem& p, const lengths& of, const activations& x,
                                    const std::vector<double>& v, const std::vector<std::int32_t>& ids,
                                    std::int64_t tokens) {
  const attend_inputs in{p,
                         view(x.q, {tokens, p.hq, p.d}),
                         view(x.k, {tokens, p.hkv, p.d}),
                         view(v, {tokens, p.hkv, p.d}),
                         {ids.data(), packed(i32, {tokens, p.hkv, p.topk})},
                         of.cu_seqlens(),
                         of.kv_lens(),
                         of.cu_seqlens(),
                         {}};
  std::vector<double> attended;
  in_pieces(tokens, [&](std::span<const std::int64_t> rows) {
    for (const auto& r : attend(in, rows, {})) attended.insert(attended.end(), r.out.begin(), r.out.end());
  });
  return attended;
}

}  // namespace

std::vector<double> angle_table(std::int64_t max_pos, std::int64_t rope_dims, double theta) {
  const std::int64_t pairs = rope_dims / 2;
  std::vector<double> table(static_cast<std::size_t>(max_pos * rope_dims));
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double frequency = std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(rope_dims));
    for (std::int64_t position = 0; position < max_pos; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      const auto at = static_cast<std::size_t>(position * rope_dims + i);
      table[at] = std::cos(angle);
      table[at + static_cast<std::size_t>(pairs)] = std::sin(angle);
    }
  }
  return table;
}

layer_result layer(const layer_inputs& in) {
  require_shapes(in);
  const lengths of(in);
  const std::int64_t tokens = in.hidden.desc.shape[0];
  const layer_weights& w = in.weights;
  problem p = in.p;
  p.layout = page_layout::contiguous;
  p.max_kv_len = of.longest();

  activations x{project(in.hidden, w.q), project(in.hidden, w.k), project(in.hidden, w.q_idx),
                project(in.hidden, w.k_idx)};
  const auto v = project(in.hidden, w.v);
  prepare(in, of, x);
  layer_result result;
  result.ids = select_blocks(p, of, x, tokens);
  const auto attended = attend_selected(p, of, x, v, result.ids, tokens);
  result.output = project(view(attended, {tokens, std::int64_t{p.hq} * p.d}), w.out);
  return result;
}

}  // namespace msabench::reference
