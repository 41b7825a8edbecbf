// SPDX-License-Identifier: Apache-2.0
#include "conformance/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/golden_file.h"
#include "conformance/golden_oracle.h"
#include "core/error.h"
#include "reference/pairwise.h"

namespace msabench {
namespace {

constexpr double norm_limit = 1e-10, max_limit = 1e-9, zero_limit = 1e-12;
// An element off by this much fails, but for 1 part in 1000 so that the sum's own rounding can't save it.
constexpr double element_relative = 0.999e-6, element_absolute = 0.999e-9;
// Of the tensor's largest element: what sums in float64 may leave in an element that is nearly cancelled.
constexpr double noise = 1e-13;

std::vector<std::int64_t> unravel(std::size_t at, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> index(shape.size());
  auto rest = static_cast<std::int64_t>(at);
  for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) index[axis] = rest % shape[axis];
  return index;
}

// Infinite in exactly the same way.
bool same_infinity(double a, double b) { return std::isinf(a) && a == b; }

// Elements that both have, scaled by the largest so that no square overflows or vanishes.
double norm(std::span<const double> values, double largest) {
  if (largest == 0) return 0;
  std::vector<double> squares;
  squares.reserve(values.size());
  for (const double x : values) squares.push_back((x / largest) * (x / largest));
  return largest * std::sqrt(reference::pairwise_sum(squares));
}

struct differences {
  std::vector<double> got, want, diff;  // finite in both
  std::size_t worst = 0;                // into the tensor
  bool misplaced = false;               // NaN, or an infinity on one side
  bool element_off = false;
  double largest_want = 0, largest_diff = 0;
};

differences differences_of(std::span<const double> got, std::span<const double> want) {
  differences d;
  for (const double x : want)
    if (std::isfinite(x)) d.largest_want = std::max(d.largest_want, std::abs(x));
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (same_infinity(got[i], want[i])) continue;
    if (!std::isfinite(got[i]) || !std::isfinite(want[i])) {
      if (!d.misplaced) d.worst = i;
      d.misplaced = true;
      continue;
    }
    const double diff = std::abs(got[i] - want[i]);
    d.got.push_back(got[i]), d.want.push_back(want[i]), d.diff.push_back(diff);
    d.element_off |= diff >= element_relative * std::abs(got[i]) + element_absolute && diff > noise * d.largest_want;
    if (diff > d.largest_diff && !d.misplaced) d.worst = i;
    d.largest_diff = std::max(d.largest_diff, diff);
  }
  return d;
}

golden_tensor_result compared_at(const std::string& tensor, const std::vector<std::int64_t>& shape,
                                 std::size_t elements, std::size_t expected_elements) {
  golden_tensor_result r;
  r.tensor = tensor;
  if (elements != expected_elements)
    throw suite_error(fmt::format("golden tensor {} has {} elements, not {}", tensor, expected_elements, elements));
  r.compared = elements > 0;
  if (!r.compared) r.note = "holds no element";
  r.worst_index.resize(r.compared ? shape.size() : 0);
  return r;
}

}  // namespace

golden_tensor_result compare_golden(const std::string& tensor, const std::vector<std::int64_t>& shape,
                                    std::span<const double> got, std::span<const double> want) {
  golden_tensor_result r = compared_at(tensor, shape, got.size(), want.size());
  if (!r.compared) return r;
  const differences d = differences_of(got, want);
  r.worst_index = unravel(d.worst, shape);
  r.got = got[d.worst];
  r.want = want[d.worst];
  if (d.misplaced) {
    r.rel_norm = r.max_rel = std::numeric_limits<double>::quiet_NaN();
    r.note = "NaN, or an infinity on one side only";
    return r;
  }
  const double size = norm(d.want, d.largest_want), error = norm(d.diff, d.largest_diff);
  if (d.largest_want == 0) {
    r.rel_norm = error;
    r.max_rel = d.largest_diff;
    r.passed = error <= zero_limit;
  } else {
    r.rel_norm = error / size;
    r.max_rel = d.largest_diff / d.largest_want;
    r.passed = r.rel_norm <= norm_limit && r.max_rel <= max_limit && !d.element_off;
  }
  if (!r.passed) r.note = "differs from the reference";
  return r;
}

golden_tensor_result compare_golden(const std::string& tensor, const std::vector<std::int64_t>& shape,
                                    std::span<const std::int32_t> got, std::span<const std::int32_t> want) {
  golden_tensor_result r = compared_at(tensor, shape, got.size(), want.size());
  if (!r.compared) return r;
  std::size_t different = 0, worst = 0;
  for (std::size_t i = got.size(); i-- > 0;)
    if (got[i] != want[i]) {
      ++different;
      worst = i;
    }
  r.worst_index = unravel(worst, shape);
  r.got = got[worst];
  r.want = want[worst];
  r.rel_norm = r.max_rel = static_cast<double>(different) / static_cast<double>(got.size());
  r.passed = different == 0;
  if (!r.passed) r.note = fmt::format("{} of {} integers differ", different, got.size());
  return r;
}

namespace {

golden_inputs tensors_of(const golden_file& file, std::vector<std::vector<std::int32_t>>& integers) {
  golden_inputs tensors;
  for (const golden_tensor& rule : file.tensors) {
    const tensor_info& info = file.data.require(rule.name);
    const void* data = file.data.bytes(info).data();
    // A file may put integers at any byte.
    if (rule.integer) data = integers.emplace_back(file.data.as_int32(rule.name)).data();
    tensors.emplace(rule.name, tensor_view{data, packed(rule.integer ? i32 : fp64, info.shape)});
  }
  return tensors;
}

void add_unknown(const golden_file& file, std::vector<golden_tensor_result>& results) {
  for (const tensor_info& info : file.data.tensors()) {
    if (std::ranges::find(file.tensors, info.name, &golden_tensor::name) != file.tensors.end()) continue;
    golden_tensor_result r;
    r.tensor = one_line(info.name, 60);
    r.note = "kind " + file.kind + " has no such tensor";
    results.push_back(r);
  }
}

}  // namespace

bool golden_result::passed() const {
  return !not_verified() && std::ranges::all_of(tensors, [](const auto& t) { return t.passed || !t.compared; });
}

bool golden_result::not_verified() const { return std::ranges::none_of(tensors, &golden_tensor_result::compared); }

golden_result check_golden(const std::string& path) {
  const golden_file file = read_golden_file(path);
  golden_result result{path, file.kind, file.parameters, {}};
  std::vector<std::vector<std::int32_t>> integers;
  for (const golden_value& value : golden_results(file, tensors_of(file, integers))) {
    const std::string tensor(value.tensor);
    const auto& info = file.data.require(tensor);
    result.tensors.push_back(info.dtype == "I32"
                                 ? compare_golden(tensor, info.shape, value.integers, file.data.as_int32(tensor))
                                 : compare_golden(tensor, info.shape, value.numbers, file.data.as_double(tensor)));
  }
  add_unknown(file, result.tensors);
  return result;
}

}  // namespace msabench
