// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp exchange: shfl, vote, match, redux, elect, activemask; and finding the handler of any instruction.
#include <algorithm>

#include "tests/ptx/machine.h"

namespace msabench::ptx {
namespace {

enum class way { up, down, bfly, idx };

/// shfl.sync.mode.b32 d|p, a, b, c, mask
void shuffle(warp& w, const instruction& i, std::uint32_t mask) {
  const bool tells = i.widths.size() == 6;
  const std::size_t first = tells ? 2 : 1;
  const lane_values a = w.in_values(i.args[first], 0), b = w.in_values(i.args[first + 1], 1),
                    c = w.in_values(i.args[first + 2], 2);
  std::array<std::uint64_t, lanes> out{};
  std::uint32_t inside = 0;
  for_lanes(mask, [&](int l) {
    const auto by = static_cast<int>(b[l] & 31), clamp = static_cast<int>(c[l] & 31),
               segments = static_cast<int>(c[l] >> 8 & 31);
    const int highest = (l & segments) | (clamp & ~segments), lowest = l & segments;
    int from = l;
    bool in = false;
    switch (static_cast<way>(i.number)) {
      case way::up:
        from = l - by, in = from >= highest;
        break;
      case way::down:
        from = l + by, in = from <= highest;
        break;
      case way::bfly:
        from = l ^ by, in = from <= highest;
        break;
      case way::idx:
        from = lowest | (by & ~segments), in = from <= highest;
        break;
    }
    if (!in) from = l;
    if ((mask >> from & 1) == 0)
      fail(i, "lane " + std::to_string(l) + " reads lane " + std::to_string(from) + ", which does not take part");
    out[static_cast<std::size_t>(l)] = a[from] & 0xffffffff;
    inside |= in ? 1u << l : 0u;
  });
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) { to[l] = out[static_cast<std::size_t>(l)]; });
  if (tells) w.set_predicate(i.args[1], mask, inside);
}

void vote(warp& w, const instruction& i, std::uint32_t mask) {
  const std::uint32_t said = w.predicate(i.args[1]) & mask;
  if (has_word(i, "ballot")) {
    for_lanes(mask, [&](int l) { w.result(i, 0)[l] = said; });
    return;
  }
  const bool out = has_word(i, "any") ? said != 0 : has_word(i, "all") ? said == mask : said == 0 || said == mask;
  w.set_predicate(i.args[0], mask, out ? ~0u : 0u);
}

void match(warp& w, const instruction& i, std::uint32_t mask) {
  const bool all = has_word(i, "all");
  const lane_values a = w.in_values(i.args[all && i.widths.size() == 4 ? 2 : 1], 0);
  const std::uint64_t keep = bits_of(i.of) == 64 ? ~std::uint64_t{0} : 0xffffffff;
  std::array<std::uint32_t, lanes> same{};
  for_lanes(mask, [&](int l) {
    for_lanes(mask, [&](int other) {
      same[static_cast<std::size_t>(l)] |= ((a[l] ^ a[other]) & keep) == 0 ? 1u << other : 0u;
    });
  });
  bool agree = true;
  for_lanes(mask, [&](int l) { agree &= same[static_cast<std::size_t>(l)] == mask; });
  for_lanes(mask, [&](int l) { w.result(i, 0)[l] = all ? (agree ? mask : 0) : same[static_cast<std::size_t>(l)]; });
  if (all && i.widths.size() == 4) w.set_predicate(i.args[1], mask, agree ? ~0u : 0u);
}

void reduce(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1);
  std::uint32_t out = as<std::uint32_t>(a[__builtin_ctz(mask)]);
  const bool is_signed = i.of == type::s32;
  bool first = true;
  for_lanes(mask, [&](int l) {
    const auto x = as<std::uint32_t>(a[l]);
    if (first) {
      first = false;
      return;
    }
    if (has_word(i, "add"))
      out += x;
    else if (has_word(i, "min"))
      out = is_signed
                ? static_cast<std::uint32_t>(std::min(static_cast<std::int32_t>(out), static_cast<std::int32_t>(x)))
                : std::min(out, x);
    else if (has_word(i, "max"))
      out = is_signed
                ? static_cast<std::uint32_t>(std::max(static_cast<std::int32_t>(out), static_cast<std::int32_t>(x)))
                : std::max(out, x);
    else if (has_word(i, "and"))
      out &= x;
    else if (has_word(i, "or"))
      out |= x;
    else
      out ^= x;
  });
  for_lanes(mask, [&](int l) { w.result(i, 0)[l] = out; });
}

/// elect.sync d|p, mask
void elect(warp& w, const instruction& i, std::uint32_t mask) {
  const int leader = __builtin_ctz(mask);
  if (i.args[0].kind == operand_kind::reg)
    for_lanes(mask, [&](int l) { w.result(i, 0)[l] = static_cast<std::uint64_t>(leader); });
  w.set_predicate(i.args[1], mask, 1u << leader);
}

void unknown(warp&, const instruction& i, std::uint32_t) { fail(i, "the interpreter does not know this instruction"); }
void trap(warp&, const instruction& i, std::uint32_t) { fail(i, "the kernel gave up"); }

}  // namespace

handler lanes_handler(instruction& i) {
  const std::string& base = i.words[0];
  if (base == "activemask")
    return [](warp& w, const instruction& n, std::uint32_t mask) {
      for_lanes(mask, [&](int l) { w.result(n, 0)[l] = mask; });
    };
  if (base == "shfl") {
    i.order = flow::together;
    i.number = static_cast<std::int64_t>(has_word(i, "up")     ? way::up
                                         : has_word(i, "down") ? way::down
                                         : has_word(i, "bfly") ? way::bfly
                                                               : way::idx);
    return shuffle;
  }
  if (base == "vote" || base == "match" || base == "redux" || base == "elect") {
    i.order = flow::together;
    i.of = last_type(i);
    return base == "vote" ? vote : base == "match" ? match : base == "redux" ? reduce : elect;
  }
  if (base == "bar" || base == "barrier") {
    i.order = has_word(i, "warp") ? flow::warp_barrier : flow::barrier;
    return unknown;  // the scheduler's
  }
  if (base == "trap" || base == "brkpt") return trap;
  return nullptr;
}

void resolve(instruction& i) {
  for (const auto find : {logic_handler, arithmetic_handler, conversion_handler, memory_handler, lanes_handler,
                          matrix_handler, asynchronous_handler}) {
    i.run = find(i);
    if (i.run != nullptr) return;
  }
  i.run = unknown;
}

int bits_of(type t) {
  switch (t) {
    case type::none:
    case type::pred:
      return 1;
    case type::b8:
    case type::u8:
    case type::s8:
      return 8;
    case type::b16:
    case type::u16:
    case type::s16:
    case type::f16:
    case type::bf16:
    case type::e4m3x2:
      return 16;
    case type::b64:
    case type::u64:
    case type::s64:
    case type::f64:
      return 64;
    case type::b128:
      return 128;
    default:
      return 32;
  }
}

type type_named(std::string_view word) {
  static const std::pair<std::string_view, type> all[] = {
      {"pred", type::pred},     {"b8", type::b8},     {"b16", type::b16},       {"b32", type::b32}, {"b64", type::b64},
      {"b128", type::b128},     {"u8", type::u8},     {"u16", type::u16},       {"u32", type::u32}, {"u64", type::u64},
      {"s8", type::s8},         {"s16", type::s16},   {"s32", type::s32},       {"s64", type::s64}, {"f16", type::f16},
      {"f16x2", type::f16x2},   {"bf16", type::bf16}, {"bf16x2", type::bf16x2}, {"f32", type::f32}, {"f64", type::f64},
      {"e4m3x2", type::e4m3x2}, {"tf32", type::tf32}};
  for (const auto& [name, t] : all)
    if (name == word) return t;
  return type::none;
}

type last_type(const instruction& i) {
  for (std::size_t n = i.words.size(); n-- > 1;)
    if (const type t = type_named(i.words[n]); t != type::none) return t;
  return type::none;
}

}  // namespace msabench::ptx
