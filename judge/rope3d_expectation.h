// SPDX-License-Identifier: Apache-2.0
// The oracle's answer to a `rope3d` case, its limit (docs/verdicts.md) and the checks K0 and K1 against it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "judge/declaration.h"
#include "judge/element_check.h"
#include "judge/judge.h"
#include "judge/limits.h"
#include "judge/value_scan.h"
#include "reference/rope3d.h"

namespace msabench::judge {

using angle_limit = limit<6>;

// K1 of a channel y that is rotated by an angle which the implementation computes; `a` is the amplitude of its pair, 0
// where it passes through.
angle_limit limit_of_rope3d(const roundoffs& r, double y, double a, double angle);

reference::rope3d_inputs rope3d_inputs_of(const subject& what);

// The outputs that rope3d has; vit3d returns the same if it returns any, and what is null is not looked at.
struct rope3d_outputs {
  const tensor_view *q_rope = nullptr, *k_rope = nullptr, *positions = nullptr, *cu_segments = nullptr;
};

// K0 of these outputs: everything written, rotated heads finite.
void scan_rope3d(const rope3d_outputs& got, const reference::vit_layout& layout, value_scan& scan);
// What these outputs should be and how far they may be off.
void answer_rope3d(answers& into, const reference::rope3d_result& want, const roundoffs& r);
// K1: rotated heads within their limits, positions and segments exact.
void compare_rope3d(const rope3d_outputs& got, const reference::rope3d_result& want, const roundoffs& r,
                    element_check& check);

class rope3d_expectation final : public expectation {
 public:
  rope3d_expectation(const subject& what, std::span<const std::int64_t> rows);

  std::vector<check_result> check(const launch& outputs, int launch_index, std::uint64_t poison_seed) const override;
  detectability measure() const override;
  std::int64_t rows_checked() const override { return rows_; }
  void answer(answers& into, const launch& outputs) const override;

  // The same of outputs that are elsewhere, or of none.
  std::vector<check_result> check(const rope3d_outputs& got, int launch_index, std::uint64_t poison_seed) const;
  const reference::rope3d_result& want() const { return want_; }

 private:
  subject what_;
  reference::rope3d_inputs in_;
  roundoffs r_;
  std::int64_t rows_;
  reference::rope3d_result want_;
};

// Where tokens would stand and what angles they would have if rope3d had one of the gross faults of core/perturbation.h.
class perturbed_rope3d {
 public:
  // Nothing if the fault is none of rope3d, or can't show: one segment for each item, no dims that pass through, ...
  static std::optional<perturbed_rope3d> of(const reference::rope3d_inputs& in, perturbation fault);

  // Whether the segments themselves are others.
  bool other_segments() const { return other_segments_; }
  // One head of `row`, before the rotation in `x`, rotated.
  void rotate(std::int64_t row, std::span<double> x) const;
  const reference::vit_layout& layout() const { return layout_; }

 private:
  perturbed_rope3d(reference::vit_layout layout, reference::axial_angles axes, perturbation fault, bool other_segments)
      : layout_(std::move(layout)), axes_(std::move(axes)), fault_(fault), other_segments_(other_segments) {}

  reference::vit_layout layout_;
  reference::axial_angles axes_;
  perturbation fault_;
  bool other_segments_;
};

}  // namespace msabench::judge
