// SPDX-License-Identifier: Apache-2.0
#include "reference/qk_norm_rope.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "core/error.h"
#include "reference/pairwise.h"
#include "reference/parallel.h"

namespace msabench::reference {
namespace {

// One of the four tensors that the operator treats alike. k_idx has a single head and no axis for it.
struct stream {
  slot output;
  const tensor_view& x;
  std::int64_t heads, dim;
  std::vector<double> weight;
};

std::vector<double> load_weight(const tensor_view& w, std::int64_t dim, const char* name) {
  if (w.desc.shape.size() != 1 || w.desc.shape[0] != dim || w.desc.strides[0] != 1)
    throw suite_error(fmt::format("qk_norm_rope: {} must have {} elements", name, dim));
  std::vector<double> weight(static_cast<std::size_t>(dim));
  widen(w.data, w.desc.type, 0, dim, weight.data());
  return weight;
}

void require_shapes(const qk_norm_rope_inputs& in) {
  const problem& p = in.p;
  if (p.hq < 1 || p.hkv < 1 || p.hi < 1 || p.d < 1 || p.di < 1)
    throw suite_error("qk_norm_rope: the problem has no valid shape");
  if (p.rope_dims < 0 || p.rope_dims % 2 != 0 || p.rope_dims > p.d || p.rope_dims > p.di)
    throw suite_error(fmt::format("qk_norm_rope: {} rotated dims of {} and {}", p.rope_dims, p.d, p.di));
  const auto is = [](const tensor_view& t, std::int64_t heads, std::int64_t dim) {
    const auto& shape = t.desc.shape;
    return shape.size() == 3 && shape[1] == heads && shape[2] == dim && t.desc.strides[2] == 1;
  };
  if (!is(in.q, p.hq, p.d) || !is(in.k, p.hkv, p.d) || !is(in.q_idx, p.hi, p.di))
    throw suite_error("qk_norm_rope: q, k and q_idx must be [T,Hq,d], [T,Hkv,d] and [T,Hi,di]");
  const auto& k_idx = in.k_idx.desc;
  if (k_idx.shape.size() != 2 || k_idx.shape[1] != p.di || k_idx.strides[1] != 1)
    throw suite_error("qk_norm_rope: k_idx must be [T,di]");
  const auto& table = in.cos_sin.desc;
  if (table.shape.size() != 2 || table.shape[1] != p.rope_dims || (p.rope_dims > 0 && table.strides[1] != 1))
    throw suite_error("qk_norm_rope: cos_sin must be [max_pos,rope_dims]");
}

struct scratch {
  std::vector<double> x, cos_sin;
};

void find_amplitudes(std::span<const double> y, std::size_t half, std::span<double> a) {
  for (std::size_t i = 0; i < y.size(); ++i) a[i] = std::abs(y[i]);
  for (std::size_t i = 0; i < half; ++i) a[i] = a[i + half] = std::sqrt(y[i] * y[i] + y[i + half] * y[i + half]);
}

void rotate_head(const qk_norm_rope_inputs& in, const stream& from, qk_norm_rope_row& r, scratch& s) {
  const auto dim = static_cast<std::size_t>(from.dim);
  s.x.resize(dim);
  const std::int64_t at = from.x.desc.shape.size() == 3 ? from.x.offset(r.row, r.head) : from.x.offset(r.row);
  widen(from.x.data, from.x.desc.type, at, from.dim, s.x.data());
  r.y.resize(dim);
  r.a.resize(dim);
  norm_rope(s.x, from.weight, in.p.norm_eps, s.cos_sin, r.y);
  find_amplitudes(r.y, s.cos_sin.size() / 2, r.a);
}

}  // namespace

void norm_rope(std::span<const double> x, std::span<const double> w, double eps, std::span<const double> cos_sin,
               std::span<double> y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * x[i];
  const double inverse_rms = 1 / std::sqrt(pairwise_sum(y) / static_cast<double>(x.size()) + eps);
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * inverse_rms * (1 + w[i]);

  const std::size_t half = cos_sin.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const double c = cos_sin[i], s = cos_sin[half + i], first = y[i], second = y[i + half];
    y[i] = first * c - second * s;
    y[i + half] = second * c + first * s;
  }
}

std::vector<qk_norm_rope_row> qk_norm_rope(const qk_norm_rope_inputs& in, std::span<const std::int64_t> rows) {
  require_shapes(in);
  const problem& p = in.p;
  const std::array streams{
      stream{slot::q_rope, in.q, p.hq, p.d, load_weight(in.q_norm, p.d, "q_norm")},
      stream{slot::k_rope, in.k, p.hkv, p.d, load_weight(in.k_norm, p.d, "k_norm")},
      stream{slot::q_idx_rope, in.q_idx, p.hi, p.di, load_weight(in.q_idx_norm, p.di, "q_idx_norm")},
      stream{slot::k_idx_rope, in.k_idx, 1, p.di, load_weight(in.k_idx_norm, p.di, "k_idx_norm")}};
  const row_map places(in.cu_seqlens_q, in.kv_lens);
  const std::int64_t heads = p.hq + p.hkv + p.hi + 1;
  std::vector<qk_norm_rope_row> results(rows.size() * static_cast<std::size_t>(heads));
  const auto units = static_cast<std::int64_t>(rows.size());
  parallel_for<scratch>(units, units * heads * (p.d + p.di), [&](std::int64_t unit, scratch& s) {
    const std::int64_t row = rows[static_cast<std::size_t>(unit)], position = places[row].position;
    if (position >= in.cos_sin.desc.shape[0])
      throw suite_error(fmt::format("row {} has position {}, past the table of angles", row, position));
    s.cos_sin.resize(static_cast<std::size_t>(p.rope_dims));
    if (position >= 0 && p.rope_dims > 0)
      widen(in.cos_sin.data, in.cos_sin.desc.type, in.cos_sin.offset(position), p.rope_dims, s.cos_sin.data());
    auto result = results.begin() + unit * heads;
    for (const stream& from : streams)
      for (std::int64_t head = 0; head < from.heads; ++head, ++result) {
        *result = {from.output, row, head, position, {}, {}};
        if (position >= 0) rotate_head(in, from, *result, s);
      }
  });
  return results;
}

}  // namespace msabench::reference
