// SPDX-License-Identifier: Apache-2.0
#include "inputs/generated_stream.h"

#include <cmath>
#include <utility>

namespace msabench {
namespace {

constexpr std::uint64_t counter_elements = 4;

}  // namespace

generated_runs::generated_runs(slot where, dtype type, const stream& from, double scale)
    : all_{where, type, from.key(), from.seed(), std::ilogb(scale), {}} {}

void generated_runs::add(std::uint64_t begin, std::uint64_t first, std::uint64_t count) {
  if (begin != all_.end_of(open_) || first != open_.first + open_.count) {
    close();
    open_ = {begin, first, 0};
  }
  open_.count += count;
}

generated_stream generated_runs::finish() {
  close();
  if (bytes_ < least_generated_bytes) all_.runs.clear();
  return std::move(all_);
}

void generated_runs::close() {
  generated_run cut = std::exchange(open_, {});
  const auto size = static_cast<std::uint64_t>(size_bytes(all_.type));
  const std::uint64_t skipped = (counter_elements - cut.first % counter_elements) % counter_elements;
  if (cut.count < skipped) return;
  cut.begin += skipped * size;
  cut.first += skipped;
  cut.count = (cut.count - skipped) / counter_elements * counter_elements;
  const bool aligned = cut.begin % (counter_elements * size) == 0;
  if (!aligned || cut.count * size < least_run_bytes) return;
  bytes_ += cut.count * size;
  all_.runs.push_back(cut);
}

}  // namespace msabench
