// SPDX-License-Identifier: Apache-2.0
// Loads, stores, atomics and copies. Addresses of global memory are those of the host; shared memory has offsets, and
// addresses of the host in the generic space.
#include <atomic>

#include "tests/ptx/halves.h"
#include "tests/ptx/machine.h"

namespace msabench::ptx {
namespace {

enum space : std::int64_t { generic, shared, constant_or_parameter, local_memory };

space space_of(const instruction& i) {
  for (const std::string& word : i.words) {
    if (word.starts_with("shared")) return shared;
    if (word.starts_with("param") || word == "const") return constant_or_parameter;
    if (word == "local") return local_memory;
  }
  return generic;
}

enum class purpose { reads, writes, changes };

/// Memory that lane l means.
char* memory_of(warp& w, const instruction& i, const operand& o, const lane_values& base, int l, std::int64_t bytes,
                purpose why) {
  std::uint64_t address = base[l] + static_cast<std::uint64_t>(o.offset);
  bool in_shared = i.number == shared;
  if (!in_shared) {
    if (address % static_cast<std::uint64_t>(bytes) != 0 && bytes <= 16) fail(i, "an address that is not aligned");
    const auto begin = reinterpret_cast<std::uint64_t>(w.in->shared());
    in_shared =
        i.number == generic && address >= begin && address < begin + static_cast<std::uint64_t>(w.in->shared_bytes);
    if (!in_shared) return reinterpret_cast<char*>(address);
    address -= begin;
  }
  address = static_cast<std::uint32_t>(address);
  // Atomics and volatile accesses are meant to meet others.
  if (why == purpose::changes || i.second != 0) return w.in->shared_at(address, bytes, i);
  return why == purpose::reads ? w.shared_to_read(address, bytes, i) : w.shared_to_write(address, bytes, i);
}

bool sign_extends(type t) { return t == type::s8 || t == type::s16 || t == type::s32; }

void load(warp& w, const instruction& i, std::uint32_t mask) {
  const auto count = static_cast<std::size_t>(i.widths[0]);
  const operand& o = i.args[count];
  const lane_values base = w.in_values(o, 7);
  const auto size = static_cast<std::size_t>(bits_of(i.of) / 8);
  for_lanes(mask, [&](int l) {
    const char* const from = memory_of(w, i, o, base, l, static_cast<std::int64_t>(size * count), purpose::reads);
    for (std::size_t n = 0; n < count; ++n) {
      std::uint64_t value = 0;
      std::memcpy(&value, from + n * size, size);
      if (sign_extends(i.of)) {
        const int unused = 64 - static_cast<int>(8 * size);
        value = static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
      }
      if (i.args[n].kind == operand_kind::reg) w.result(i, n)[l] = value;
    }
  });
}

/// One value of 4 bytes from shared memory or global memory, which is what most loads are.
template <class T>
void load_one(warp& w, const instruction& i, std::uint32_t mask) {
  const operand& o = i.args[1];
  const lane_values base = w.in_values(o, 7);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) {
    T value;
    std::memcpy(&value, memory_of(w, i, o, base, l, sizeof(T), purpose::reads), sizeof(T));
    to[l] = bits(value);
  });
}

void store(warp& w, const instruction& i, std::uint32_t mask) {
  const operand& o = i.args[0];
  const lane_values base = w.in_values(o, 7);
  const auto count = static_cast<std::size_t>(i.widths[1]);
  const auto size = static_cast<std::size_t>(bits_of(i.of) / 8);
  // Lane after lane, so that the last of several that write to one place wins.
  for_lanes(mask, [&](int l) {
    char* const to = memory_of(w, i, o, base, l, static_cast<std::int64_t>(size * count), purpose::writes);
    for (std::size_t n = 0; n < count; ++n) {
      const std::uint64_t value = w.in_values(i.args[i.widths[0] + n], 5)[l];
      std::memcpy(to + n * size, &value, size);
    }
  });
  ++w.in->events;
}

template <class T, class F>
T exchange(char* at, F f) {
  std::atomic_ref<T> there(*reinterpret_cast<T*>(at));
  T before = there.load();
  while (!there.compare_exchange_weak(before, f(before))) {
  }
  return before;
}

enum class change { add, min, max, swap, compare, both, either, one_of, inc, dec };

template <class T>
void atomic(warp& w, const instruction& i, std::uint32_t mask) {
  // red has no result.
  const std::size_t at = i.words[0] == "red" ? 0 : 1;
  const operand& o = i.args[at];
  const lane_values base = w.in_values(o, 7), a = w.in_values(i.args[at + 1], 6);
  const auto what = static_cast<change>(i.second);
  const lane_values b = what == change::compare ? w.in_values(i.args[at + 2], 5) : a;
  std::array<std::uint64_t, lanes> before{};
  for_lanes(mask, [&](int l) {
    const T x = as<T>(a[l]), y = as<T>(b[l]);
    const auto next = [&](T old) -> T {
      switch (what) {
        case change::add:
          return static_cast<T>(old + x);
        case change::min:
          return old < x ? old : x;
        case change::max:
          return old > x ? old : x;
        case change::swap:
          return x;
        case change::compare:
          return old == x ? y : old;
        default:
          break;
      }
      if constexpr (std::is_integral_v<T>) {
        switch (what) {
          case change::both:
            return static_cast<T>(old & x);
          case change::either:
            return static_cast<T>(old | x);
          case change::one_of:
            return static_cast<T>(old ^ x);
          case change::inc:
            return static_cast<T>(old >= x ? 0 : old + 1);
          case change::dec:
            return static_cast<T>(old == 0 || old > x ? x : old - 1);
          default:
            break;
        }
      }
      return old;
    };
    before[static_cast<std::size_t>(l)] =
        bits(exchange<T>(memory_of(w, i, o, base, l, sizeof(T), purpose::changes), next));
  });
  if (at == 1 && i.args[0].kind == operand_kind::reg) {
    std::uint64_t* const to = w.result(i, 0);
    for_lanes(mask, [&](int l) { to[l] = before[static_cast<std::size_t>(l)]; });
  }
  ++w.in->events;
}

handler atomic_handler(instruction& i) {
  static const std::pair<std::string_view, change> all[] = {
      {"add", change::add},     {"min", change::min},  {"max", change::max},   {"exch", change::swap},
      {"cas", change::compare}, {"and", change::both}, {"or", change::either}, {"xor", change::one_of},
      {"inc", change::inc},     {"dec", change::dec}};
  bool found = false;
  for (const auto& [word, what] : all)
    if (has_word(i, word)) i.second = static_cast<std::int64_t>(what), found = true;
  if (!found || i.widths.at(i.words[0] == "red" ? 1 : 2) != 1) return nullptr;
  switch (i.of) {
    case type::b32:
    case type::u32:
      return atomic<std::uint32_t>;
    case type::s32:
      return atomic<std::int32_t>;
    case type::b64:
    case type::u64:
      return atomic<std::uint64_t>;
    case type::s64:
      return atomic<std::int64_t>;
    case type::f32:
      return atomic<float>;
    case type::f64:
      return atomic<double>;
    default:
      return nullptr;
  }
}

/// cvta.shared: from an offset to an address of the host; cvta.to.shared: back
void to_generic(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1);
  const auto offset = static_cast<std::uint64_t>(i.args[1].offset);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) {
    to[l] = i.number == shared ? reinterpret_cast<std::uint64_t>(w.in->shared_at((a[l] + offset) & 0xffffffff, 0, i))
                               : a[l] + offset;
  });
}
void from_generic(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1);
  const auto begin = reinterpret_cast<std::uint64_t>(w.in->shared());
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) { to[l] = i.number == shared ? a[l] - begin : a[l]; });
}

// cp.async: what has not been waited for has not been copied.
void begin_copy(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values to = w.in_values(i.args[0], 0), from = w.in_values(i.args[1], 1), whole = w.in_values(i.args[2], 2);
  const bool cuts = i.args.size() > 3;
  const lane_values given = cuts ? w.in_values(i.args[3], 3) : whole;
  const std::shared_ptr<const race_detector::clock> known =
      w.in->cluster->races == nullptr ? nullptr
                                      : std::make_shared<race_detector::clock>(w.in->cluster->races->now(w.agent()));
  const auto to_offset = static_cast<std::uint64_t>(i.args[0].offset),
             from_offset = static_cast<std::uint64_t>(i.args[1].offset);
  for_lanes(mask, [&](int l) {
    const auto all = static_cast<std::uint32_t>(whole[l]), bytes = static_cast<std::uint32_t>(given[l]);
    if (bytes > all) fail(i, "more bytes than are copied");
    const std::uint64_t at = static_cast<std::uint32_t>(to[l] + to_offset);
    w.in->shared_at(at, all, i);
    if ((from[l] + from_offset) % all != 0) fail(i, "an address that is not aligned");
    w.copies[static_cast<std::size_t>(l)].open.push_back({at, from[l] + from_offset, bytes, all - bytes, known});
  });
}
void commit_copies(warp& w, const instruction&, std::uint32_t mask) {
  for_lanes(mask, [&](int l) {
    lane_copies& c = w.copies[static_cast<std::size_t>(l)];
    c.groups.push_back(std::move(c.open));
    c.open = {};
  });
}
void wait_copies(warp& w, const instruction& i, std::uint32_t mask) {
  const std::uint64_t left = i.args.empty() ? 0 : w.value(i, 0)[0];
  for_lanes(mask, [&](int l) {
    lane_copies& c = w.copies[static_cast<std::size_t>(l)];
    for (; c.groups.size() > left; c.groups.pop_front()) finish_copies(*w.in, w.agent(), i, c.groups.front());
    if (i.second != 0) {
      finish_copies(*w.in, w.agent(), i, c.open);
      c.open.clear();
    }
  });
  ++w.in->events;
}

handler copy_handler(instruction& i) {
  if (i.words[0] != "cp" || !has_word(i, "async") || has_word(i, "bulk") || has_word(i, "mbarrier")) return nullptr;
  if (has_word(i, "commit_group")) return commit_copies;
  if (has_word(i, "wait_group")) return wait_copies;
  if (has_word(i, "wait_all")) {
    i.second = 1;
    return wait_copies;
  }
  // [to], [from], bytes[, bytes that are read][, policy of the cache]
  if (has_word(i, "L2::cache_hint") && i.args.size() > 3) i.args.pop_back();
  return i.args.size() < 3 || i.args.size() > 4 ? nullptr : begin_copy;
}

void nothing(warp&, const instruction&, std::uint32_t) {}
void give_way(warp& w, const instruction&, std::uint32_t) { w.gives_way = true; }

/// mapa: an address of shared memory of another block of the cluster
void map_address(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values a = w.value(i, 1), rank = w.value(i, 2);
  std::uint64_t* const to = w.result(i, 0);
  for_lanes(mask, [&](int l) {
    const std::uint64_t own = i.number == shared ? a[l] + static_cast<std::uint64_t>(i.args[1].offset)
                                                 : a[l] - reinterpret_cast<std::uint64_t>(w.in->shared());
    const std::uint64_t there = (own & ((1u << cluster_rank_bit) - 1)) | (rank[l] + 1) << cluster_rank_bit;
    to[l] = i.number == shared ? there : reinterpret_cast<std::uint64_t>(w.in->shared_at(there, 0, i));
  });
}

}  // namespace

void finish_copies(block& b, std::size_t agent, const instruction& i, const std::vector<begun_copy>& copies) {
  for (const begun_copy& c : copies) {
    char* const to = b.shared_at(c.to, c.bytes + c.zeros, i);
    if (c.known != nullptr) b.cluster->races->write_since(agent, *c.known, b.place_of(c.to, c.bytes + c.zeros), i);
    if (c.bytes != 0) std::memcpy(to, reinterpret_cast<const char*>(c.from), c.bytes);
    std::memset(to + c.bytes, 0, c.zeros);
  }
}

handler memory_handler(instruction& i) {
  const std::string& base = i.words[0];
  if (base == "ld" || base == "ldu" || base == "st" || base == "atom" || base == "red") {
    i.of = last_type(i);
    i.number = space_of(i);
    if (i.of == type::none) return nullptr;
    if (base == "ld" || base == "st")
      for (const char* word : {"volatile", "relaxed", "acquire", "release", "mmio"})
        i.second |= has_word(i, word) ? 1 : 0;
    if (base == "st") return i.args.size() == i.widths[0] + i.widths[1] && !has_word(i, "async") ? store : nullptr;
    if (base == "atom" || base == "red") return has_word(i, "async") ? nullptr : atomic_handler(i);
    if (i.widths[0] == 1 && i.args[0].kind == operand_kind::reg) {
      if (i.of == type::b32 || i.of == type::u32 || i.of == type::f32) return load_one<std::uint32_t>;
      if (i.of == type::b64 || i.of == type::u64 || i.of == type::f64 || i.of == type::s64)
        return load_one<std::uint64_t>;
    }
    return load;
  }
  if (base == "cvta") {
    i.number = space_of(i);
    return has_word(i, "to") ? from_generic : to_generic;
  }
  if (base == "mapa") {
    i.number = space_of(i);
    return map_address;
  }
  if (base == "membar" || base == "fence" || base == "prefetch" || base == "prefetchu" || base == "griddepcontrol" ||
      base == "setmaxnreg" || base == "discard" || base == "applypriority")
    return nothing;
  if (base == "createpolicy")
    return [](warp& w, const instruction& n, std::uint32_t mask) {
      for_lanes(mask, [&](int l) { w.result(n, 0)[l] = 0; });
    };
  if (base == "nanosleep") return give_way;
  return copy_handler(i);
}

}  // namespace msabench::ptx
