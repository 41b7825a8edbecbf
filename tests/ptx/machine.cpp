// SPDX-License-Identifier: Apache-2.0
// Warps take turns until all are done. The lanes of a warp that stand at different instructions run from the lowest one
// on, so they meet again where their branches join.
#include "tests/ptx/machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace msabench::ptx {
namespace {

constexpr int turn = 400;  // instructions
// In which nothing happens anywhere that anybody could wait for. Another thread's turn can take long, with products of
// matrices, and nothing is seen of it meanwhile.
constexpr std::chrono::seconds still_time{5};

std::uint32_t member_mask(const warp& w, const instruction& i, std::uint32_t here) {
  // The mask is the last operand of shfl, vote, match, redux and elect; .aligned instructions have none.
  const std::string& base = i.words[0];
  if (base == "shfl" || base == "vote" || base == "match" || base == "redux" || base == "elect") {
    const lane_values v = w.in_values(i.args.back(), 7);
    return static_cast<std::uint32_t>(v[__builtin_ctz(here)]);
  }
  return ~0u;
}

class runner {
 public:
  explicit runner(block& b) : b_(b) {}

  /// Whether any instruction was run.
  bool take_turn(warp& w) {
    bool moved = false;
    w.gives_way = false;
    int backward = 0;
    bool highest = false;
    for (int left = turn; left > 0 && !w.paths.empty() && !w.gives_way;) {
      path* p = choose(w, highest);
      if (p == nullptr) break;
      moved = true;
      const std::uint32_t before = p->pc;
      const bool kept = step(w, *p);
      --left;
      if (!kept || w.paths.size() == 1) continue;
      // Lanes that spin must not keep the others from what they wait for.
      if (p->pc <= before && ++backward > 32) backward = 0, highest = !highest;
      join(w);
    }
    return moved;
  }

 private:
  static path* choose(warp& w, bool highest) {
    if (w.paths.size() == 1) return w.paths[0].waiting == waits::no ? &w.paths[0] : nullptr;
    path* found = nullptr;
    for (path& p : w.paths)
      if (p.waiting == waits::no && (found == nullptr || (highest ? p.pc > found->pc : p.pc < found->pc))) found = &p;
    return found;
  }

  /// Paths at one instruction are one.
  static void join(warp& w) {
    for (std::size_t a = 0; a < w.paths.size(); ++a)
      for (std::size_t b = a + 1; b < w.paths.size();) {
        path &p = w.paths[a], &q = w.paths[b];
        const auto joins = [](const path& x) { return x.waiting == waits::no || x.waiting == waits::for_lanes; };
        if (p.pc == q.pc && joins(p) && joins(q)) {
          p.mask |= q.mask;
          p.waiting = waits::no;
          w.paths.erase(w.paths.begin() + static_cast<std::ptrdiff_t>(b));
        } else {
          ++b;
        }
      }
  }

  /// false: the path is not where it was; p is not to be used.
  bool step(warp& w, path& p) {
    const instruction& i = b_.of->what->code[p.pc];
    std::uint32_t mask = p.mask;
    if (i.guarded) {
      const std::uint32_t g = w.predicates[i.guard];
      mask &= i.guard_negated ? ~g : g;
    }
    switch (i.order) {
      case flow::plain:
        if (mask != 0) i.run(w, i, mask);
        ++p.pc;
        return true;
      case flow::branch:
        if (mask == 0) {
          ++p.pc;
        } else if (mask == p.mask) {
          p.pc = i.target;
        } else {
          const path taken = {i.target, mask, waits::no, 0};
          p.mask &= ~mask;
          ++p.pc;
          w.paths.push_back(taken);
          return false;
        }
        return true;
      case flow::indexed_branch:
        return branch_by_index(w, p, i);
      case flow::leave:
        w.alive &= ~mask;
        p.mask &= ~mask;
        ++b_.events;
        if (p.mask == 0) {
          w.paths.erase(w.paths.begin() + (&p - w.paths.data()));
        } else {
          ++p.pc;
        }
        // Whoever waits for lanes that are gone waits no longer.
        for (path& other : w.paths)
          if (other.waiting == waits::for_lanes) other.waiting = waits::no;
        release_warp(w);
        for (std::uint32_t n = 0; n < b_.barriers.size(); ++n) release(n);
        return false;
      case flow::together: {
        const std::uint32_t needed = member_mask(w, i, p.mask) & w.alive;
        if ((p.mask & needed) != needed) {
          p.waiting = waits::for_lanes;
          return true;
        }
        if (mask != 0) i.run(w, i, mask);
        ++p.pc;
        return true;
      }
      case flow::warp_barrier:
        p.waiting = waits::at_warp_barrier;
        p.barrier = static_cast<std::uint32_t>(w.value(i, 0)[__builtin_ctz(p.mask)]);
        release_warp(w);
        return false;
      case flow::barrier:
        if (mask == 0) {
          ++p.pc;
          return true;
        }
        return arrive(w, p, i);
    }
    return true;
  }

  bool branch_by_index(warp& w, path& p, const instruction& i) {
    const lane_values index = w.value(i, 0);
    path all = p;
    w.paths.erase(w.paths.begin() + (&p - w.paths.data()));
    for (std::uint32_t left = all.mask; left != 0;) {
      const auto at = index[__builtin_ctz(left)];
      std::uint32_t same = 0;
      for_lanes(left, [&](int lane) { same |= index[lane] == at ? 1u << lane : 0u; });
      if (at >= i.targets.size()) fail(i, "an index past the targets");
      w.paths.push_back({i.targets[at], same, waits::no, 0});
      left &= ~same;
    }
    join(w);
    return false;
  }

  static void release_warp(warp& w) {
    std::uint32_t here = 0;
    for (const path& p : w.paths)
      if (p.waiting == waits::at_warp_barrier) here |= p.mask;
    for (path& p : w.paths)
      if (p.waiting == waits::at_warp_barrier && (p.barrier & w.alive & ~here) == 0) {
        p.waiting = waits::no;
        ++p.pc;
      }
  }

  std::uint32_t threads_left() const {
    std::uint32_t count = 0;
    for (const warp& w : b_.warps) count += w.alive != 0 ? lanes : 0;
    return count;
  }

  // bar and barrier: sync, arrive, red; barrier.cluster
  bool arrive(warp& w, path& p, const instruction& i) {
    if (has_word(i, "cluster")) return arrive_in_cluster(w, p, i);
    const bool reduces = has_word(i, "red");
    const std::size_t first = reduces ? 1 : 0;
    const int lane = __builtin_ctz(p.mask);
    const auto number = static_cast<std::uint32_t>(w.value(i, first)[lane]);
    if (number >= b_.barriers.size()) fail(i, "no such barrier");
    named_barrier& barrier = b_.barriers[number];
    const std::size_t counted = i.args.size() - (reduces ? 2 : 0);  // without result and predicate
    const std::uint32_t expected = counted > 1 ? static_cast<std::uint32_t>(w.value(i, first + 1)[lane]) : 0;
    if (barrier.arrived != 0 && barrier.expected != expected)
      fail(i, "threads disagree how many the barrier waits for");
    barrier.expected = expected;
    barrier.arrived += p.mask == w.alive ? lanes : static_cast<std::uint32_t>(__builtin_popcount(p.mask));
    if (reduces) barrier.set += static_cast<std::uint32_t>(__builtin_popcount(w.predicate(i.args.back()) & p.mask));
    if (b_.cluster->races != nullptr) b_.cluster->races->release(w.agent(), barrier.clock);
    ++b_.events;
    if (has_word(i, "arrive")) {
      ++p.pc;
    } else {
      p.waiting = waits::at_barrier;
      p.barrier = number;
    }
    release(number);
    return false;
  }

  void release(std::uint32_t number) {
    named_barrier& barrier = b_.barriers[number];
    const std::uint32_t expected = barrier.expected == 0 ? threads_left() : barrier.expected;
    if (barrier.arrived == 0 || barrier.arrived < expected) return;
    std::uint32_t all = 0;
    for (const warp& w : b_.warps) all += static_cast<std::uint32_t>(__builtin_popcount(w.alive));
    for (warp& w : b_.warps) {
      for (path& p : w.paths) {
        if (p.waiting != waits::at_barrier || p.barrier != number) continue;
        const instruction& i = b_.of->what->code[p.pc];
        if (has_word(i, "red")) {
          const bool value = has_word(i, "and") ? barrier.set == all : barrier.set != 0;
          if (has_word(i, "popc"))
            for_lanes(p.mask, [&](int lane) { w.result(i, 0)[lane] = barrier.set; });
          else
            w.set_predicate(i.args[0], p.mask, value ? ~0u : 0u);
        }
        if (b_.cluster->races != nullptr) b_.cluster->races->acquire(w.agent(), barrier.clock);
        p.waiting = waits::no;
        ++p.pc;
      }
      join(w);
    }
    barrier = {};
  }

  bool arrive_in_cluster(warp& w, path& p, const instruction& i) {
    cluster_state& c = *b_.cluster;
    if (has_word(i, "aligned") && p.mask != w.alive) fail(i, "not by the whole warp, though it is aligned");
    if (has_word(i, "arrive")) {
      phases_[&w] = c.phase;
      if (c.races != nullptr && !has_word(i, "relaxed")) c.races->release(w.agent(), c.arriving);
      c.arrived += p.mask == w.alive ? lanes : static_cast<std::uint32_t>(__builtin_popcount(p.mask));
      std::uint32_t expected = 0;
      for (const block* each : c.blocks)
        for (const warp& other : each->warps) expected += other.alive != 0 ? lanes : 0;
      if (c.arrived >= expected) {
        c.arrived = 0;
        ++c.phase;
        c.complete = c.arriving;
      }
      ++b_.events;
      ++p.pc;
      return true;
    }
    if (c.phase > phases_[&w]) {
      if (c.races != nullptr) c.races->acquire(w.agent(), c.complete);
      ++p.pc;
      return true;
    }
    w.gives_way = true;
    return true;
  }

  block& b_;
  std::map<const warp*, std::uint64_t> phases_;
};

/// Memory of the blocks of one cluster, used for one cluster after the other.
class cluster_runner {
 public:
  cluster_runner(const launch& l, const schedule& how, std::atomic<std::uint64_t>& events)
      : l_(l), seed_(how.seed), events_(events), blocks_(l.cluster) {
    const auto threads = static_cast<std::uint32_t>(l.block.count());
    state_.blocks.reserve(l.cluster);
    for (block& b : blocks_) {
      b.of = &l_;
      b.cluster = &state_;
      b.shared_bytes = l.what->dynamic_offset + l.dynamic_shared;
      b.shared_memory.resize(static_cast<std::size_t>(b.shared_bytes + 1024 + 7) / 8);
      b.warps.resize((threads + lanes - 1) / lanes);
      state_.blocks.push_back(&b);
      for (warp& w : b.warps) {
        w.registers.resize(std::size_t{l.what->registers} * lanes);
        w.predicates.resize(l.what->predicates);
        w.local.resize(static_cast<std::size_t>(l.what->local_bytes) * lanes + 64);
      }
    }
    if (how.races) state_.races = &races_.emplace(blocks_.size(), blocks_[0].warps.size(), blocks_[0].shared_bytes);
  }

  void run(std::uint64_t first_block) {
    const std::uint64_t width = l_.grid.x, height = l_.grid.y;
    std::mt19937_64 random(seed_ * 1000003 + first_block);
    std::vector<std::unique_ptr<runner>> runners;
    std::vector<std::pair<std::size_t, warp*>> turns;
    state_.arrived = 0;
    state_.phase = 1;
    state_.arriving = state_.complete = {};
    if (races_) races_->reset();
    for (std::size_t n = 0; n < blocks_.size(); ++n) {
      block& b = blocks_[n];
      const std::uint64_t at = first_block + n;
      b.at = {static_cast<std::uint32_t>(at % width), static_cast<std::uint32_t>(at / width % height),
              static_cast<std::uint32_t>(at / width / height)};
      b.rank = static_cast<std::uint32_t>(n);
      b.barriers = {};
      b.bulk.clear();
      // What a kernel does not write it must not read as anything useful.
      std::memset(b.shared_memory.data(), 0xd5, b.shared_memory.size() * 8);
      auto left = static_cast<std::uint32_t>(l_.block.count());
      for (std::uint32_t number = 0; number < b.warps.size(); ++number) {
        warp& w = b.warps[number];
        w.in = &b;
        w.number = number;
        w.alive = left >= lanes ? ~0u : (1u << left) - 1;
        left -= std::min<std::uint32_t>(left, lanes);
        w.paths.assign(1, {0, w.alive, waits::no, 0});
        for (lane_copies& c : w.copies) c = {};
        w.open_products.clear();
        w.product_groups.clear();
        turns.emplace_back(n, &w);
      }
      runners.push_back(std::make_unique<runner>(b));
    }
    std::uint64_t seen = 0;
    auto changed = std::chrono::steady_clock::now();
    for (;;) {
      if (seed_ != 0) std::shuffle(turns.begin(), turns.end(), random);
      bool moved = false, alive = false;
      for (const auto& [n, w] : turns) {
        if (w->paths.empty()) continue;
        alive = true;
        moved |= runners[n]->take_turn(*w);
      }
      bool copied = false;
      for (block& b : blocks_) {
        // All that is on its way, or in another order of things only some of it.
        for (std::size_t left = seed_ == 0 ? b.bulk.size() : std::min<std::size_t>(b.bulk.size(), random() % 3);
             left > 0; --left) {
          const auto next = std::move(b.bulk.front());
          b.bulk.pop_front();
          next();
          copied = true;
        }
        moved |= !b.bulk.empty();
      }
      if (!alive) {
        if (copied) continue;
        return;
      }
      // Another thread's block may do what these wait for.
      for (block& b : blocks_) events_ += std::exchange(b.events, 0);
      const std::uint64_t events = events_;
      const auto now = std::chrono::steady_clock::now();
      if (copied || events != seen) changed = now;
      seen = events;
      if ((!moved && !copied) || now - changed > still_time) stuck();
    }
  }

 private:
  [[noreturn]] void stuck() const {
    std::string where;
    for (const block& b : blocks_)
      for (const warp& w : b.warps)
        for (const path& p : w.paths) {
          const instruction& i = l_.what->code[p.pc];
          char text[64];
          std::snprintf(text, sizeof text, "\n  warp %u, lanes %08x: PTX line %u: ", w.number, p.mask, i.line);
          where += text + i.text;
        }
    throw ptx_error(l_.what->name + ": block " + std::to_string(blocks_[0].at.x) + ": nobody can go on:" + where);
  }

  const launch& l_;
  std::uint64_t seed_;                  ///< 0: warps take turns in the order of their numbers
  std::atomic<std::uint64_t>& events_;  ///< of the launch
  std::vector<block> blocks_;
  cluster_state state_;
  std::optional<race_detector> races_;
};

}  // namespace

void fail(const instruction& i, const std::string& why) { throw ptx_error(place_of(i) + ": " + why); }

char* block::shared_at(std::uint64_t address, std::int64_t bytes, const instruction& i) {
  block* owner = this;
  const std::uint64_t other = address >> cluster_rank_bit;
  if (other != 0) {
    if (other > cluster->blocks.size()) fail(i, "no such block in the cluster, or no address of shared memory");
    owner = cluster->blocks[other - 1];
    address &= (std::uint64_t{1} << cluster_rank_bit) - 1;
  }
  if (static_cast<std::int64_t>(address) + bytes > owner->shared_bytes)
    fail(i, "past the end of shared memory: byte " + std::to_string(address) + " of " +
                std::to_string(owner->shared_bytes));
  // Alignments are those of the hardware, which traps.
  if (bytes > 0 && (bytes & (bytes - 1)) == 0 && bytes <= 16 && static_cast<std::int64_t>(address) % bytes != 0)
    fail(i, "an address that is not aligned");
  return owner->shared() + address;
}

race_detector::place block::place_of(std::uint64_t address, std::int64_t bytes) const {
  const std::uint64_t other = address >> cluster_rank_bit;
  return {other == 0 ? rank : other - 1,
          static_cast<std::int64_t>(address & ((std::uint64_t{1} << cluster_rank_bit) - 1)), bytes};
}

std::size_t warp::agent() const { return in->rank * in->warps.size() + number; }

char* warp::shared_to_read(std::uint64_t address, std::int64_t bytes, const instruction& i) {
  char* const at = in->shared_at(address, bytes, i);
  if (in->cluster->races != nullptr) in->cluster->races->read(agent(), in->place_of(address, bytes), i);
  return at;
}
char* warp::shared_to_write(std::uint64_t address, std::int64_t bytes, const instruction& i) {
  char* const at = in->shared_at(address, bytes, i);
  if (in->cluster->races != nullptr) in->cluster->races->write(agent(), in->place_of(address, bytes), i);
  return at;
}

void run(const launch& l, const schedule& how, helpers& threads) {
  const std::uint64_t blocks = l.grid.count();
  std::atomic<std::uint64_t> next = 0, events = 0;
  std::mutex guard;
  std::exception_ptr thrown;
  threads.run([&] {
    try {
      std::optional<cluster_runner> runner;
      for (;;) {
        const std::uint64_t first = next.fetch_add(l.cluster);
        if (first >= blocks) return;
        if (!runner) runner.emplace(l, how, events);
        runner->run(first);
      }
    } catch (...) {
      const std::lock_guard lock(guard);
      if (!thrown) thrown = std::current_exception();
      next = blocks;
    }
  });
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace msabench::ptx
