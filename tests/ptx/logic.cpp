// SPDX-License-Identifier: Apache-2.0
// Moves, selection, comparisons, logic, shifts and fields of bits.
#include <algorithm>
#include <bit>

#include "tests/ptx/elementwise.h"

namespace msabench::ptx {
namespace {

constexpr auto both = [](auto a, auto b) { return a & b; };
constexpr auto either = [](auto a, auto b) { return a | b; };
constexpr auto one_of = [](auto a, auto b) { return a ^ b; };
constexpr auto inverse = [](auto a) { return ~a; };

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
  // A value from its parts, or parts of a value, the lowest first.
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

}  // namespace

handler logic_handler(instruction& i) {
  const std::string& base = i.words[0];
  i.of = last_type(i);
  if (base == "mov") return i.of == type::b128 ? nullptr : move;  // registers have 64 bits
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
  return bit_count(i, base);
}

}  // namespace msabench::ptx
