// SPDX-License-Identifier: Apache-2.0
// Warps take turns until all are done. The lanes of a warp that stand at different instructions run from the lowest one
// on, so they meet again where their branches join.
#include "tests/ptx/machine.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

namespace msabench::ptx {
namespace {

constexpr int turn = 400;                      // instructions
constexpr std::uint64_t still_rounds = 20000;  // of all warps, in which nothing happens that anybody waits for

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
          const path taken = {i.target, mask, waits::no, 0, 0};
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
      w.paths.push_back({i.targets[at], same, waits::no, 0, 0});
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
        p.waiting = waits::no;
        ++p.pc;
      }
      join(w);
    }
    barrier = {};
  }

  bool arrive_in_cluster(warp& w, path& p, const instruction& i) {
    cluster_state& c = *b_.cluster;
    if (has_word(i, "arrive")) {
      phases_[&w] = c.phase;
      c.arrived += p.mask == w.alive ? lanes : static_cast<std::uint32_t>(__builtin_popcount(p.mask));
      std::uint32_t expected = 0;
      for (const block* each : c.blocks)
        for (const warp& other : each->warps) expected += other.alive != 0 ? lanes : 0;
      if (c.arrived >= expected) {
        c.arrived = 0;
        ++c.phase;
      }
      ++b_.events;
      ++p.pc;
      return true;
    }
    if (c.phase > phases_[&w]) {
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
  cluster_runner(const launch& l, std::uint64_t seed, std::atomic<std::uint64_t>& events)
      : l_(l), seed_(seed), events_(events), blocks_(l.cluster) {
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
  }

  void run(std::uint64_t first_block) {
    const std::uint64_t width = l_.grid.x, height = l_.grid.y;
    std::mt19937_64 random(seed_ * 1000003 + first_block);
    std::vector<std::unique_ptr<runner>> runners;
    std::vector<std::pair<std::size_t, warp*>> turns;
    state_.arrived = 0;
    state_.phase = 1;
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
        w.paths.assign(1, {0, w.alive, waits::no, 0, 0});
        for (lane_copies& c : w.copies) c = {};
        w.open_products.clear();
        w.product_groups.clear();
        turns.emplace_back(n, &w);
      }
      runners.push_back(std::make_unique<runner>(b));
    }
    std::uint64_t still = 0, seen = 0;
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
      still = copied || events != seen ? 0 : still + 1;
      seen = events;
      if ((!moved && !copied) || still > still_rounds) stuck();
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
};

}  // namespace

void fail(const instruction& i, const std::string& why) {
  throw ptx_error("PTX line " + std::to_string(i.line) + ": " + i.text + ": " + why);
}

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

std::uint32_t warp::predicate(const operand& o) const {
  if (o.kind == operand_kind::predicate) return o.negated ? ~predicates[o.index] : predicates[o.index];
  return in_values(o, 6)[0] != 0 ? ~0u : 0u;  // a constant
}

lane_values warp::in_values(const operand& o, std::size_t place) const {
  auto& row = scratch[place];
  switch (o.kind) {
    case operand_kind::reg:
      return {registers.data() + std::size_t{o.index} * lanes, 1};
    case operand_kind::constant:
      return {&in->of->what->constants[o.index], 0};
    case operand_kind::local:
      for (int lane = 0; lane < lanes; ++lane)
        row[static_cast<std::size_t>(lane)] =
            reinterpret_cast<std::uint64_t>(local.data()) / 16 * 16 + 16 +
            static_cast<std::uint64_t>(lane) * static_cast<std::uint64_t>(in->of->what->local_bytes);
      return {row.data(), 1};
    case operand_kind::predicate:
      for (int lane = 0; lane < lanes; ++lane)
        row[static_cast<std::size_t>(lane)] = (predicates[o.index] ^ (o.negated ? ~0u : 0u)) >> lane & 1;
      return {row.data(), 1};
    case operand_kind::special:
      break;
    case operand_kind::none:
      row[0] = 0;
      return {row.data(), 0};
  }
  const launch& l = *in->of;
  row[0] = 0;
  if (o.index == 1000) {
    row[0] = l.parameter_base;
    return {row.data(), 0};
  }
  using s = special_register;
  const auto by_lane = [&](auto f) -> lane_values {
    for (std::uint32_t lane = 0; lane < lanes; ++lane) row[lane] = static_cast<std::uint64_t>(f(lane));
    return {row.data(), 1};
  };
  const auto thread = [&](std::uint32_t lane) { return number * lanes + lane; };
  static std::atomic<std::uint64_t> ticks;
  switch (static_cast<s>(o.index)) {
    case s::tid_x:
      return by_lane([&](std::uint32_t lane) { return thread(lane) % l.block.x; });
    case s::tid_y:
      return by_lane([&](std::uint32_t lane) { return thread(lane) / l.block.x % l.block.y; });
    case s::tid_z:
      return by_lane([&](std::uint32_t lane) { return thread(lane) / l.block.x / l.block.y; });
    case s::laneid:
      return by_lane([](std::uint32_t lane) { return lane; });
    case s::lanemask_eq:
      return by_lane([](std::uint32_t lane) { return 1u << lane; });
    case s::lanemask_lt:
      return by_lane([](std::uint32_t lane) { return (1u << lane) - 1; });
    case s::lanemask_le:
      return by_lane([](std::uint32_t lane) { return (2u << lane) - 1; });
    case s::lanemask_gt:
      return by_lane([](std::uint32_t lane) { return ~((2u << lane) - 1); });
    case s::lanemask_ge:
      return by_lane([](std::uint32_t lane) { return ~((1u << lane) - 1); });
    case s::ntid_x:
      row[0] = l.block.x;
      break;
    case s::ntid_y:
      row[0] = l.block.y;
      break;
    case s::ntid_z:
      row[0] = l.block.z;
      break;
    case s::ctaid_x:
      row[0] = in->at.x;
      break;
    case s::ctaid_y:
      row[0] = in->at.y;
      break;
    case s::ctaid_z:
      row[0] = in->at.z;
      break;
    case s::nctaid_x:
      row[0] = l.grid.x;
      break;
    case s::nctaid_y:
      row[0] = l.grid.y;
      break;
    case s::nctaid_z:
      row[0] = l.grid.z;
      break;
    case s::warpid:
      row[0] = number;
      break;
    case s::nwarpid:
      row[0] = in->warps.size();
      break;
    case s::smid:
      row[0] = 0;
      break;
    case s::nsmid:
      row[0] = 1;
      break;
    case s::clock:
    case s::clock64:
    case s::globaltimer:
      row[0] = ++ticks;
      break;
    case s::cluster_ctaid_x:
    case s::cluster_ctarank:
      row[0] = in->rank;
      break;
    case s::cluster_nctaid_x:
    case s::cluster_nctarank:
      row[0] = l.cluster;
      break;
    case s::clusterid_x:
      row[0] = in->at.x / l.cluster;
      break;
    case s::nclusterid_x:
      row[0] = l.grid.x / l.cluster;
      break;
    case s::dynamic_smem_size:
      row[0] = static_cast<std::uint64_t>(l.dynamic_shared);
      break;
  }
  return {row.data(), 0};
}

helpers::helpers(int count) {
  for (int t = 1; t < count; ++t) threads_.emplace_back([this] { wait(); });
}
helpers::~helpers() {
  {
    const std::lock_guard lock(guard_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& t : threads_) t.join();
}
void helpers::wait() {
  std::uint64_t seen = 0;
  std::unique_lock lock(guard_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || turn_ != seen; });
    if (ends_) return;
    seen = turn_;
    const auto& work = *work_;
    lock.unlock();
    work();
    lock.lock();
    if (--busy_ == 0) changed_.notify_all();
  }
}
void helpers::run(const std::function<void()>& work) {
  const std::lock_guard one_after_the_other(taken_);
  {
    const std::lock_guard lock(guard_);
    work_ = &work;
    busy_ = static_cast<int>(threads_.size());
    ++turn_;
  }
  changed_.notify_all();
  work();
  std::unique_lock lock(guard_);
  changed_.wait(lock, [&] { return busy_ == 0; });
}

void run(const launch& l, std::uint64_t seed, helpers& threads) {
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
        if (!runner) runner.emplace(l, seed, events);
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
