// SPDX-License-Identifier: Apache-2.0
#include "reference/combine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "reference/pairwise.h"
#include "reference/parallel.h"
#include "reference/tile_kernels.h"

namespace msabench::reference {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

struct scratch {
  std::vector<std::int64_t> parts;  // p with LSE_p > -inf
  std::vector<double> lse, weight;  // of those
  std::vector<double> line;         // [d] one O_p
  std::vector<double> sums;         // [4][d]
  pairwise_vectors total;
};

void require_shapes(const combine_inputs& in) {
  const auto& o = in.partial_out.desc;
  if (o.shape.size() != 4 || o.shape[2] != in.p.hq || o.shape[3] != in.p.d || o.strides[3] != 1)
    throw suite_error("combine: partial_out must be [P,T,Hq,d]");
  const auto& l = in.partial_lse.desc.shape;
  if (l.size() != 3 || !std::equal(l.begin(), l.end(), o.shape.begin()))
    throw suite_error("combine: partial_lse must be [P,T,Hq]");
}

void find_parts(const combine_inputs& in, std::int64_t row, std::int64_t head, scratch& s) {
  s.parts.clear();
  s.lse.clear();
  for (std::int64_t p = 0; p < in.partial_lse.desc.shape[0]; ++p) {
    const double lse = in.partial_lse.at(p, row, head);
    if (std::isnan(lse) || lse == inf)
      throw suite_error(
          fmt::format("combine: partial_lse[{},{},{}] is {}, which is no log-sum-exp", p, row, head, lse));
    if (lse == -inf) continue;
    s.parts.push_back(p);
    s.lse.push_back(lse);
  }
}

// w_p = exp(LSE_p - a), normalised; LSE = a + ln sum w_p.
void weigh_parts(scratch& s, combine_row& r) {
  r.partials = std::ssize(s.parts);
  r.a = *std::ranges::max_element(s.lse);
  s.weight.clear();
  for (const double lse : s.lse) s.weight.push_back(std::exp(lse - r.a));
  const double sum = pairwise_sum(s.weight);
  r.lse = r.a + std::log(sum);
  for (double& w : s.weight) w /= sum;
  std::vector<double> distances;
  for (std::size_t i = 0; i < s.weight.size(); ++i) distances.push_back(s.weight[i] * (r.a - s.lse[i]));
  r.distance = pairwise_sum(distances);
}

void add_part(const combine_inputs& in, const combine_row& r, std::size_t i, scratch& s) {
  const auto d = static_cast<std::size_t>(in.p.d);
  widen(in.partial_out.data, in.partial_out.desc.type, in.partial_out.offset(s.parts[i], r.row, r.head), in.p.d,
        s.line.data());
  const double pi = s.weight[i], exponent = std::abs(s.lse[i] - r.a) + std::abs(r.a);
  for (std::size_t c = 0; c < d; ++c) {
    const double term = pi * s.line[c], magnitude = std::abs(term);
    s.sums[c] += term;
    s.sums[d + c] += magnitude;
    s.sums[2 * d + c] += magnitude * exponent;
    s.sums[3 * d + c] += std::abs(s.line[c]);
  }
}

void combine_row_of(const combine_inputs& in, combine_row& r, scratch& s) {
  const auto d = static_cast<std::size_t>(in.p.d);
  std::vector<double>* const gauges[] = {&r.out, &r.magnitude, &r.exponents, &r.sizes};
  for (auto* channels : gauges) channels->assign(d, 0.0);
  r.lse = -inf;
  find_parts(in, r.row, r.head, s);
  if (s.parts.empty()) return;
  weigh_parts(s, r);
  s.line.resize(d);
  s.total.reset(std::size(gauges) * d);
  for (std::size_t first = 0; first < s.parts.size(); first += tile_keys) {
    s.sums.assign(std::size(gauges) * d, 0.0);
    for (std::size_t i = first; i < std::min(first + tile_keys, s.parts.size()); ++i) add_part(in, r, i, s);
    s.total.add(s.sums);
  }
  const auto sums = s.total.total();
  for (std::size_t i = 0; i < std::size(gauges); ++i) std::ranges::copy(sums.subspan(i * d, d), gauges[i]->begin());
}

}  // namespace

std::vector<combine_row> combine(const combine_inputs& in, std::span<const std::int64_t> rows) {
  require_shapes(in);
  const auto& shape = in.partial_out.desc.shape;
  std::vector<combine_row> results(rows.size() * static_cast<std::size_t>(in.p.hq));
  const auto units = static_cast<std::int64_t>(results.size());
  parallel_for<scratch>(units, units * shape[0] * in.p.d, [&](std::int64_t unit, scratch& s) {
    combine_row& r = results[static_cast<std::size_t>(unit)];
    r.row = rows[static_cast<std::size_t>(unit / in.p.hq)];
    r.head = unit % in.p.hq;
    if (r.row < 0 || r.row >= shape[1]) throw suite_error(fmt::format("row {} is no query row of the batch", r.row));
    combine_row_of(in, r, s);
  });
  return results;
}

}  // namespace msabench::reference
