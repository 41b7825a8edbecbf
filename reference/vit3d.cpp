// SPDX-License-Identifier: Apache-2.0
#include "reference/vit3d.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "reference/parallel.h"

namespace msabench::reference {
namespace {

constexpr double default_theta = 1e4;

void require_shapes(const vit3d_inputs& in, std::int64_t tokens) {
  const problem& p = in.p;
  if (p.hq < 1 || p.hq != p.hkv || p.d < 1 || p.paged()) throw suite_error("vit3d: the problem has no valid shape");
  for (const tensor_view* t : {&in.q, &in.k, &in.v}) {
    const auto& shape = t->desc.shape;
    if (shape.size() != 3 || shape[0] < tokens || shape[1] != p.hq || shape[2] != p.d || t->desc.strides[2] != 1)
      throw suite_error(fmt::format("vit3d: q, k and v must be [N,heads,d] with the {} tokens of grids", tokens));
  }
}

struct segment {
  std::int64_t begin = 0, end = 0;
};

// Places in the list of wanted rows, by segment.
std::map<std::int64_t, std::vector<std::size_t>> by_segment(const vit_layout& layout,
                                                            std::span<const std::int64_t> rows) {
  std::map<std::int64_t, std::vector<std::size_t>> wanted;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= std::ssize(layout.positions))
      throw suite_error(fmt::format("vit3d: there is no token {}", rows[i]));
    const auto next = std::ranges::upper_bound(layout.cu_segments, static_cast<std::int32_t>(rows[i]));
    wanted[next - layout.cu_segments.begin() - 1].push_back(i);
  }
  return wanted;
}

// One head of some tokens, widened and rotated: [count][1][d], in memory of the object's own.
class rotated {
 public:
  template <class Token>  // token(i) of the i-th row
  rotated(const tensor_view& x, std::int64_t head, std::int64_t count, const vit_layout& layout,
          const axial_angles& axes, const Token& token)
      : d_(x.desc.shape[2]), values_(static_cast<std::size_t>(count * d_)), view_{values_.data(), {}} {
    view_.desc = packed(fp64, {count, 1, d_});
    parallel_for<std::vector<double>>(count, count * d_ * 16, [&](std::int64_t i, auto& angles) {
      angles.resize(static_cast<std::size_t>(axes.pairs()));
      axes.at(layout.positions[static_cast<std::size_t>(token(i))], angles);
      const auto row = std::span(values_).subspan(static_cast<std::size_t>(i * d_), static_cast<std::size_t>(d_));
      widen(x.data, x.desc.type, x.offset(token(i), head), d_, row.data());
      rotate(angles, row);
    });
  }
  rotated(const rotated&) = delete;
  rotated& operator=(const rotated&) = delete;

  const tensor_view& view() const { return view_; }

 private:
  std::int64_t d_;
  std::vector<double> values_;
  tensor_view view_;
};

// Tokens begin .. end - 1 of one head, as [tokens][1][d].
tensor_view head_of(const tensor_view& x, const segment& s, std::int64_t head) {
  tensor_view part = x;
  part.data = static_cast<const char*>(x.data) + x.offset(s.begin, head) * size_bytes(x.desc.type);
  part.desc.shape[0] = s.end - s.begin;
  part.desc.shape[1] = 1;
  return part;
}

// The wanted rows of one segment, head by head; `places` says where in `rows`.
void attend_segment(const vit3d_inputs& in, const vit_layout& layout, const axial_angles& axes, const segment& s,
                    std::span<const std::int64_t> rows, std::span<const std::size_t> places, const score_error& err,
                    std::span<attend_row> results) {
  problem one_head = in.p;
  one_head.hq = one_head.hkv = 1;
  const std::int64_t queries = std::ssize(places), tokens = s.end - s.begin;
  const std::int32_t cu_q[] = {0, static_cast<std::int32_t>(queries)}, cu_kv[] = {0, static_cast<std::int32_t>(tokens)};
  const tensor_view cu_seqlens_q{cu_q, packed(i32, {2})}, cu_seqlens_kv{cu_kv, packed(i32, {2})};
  const row_map local(cu_seqlens_q, {cu_kv + 1, packed(i32, {1})});
  std::vector<std::int64_t> all(places.size());
  std::iota(all.begin(), all.end(), 0);
  for (std::int64_t head = 0; head < in.p.hq; ++head) {
    const rotated q(in.q, head, queries, layout, axes,
                    [&](std::int64_t i) { return rows[places[static_cast<std::size_t>(i)]]; });
    const rotated k(in.k, head, tokens, layout, axes, [&](std::int64_t i) { return s.begin + i; });
    const tensor_view v = head_of(in.v, s, head), no_table;
    const attention_context c("vit3d", one_head, q.view(), k.view(), v, no_table, cu_seqlens_kv);
    auto attended = attend_rows(c, local, all, err, [](const group_place& at, std::vector<std::int64_t>&) {
      return key_list(at.place.kv_len);
    });
    for (std::size_t i = 0; i < attended.size(); ++i) {
      attended[i].row = rows[places[i]];
      attended[i].head = head;
      results[places[i] * static_cast<std::size_t>(in.p.hq) + static_cast<std::size_t>(head)] = std::move(attended[i]);
    }
  }
}

}  // namespace

vit3d_result vit3d(const vit3d_inputs& in, std::span<const std::int64_t> rows, const score_error& err) {
  vit3d_result result{lay_out(in.grids, in.p.vit_window, in.merge), {}};
  const vit_layout& layout = result.layout;
  require_shapes(in, std::ssize(layout.positions));
  const axial_angles axes(in.p.d, in.p.rope_theta != 0 ? in.p.rope_theta : default_theta);
  result.rows.resize(rows.size() * static_cast<std::size_t>(in.p.hq));
  for (const auto& [index, places] : by_segment(layout, rows)) {
    const auto first = static_cast<std::size_t>(index);
    attend_segment(in, layout, axes, {layout.cu_segments[first], layout.cu_segments[first + 1]}, rows, places, err,
                   result.rows);
  }
  return result;
}

}  // namespace msabench::reference
