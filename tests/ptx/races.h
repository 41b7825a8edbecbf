// SPDX-License-Identifier: Apache-2.0
// Races on shared memory: two accesses of different warps to the same bytes, one of them a write, which nothing orders.
// Barriers order, whatever the interpreter's own order was, so a race is found without its having to go wrong.
//
// Every warp has a clock of what it knows of all others; barriers join them. The bulk engine counts as one more.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tests/ptx/program.h"

namespace msabench::ptx {

class race_detector {
 public:
  /// By agent: how far each other one is known to have come.
  using clock = std::vector<std::uint32_t>;
  struct place {
    std::size_t block;
    std::int64_t at, bytes;
  };

  race_detector(std::size_t blocks, std::size_t warps, std::int64_t shared_bytes);
  /// For the next cluster.
  void reset();

  const clock& now(std::size_t agent) const { return clocks_[agent]; }
  std::size_t bulk_engine() const { return clocks_.size() - 1; }

  /// Throws ptx_error where nothing orders the access and an earlier one.
  void read(std::size_t agent, const place& p, const instruction& i);
  void write(std::size_t agent, const place& p, const instruction& i);
  /// A write that was begun when only `begun` was known, by a warp or by the bulk engine.
  void write_since(std::size_t agent, const clock& begun, const place& p, const instruction& i);

  /// What the agent has done until now goes with `to`.
  void release(std::size_t agent, clock& to);
  void acquire(std::size_t agent, const clock& from);

  // mbarrier objects
  void arrive(std::size_t agent, std::size_t block, std::uint64_t at) { release(agent, meeting(block, at).arrived); }
  void turn(std::size_t block, std::uint64_t at);
  void pass(std::size_t agent, std::size_t block, std::uint64_t at) { acquire(agent, meeting(block, at).complete); }

 private:
  static constexpr std::int64_t grain = 2;  // bytes that are told apart
  struct access {
    std::uint32_t agent, epoch, line;
  };
  struct meeting_clocks {
    clock arrived, complete;
  };

  meeting_clocks& meeting(std::size_t block, std::uint64_t at);
  void check_write(std::size_t agent, const clock& known, std::size_t grain_at, const instruction& i);
  [[noreturn]] static void tell(const instruction& i, const char* before, std::uint32_t line);

  std::size_t grains_;  ///< of a block
  std::vector<clock> clocks_;
  std::vector<access> written_;       ///< [block][grain], agent + 1; 0 nobody
  std::vector<std::uint32_t> read_;   ///< [block][grain][agent] epoch of the last read; 0 none
  std::vector<std::uint32_t> lines_;  ///< [block][grain] of a last read
  std::map<std::pair<std::size_t, std::uint64_t>, meeting_clocks> meetings_;
};

}  // namespace msabench::ptx
