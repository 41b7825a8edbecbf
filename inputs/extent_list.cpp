// SPDX-License-Identifier: Apache-2.0
#include "inputs/extent_list.h"

#include "core/error.h"

namespace msabench {

void extent_list::add(std::uint64_t begin, std::uint64_t end, extent::kind holds) {
  const std::uint64_t last = all_.empty() ? 0 : all_.back().end;
  if (begin < last || end < begin) throw suite_error("extents of a region overlap");
  if (begin > last) all_.push_back({last, begin, extent::kind::hole});
  if (begin == end) return;
  if (!all_.empty() && all_.back().holds == holds)
    all_.back().end = end;
  else
    all_.push_back({begin, end, holds});
}

std::vector<extent> extent_list::finish(std::uint64_t bytes, extent::kind rest) {
  add(all_.empty() ? 0 : all_.back().end, bytes, rest);
  return std::move(all_);
}

}  // namespace msabench
