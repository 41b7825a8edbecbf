// SPDX-License-Identifier: Apache-2.0
// Instructions that compute a register from one, two or three others, lane by lane.
#pragma once

#include "tests/ptx/halves.h"
#include "tests/ptx/machine.h"

namespace msabench::ptx {

__extension__ typedef __int128 wide_signed;
__extension__ typedef unsigned __int128 wide_unsigned;

template <class T, auto f, class R = T>
void unary(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) { to[l] = bits<R>(static_cast<R>(f(as<T>(a[l])))); });
}
template <class T, auto f, class R = T>
void binary(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1), b = w.value(i, 2);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) { to[l] = bits<R>(static_cast<R>(f(as<T>(a[l]), as<T>(b[l])))); });
}
template <class T, auto f, class R = T, class C = T>
void ternary(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1), b = w.value(i, 2), c = w.value(i, 3);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) { to[l] = bits<R>(static_cast<R>(f(as<T>(a[l]), as<T>(b[l]), as<C>(c[l])))); });
}

template <auto f>
handler unary_of(type t) {
  switch (t) {
    case type::b16:
    case type::u16:
      return unary<std::uint16_t, f>;
    case type::s16:
      return unary<std::int16_t, f>;
    case type::b32:
    case type::u32:
      return unary<std::uint32_t, f>;
    case type::s32:
      return unary<std::int32_t, f>;
    case type::b64:
    case type::u64:
      return unary<std::uint64_t, f>;
    case type::s64:
      return unary<std::int64_t, f>;
    case type::f32:
      return unary<float, f>;
    case type::f64:
      return unary<double, f>;
    case type::f16:
      return unary<half_bits, f>;
    case type::bf16:
      return unary<bfloat_bits, f>;
    case type::f16x2:
      return unary<pair_of<half_bits>, f>;
    case type::bf16x2:
      return unary<pair_of<bfloat_bits>, f>;
    default:
      return nullptr;
  }
}
template <auto f>
handler binary_of(type t) {
  switch (t) {
    case type::b16:
    case type::u16:
      return binary<std::uint16_t, f>;
    case type::s16:
      return binary<std::int16_t, f>;
    case type::b32:
    case type::u32:
      return binary<std::uint32_t, f>;
    case type::s32:
      return binary<std::int32_t, f>;
    case type::b64:
    case type::u64:
      return binary<std::uint64_t, f>;
    case type::s64:
      return binary<std::int64_t, f>;
    case type::f32:
      return binary<float, f>;
    case type::f64:
      return binary<double, f>;
    case type::f16:
      return binary<half_bits, f>;
    case type::bf16:
      return binary<bfloat_bits, f>;
    case type::f16x2:
      return binary<pair_of<half_bits>, f>;
    case type::bf16x2:
      return binary<pair_of<bfloat_bits>, f>;
    default:
      return nullptr;
  }
}
template <auto f>
handler whole_unary(type t) {
  switch (t) {
    case type::b16:
    case type::u16:
      return unary<std::uint16_t, f>;
    case type::b32:
    case type::u32:
      return unary<std::uint32_t, f>;
    case type::b64:
    case type::u64:
      return unary<std::uint64_t, f>;
    default:
      return nullptr;
  }
}
template <auto f>
handler whole_binary(type t) {
  switch (t) {
    case type::b16:
    case type::u16:
      return binary<std::uint16_t, f>;
    case type::s16:
      return binary<std::int16_t, f>;
    case type::b32:
    case type::u32:
      return binary<std::uint32_t, f>;
    case type::s32:
      return binary<std::int32_t, f>;
    case type::b64:
    case type::u64:
      return binary<std::uint64_t, f>;
    case type::s64:
      return binary<std::int64_t, f>;
    default:
      return nullptr;
  }
}

}  // namespace msabench::ptx
