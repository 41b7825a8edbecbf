// SPDX-License-Identifier: Apache-2.0
#include "tests/ptx/races.h"

#include <algorithm>
#include <string>

namespace msabench::ptx {

race_detector::race_detector(std::size_t blocks, std::size_t warps, std::int64_t shared_bytes)
    : grains_(static_cast<std::size_t>((shared_bytes + grain - 1) / grain)),
      clocks_(blocks * warps + 1),
      written_(blocks * grains_),
      read_(blocks * grains_ * clocks_.size()),
      lines_(blocks * grains_) {
  reset();
}

void race_detector::reset() {
  for (std::size_t agent = 0; agent < clocks_.size(); ++agent) {
    clocks_[agent].assign(clocks_.size(), 0);
    clocks_[agent][agent] = 1;
  }
  std::fill(written_.begin(), written_.end(), access{});
  std::fill(read_.begin(), read_.end(), 0);
  meetings_.clear();
}

void race_detector::tell(const instruction& i, const char* before, std::uint32_t line) {
  throw ptx_error(place_of(i) + ": a race on shared memory: line " + std::to_string(line) + before +
                  " the same bytes, and nothing orders the two");
}

void race_detector::read(std::size_t agent, const place& p, const instruction& i) {
  const clock& known = clocks_[agent];
  for (std::int64_t at = p.at / grain; at * grain < p.at + p.bytes; ++at) {
    const std::size_t g = p.block * grains_ + static_cast<std::size_t>(at);
    const access& w = written_[g];
    if (w.agent != 0 && w.agent - 1 != agent && known[w.agent - 1] < w.epoch) tell(i, " writes", w.line);
    read_[g * clocks_.size() + agent] = known[agent];
    lines_[g] = i.line;
  }
}

void race_detector::check_write(std::size_t agent, const clock& known, std::size_t g, const instruction& i) {
  const access& w = written_[g];
  if (w.agent != 0 && w.agent - 1 != agent && known[w.agent - 1] < w.epoch) tell(i, " writes", w.line);
  const std::uint32_t* const reads = read_.data() + g * clocks_.size();
  for (std::size_t other = 0; other < clocks_.size(); ++other)
    if (other != agent && reads[other] > known[other]) tell(i, " reads", lines_[g]);
}

void race_detector::write(std::size_t agent, const place& p, const instruction& i) {
  write_since(agent, clocks_[agent], p, i);
}

void race_detector::write_since(std::size_t agent, const clock& begun, const place& p, const instruction& i) {
  for (std::int64_t at = p.at / grain; at * grain < p.at + p.bytes; ++at) {
    const std::size_t g = p.block * grains_ + static_cast<std::size_t>(at);
    check_write(agent, begun, g, i);
    written_[g] = {static_cast<std::uint32_t>(agent + 1), clocks_[agent][agent], i.line};
  }
}

void race_detector::release(std::size_t agent, clock& to) {
  clock& own = clocks_[agent];
  to.resize(own.size());
  for (std::size_t n = 0; n < own.size(); ++n) to[n] = std::max(to[n], own[n]);
  ++own[agent];
}

void race_detector::acquire(std::size_t agent, const clock& from) {
  clock& own = clocks_[agent];
  for (std::size_t n = 0; n < from.size(); ++n)
    if (n != agent) own[n] = std::max(own[n], from[n]);
}

race_detector::meeting_clocks& race_detector::meeting(std::size_t block, std::uint64_t at) {
  return meetings_[{block, at}];
}

void race_detector::turn(std::size_t block, std::uint64_t at) {
  meeting_clocks& m = meeting(block, at);
  m.complete = m.arrived;
}

}  // namespace msabench::ptx
