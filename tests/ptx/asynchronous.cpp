// SPDX-License-Identifier: Apache-2.0
// mbarrier objects, and copies of the bulk engine that complete on them.
#include "tests/ptx/machine.h"
#include "tests/ptx/tensor_map.h"

namespace msabench::ptx {
namespace {

/// A barrier in the 64 bits that it has in shared memory.
struct barrier_state {
  std::uint64_t phase, pending, count;
  std::int64_t bytes;  ///< that are still to come; below 0: they came before they were expected
};

constexpr int count_bits = 20, byte_bits = 23;

barrier_state read_barrier(const char* at) {
  std::uint64_t all = 0;
  std::memcpy(&all, at, sizeof all);
  constexpr std::uint64_t most = (1u << count_bits) - 1;
  return {all & 1, all >> 1 & most, all >> (1 + count_bits) & most, static_cast<std::int64_t>(all) >> (64 - byte_bits)};
}
void write_barrier(char* at, const barrier_state& m) {
  const std::uint64_t all =
      m.phase | m.pending << 1 | m.count << (1 + count_bits) | static_cast<std::uint64_t>(m.bytes) << (64 - byte_bits);
  std::memcpy(at, &all, sizeof all);
}

char* barrier_at(block& b, std::uint64_t address, const instruction& i) { return b.shared_at(address, 8, i); }
std::uint64_t phase_at(block& b, std::uint64_t address, const instruction& i) {
  return read_barrier(barrier_at(b, address, i)).phase;
}

void settle(block& b, std::uint64_t address, char* at, barrier_state m) {
  ++b.events;
  if (m.pending == 0 && m.bytes == 0) {
    m.phase ^= 1;
    m.pending = m.count;
    if (race_detector* const races = b.cluster->races) {
      const auto p = b.place_of(address, 8);
      races->turn(p.block, static_cast<std::uint64_t>(p.at));
    }
  }
  write_barrier(at, m);
}

/// Whoever passes the barrier later knows what the agent has done.
void tell_barrier(block& b, std::size_t agent, std::uint64_t address) {
  if (race_detector* const races = b.cluster->races) {
    const auto p = b.place_of(address, 8);
    races->arrive(agent, p.block, static_cast<std::uint64_t>(p.at));
  }
}

void arrive(block& b, std::uint64_t address, std::uint64_t count, std::int64_t expected_bytes, const instruction& i) {
  char* const at = barrier_at(b, address, i);
  barrier_state m = read_barrier(at);
  m.bytes += expected_bytes;
  if (m.pending < count) fail(i, "more arrivals than the barrier was made for");
  m.pending -= count;
  settle(b, address, at, m);
}

void complete(block& b, std::uint64_t address, std::int64_t bytes, const instruction& i) {
  char* const at = barrier_at(b, address, i);
  barrier_state m = read_barrier(at);
  m.bytes -= bytes;
  settle(b, address, at, m);
}

std::uint64_t address_of(warp& w, const instruction& i, std::size_t arg, int lane) {
  const std::uint64_t all = w.in_values(i.args[arg], 7)[lane] + static_cast<std::uint64_t>(i.args[arg].offset);
  if (all < std::uint64_t{1} << 32) return all;
  // A generic address.
  for (std::size_t n = 0; n < w.in->cluster->blocks.size(); ++n) {
    block& b = *w.in->cluster->blocks[n];
    const std::uint64_t begin = reinterpret_cast<std::uint64_t>(b.shared());
    if (all >= begin && all < begin + static_cast<std::uint64_t>(b.shared_bytes))
      return (all - begin) | (&b == w.in ? 0 : (n + 1) << cluster_rank_bit);
  }
  fail(i, "no address of shared memory");
}

void make_barrier(warp& w, const instruction& i, std::uint32_t mask) {
  const lane_values count = w.in_values(i.args[1], 6);
  for_lanes(mask, [&](int l) {
    const std::uint64_t arrivals = count[l] & ((1u << count_bits) - 1);
    write_barrier(barrier_at(*w.in, address_of(w, i, 0, l), i), {0, arrivals, arrivals, 0});
  });
  ++w.in->events;
}

// mbarrier.arrive[.expect_tx] state, [at] [, number]
void arrive_at(warp& w, const instruction& i, std::uint32_t mask) {
  const bool expects = has_word(i, "expect_tx"), has_number = i.args.size() > 2;
  for_lanes(mask, [&](int l) {
    const std::uint64_t number = has_number ? w.in_values(i.args[2], 6)[l] : 1, at = address_of(w, i, 1, l);
    if (i.args[0].kind == operand_kind::reg) w.result(i, 0)[l] = phase_at(*w.in, at, i);
    tell_barrier(*w.in, w.agent(), at);
    if (expects)
      arrive(*w.in, at, 1, static_cast<std::int64_t>(number & 0xffffffff), i);
    else
      arrive(*w.in, at, number, 0, i);
  });
}
void expect_bytes(warp& w, const instruction& i, std::uint32_t mask) {
  for_lanes(mask, [&](int l) {
    const auto number = static_cast<std::int64_t>(w.in_values(i.args[1], 6)[l] & 0xffffffff);
    complete(*w.in, address_of(w, i, 0, l), has_word(i, "expect_tx") ? -number : number, i);
  });
}

// mbarrier.try_wait[.parity] p, [at], state or parity
void test_phase(warp& w, const instruction& i, std::uint32_t mask) {
  std::uint32_t done = 0;
  const lane_values token = w.in_values(i.args[2], 6);
  for_lanes(mask, [&](int l) {
    const std::uint64_t at = address_of(w, i, 1, l);
    if (phase_at(*w.in, at, i) == (token[l] & 1)) return;
    done |= 1u << l;
    if (race_detector* const races = w.in->cluster->races) {
      const auto p = w.in->place_of(at, 8);
      races->pass(w.agent(), p.block, static_cast<std::uint64_t>(p.at));
    }
  });
  w.set_predicate(i.args[0], mask, done);
  if (done != mask) w.gives_way = true;
}

/// cp.async.mbarrier.arrive: once the copies of the lane before it are done
void arrive_behind_copies(warp& w, const instruction& i, std::uint32_t mask) {
  const bool counts = !has_word(i, "noinc");
  for_lanes(mask, [&](int l) {
    const std::uint64_t at = address_of(w, i, 0, l);
    if (counts) {
      char* const there = barrier_at(*w.in, at, i);
      barrier_state m = read_barrier(there);
      ++m.pending;
      write_barrier(there, m);
    }
    lane_copies& mine = w.copies[static_cast<std::size_t>(l)];
    std::vector<begun_copy> all;
    for (const auto& group : mine.groups) all.insert(all.end(), group.begin(), group.end());
    all.insert(all.end(), mine.open.begin(), mine.open.end());
    mine = {};
    block* const b = w.in;
    const instruction* const what = &i;
    const std::size_t agent = w.agent();
    b->bulk.push_back([b, all, at, what, agent] {
      finish_copies(*b, agent, *what, all);
      tell_barrier(*b, agent, at);
      arrive(*b, at, 1, 0, *what);
    });
  });
}

/// Bytes that the bulk engine writes, and which bytes it had to know were free.
struct bulk_write {
  race_detector* races;
  std::shared_ptr<const race_detector::clock> begun;

  explicit bulk_write(warp& w)
      : races(w.in->cluster->races),
        begun(races == nullptr ? nullptr : std::make_shared<race_detector::clock>(races->now(w.agent()))) {}

  char* to(block& owner, std::uint64_t at, std::int64_t bytes, const instruction& i) const {
    char* const there = owner.shared_at(at, bytes, i);
    if (races != nullptr) {
      race_detector::clock known = *begun;
      known[races->bulk_engine()] =
          ~0u;  // its own copies come in no order; what they overwrite of each other is not looked at
      races->write_since(races->bulk_engine(), known, owner.place_of(at, bytes), i);
    }
    return there;
  }
  void done(block& owner, std::uint64_t barrier) const {
    if (races != nullptr) tell_barrier(owner, races->bulk_engine(), barrier);
  }
};

/// Where byte `linear` of a box that lies at `to` is put.
std::uint64_t swizzled(std::uint64_t to, std::uint64_t linear, int swizzle) {
  const std::uint64_t address = to + linear;
  return swizzle == 0 ? address : address ^ (address >> 7 & ((1u << swizzle) - 1)) << 4;
}

/// Every row of a box: f(offset in the box, address in memory or 0, bytes)
template <class F>
std::int64_t for_rows(const tensor_map& map, const std::int32_t* at, F f) {
  const std::int64_t size = map.element_bytes;
  std::int64_t rows = 1;
  for (std::uint32_t d = 1; d < map.rank; ++d) rows *= map.box[d];
  const std::int64_t width = map.box[0] * size;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::uint64_t address = map.address;
    bool inside = true;
    std::int64_t rest = row;
    for (std::uint32_t d = 1; d < map.rank; ++d) {
      const std::int64_t place = at[d] + rest % map.box[d];
      rest /= map.box[d];
      inside &= place >= 0 && place < map.size[d];
      address += static_cast<std::uint64_t>(place) * map.stride[d - 1];
    }
    for (std::int64_t e = 0; e < map.box[0]; ++e) {
      const std::int64_t place = at[0] + e;
      const bool there = inside && place >= 0 && place < map.size[0];
      f(static_cast<std::uint64_t>(row * width + e * size),
        there ? address + static_cast<std::uint64_t>(place * size) : 0, static_cast<std::size_t>(size));
    }
  }
  return rows * width;
}

const tensor_map& map_at(std::uint64_t address, const instruction& i) {
  if (address % 64 != 0) fail(i, "a tensor map that is not aligned to 64 bytes");
  const auto& map = *reinterpret_cast<const tensor_map*>(address);
  if (map.magic != tensor_map::known) fail(i, "no tensor map there");
  return map;
}

/// Offsets of the operands of a copy, which are written in brackets.
struct operands {
  std::size_t first[6];
  explicit operands(const instruction& i) {
    std::size_t at = 0;
    for (std::size_t n = 0; n < 6; ++n) {
      first[n] = at;
      if (n < i.widths.size()) at += i.widths[n];
    }
  }
};

/// Blocks of the cluster that a copy goes to.
std::vector<std::pair<block*, std::uint64_t>> receivers(warp& w, const instruction& i, std::size_t mask_arg, int lane,
                                                        std::uint64_t offset) {
  if (!has_word(i, "multicast::cluster")) return {{w.in, offset}};
  std::vector<std::pair<block*, std::uint64_t>> all;
  const std::uint64_t mask = w.in_values(i.args[mask_arg], 6)[lane];
  const std::uint64_t own = offset & ((1u << cluster_rank_bit) - 1);
  for (std::size_t n = 0; n < w.in->cluster->blocks.size(); ++n)
    if (mask >> n & 1) all.emplace_back(w.in->cluster->blocks[n], own);
  return all;
}

// cp.async.bulk[.tensor] to shared memory: [to], [from] or [map, {...}], [bytes,] [barrier] [, mask] [, policy]
void copy_in(warp& w, const instruction& i, std::uint32_t mask) {
  const operands o(i);
  const bool tensor = has_word(i, "tensor");
  for_lanes(mask, [&](int l) {
    const std::uint64_t to = address_of(w, i, o.first[0], l), barrier = address_of(w, i, o.first[tensor ? 2 : 3], l);
    const operand& source = i.args[o.first[1]];
    const std::uint64_t from = w.in_values(source, 6)[l] + static_cast<std::uint64_t>(source.offset);
    const auto all = receivers(w, i, o.first[tensor ? 3 : 4], l, to);
    const instruction* const what = &i;
    const bulk_write written(w);
    if (!tensor) {
      const std::uint64_t size = w.in_values(i.args[o.first[2]], 6)[l] & 0xffffffff;
      if (to % 16 != 0 || from % 16 != 0 || size % 16 != 0)
        fail(i, "bulk copies move 16 bytes from and to multiples of 16");
      for (const auto& [b, place] : all) {
        block* const owner = b;
        const std::uint64_t at = place, signal = all.size() > 1 ? barrier & ((1u << cluster_rank_bit) - 1) : barrier;
        w.in->bulk.push_back([owner, at, signal, from, size, what, written] {
          owner->shared_at(at + size - 1, 1, *what);
          for (std::uint64_t piece = 0; piece < size; piece += 16)
            std::memcpy(written.to(*owner, at + piece, 16, *what), reinterpret_cast<const char*>(from) + piece, 16);
          written.done(*owner, signal);
          complete(*owner, signal, static_cast<std::int64_t>(size), *what);
        });
      }
      return;
    }
    const tensor_map map = map_at(from, i);
    if (i.widths[1] != map.rank + 1) fail(i, "the map has another rank");
    if (to % 128 != 0) fail(i, "a box of shared memory that is not aligned to 128 bytes");
    std::array<std::int32_t, 5> at{};
    for (std::uint32_t d = 0; d < map.rank; ++d)
      at[d] = static_cast<std::int32_t>(w.in_values(i.args[o.first[1] + 1 + d], 6)[l]);
    for (const auto& [b, place] : all) {
      block* const owner = b;
      const std::uint64_t box = place, signal = all.size() > 1 ? barrier & ((1u << cluster_rank_bit) - 1) : barrier;
      w.in->bulk.push_back([owner, box, signal, map, at, what, written] {
        const std::int64_t bytes =
            for_rows(map, at.data(), [&](std::uint64_t linear, std::uint64_t source_at, std::size_t size) {
              char* const there =
                  written.to(*owner, swizzled(box, linear, map.swizzle), static_cast<std::int64_t>(size), *what);
              if (source_at != 0)
                std::memcpy(there, reinterpret_cast<const void*>(source_at), size);
              else
                std::memset(there, 0, size);
            });
        written.done(*owner, signal);
        complete(*owner, signal, bytes, *what);
      });
    }
  });
}

// st.async: [to], value or {values}, [barrier], of 32 bits each
void send(warp& w, const instruction& i, std::uint32_t mask) {
  // As seen on an H200, even to the thread block's own memory.
  if (w.in->cluster->blocks.size() == 1) fail(i, "an illegal instruction in a launch without clusters");
  const operands o(i);
  for_lanes(mask, [&](int l) {
    const std::uint64_t to = address_of(w, i, o.first[0], l), barrier = address_of(w, i, o.first[2], l);
    std::vector<std::uint32_t> values;
    for (std::size_t n = 0; n < i.widths[1]; ++n)
      values.push_back(static_cast<std::uint32_t>(w.in_values(i.args[o.first[1] + n], 6)[l]));
    block* const owner = w.in;
    const instruction* const what = &i;
    const bulk_write written(w);
    w.in->bulk.push_back([owner, to, barrier, values, what, written] {
      const auto bytes = static_cast<std::int64_t>(values.size() * sizeof values[0]);
      std::memcpy(written.to(*owner, to, bytes, *what), values.data(), values.size() * sizeof values[0]);
      written.done(*owner, barrier);
      complete(*owner, barrier, bytes, *what);
    });
  });
}

// From shared memory: at once, since nothing tells a kernel when.
void copy_out(warp& w, const instruction& i, std::uint32_t mask) {
  const operands o(i);
  for_lanes(mask, [&](int l) {
    const operand& target = i.args[o.first[0]];
    const std::uint64_t to = w.in_values(target, 6)[l] + static_cast<std::uint64_t>(target.offset),
                        from = address_of(w, i, o.first[1], l);
    if (!has_word(i, "tensor")) {
      const std::uint64_t size = w.in_values(i.args[o.first[2]], 6)[l] & 0xffffffff;
      if (to % 16 != 0 || from % 16 != 0 || size % 16 != 0)
        fail(i, "bulk copies move 16 bytes from and to multiples of 16");
      w.in->shared_at(from + size - 1, 1, i);
      std::memcpy(reinterpret_cast<void*>(to), w.in->shared_at(from, 0, i), size);
      return;
    }
    const tensor_map& map = map_at(to, i);
    std::array<std::int32_t, 5> at{};
    for (std::uint32_t d = 0; d < map.rank; ++d)
      at[d] = static_cast<std::int32_t>(w.in_values(i.args[o.first[0] + 1 + d], 6)[l]);
    for_rows(map, at.data(), [&](std::uint64_t linear, std::uint64_t there, std::size_t size) {
      if (there != 0)
        std::memcpy(reinterpret_cast<void*>(there),
                    w.in->shared_at(swizzled(from, linear, map.swizzle), static_cast<std::int64_t>(size), i), size);
    });
  });
  ++w.in->events;
}

void nothing(warp&, const instruction&, std::uint32_t) {}

}  // namespace

handler asynchronous_handler(instruction& i) {
  const std::string& base = i.words[0];
  if (base == "mbarrier") {
    if (has_word(i, "init")) return make_barrier;
    if (has_word(i, "inval")) return nothing;
    if (has_word(i, "try_wait") || has_word(i, "test_wait")) return test_phase;
    if (has_word(i, "arrive")) return arrive_at;
    if (has_word(i, "expect_tx") || has_word(i, "complete_tx")) return expect_bytes;
    return nullptr;
  }
  if (!has_word(i, "async")) return nullptr;
  if (base == "st") return has_word(i, "b32") ? send : nullptr;
  if (base != "cp") return nullptr;
  if (has_word(i, "mbarrier") && has_word(i, "arrive")) return arrive_behind_copies;
  if (!has_word(i, "bulk")) return nullptr;
  if (has_word(i, "commit_group") || has_word(i, "wait_group") || has_word(i, "prefetch")) return nothing;
  if (has_word(i, "im2col") || i.widths.size() > 6) return nullptr;
  return has_word(i, "mbarrier::complete_tx::bytes") ? copy_in : has_word(i, "bulk_group") ? copy_out : nullptr;
}

}  // namespace msabench::ptx
