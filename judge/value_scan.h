// SPDX-License-Identifier: Apache-2.0
// K0 over floating-point outputs: every element written, finite where a number is due, empty rows exactly as the
// contract says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/check_result.h"
#include "core/tensor_view.h"

namespace msabench::judge {

class value_scan {
 public:
  // `launch` and `poison_seed`: which poison an unwritten element still holds.
  // `exact`: what an element is that had to be an exact value and is not.
  value_scan(int launch, std::uint64_t poison_seed, std::string exact = "of empty rows not exactly 0 and -inf")
      : launch_(launch), seed_(poison_seed), exact_(std::move(exact)) {}

  // One row of an output: `count` elements from element `offset` of the view. `index` and `axes` name its first element
  // in reports; the last axis counts the elements, from 0 or from where `index` has it.
  struct span {
    slot where;
    const tensor_view* view;
    std::int64_t offset, count;
    std::vector<std::int64_t> index;
  };
  void expect_finite(const span& s);
  // Written, and not NaN unless that is a value here.
  void expect_written(const span& s, bool nan_is_a_value);
  // Integers: written; their values are for another check.
  void expect_integers(const span& s);
  void expect_exactly(const span& s, double value);
  // 0 of all bits.
  void expect_zero_bits(const span& s);

  // Reports damage of the gravest kind: unwritten, then not finite, then not the exact value.
  check_result result() const;

  static std::vector<std::string> axes_of(slot where);

  // Whether every one of the first `rows` rows of a packed or padded output still holds poison: nobody wrote it.
  bool is_untouched(const tensor_view& view, std::int64_t rows) const;

 private:
  struct finding {
    std::int64_t count = 0;
    worst_element first;
  };
  void note(finding& f, const span& s, std::int64_t i, double got, double want);
  void inspect(const span& s, bool exact, double value);

  int launch_;
  std::uint64_t seed_;
  std::string exact_;
  std::vector<double> buffer_;
  finding unwritten_, nonfinite_, inexact_;
};

}  // namespace msabench::judge
