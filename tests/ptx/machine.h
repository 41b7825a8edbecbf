// SPDX-License-Identifier: Apache-2.0
// Thread blocks as the interpreter runs them: warps whose lanes may be at different instructions, barriers, shared memory.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/ptx/program.h"
#include "tests/ptx/races.h"

namespace msabench::ptx {

struct extent {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

struct launch {
  const kernel* what = nullptr;
  extent grid, block;
  std::uint32_t cluster = 1;        ///< thread blocks, along x
  std::int64_t dynamic_shared = 0;  ///< bytes
  std::vector<std::uint64_t> parameters;
  std::uint64_t parameter_base = 0;  ///< where they begin in it
};

/// Every lane's value of an operand.
struct lane_values {
  const std::uint64_t* at;
  std::uint32_t step;
  std::uint64_t operator[](int lane) const { return at[static_cast<std::uint32_t>(lane) * step]; }
};

enum class waits : std::uint8_t { no, for_lanes, at_barrier, at_warp_barrier };

/// Lanes at one instruction.
struct path {
  std::uint32_t pc = 0, mask = 0;
  waits waiting = waits::no;
  std::uint32_t barrier = 0;
};

/// What a lane's or a warp's instructions began and what a later one waits for.
struct begun_copy {
  std::uint64_t to, from;
  std::uint32_t bytes, zeros;
  std::shared_ptr<const race_detector::clock> known;  ///< when it was begun; nullptr: races are not looked for
};
struct lane_copies {
  std::vector<begun_copy> open;  ///< not committed
  std::deque<std::vector<begun_copy>> groups;
};
struct begun_product {
  const instruction* what;
};

struct block;

struct warp {
  block* in = nullptr;
  std::uint32_t number = 0, alive = 0;
  std::vector<std::uint64_t> registers;  ///< [register][lane]
  std::vector<std::uint32_t> predicates;
  std::vector<path> paths;
  std::vector<char> local;  ///< [lane][bytes]
  std::array<lane_copies, lanes> copies;
  std::vector<begun_product> open_products;
  std::deque<std::vector<begun_product>> product_groups;
  bool gives_way = false;  ///< what it waits for has not come; another warp's turn
  mutable std::array<std::array<std::uint64_t, lanes>, 8> scratch;

  lane_values in_values(const operand& o, std::size_t place) const;
  lane_values value(const instruction& i, std::size_t arg) const { return in_values(i.args[arg], arg % 8); }
  std::uint64_t* result(const instruction& i, std::size_t arg) {
    return registers.data() + std::size_t{i.args[arg].index} * lanes;
  }
  std::uint32_t predicate(const operand& o) const;
  std::size_t agent() const;  ///< of the race detector
  // Memory behind an address of shared::cta or shared::cluster, to read or to write; throws where there is none, or a race.
  char* shared_to_read(std::uint64_t address, std::int64_t bytes, const instruction& i);
  char* shared_to_write(std::uint64_t address, std::int64_t bytes, const instruction& i);
  /// Of lanes in the mask.
  void set_predicate(const operand& o, std::uint32_t mask, std::uint32_t values) {
    if (o.kind != operand_kind::predicate) return;
    std::uint32_t& p = predicates[o.index];
    p = (p & ~mask) | (values & mask);
  }
};

struct named_barrier {
  std::uint32_t arrived = 0, expected = 0;
  std::uint32_t set = 0;  ///< predicates that were true, of bar.red
  race_detector::clock clock = {};
};

struct cluster_state {
  std::vector<block*> blocks;
  std::uint32_t arrived = 0;
  std::uint64_t phase = 0;
  race_detector* races = nullptr;  ///< nullptr: they are not looked for
  race_detector::clock arriving = {}, complete = {};
};

struct block {
  const launch* of = nullptr;
  extent at;
  std::uint32_t rank = 0;  ///< in the cluster
  cluster_state* cluster = nullptr;
  std::vector<std::uint64_t> shared_memory;
  std::int64_t shared_bytes = 0;
  std::vector<warp> warps;
  std::array<named_barrier, 16> barriers;
  std::deque<std::function<void()>> bulk;  ///< copies that are on their way
  std::uint64_t events = 0;                ///< changes that somebody may wait for

  char* shared() { return reinterpret_cast<char*>(shared_memory.data()); }
  /// Memory behind an address of shared::cta or shared::cluster; throws where there is none.
  char* shared_at(std::uint64_t address, std::int64_t bytes, const instruction& i);
  /// The same place for the race detector.
  race_detector::place place_of(std::uint64_t address, std::int64_t bytes) const;
};

/// An address in shared memory of another block of the cluster: its rank + 1 above these bits; 0 is the own one.
inline constexpr int cluster_rank_bit = 24;

/// Threads that wait for something to do: none can be made while a plugin runs.
class helpers {
 public:
  explicit helpers(int count);
  ~helpers();
  helpers(const helpers&) = delete;
  helpers& operator=(const helpers&) = delete;
  /// Runs `work` on every thread, this one too.
  void run(const std::function<void()>& work);

 private:
  void wait();

  std::mutex taken_, guard_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  std::uint64_t turn_ = 0;
  int busy_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

struct schedule {
  std::uint64_t seed = 0;  ///< 0: warps take turns in the order of their numbers; another order for each other number
  bool races = false;      ///< whether they are looked for
};

/// Runs every thread block; throws ptx_error.
void run(const launch& l, const schedule& how, helpers& threads);

/// Throws ptx_error with the line and the text of the instruction.
[[noreturn]] void fail(const instruction& i, const std::string& why);

template <class T>
T as(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
std::uint64_t bits(T value) {
  std::uint64_t all = 0;
  std::memcpy(&all, &value, sizeof(T));
  return all;
}

template <class F>
void for_lanes(std::uint32_t mask, F f) {
  if (mask == ~0u) {
    for (int lane = 0; lane < lanes; ++lane) f(lane);
  } else {
    for (std::uint32_t left = mask; left != 0; left &= left - 1) f(__builtin_ctz(left));
  }
}

// Handlers by what they do; nullptr: none of theirs.
handler arithmetic_handler(instruction& i);
handler logic_handler(instruction& i);
handler conversion_handler(instruction& i);
handler memory_handler(instruction& i);
handler lanes_handler(instruction& i);
handler matrix_handler(instruction& i);
handler asynchronous_handler(instruction& i);

/// Of cp.async, at the wait for it, by the warp that began it.
void finish_copies(block& b, std::size_t agent, const instruction& i, const std::vector<begun_copy>& copies);
/// Of wgmma, at the wait for it.
void multiply_warpgroup(warp& w, const instruction& i);

inline bool has_word(const instruction& i, std::string_view word) {
  for (const auto& w : i.words)
    if (w == word) return true;
  return false;
}
/// The last word that names a type; none if there is none.
type last_type(const instruction& i);

}  // namespace msabench::ptx
