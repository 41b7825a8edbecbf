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
  value_scan(int launch, std::uint64_t poison_seed) : launch_(launch), seed_(poison_seed) {}

  // One row of an output: `count` elements from element `offset` of the view. `index` and `axes` name its first element
  // in reports; the last axis, if `count` > 1, counts the elements.
  struct span {
    slot where;
    const tensor_view* view;
    std::int64_t offset, count;
    std::vector<std::int64_t> index;
  };
  void expect_finite(const span& s);
  void expect_exactly(const span& s, double value);

  // Reports damage of the gravest kind: unwritten, then not finite, then not the exact value.
  check_result result() const;

  static std::vector<std::string> axes_of(slot where);

 private:
  struct finding {
    std::int64_t count = 0;
    worst_element first;
  };
  void note(finding& f, const span& s, std::int64_t i, double got, double want);
  void inspect(const span& s, bool exact, double value);

  int launch_;
  std::uint64_t seed_;
  std::vector<double> buffer_;
  finding unwritten_, nonfinite_, inexact_;
};

}  // namespace msabench::judge
