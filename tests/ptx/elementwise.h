// SPDX-License-Identifier: Apache-2.0
// Instructions that compute a register from one, two or three others, lane by lane.
#pragma once

#include <type_traits>

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

/// What `make` gives for the type that an instruction names; nullptr where it takes none of them.
template <class Make>
handler by_type(type t, Make make) {
  switch (t) {
    case type::b16:
    case type::u16:
      return make(std::type_identity<std::uint16_t>());
    case type::s16:
      return make(std::type_identity<std::int16_t>());
    case type::b32:
    case type::u32:
      return make(std::type_identity<std::uint32_t>());
    case type::s32:
      return make(std::type_identity<std::int32_t>());
    case type::b64:
    case type::u64:
      return make(std::type_identity<std::uint64_t>());
    case type::s64:
      return make(std::type_identity<std::int64_t>());
    case type::f32:
      return make(std::type_identity<float>());
    case type::f64:
      return make(std::type_identity<double>());
    case type::f16:
      return make(std::type_identity<half_bits>());
    case type::bf16:
      return make(std::type_identity<bfloat_bits>());
    case type::f16x2:
      return make(std::type_identity<pair_of<half_bits>>());
    case type::bf16x2:
      return make(std::type_identity<pair_of<bfloat_bits>>());
    default:
      return nullptr;
  }
}

// Of every type, or of integers alone.
template <auto f>
handler unary_of(type t) {
  return by_type(t, []<class T>(std::type_identity<T>) -> handler { return unary<T, f>; });
}
template <auto f>
handler binary_of(type t) {
  return by_type(t, []<class T>(std::type_identity<T>) -> handler { return binary<T, f>; });
}
template <auto f>
handler whole_unary(type t) {
  return by_type(t, []<class T>(std::type_identity<T>) -> handler {
    if constexpr (std::is_unsigned_v<T>)
      return unary<T, f>;
    else
      return nullptr;
  });
}
template <auto f>
handler whole_binary(type t) {
  return by_type(t, []<class T>(std::type_identity<T>) -> handler {
    if constexpr (std::is_integral_v<T>)
      return binary<T, f>;
    else
      return nullptr;
  });
}

}  // namespace msabench::ptx
