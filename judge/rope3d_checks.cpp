// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/error.h"
#include "judge/answers.h"
#include "judge/detectability.h"
#include "judge/rope3d_expectation.h"

namespace msabench::judge {
namespace {

const tensor_view& output(const launch& l, slot s) {
  const auto found = l.outputs.find(s);
  if (found == l.outputs.end()) throw suite_error("the launch of a rope3d case lacks an output");
  return found->second;
}

limit<1> exact() { return sum_of<1>({{{"exact", 0.0}}}); }

void compare_heads(slot where, const tensor_view& got, const reference::rope3d_row& row,
                   const std::vector<double>& want, const std::vector<double>& amplitudes, const roundoffs& r,
                   element_check& check) {
  std::vector<double> channels(want.size());
  widen(got.data, got.desc.type, got.offset(row.row, row.head), std::ssize(want), channels.data());
  check.add(where, {row.row, row.head}, channels, want,
            [&](std::size_t c) { return limit_of_rope3d(r, want[c], amplitudes[c], row.phi[c]); });
}

void compare_integers(slot where, std::vector<std::int64_t> index, std::span<const double> got,
                      std::span<const double> want, element_check& check) {
  check.add(where, index, got, want, [](std::size_t) { return exact(); });
}

}  // namespace

angle_limit limit_of_rope3d(const roundoffs& r, double y, double a, double angle) {
  // Products of single precision that underflow on a device that flushes subnormals.
  constexpr double flushed = 4 * 0x1p-126;
  return sum_of<6>({{
      {"out_store", r.u_o * std::abs(y)},
      {"fp32", second_order * 8 * u32 * a},
      {"angle", second_order * 4 * u32 * std::abs(angle) * a},
      {"sine", second_order * 0x1p-22 * a},
      {"out_underflow", second_order * r.omega_o},
      {"underflow", second_order * flushed},
  }});
}

reference::rope3d_inputs rope3d_inputs_of(const subject& what) {
  return {what.agreed, what.inputs.at(slot::q), what.inputs.at(slot::k), what.inputs.at(slot::grids)};
}

void scan_rope3d(const rope3d_outputs& got, const reference::vit_layout& layout, value_scan& scan) {
  const std::int64_t tokens = std::ssize(layout.positions);
  for (const auto& [where, view] : {std::pair{slot::q_rope, got.q_rope}, std::pair{slot::k_rope, got.k_rope}})
    for (std::int64_t row = 0; view != nullptr && row < tokens; ++row)
      for (std::int64_t head = 0; head < view->desc.shape[1]; ++head)
        scan.expect_finite({where, view, view->offset(row, head), view->desc.shape[2], {row, head}});
  for (std::int64_t row = 0; got.positions != nullptr && row < tokens; ++row)
    scan.expect_integers({slot::positions, got.positions, got.positions->offset(row), 3, {row}});
  if (got.cu_segments != nullptr)
    scan.expect_integers({slot::cu_segments, got.cu_segments, 0, std::ssize(layout.cu_segments), {}});
}

void compare_rope3d(const rope3d_outputs& got, const reference::rope3d_result& want, const roundoffs& r,
                    element_check& check) {
  for (const auto& row : want.rows) {
    if (got.q_rope != nullptr) compare_heads(slot::q_rope, *got.q_rope, row, row.q, row.q_a, r, check);
    if (got.k_rope != nullptr) compare_heads(slot::k_rope, *got.k_rope, row, row.k, row.k_a, r, check);
  }
  double is[3], due[3];
  for (std::int64_t row = 0; got.positions != nullptr && row < std::ssize(want.layout.positions); ++row) {
    for (std::int64_t axis = 0; axis < 3; ++axis) {
      is[axis] = got.positions->int_at(row, axis);
      due[axis] = want.layout.positions[static_cast<std::size_t>(row)][static_cast<std::size_t>(axis)];
    }
    compare_integers(slot::positions, {row}, is, due, check);
  }
  for (std::int64_t s = 0; got.cu_segments != nullptr && s < std::ssize(want.layout.cu_segments); ++s) {
    is[0] = got.cu_segments->int_at(s);
    due[0] = want.layout.cu_segments[static_cast<std::size_t>(s)];
    compare_integers(slot::cu_segments, {s}, {is, 1}, {due, 1}, check);
  }
}

void answer_rope3d(answers& into, const reference::rope3d_result& want, const roundoffs& r) {
  for (const auto& row : want.rows)
    for (std::size_t c = 0; c < row.q.size(); ++c) {
      const std::vector index{row.row, row.head, static_cast<std::int64_t>(c)};
      into.set(slot::q_rope, index, row.q[c], limit_of_rope3d(r, row.q[c], row.q_a[c], row.phi[c]).total);
      into.set(slot::k_rope, index, row.k[c], limit_of_rope3d(r, row.k[c], row.k_a[c], row.phi[c]).total);
    }
  for (std::size_t row = 0; row < want.layout.positions.size(); ++row)
    for (std::size_t axis = 0; axis < 3; ++axis)
      into.set(slot::positions, std::vector{static_cast<std::int64_t>(row), static_cast<std::int64_t>(axis)},
               want.layout.positions[row][axis], 0);
  for (std::size_t s = 0; s < want.layout.cu_segments.size(); ++s)
    into.set(slot::cu_segments, std::vector{static_cast<std::int64_t>(s)}, want.layout.cu_segments[s], 0);
}

rope3d_expectation::rope3d_expectation(const subject& what, std::span<const std::int64_t> rows)
    : what_(what),
      in_(rope3d_inputs_of(what)),
      r_(resolve(what.agreed, what.declared)),
      rows_(std::ssize(rows)),
      want_(reference::rope3d(in_, rows)) {}

std::vector<check_result> rope3d_expectation::check(const launch& outputs, int launch_index,
                                                    std::uint64_t poison_seed) const {
  return check({&output(outputs, slot::q_rope), &output(outputs, slot::k_rope), &output(outputs, slot::positions),
                &output(outputs, slot::cu_segments)},
               launch_index, poison_seed);
}

std::vector<check_result> rope3d_expectation::check(const rope3d_outputs& got, int launch_index,
                                                    std::uint64_t poison_seed) const {
  value_scan scan(launch_index, poison_seed);
  scan_rope3d(got, want_.layout, scan);
  const auto compared = [&](const roundoffs& r) {
    element_check check("K1");
    compare_rope3d(got, want_, r, check);
    return check.result();
  };
  check_result values = compared(r_);
  if (!values.passed) values.cure = find_element_cure(what_, [&](const roundoffs& r) { return compared(r).passed; });
  return {scan.result(), values};
}

void rope3d_expectation::answer(answers& into, const launch&) const { answer_rope3d(into, want_, r_); }

detectability rope3d_expectation::measure() const {
  // Rows that stand elsewhere where segments, or merge blocks, are ignored, and rows that t turns.
  const auto whole = reference::lay_out(in_.grids, 0, in_.merge);
  const auto raster = reference::lay_out(in_.grids, in_.p.vit_window, 1);
  kind_of_position any{{}, 2}, restarted{{}, 2}, merged{{}, 2}, later{{}, 1};
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows_); ++i) {
    any.positions.push_back(i);
    const auto row = static_cast<std::size_t>(want_.rows[i * static_cast<std::size_t>(what_.agreed.hq)].row);
    if (whole.positions[row] != want_.layout.positions[row]) restarted.positions.push_back(i);
    if (want_.layout.positions[row][0] > 0) later.positions.push_back(i);
    if (raster.positions[row] != want_.layout.positions[row]) merged.positions.push_back(i);
  }
  const kind_of_position kinds[] = {any, restarted, merged, later};
  const auto sample = positions_to_perturb(kinds);
  return weakest_of(what_.targets, [&](perturbation fault) {
    effect strongest;
    const auto perturbed = perturbed_rope3d::of(in_, fault);
    if (!perturbed) return strongest;
    if (perturbed->other_segments()) return effect{unbounded_effect, "K1"};
    std::vector<double> x(static_cast<std::size_t>(what_.agreed.d));
    for (const std::size_t at : sample) {
      const auto& want = want_.rows[at * static_cast<std::size_t>(what_.agreed.hq)];
      for (const auto& [from, y, a] :
           {std::tuple{&in_.q, &want.q, &want.q_a}, std::tuple{&in_.k, &want.k, &want.k_a}}) {
        widen(from->data, from->desc.type, from->offset(want.row, want.head), std::ssize(x), x.data());
        perturbed->rotate(want.row, x);
        for (std::size_t c = 0; c < x.size(); ++c) {
          const double ratio = ratio_to(limit_of_rope3d(r_, (*y)[c], (*a)[c], want.phi[c]).total, x[c], (*y)[c]);
          if (ratio > strongest.ratio) strongest = {ratio, "K1"};
        }
      }
    }
    return strongest;
  });
}

}  // namespace msabench::judge
