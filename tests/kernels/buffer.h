// SPDX-License-Identifier: Apache-2.0
// A tensor with its memory: poisoned, and with a guard band before and behind it.
#pragma once

#include <msabench/plugin.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace msabench::plugin_test {

inline constexpr msabench_dtype int32_type{0, 32, 1};
inline constexpr msabench_dtype fp64_type{2, 64, 1};
inline constexpr msabench_dtype fp32_type{2, 32, 1};
inline constexpr msabench_dtype fp16_type{2, 16, 1};
inline constexpr msabench_dtype bf16_type{4, 16, 1};

/// Nearest bf16, for values that are finite.
std::uint16_t to_bf16(float value);
float from_bf16(std::uint16_t bits);
/// Nearest fp16, ties to even; past the largest, infinity.
std::uint16_t to_fp16(float value);
float from_fp16(std::uint16_t bits);

class buffer {
 public:
  buffer() = default;
  /// Strides default to packed. Every byte starts as 0xA5, which is no value that a test expects.
  buffer(msabench_dtype type, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {});

  /// Elements are addressed by their indices and carried as double: bf16, fp16, fp32, fp64 and int32 fit.
  double get(std::initializer_list<std::int64_t> index) const;
  void set(std::initializer_list<std::int64_t> index, double value);

  /// Whether the element still holds the poison.
  bool untouched(std::initializer_list<std::int64_t> index) const;
  bool guards_intact() const;

  /// Valid while the buffer lives and stays where it is.
  msabench_tensor tensor() const;

  const std::vector<std::int64_t>& shape() const { return shape_; }
  const std::vector<std::byte>& bytes() const { return memory_; }
  void poison();

 private:
  std::size_t offset(std::initializer_list<std::int64_t> index) const;

  msabench_dtype type_{};
  std::vector<std::int64_t> shape_, strides_;
  std::size_t first_ = 0, length_ = 0;  // bytes, inside memory_
  std::vector<std::byte> memory_;
};

}  // namespace msabench::plugin_test
