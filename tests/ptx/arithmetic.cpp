// SPDX-License-Identifier: Apache-2.0
// Arithmetic. Approximations of the hardware are computed better than it does.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

#include "tests/ptx/elementwise.h"

namespace msabench::ptx {
namespace {

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

// Of pairs, each half by itself.
constexpr auto greater_of = [](auto a, auto b) {
  if constexpr (requires { a.with(b, greater); })
    return a.with(b, greater);
  else
    return greater(a, b);
};
constexpr auto lesser_of = [](auto a, auto b) {
  if constexpr (requires { a.with(b, lesser); })
    return a.with(b, lesser);
  else
    return lesser(a, b);
};

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
  const bool three = i.args.size() == 4;
  return by_type(i.of, [=]<class T>(std::type_identity<T>) -> handler {
    if (three && most) return ternary<T, [](T a, T b, T c) { return greater_of(greater_of(a, b), c); }>;
    if (three) return ternary<T, [](T a, T b, T c) { return lesser_of(lesser_of(a, b), c); }>;
    return most ? binary<T, greater_of> : binary<T, lesser_of>;
  });
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
  if (base == "add" || base == "sub" || base == "mul" || base == "div")
    if (const handler h = real_arithmetic(i, base)) return h;
  if (direction(i) != 0 && base != "fma") return nullptr;
  // Sums with a carry take a register that nobody else needs.
  if (has_word(i, "cc")) return nullptr;
  if (base == "add") return binary_of<plus>(i.of);
  if (base == "sub") return binary_of<minus>(i.of);
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
  return real_function(i, base);
}

}  // namespace msabench::ptx
