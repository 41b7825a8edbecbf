// SPDX-License-Identifier: Apache-2.0
#include "inputs/generated_extent.h"

#include <cmath>

namespace msabench {
namespace {

constexpr std::uint64_t counter_elements = 4;

}  // namespace

generated_list::generated_list(slot where, dtype type, const stream& from, double scale) {
  open_ = {where, type, 0, 0, 0, from.key(), from.seed(), std::ilogb(scale)};
}

void generated_list::add(std::uint64_t begin, std::uint64_t first, std::uint64_t count) {
  if (begin != open_.end() || first != open_.first + open_.count) {
    close();
    open_.begin = begin;
    open_.first = first;
  }
  open_.count += count;
}

std::vector<generated_extent> generated_list::finish() {
  close();
  return std::move(all_);
}

void generated_list::close() {
  generated_extent cut = open_;
  open_.count = 0;
  const auto size = static_cast<std::uint64_t>(size_bytes(cut.type));
  const std::uint64_t skipped = (counter_elements - cut.first % counter_elements) % counter_elements;
  if (cut.count < skipped) return;
  cut.begin += skipped * size;
  cut.first += skipped;
  cut.count = (cut.count - skipped) / counter_elements * counter_elements;
  const bool aligned = cut.begin % (counter_elements * size) == 0;
  if (aligned && cut.count * size >= least_generated_bytes) all_.push_back(cut);
}

}  // namespace msabench
