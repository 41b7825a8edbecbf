// SPDX-License-Identifier: Apache-2.0
// Scales of e4m3 operands. What a stored value stands for is its product with the scale.
#pragma once

#include <cstdint>

#include "core/case.h"
#include "core/generator.h"
#include "core/operator.h"

namespace msabench {

// The scales that belong to one operand: slot k, v, q_idx or k_idx.
class operand_scales {
 public:
  operand_scales(const case_spec& c, const problem& p, slot operand);

  bool present() const { return form_ != scale_form::none; }
  scale_form form() const { return form_; }
  slot where() const { return where_; }  // of the scales themselves

  // Whether the family's values are what stored value and scale give together: it says what the products are to be, and
  // is written divided by the scale, which is a power of two from 1 to 8. Otherwise the family's values are stored as they
  // are, and scales are any numbers from 1/2 to 2.
  bool divides() const { return divides_; }

  // Of the unit with this number; numbers of units are the caller's. One number for all where the form is `tensor`.
  // Exact in fp32.
  double at(std::uint64_t number) const;

 private:
  scale_form form_;
  slot where_;
  bool divides_;
  stream random_;
};

// Divides `count` stored values by a power of two; rounds where the quotient is below the format's normal range.
void divide_stored(void* values, dtype type, std::int64_t count, double divisor);

}  // namespace msabench
