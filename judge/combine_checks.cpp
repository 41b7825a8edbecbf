// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "judge/answers.h"
#include "judge/combine_expectation.h"
#include "judge/detectability.h"
#include "judge/element_check.h"
#include "judge/value_scan.h"

namespace msabench::judge {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The smallest normal number of single precision: what a device that flushes subnormals may lose.
constexpr double flushed = 0x1p-126;

reference::combine_inputs combine_inputs_of(const subject& what) {
  return {what.agreed, what.inputs.at(slot::partial_out), what.inputs.at(slot::partial_lse)};
}

const tensor_view& output(const launch& l, slot s) {
  const auto found = l.outputs.find(s);
  if (found == l.outputs.end()) throw suite_error("the launch of a combine case lacks an output");
  return found->second;
}

bool has_keys(const reference::combine_inputs& in, std::int64_t row, std::int64_t head) {
  for (std::int64_t p = 0; p < in.partial_lse.desc.shape[0]; ++p)
    if (in.partial_lse.at(p, row, head) > -infinity) return true;
  return false;
}

}  // namespace

combine_limit limit_of_combined(const roundoffs& r, const reference::combine_row& row, std::size_t c) {
  const double o = std::abs(row.out[c]), magnitude = row.magnitude[c], parts = static_cast<double>(row.partials);
  const double a = std::abs(row.a), lse = std::abs(row.lse);
  return sum_of<7>({{
                       {"out_store", r.u_o * o},
                       {"sums", gamma(row.partials + 2, u32) * (magnitude + o)},
                       {"exp", r.c_e * (magnitude + o)},
                       {"exp_arguments", 4 * u32 * (row.exponents[c] + lse * magnitude + (a + lse + row.distance) * o)},
                       {"log", r.c_l * o},
                       {"out_underflow", r.omega_o},
                       {"underflow", flushed * (row.sizes[c] + parts * o + 3 * parts + 2)},
                   }},
                   second_order);
}

combine_lse_limit limit_of_combined_lse(const roundoffs& r, const reference::combine_row& row) {
  return sum_of<5>({{
      {"exp", r.c_e},
      {"log", r.c_l},
      {"sums", gamma(row.partials, u32)},
      {"exp_arguments", 4 * u32 * row.distance},
      {"fp32", 2 * u32 * (std::abs(row.a) + std::abs(row.lse))},
  }});
}

combine_expectation::combine_expectation(const subject& what, std::span<const std::int64_t> rows)
    : what_(what),
      in_(combine_inputs_of(what)),
      r_(resolve(what.agreed, what.declared)),
      rows_(rows.begin(), rows.end()),
      want_(reference::combine(in_, rows)) {}

// A row to which nothing contributes is no empty row of attention, which a profile may leave undefined: 0 and -infinity
// are due whatever it says.
check_result combine_expectation::check_structure(const launch& outputs, int launch_index,
                                                  std::uint64_t poison_seed) const {
  value_scan scan(launch_index, poison_seed);
  const tensor_view &out = output(outputs, slot::out), &lse = output(outputs, slot::lse);
  for (std::int64_t row = 0; row < in_.partial_out.desc.shape[1]; ++row)
    for (std::int64_t head = 0; head < what_.agreed.hq; ++head) {
      const value_scan::span channels{slot::out, &out, out.offset(row, head), out.desc.shape[2], {row, head}};
      const value_scan::span sum{slot::lse, &lse, lse.offset(row, head), 1, {row, head}};
      if (has_keys(in_, row, head)) {
        scan.expect_finite(channels);
        scan.expect_finite(sum);
      } else {
        scan.expect_exactly(channels, 0);
        scan.expect_exactly(sum, -infinity);
      }
    }
  return scan.result();
}

check_result combine_expectation::check_output(const tensor_view& out, const roundoffs& r) const {
  element_check check("K1");
  std::vector<double> got(static_cast<std::size_t>(what_.agreed.d));
  for (const auto& want : want_) {
    if (want.partials == 0) continue;
    widen(out.data, out.desc.type, out.offset(want.row, want.head), what_.agreed.d, got.data());
    check.add(slot::out, {want.row, want.head}, got, want.out,
              [&](std::size_t c) { return limit_of_combined(r, want, c); });
  }
  return check.result();
}

check_result combine_expectation::check_lse(const tensor_view& lse, const roundoffs& r) const {
  element_check check("K2");
  for (const auto& want : want_) {
    if (want.partials == 0) continue;
    const double got = lse.at(want.row, want.head);
    check.add(slot::lse, {want.row, want.head}, {&got, 1}, {&want.lse, 1},
              [&](std::size_t) { return limit_of_combined_lse(r, want); });
  }
  return check.result();
}

template <class Check>
check_result combine_expectation::with_cure(const Check& check) const {
  check_result c = check(r_);
  if (!c.passed) c.cure = find_element_cure(what_, [&](const roundoffs& r) { return check(r).passed; });
  return c;
}

std::vector<check_result> combine_expectation::check(const launch& outputs, int launch_index,
                                                     std::uint64_t poison_seed) const {
  return {check_structure(outputs, launch_index, poison_seed),
          with_cure([&](const roundoffs& r) { return check_output(output(outputs, slot::out), r); }),
          with_cure([&](const roundoffs& r) { return check_lse(output(outputs, slot::lse), r); })};
}

detectability combine_expectation::measure() const {
  kind_of_position with_keys{{}, 4}, with_empty{{}, 2}, nothing{{}, 1};
  for (std::size_t i = 0; i < want_.size(); ++i) {
    const std::int64_t parts = want_[i].partials;
    if (parts == 0)
      nothing.positions.push_back(i);
    else if (parts < in_.partial_lse.desc.shape[0])
      with_empty.positions.push_back(i);
    if (parts > 0) with_keys.positions.push_back(i);
  }
  const kind_of_position kinds[] = {with_keys, with_empty, nothing};
  const auto positions = positions_to_perturb(kinds);
  return weakest_of(what_.targets, [&](perturbation fault) {
    effect strongest;
    for (const std::size_t at : positions) {
      const auto& want = want_[at];
      const auto got = perturbable_partials(in_, want.row, want.head).apply(fault);
      if (!got) continue;
      const auto consider = [&](double ratio, const char* id) {
        if (ratio > strongest.ratio) strongest = {ratio, id};
      };
      if (want.partials == 0) {
        consider(infinity, "K0");
        continue;
      }
      for (std::size_t c = 0; c < want.out.size(); ++c)
        consider(ratio_to(limit_of_combined(r_, want, c).total, got->out[c], want.out[c]), "K1");
      consider(ratio_to(limit_of_combined_lse(r_, want).total, got->lse, want.lse), "K2");
    }
    return strongest;
  });
}

void combine_expectation::answer(answers& into, const launch&) const {
  for (const auto& row : want_) {
    const bool empty = row.partials == 0;
    for (std::size_t c = 0; c < row.out.size(); ++c)
      into.set(slot::out, std::vector{row.row, row.head, static_cast<std::int64_t>(c)}, row.out[c],
               empty ? 0 : limit_of_combined(r_, row, c).total);
    into.set(slot::lse, std::vector{row.row, row.head}, row.lse, empty ? 0 : limit_of_combined_lse(r_, row).total);
  }
}

}  // namespace msabench::judge
