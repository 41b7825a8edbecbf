// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "judge/answers.h"
#include "judge/detectability.h"
#include "judge/element_check.h"
#include "judge/norm_rope_expectation.h"
#include "judge/value_scan.h"

namespace msabench::judge {
namespace {

constexpr slot rotated_slots[] = {slot::q_rope, slot::k_rope, slot::q_idx_rope, slot::k_idx_rope};

reference::qk_norm_rope_inputs norm_rope_inputs_of(const subject& what) {
  const auto input = [&](slot s) { return what.inputs.at(s); };
  return {what.agreed,
          input(slot::q),
          input(slot::k),
          input(slot::q_idx),
          input(slot::k_idx),
          input(slot::q_norm),
          input(slot::k_norm),
          input(slot::q_idx_norm),
          input(slot::k_idx_norm),
          input(slot::cos_sin),
          input(slot::cu_seqlens_q),
          input(slot::kv_lens)};
}

const tensor_view& output(const launch& l, slot s) {
  const auto found = l.outputs.find(s);
  if (found == l.outputs.end()) throw suite_error("the launch of a qk_norm_rope case lacks an output");
  return found->second;
}

// k_idx_rope has one head and no axis for it.
bool has_heads(const tensor_view& t) { return t.desc.shape.size() == 3; }

std::vector<std::int64_t> index_of(const tensor_view& t, std::int64_t row, std::int64_t head) {
  return has_heads(t) ? std::vector{row, head} : std::vector{row};
}

std::int64_t offset_of(const tensor_view& t, std::int64_t row, std::int64_t head) {
  return has_heads(t) ? t.offset(row, head) : t.offset(row);
}

}  // namespace

rotated_limit limit_of_rotated(const roundoffs& r, const profile& f, const reference::qk_norm_rope_row& row,
                               std::size_t c) {
  const double dim = static_cast<double>(row.y.size()), y = std::abs(row.y[c]), a = row.a[c];
  // Roundings to storage before the last: of the heads between norm and rotation (a pair of them is turned, so that sqrt(2)
  // of one may come together), and of the products and the angles of the rotation.
  const double between = f.round_after_norm ? 1 : 0, in_rotation = f.rotate_in_storage ? 2 : 0;
  // Products of single precision that underflow on a device that flushes subnormals.
  constexpr double flushed = 4 * 0x1p-126;
  return sum_of<6>({{
                       {"out_store", r.u_o * y},
                       {"rounded_after_norm", between * r.u_o * a},
                       {"rotated_in_storage", in_rotation * r.u_o * a},
                       {"fp32", (dim / 2 + 8) * u32 * a},
                       {"out_underflow", r.omega_o * (1 + std::sqrt(2) * between + in_rotation)},
                       {"underflow", flushed},
                   }},
                   second_order);
}

norm_rope_expectation::norm_rope_expectation(const subject& what, std::span<const std::int64_t> rows)
    : what_(what),
      in_(norm_rope_inputs_of(what)),
      map_(in_.cu_seqlens_q, in_.kv_lens),
      r_(resolve(what.agreed, what.declared)),
      rows_(rows.begin(), rows.end()),
      want_(reference::qk_norm_rope(in_, rows)) {}

// Padding rows have no position and so no values, but every element up to row T is overwritten.
check_result norm_rope_expectation::check_structure(const launch& outputs, int launch_index,
                                                    std::uint64_t poison_seed) const {
  value_scan scan(launch_index, poison_seed);
  for (const slot where : rotated_slots) {
    const tensor_view& t = output(outputs, where);
    const std::int64_t heads = has_heads(t) ? t.desc.shape[1] : 1;
    for (std::int64_t row = 0; row < map_.total_rows(); ++row)
      for (std::int64_t head = 0; head < heads; ++head) {
        const value_scan::span channels{where, &t, offset_of(t, row, head), t.desc.shape.back(),
                                        index_of(t, row, head)};
        map_[row].position < 0 ? scan.expect_written(channels, true) : scan.expect_finite(channels);
      }
  }
  return scan.result();
}

check_result norm_rope_expectation::check_outputs(const launch& outputs, const roundoffs& r) const {
  element_check check("K1");
  std::vector<double> got;
  for (const auto& want : want_) {
    if (want.position < 0) continue;
    const tensor_view& t = output(outputs, want.output);
    got.resize(want.y.size());
    widen(t.data, t.desc.type, offset_of(t, want.row, want.head), std::ssize(want.y), got.data());
    check.add(want.output, index_of(t, want.row, want.head), got, want.y,
              [&](std::size_t c) { return limit_of_rotated(r, what_.delivers, want, c); });
  }
  return check.result();
}

std::vector<check_result> norm_rope_expectation::check(const launch& outputs, int launch_index,
                                                       std::uint64_t poison_seed) const {
  check_result values = check_outputs(outputs, r_);
  if (!values.passed)
    values.cure = find_element_cure(what_, [&](const roundoffs& r) { return check_outputs(outputs, r).passed; });
  return {check_structure(outputs, launch_index, poison_seed), values};
}

detectability norm_rope_expectation::measure() const {
  // Positions in want_ of the first head of each row: all heads of its outputs follow.
  const std::size_t heads = rows_.empty() ? 1 : want_.size() / rows_.size();
  kind_of_position any{{}, 3}, prefixed{{}, 3};
  std::vector<std::int64_t> in_chunk(rows_.size());
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (map_[rows_[i]].position < 0) continue;
    for (std::int64_t row = rows_[i]; row > 0 && map_[row - 1].sequence == map_[rows_[i]].sequence; --row)
      ++in_chunk[i];
    any.positions.push_back(i);
    if (in_chunk[i] != map_[rows_[i]].position) prefixed.positions.push_back(i);
  }
  const kind_of_position kinds[] = {any, prefixed};
  const auto sample = positions_to_perturb(kinds);
  auto targets = what_.targets;
  // Whoever declares the rounding is not to be caught at it.
  if (what_.delivers.round_after_norm || what_.delivers.rotate_in_storage)
    std::erase(targets, perturbation::rounded_after_norm);
  return weakest_of(targets, [&](perturbation fault) {
    effect strongest;
    for (const std::size_t at : sample) {
      slot last = slot::lse;
      for (std::size_t i = at * heads; i < (at + 1) * heads; ++i) {
        const auto& want = want_[i];
        if (want.output == last) continue;  // one head of each output
        last = want.output;
        const auto got = perturbable_head(in_, want, in_chunk[at]).apply(fault);
        if (!got) continue;
        for (std::size_t c = 0; c < want.y.size(); ++c) {
          const double ratio = ratio_to(limit_of_rotated(r_, what_.delivers, want, c).total, (*got)[c], want.y[c]);
          if (ratio > strongest.ratio) strongest = {ratio, "K1"};
        }
      }
    }
    return strongest;
  });
}

void norm_rope_expectation::answer(answers& into, const launch& outputs) const {
  for (const auto& row : want_) {
    auto index = index_of(output(outputs, row.output), row.row, row.head);
    index.push_back(0);
    for (std::size_t c = 0; c < row.y.size(); ++c) {
      index.back() = static_cast<std::int64_t>(c);
      into.set(row.output, index, row.y[c], limit_of_rotated(r_, what_.delivers, row, c).total);
    }
  }
}

}  // namespace msabench::judge
