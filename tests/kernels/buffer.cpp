// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/buffer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace msabench::plugin_test {
namespace {

constexpr std::size_t guard_bytes = 64;
constexpr std::byte poison_byte{0xA5};

}  // namespace

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t to_fp16(float value) {
  const double magnitude = std::abs(static_cast<double>(value));
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00);
  // In units of the last place; below 2^-14 they stay 2^-24, and rounding up to the next power of two carries over.
  const int exponent = magnitude < std::ldexp(1.0, -14) ? -14 : std::ilogb(magnitude);
  if (exponent > 15) return static_cast<std::uint16_t>(sign | 0x7c00);
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return static_cast<std::uint16_t>(sign | ((exponent + 14) * 1024 + units));
}

float from_fp16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude = std::ldexp(fraction + (exponent == 0 ? 0 : 1024), std::max(exponent, 1) - 25);
  if (exponent == 31) magnitude = fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  return static_cast<float>(bits & 0x8000 ? -magnitude : magnitude);
}

buffer::buffer(msabench_dtype type, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides)
    : type_(type), shape_(std::move(shape)), strides_(std::move(strides)) {
  if (strides_.empty()) {
    strides_.assign(shape_.size(), 1);
    for (std::size_t axis = shape_.size(); axis-- > 1;) strides_[axis - 1] = strides_[axis] * shape_[axis];
  }
  std::int64_t last = 0;
  bool empty = false;
  for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
    empty = empty || shape_[axis] == 0;
    last += (shape_[axis] - 1) * strides_[axis];
  }
  length_ = empty ? 0 : static_cast<std::size_t>((last + 1) * type.bits / 8);
  memory_.assign(length_ + 2 * guard_bytes + 64, poison_byte);
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + guard_bytes;
  first_ = guard_bytes + (64 - address % 64) % 64;
}

std::size_t buffer::offset(std::initializer_list<std::int64_t> index) const {
  if (index.size() != shape_.size()) throw std::out_of_range("rank");
  std::int64_t element = 0;
  std::size_t axis = 0;
  for (const std::int64_t i : index) {
    if (i < 0 || i >= shape_[axis]) throw std::out_of_range("index");
    element += i * strides_[axis++];
  }
  return first_ + static_cast<std::size_t>(element) * type_.bits / 8;
}

double buffer::get(std::initializer_list<std::int64_t> index) const {
  const std::byte* from = memory_.data() + offset(index);
  if (type_.bits == 16) {
    std::uint16_t bits;
    std::memcpy(&bits, from, sizeof bits);
    return type_.code == bf16_type.code ? from_bf16(bits) : from_fp16(bits);
  }
  if (type_.code == int32_type.code) {
    std::int32_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  if (type_.bits == 64) {
    double value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  float value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void buffer::set(std::initializer_list<std::int64_t> index, double value) {
  std::byte* to = memory_.data() + offset(index);
  if (type_.bits == 16) {
    const auto number = static_cast<float>(value);
    const std::uint16_t bits = type_.code == bf16_type.code ? to_bf16(number) : to_fp16(number);
    std::memcpy(to, &bits, sizeof bits);
  } else if (type_.code == int32_type.code) {
    const auto number = static_cast<std::int32_t>(value);
    std::memcpy(to, &number, sizeof number);
  } else if (type_.bits == 64) {
    std::memcpy(to, &value, sizeof value);
  } else {
    const auto number = static_cast<float>(value);
    std::memcpy(to, &number, sizeof number);
  }
}

bool buffer::untouched(std::initializer_list<std::int64_t> index) const {
  const std::byte* from = memory_.data() + offset(index);
  return std::all_of(from, from + type_.bits / 8, [](std::byte b) { return b == poison_byte; });
}

bool buffer::guards_intact() const {
  const auto is_poison = [](std::byte b) { return b == poison_byte; };
  const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(first_);
  return std::all_of(memory_.begin(), begin, is_poison) &&
         std::all_of(begin + static_cast<std::ptrdiff_t>(length_), memory_.end(), is_poison);
}

msabench_tensor buffer::tensor() const {
  msabench_tensor view{};
  view.data = const_cast<std::byte*>(memory_.data()) + first_;
  view.shape = shape_.data();
  view.strides = strides_.data();
  view.rank = static_cast<std::int32_t>(shape_.size());
  view.dtype = type_;
  view.device = {1, 0};
  return view;
}

void buffer::poison() { std::fill(memory_.begin(), memory_.end(), poison_byte); }

}  // namespace msabench::plugin_test
