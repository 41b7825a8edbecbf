// SPDX-License-Identifier: Apache-2.0
// A strided tensor that somebody else owns. Strides are in elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace msabench {

struct tensor_desc {
  dtype type;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (auto s : shape) n *= s;
    return n;
  }
  // Elements from the first to one past the last that the strides reach; 0 for an empty tensor.
  std::int64_t span_elements() const {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == 0) return 0;
      last += (shape[i] - 1) * strides[i];
    }
    return last + 1;
  }
  bool operator==(const tensor_desc&) const = default;
};

inline std::vector<std::int64_t> packed_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

inline tensor_desc packed(dtype type, std::vector<std::int64_t> shape) {
  auto strides = packed_strides(shape);
  return {type, std::move(shape), std::move(strides)};
}

struct tensor_view {
  const void* data = nullptr;  // nullptr: absent, or empty
  tensor_desc desc;

  explicit operator bool() const { return data != nullptr || !desc.shape.empty(); }

  template <class... Index>
  std::int64_t offset(Index... index) const {
    std::int64_t at = 0;
    std::size_t axis = 0;
    ((at += static_cast<std::int64_t>(index) * desc.strides[axis++]), ...);
    return at;
  }
  template <class... Index>
  double at(Index... index) const {
    return load(data, desc.type, offset(index...));
  }
  template <class... Index>
  std::int32_t int_at(Index... index) const {
    return static_cast<const std::int32_t*>(data)[offset(index...)];
  }
};

}  // namespace msabench
