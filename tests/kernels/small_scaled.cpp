// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/small_scaled.h"

namespace msabench::plugin_test {
namespace {

std::vector<std::int64_t> packed(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

/// Of e4m3: 1 + m/8 times 2^e, e from -6 on.
struct element {
  std::uint8_t bits;
  double value;
};
element element_of(unsigned number) {
  const unsigned mantissa = number % 8, exponent = 5 + number / 8 % 3;  // 2^-2 .. 2^0
  const bool negative = number / 24 % 2 != 0;
  const double size = (1 + mantissa / 8.0) * (exponent == 5 ? 0.25 : exponent == 6 ? 0.5 : 1);
  return {static_cast<std::uint8_t>((negative ? 0x80U : 0U) | exponent << 3 | mantissa), negative ? -size : size};
}

}  // namespace

small_scaled::small_scaled(std::int32_t form, bool paged)
    : problem{},
      products_(
          {.page_layout = paged ? 1 : 0, .page_size = paged ? 8 : 0, .sequences = {{5, 61}, {0, 0}, {3, 9}, {1, 80}}}) {
  problem = products_.problem;
  problem.kv = {10, 8, 1};
  problem.kv_scale = form;
  shape_ = products_.k.shape();
  strides_ = packed(shape_);
  scale_shape_ = form == 1 ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>(shape_.begin(), shape_.end() - 1);
  scale_strides_ = packed(scale_shape_);
  store_products(products_.k, 0.75, k_);
  store_products(products_.v, 1.5, v_);
}

void small_scaled::store_products(buffer& products, double first_scale, stored& to) {
  const std::int64_t d = shape_.back();
  const bool paged = shape_.size() == 4;
  std::int64_t rows = 1;
  for (std::size_t axis = 0; axis + 1 < shape_.size(); ++axis) rows *= shape_[axis];
  std::uint64_t state = static_cast<std::uint64_t>(first_scale * 64);
  const auto draw = [&state] {
    return static_cast<unsigned>((state = state * 6364136223846793005U + 1442695040888963407U) >> 40);
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    if (row == 0 || problem.kv_scale == 2) to.scales.push_back(static_cast<float>(first_scale + draw() % 97 / 64.0));
    for (std::int64_t c = 0; c < d; ++c) {
      const element e = element_of(draw());
      to.values.push_back(e.bits);
      const double product = e.value * to.scales.back();
      if (paged) {
        const std::int64_t size = shape_[2], heads = shape_[1];
        products.set({row / (size * heads), row / size % heads, row % size, c}, product);
      } else {
        products.set({row / shape_[1], row % shape_[1], c}, product);
      }
    }
  }
  to.tensor = {
      to.values.data(), shape_.data(), strides_.data(), static_cast<std::int32_t>(shape_.size()), {10, 8, 1}, cpu};
  to.scale = {to.scales.data(),
              scale_shape_.data(),
              scale_strides_.data(),
              static_cast<std::int32_t>(scale_shape_.size()),
              fp32_type,
              cpu};
}

arguments small_scaled::args() const {
  arguments given = products_.args();
  given.put(MSABENCH_K, k_.tensor);
  given.put(MSABENCH_V, v_.tensor);
  given.put(MSABENCH_K_SCALE, k_.scale);
  given.put(MSABENCH_V_SCALE, v_.scale);
  return given;
}

}  // namespace msabench::plugin_test
