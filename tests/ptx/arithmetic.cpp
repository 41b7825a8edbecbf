// SPDX-License-Identifier: Apache-2.0
// Arithmetic, comparisons, logic and selection. Approximations of the hardware are computed better than it does.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>

#include "tests/ptx/halves.h"
#include "tests/ptx/machine.h"

namespace msabench::ptx {
namespace {

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

// Integers wrap around: sums and products are those of unsigned types.
constexpr auto wrap = [](auto x) {
  if constexpr (std::is_integral_v<decltype(x)>)
    return static_cast<std::make_unsigned_t<decltype(x)>>(x);
  else
    return x;
};
constexpr auto plus = [](auto a, auto b) { return wrap(a) + wrap(b); };
constexpr auto minus = [](auto a, auto b) { return wrap(a) - wrap(b); };
constexpr auto times = [](auto a, auto b) {
  if constexpr (sizeof(a) == 2 && std::is_integral_v<decltype(a)>)
    return static_cast<std::uint32_t>(wrap(a)) * wrap(b);
  else
    return wrap(a) * wrap(b);
};
constexpr auto over = [](auto a, auto b) {
  using T = decltype(a);
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return static_cast<T>(0 - wrap(a));
    return static_cast<T>(a / b);
  } else {
    return a / b;
  }
};
constexpr auto remainder_of = [](auto a, auto b) {
  using T = decltype(a);
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return static_cast<T>(0);
  return static_cast<T>(a % b);
};
// A NaN loses against a number; the greater zero is +0.
constexpr auto greater = [](auto a, auto b) {
  if constexpr (std::is_integral_v<decltype(a)>) {
    return std::max(a, b);
  } else {
    if (is_nan(a)) return b;
    if (is_nan(b)) return a;
    if (a == b) return sign_of(a) ? b : a;
    return a > b ? a : b;
  }
};
constexpr auto lesser = [](auto a, auto b) {
  if constexpr (std::is_integral_v<decltype(a)>) {
    return std::min(a, b);
  } else {
    if (is_nan(a)) return b;
    if (is_nan(b)) return a;
    if (a == b) return sign_of(a) ? a : b;
    return a < b ? a : b;
  }
};
constexpr auto negative = [](auto a) {
  if constexpr (std::is_integral_v<decltype(a)>)
    return 0 - wrap(a);
  else
    return -a;
};
constexpr auto magnitude = [](auto a) {
  if constexpr (std::is_integral_v<decltype(a)>)
    return a < 0 ? 0 - wrap(a) : wrap(a);
  else
    return abs_of(a);
};
constexpr auto both = [](auto a, auto b) { return a & b; };
constexpr auto either = [](auto a, auto b) { return a | b; };
constexpr auto one_of = [](auto a, auto b) { return a ^ b; };
constexpr auto inverse = [](auto a) { return ~a; };

template <class T>
constexpr T relu(T x) {
  return is_nan(x) || !(x > T{}) ? T{} : x;
}

template <class T, class Wide>
void multiply_high(warp& w, const instruction& i, std::uint32_t mask) {
  binary<T, [](T a, T b) { return static_cast<T>(static_cast<Wide>(a) * b >> (8 * sizeof(T))); }>(w, i, mask);
}
template <class T, class Wide>
handler wide_product(bool adds) {
  if (!adds) return binary<T, [](T a, T b) { return static_cast<Wide>(static_cast<Wide>(a) * b); }, Wide>;
  return ternary<T,
                 [](T a, T b, Wide c) {
                   return static_cast<Wide>(wrap(static_cast<Wide>(static_cast<Wide>(a) * b)) + wrap(c));
                 },
                 Wide, Wide>;
}

// Shifts take no more than the bits there are; a signed one keeps the sign.
template <class T>
void shift_left(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1), b = w.value(i, 2);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) {
    const auto by = as<std::uint32_t>(b[l]);
    to[l] = bits<T>(by >= 8 * sizeof(T) ? T{} : static_cast<T>(as<T>(a[l]) << by));
  });
}
template <class T>
void shift_right(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1), b = w.value(i, 2);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) {
    const auto by = std::min<std::uint32_t>(as<std::uint32_t>(b[l]), 8 * sizeof(T) - (std::is_signed_v<T> ? 1 : 0));
    to[l] = bits<T>(by >= 8 * sizeof(T) ? T{} : static_cast<T>(as<T>(a[l]) >> by));
  });
}
handler shift(const instruction& i, bool left) {
  switch (i.of) {
    case type::b16:
    case type::u16:
      return left ? shift_left<std::uint16_t> : shift_right<std::uint16_t>;
    case type::b32:
    case type::u32:
      return left ? shift_left<std::uint32_t> : shift_right<std::uint32_t>;
    case type::b64:
    case type::u64:
      return left ? shift_left<std::uint64_t> : shift_right<std::uint64_t>;
    case type::s16:
      return shift_right<std::int16_t>;
    case type::s32:
      return shift_right<std::int32_t>;
    case type::s64:
      return shift_right<std::int64_t>;
    default:
      return nullptr;
  }
}

void funnel_shift(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1), b = w.value(i, 2), c = w.value(i, 3);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) {
    const std::uint64_t both_words = as<std::uint32_t>(b[l]) * (std::uint64_t{1} << 32) | as<std::uint32_t>(a[l]);
    const auto given = as<std::uint32_t>(c[l]);
    const std::uint32_t by = i.second != 0 ? std::min(given, 32u) : given & 31;
    // l: the upper word of the pair shifted left; r: the lower one shifted right.
    to[l] =
        i.number != 0 ? (by == 32 ? both_words & 0xffffffff : both_words << by >> 32) : both_words >> by & 0xffffffff;
  });
}

void permute(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1), b = w.value(i, 2), c = w.value(i, 3);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) {
    const std::uint64_t from = as<std::uint32_t>(b[l]) * (std::uint64_t{1} << 32) | as<std::uint32_t>(a[l]);
    std::uint32_t out = 0;
    for (int byte = 0; byte < 4; ++byte) {
      const std::uint32_t selector = as<std::uint32_t>(c[l]) >> 4 * byte & 15;
      std::uint32_t value = from >> 8 * (selector & 7) & 255;
      if (selector & 8) value = value & 128 ? 255 : 0;
      out |= value << 8 * byte;
    }
    to[l] = out;
  });
}

template <class T>
void insert_field(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1), b = w.value(i, 2), c = w.value(i, 3), d = w.value(i, 4);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) {
    const auto at = as<std::uint32_t>(c[l]) & 255, width = as<std::uint32_t>(d[l]) & 255;
    T out = as<T>(b[l]);
    for (std::uint32_t n = 0; n < width && at + n < 8 * sizeof(T); ++n)
      out = static_cast<T>((out & ~(T{1} << (at + n))) | (as<T>(a[l]) >> n & 1) << (at + n));
    to[l] = out;
  });
}
template <class T>
void extract_field(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1), b = w.value(i, 2), c = w.value(i, 3);
  std::uint64_t* const to = w.result(i, 0);
  using U = std::make_unsigned_t<T>;
  constexpr std::uint32_t most = 8 * sizeof(T);
  for_lanes(mask, [&](int l) {
    const auto at = as<std::uint32_t>(b[l]) & 255, width = as<std::uint32_t>(c[l]) & 255;
    const U x = as<U>(a[l]);
    const bool sign = std::is_signed_v<T> && width != 0 && (x >> std::min(at + width - 1, most - 1) & 1);
    U out = 0;
    for (std::uint32_t n = 0; n < most; ++n) {
      const U bit = n < width && at + n < most ? x >> (at + n) & 1 : sign;
      out = static_cast<U>(out | bit << n);
    }
    to[l] = out;
  });
}

void logic3(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1), b = w.value(i, 2), c = w.value(i, 3), table = w.value(i, 4);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) {
    std::uint32_t out = 0;
    const auto x = as<std::uint32_t>(a[l]), y = as<std::uint32_t>(b[l]), z = as<std::uint32_t>(c[l]);
    for (int n = 0; n < 8; ++n)
      if (table[l] >> n & 1) out |= (n & 4 ? x : ~x) & (n & 2 ? y : ~y) & (n & 1 ? z : ~z);
    to[l] = out;
  });
}

/// Predicates have masks, not registers.
template <auto f>
void predicate_binary(warp& w, const instruction& i, std::uint32_t mask) {
  w.set_predicate(i.args[0], mask, f(w.predicate(i.args[1]), w.predicate(i.args[2])));
}

void move(warp& w, const instruction& i, std::uint32_t mask) {
  if (i.of == type::pred) return w.set_predicate(i.args[0], mask, w.predicate(i.args[1]));
  const int to_width = static_cast<int>(i.widths[0]), from_width = static_cast<int>(i.widths[1]);
  if (to_width == 1 && from_width == 1) {
    const lane_values a = w.value(i, 1);
    const auto offset = static_cast<std::uint64_t>(i.args[1].offset);
    std::uint64_t* const to = w.result(i, 0);
    const std::uint64_t keep = bits_of(i.of) == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits_of(i.of)) - 1;
    for_lanes(mask, [&](int l) { to[l] = (a[l] + offset) & keep; });
    return;
  }
  // A value from its parts, or parts of a value, the lowest first. 128 bits: two registers of 64.
  const int part = bits_of(i.of) / std::max(to_width, from_width);
  if (from_width > 1) {
    std::array<std::uint64_t, lanes> whole{};
    for (int n = 0; n < from_width; ++n) {
      const lane_values a = w.value(i, static_cast<std::size_t>(to_width + n));
      for_lanes(mask, [&](int l) {
        whole[static_cast<std::size_t>(l)] |= (a[l] & (part == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << part) - 1))
                                              << n * part;
      });
    }
    std::uint64_t* const to = w.result(i, 0);
    for_lanes(mask, [&](int l) { to[l] = whole[static_cast<std::size_t>(l)]; });
    return;
  }
  const lane_values a = w.value(i, static_cast<std::size_t>(to_width));
  std::array<std::uint64_t, lanes> whole{};
  for_lanes(mask, [&](int l) { whole[static_cast<std::size_t>(l)] = a[l]; });
  for (int n = 0; n < to_width; ++n) {
    if (i.args[static_cast<std::size_t>(n)].kind == operand_kind::none) continue;
    std::uint64_t* const to = w.result(i, static_cast<std::size_t>(n));
    for_lanes(mask, [&](int l) {
      to[l] = whole[static_cast<std::size_t>(l)] >> n * part & ((std::uint64_t{1} << part) - 1);
    });
  }
}

void select_value(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1), b = w.value(i, 2);
  const std::uint32_t chosen = w.predicate(i.args[3]);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) { to[l] = chosen >> l & 1 ? a[l] : b[l]; });
}

enum class relation { eq, ne, lt, le, gt, ge, num, nan };

template <class T>
bool compares(relation r, bool unordered, T a, T b) {
  if constexpr (!std::is_integral_v<T>) {
    const bool either_nan = is_nan(a) || is_nan(b);
    if (r == relation::num) return !either_nan;
    if (r == relation::nan) return either_nan;
    if (either_nan) return unordered;
  }
  switch (r) {
    case relation::eq:
      return a == b;
    case relation::ne:
      return !(a == b);
    case relation::lt:
      return a < b;
    case relation::le:
      return a <= b;
    case relation::gt:
      return a > b;
    case relation::ge:
      return a >= b;
    default:
      return false;
  }
}

/// setp: p[|q] = (a R b) [and|or|xor c]
template <class T>
void set_predicate(warp& w, const instruction& i, std::uint32_t mask) {
  const bool two = i.args[1].kind == operand_kind::predicate || i.args[1].kind == operand_kind::none;
  const std::size_t first = two ? 2 : 1;
  const lane_values a = w.value(i, first), b = w.value(i, first + 1);
  const auto r = static_cast<relation>(i.number & 15);
  const bool unordered = i.number & 16;
  std::uint32_t out = 0;
  for_lanes(mask, [&](int l) { out |= compares(r, unordered, as<T>(a[l]), as<T>(b[l])) ? 1u << l : 0u; });
  std::uint32_t other = ~out;
  if (i.second != 0) {
    const std::uint32_t c = w.predicate(i.args[first + 2]);
    const auto joined = [&](std::uint32_t x) { return i.second == 1 ? x & c : i.second == 2 ? x | c : x ^ c; };
    out = joined(out);
    other = joined(other);
  }
  w.set_predicate(i.args[0], mask, out);
  if (two) w.set_predicate(i.args[1], mask, other);
}

/// set: 1.0, or all ones
template <class T>
void set_value(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1), b = w.value(i, 2);
  const auto r = static_cast<relation>(i.number & 15);
  const bool unordered = i.number & 16;
  std::uint64_t* const to = w.result(i, 0);
  const std::uint64_t yes = i.from == type::f32 ? bits(1.0f) : 0xffffffff;
  for_lanes(mask, [&](int l) { to[l] = compares(r, unordered, as<T>(a[l]), as<T>(b[l])) ? yes : 0; });
}

bool decode_relation(instruction& i) {
  static const std::pair<std::string_view, int> all[] = {
      {"eq", 0},   {"ne", 1},   {"lt", 2},   {"le", 3},   {"gt", 4},   {"ge", 5}, {"num", 6}, {"nan", 7}, {"equ", 16},
      {"neu", 17}, {"ltu", 18}, {"leu", 19}, {"gtu", 20}, {"geu", 21}, {"lo", 2}, {"ls", 3},  {"hi", 4},  {"hs", 5}};
  bool found = false;
  for (std::size_t n = 1; n < i.words.size(); ++n) {
    for (const auto& [word, value] : all)
      if (!found && i.words[n] == word) i.number = value, found = true;
    if (i.words[n] == "and") i.second = 1;
    if (i.words[n] == "or") i.second = 2;
    if (i.words[n] == "xor") i.second = 3;
  }
  return found;
}

handler comparison(instruction& i) {
  if (!decode_relation(i)) return nullptr;
  switch (i.of) {
    case type::b16:
    case type::u16:
      return set_predicate<std::uint16_t>;
    case type::s16:
      return set_predicate<std::int16_t>;
    case type::b32:
    case type::u32:
      return set_predicate<std::uint32_t>;
    case type::s32:
      return set_predicate<std::int32_t>;
    case type::b64:
    case type::u64:
      return set_predicate<std::uint64_t>;
    case type::s64:
      return set_predicate<std::int64_t>;
    case type::f32:
      return set_predicate<float>;
    case type::f64:
      return set_predicate<double>;
    case type::f16:
      return set_predicate<half_bits>;
    case type::bf16:
      return set_predicate<bfloat_bits>;
    default:
      return nullptr;
  }
}

/// In another direction than to the nearest, by the floating-point unit.
template <auto f>
void rounded(warp& w, const instruction& i, std::uint32_t mask) {
  const int before = std::fegetround();
  std::fesetround(i.number == 1 ? FE_DOWNWARD : i.number == 2 ? FE_UPWARD : FE_TOWARDZERO);
  f(w, i, mask);
  std::fesetround(before);
}
int direction(const instruction& i) {
  return has_word(i, "rm") ? 1 : has_word(i, "rp") ? 2 : has_word(i, "rz") ? 3 : 0;
}

constexpr auto fused = [](auto a, auto b, auto c) { return fma_of(a, b, c); };
// volatile: nothing is computed before the direction is set
constexpr auto fused_now = [](auto a, auto b, auto c) {
  volatile auto x = a;
  return std::fma(x, b, c);
};
constexpr auto plus_now = [](auto a, auto b) {
  volatile auto x = a;
  return x + b;
};
constexpr auto times_now = [](auto a, auto b) {
  volatile auto x = a;
  return x * b;
};
constexpr auto over_now = [](auto a, auto b) {
  volatile auto x = a;
  return x / b;
};

template <auto f>
void saturated(warp& w, const instruction& i, std::uint32_t mask) {
  f(w, i, mask);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) {
    const float x = as<float>(to[l]);
    to[l] = bits(!(x > 0) ? 0.0f : std::min(x, 1.0f));
  });
}

template <class T>
handler fused_product(instruction& i) {
  i.number = direction(i);
  if (i.number != 0) return rounded<ternary<T, fused_now>>;
  return ternary<T, fused>;
}

handler real_arithmetic(instruction& i, const std::string& base) {
  const bool single = i.of == type::f32;
  if (!single && i.of != type::f64) return nullptr;
  i.number = direction(i);
  if (i.number != 0) {
    if (base == "add") return single ? rounded<binary<float, plus_now>> : rounded<binary<double, plus_now>>;
    if (base == "mul") return single ? rounded<binary<float, times_now>> : rounded<binary<double, times_now>>;
    if (base == "div") return single ? rounded<binary<float, over_now>> : rounded<binary<double, over_now>>;
    return nullptr;
  }
  if (has_word(i, "sat") && single) {
    if (base == "add") return saturated<binary<float, plus>>;
    if (base == "mul") return saturated<binary<float, times>>;
  }
  return nullptr;
}

/// Functions of one number.
template <auto f>
handler function_of(type t) {
  if (t == type::f32) return unary<float, f>;
  if (t == type::f64) return unary<double, f>;
  if (t == type::f16) return unary<half_bits, [](half_bits x) { return half_bits(f(static_cast<float>(x))); }>;
  if (t == type::bf16) return unary<bfloat_bits, [](bfloat_bits x) { return bfloat_bits(f(static_cast<float>(x))); }>;
  if (t == type::f16x2)
    return unary<pair_of<half_bits>, [](pair_of<half_bits> x) {
      return x.map([](half_bits e) { return half_bits(f(static_cast<float>(e))); });
    }>;
  if (t == type::bf16x2)
    return unary<pair_of<bfloat_bits>, [](pair_of<bfloat_bits> x) {
      return x.map([](bfloat_bits e) { return bfloat_bits(f(static_cast<float>(e))); });
    }>;
  return nullptr;
}

handler bit_count(instruction& i, const std::string& base) {
  if (base == "popc")
    return bits_of(i.of) == 64 ? unary<std::uint64_t, [](std::uint64_t x) { return std::popcount(x); }, std::uint32_t>
                               : unary<std::uint32_t, [](std::uint32_t x) { return std::popcount(x); }>;
  if (base == "clz")
    return bits_of(i.of) == 64
               ? unary<std::uint64_t, [](std::uint64_t x) { return std::countl_zero(x); }, std::uint32_t>
               : unary<std::uint32_t, [](std::uint32_t x) { return std::countl_zero(x); }>;
  if (base == "bfind" && has_word(i, "shiftamt"))
    return bits_of(i.of) == 64
               ? unary<std::uint64_t,
                       [](std::uint64_t x) { return x == 0 ? ~0u : static_cast<std::uint32_t>(std::countl_zero(x)); },
                       std::uint32_t>
               : unary<std::uint32_t,
                       [](std::uint32_t x) { return x == 0 ? ~0u : static_cast<std::uint32_t>(std::countl_zero(x)); }>;
  if (base == "bfind" && i.of != type::s32 && i.of != type::s64)
    return bits_of(i.of) == 64 ? unary<std::uint64_t,
                                       [](std::uint64_t x) {
                                         return x == 0 ? ~0u : static_cast<std::uint32_t>(63 - std::countl_zero(x));
                                       },
                                       std::uint32_t>
                               : unary<std::uint32_t, [](std::uint32_t x) {
                                   return x == 0 ? ~0u : static_cast<std::uint32_t>(31 - std::countl_zero(x));
                                 }>;
  const auto reversed = [](auto x) {
    decltype(x) out = 0;
    for (std::size_t n = 0; n < 8 * sizeof(x); ++n) out = static_cast<decltype(x)>(out << 1 | (x >> n & 1));
    return out;
  };
  if (base == "brev") return whole_unary<reversed>(i.of);
  return nullptr;
}

handler integer_product(instruction& i, bool adds) {
  if (has_word(i, "wide")) {
    switch (i.of) {
      case type::u16:
        return wide_product<std::uint16_t, std::uint32_t>(adds);
      case type::s16:
        return wide_product<std::int16_t, std::int32_t>(adds);
      case type::u32:
        return wide_product<std::uint32_t, std::uint64_t>(adds);
      case type::s32:
        return wide_product<std::int32_t, std::int64_t>(adds);
      default:
        return nullptr;
    }
  }
  if (has_word(i, "hi") && !adds) {
    switch (i.of) {
      case type::u32:
        return multiply_high<std::uint32_t, std::uint64_t>;
      case type::s32:
        return multiply_high<std::int32_t, std::int64_t>;
      case type::u64:
        return multiply_high<std::uint64_t, wide_unsigned>;
      case type::s64:
        return multiply_high<std::int64_t, wide_signed>;
      default:
        return nullptr;
    }
  }
  if (has_word(i, "hi")) return nullptr;
  if (!adds) return whole_binary<times>(i.of);
  constexpr auto sum = [](auto a, auto b, auto c) { return times(a, b) + wrap(c); };
  switch (i.of) {
    case type::u16:
    case type::s16:
      return ternary<std::uint16_t, sum>;
    case type::u32:
    case type::s32:
      return ternary<std::uint32_t, sum>;
    case type::u64:
    case type::s64:
      return ternary<std::uint64_t, sum>;
    default:
      return nullptr;
  }
}

bool is_real(type t) {
  return t == type::f32 || t == type::f64 || t == type::f16 || t == type::bf16 || t == type::f16x2 || t == type::bf16x2;
}

template <class T>
handler greatest_of(const instruction& i, bool most) {
  if (i.args.size() == 4) {
    if (most) return ternary<T, [](T a, T b, T c) { return greater(greater(a, b), c); }>;
    return ternary<T, [](T a, T b, T c) { return lesser(lesser(a, b), c); }>;
  }
  return most ? binary<T, greater> : binary<T, lesser>;
}

/// max and min, with NaN (a NaN wins) and three operands of newer generations where the text has them
handler extreme(const instruction& i, bool most) {
  if (has_word(i, "relu"))
    return i.of == type::s32
               ? binary<std::int32_t, [](std::int32_t a, std::int32_t b) { return std::max(std::max(a, b), 0); }>
               : nullptr;
  if (has_word(i, "NaN")) {
    if (i.of != type::f32) return nullptr;
    if (most)
      return binary<float, [](float a, float b) {
        return is_nan(a) || is_nan(b) ? std::numeric_limits<float>::quiet_NaN() : greater(a, b);
      }>;
    return binary<float, [](float a, float b) {
      return is_nan(a) || is_nan(b) ? std::numeric_limits<float>::quiet_NaN() : lesser(a, b);
    }>;
  }
  switch (i.of) {
    case type::s32:
      return greatest_of<std::int32_t>(i, most);
    case type::u32:
      return greatest_of<std::uint32_t>(i, most);
    case type::f32:
      return greatest_of<float>(i, most);
    default:
      break;
  }
  if (i.of == type::f16x2 || i.of == type::bf16x2) {
    if (i.of == type::f16x2)
      return most ? binary<pair_of<half_bits>, [](auto a, auto b) { return a.with(b, greater); }>
                  : binary<pair_of<half_bits>, [](auto a, auto b) { return a.with(b, lesser); }>;
    return most ? binary<pair_of<bfloat_bits>, [](auto a, auto b) { return a.with(b, greater); }>
                : binary<pair_of<bfloat_bits>, [](auto a, auto b) { return a.with(b, lesser); }>;
  }
  switch (i.of) {
    case type::u16:
      return most ? binary<std::uint16_t, greater> : binary<std::uint16_t, lesser>;
    case type::s16:
      return most ? binary<std::int16_t, greater> : binary<std::int16_t, lesser>;
    case type::u64:
      return most ? binary<std::uint64_t, greater> : binary<std::uint64_t, lesser>;
    case type::s64:
      return most ? binary<std::int64_t, greater> : binary<std::int64_t, lesser>;
    case type::f64:
      return most ? binary<double, greater> : binary<double, lesser>;
    case type::f16:
      return most ? binary<half_bits, greater> : binary<half_bits, lesser>;
    case type::bf16:
      return most ? binary<bfloat_bits, greater> : binary<bfloat_bits, lesser>;
    default:
      return nullptr;
  }
}

handler fused_by_type(instruction& i) {
  switch (i.of) {
    case type::f32:
      return has_word(i, "sat") ? saturated<ternary<float, fused>> : fused_product<float>(i);
    case type::f64:
      return fused_product<double>(i);
    case type::f16:
      return ternary<half_bits, fused>;
    case type::bf16:
      return ternary<bfloat_bits, fused>;
    case type::f16x2:
      return ternary<pair_of<half_bits>, fused>;
    case type::bf16x2:
      return ternary<pair_of<bfloat_bits>, fused>;
    default:
      return nullptr;
  }
}

handler real_function(const instruction& i, const std::string& base) {
  if (base == "ex2") return function_of<[](auto x) { return std::exp2(x); }>(i.of);
  if (base == "lg2") return function_of<[](auto x) { return std::log2(x); }>(i.of);
  if (base == "rcp") return function_of<[](auto x) { return 1 / x; }>(i.of);
  if (base == "sqrt") return function_of<[](auto x) { return std::sqrt(x); }>(i.of);
  if (base == "rsqrt") return function_of<[](auto x) { return 1 / std::sqrt(x); }>(i.of);
  if (base == "sin") return function_of<[](auto x) { return std::sin(x); }>(i.of);
  if (base == "cos") return function_of<[](auto x) { return std::cos(x); }>(i.of);
  if (base == "tanh") return function_of<[](auto x) { return std::tanh(x); }>(i.of);
  return nullptr;
}

}  // namespace

handler arithmetic_handler(instruction& i) {
  const std::string& base = i.words[0];
  i.of = last_type(i);
  if (base == "mov") return move;
  if (base == "selp") return select_value;
  if (base == "setp") return comparison(i);
  if (base == "set") {
    // set.R.to.from
    i.from = i.words.size() > 2 ? type_named(i.words[i.words.size() - 2]) : type::none;
    if (!decode_relation(i)) return nullptr;
    if (i.of == type::f32) return set_value<float>;
    if (i.of == type::s32) return set_value<std::int32_t>;
    if (i.of == type::u32) return set_value<std::uint32_t>;
    return nullptr;
  }
  if (base == "add" || base == "sub" || base == "mul" || base == "div")
    if (const handler h = real_arithmetic(i, base)) return h;
  if (direction(i) != 0 && base != "fma") return nullptr;
  if (base == "add") return has_word(i, "cc") ? nullptr : binary_of<plus>(i.of);
  if (base == "sub") return has_word(i, "cc") ? nullptr : binary_of<minus>(i.of);
  if (base == "mul") return is_real(i.of) ? binary_of<times>(i.of) : integer_product(i, false);
  if (base == "mad") return is_real(i.of) ? fused_by_type(i) : integer_product(i, true);
  if (base == "fma") return fused_by_type(i);
  if (base == "div") {
    if (i.of == type::f32) return binary<float, over>;
    if (i.of == type::f64) return binary<double, over>;
    return whole_binary<over>(i.of);
  }
  if (base == "rem") return whole_binary<remainder_of>(i.of);
  if (base == "max") return extreme(i, true);
  if (base == "min") return extreme(i, false);
  if (base == "neg") return unary_of<negative>(i.of);
  if (base == "abs") return unary_of<magnitude>(i.of);
  if (i.of == type::pred) {
    if (base == "and") return predicate_binary<both>;
    if (base == "or") return predicate_binary<either>;
    if (base == "xor") return predicate_binary<one_of>;
    if (base == "not")
      return [](warp& w, const instruction& n, std::uint32_t mask) {
        w.set_predicate(n.args[0], mask, ~w.predicate(n.args[1]));
      };
    return nullptr;
  }
  if (base == "and") return whole_binary<both>(i.of);
  if (base == "or") return whole_binary<either>(i.of);
  if (base == "xor") return whole_binary<one_of>(i.of);
  if (base == "not") return whole_unary<inverse>(i.of);
  if (base == "shl") return shift(i, true);
  if (base == "shr") return shift(i, false);
  if (base == "shf") {
    i.number = has_word(i, "l");
    i.second = has_word(i, "clamp");
    return funnel_shift;
  }
  if (base == "prmt") return i.words.size() == 2 ? permute : nullptr;
  if (base == "bfi") return bits_of(i.of) == 64 ? insert_field<std::uint64_t> : insert_field<std::uint32_t>;
  if (base == "bfe") {
    if (i.of == type::u32) return extract_field<std::uint32_t>;
    if (i.of == type::s32) return extract_field<std::int32_t>;
    return i.of == type::u64 ? extract_field<std::uint64_t> : extract_field<std::int64_t>;
  }
  if (base == "lop3") return has_word(i, "b32") && i.words.size() == 2 ? logic3 : nullptr;
  if (const handler h = bit_count(i, base)) return h;
  return real_function(i, base);
}

}  // namespace msabench::ptx
