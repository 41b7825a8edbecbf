// SPDX-License-Identifier: Apache-2.0
#include "inputs/truncated_pages.h"

namespace msabench {

std::vector<std::int64_t> truncated_pages(std::int64_t page, std::int64_t stride, std::int64_t bytes_per_element) {
  constexpr std::int64_t two_to_16 = std::int64_t{1} << 16, two_to_32 = std::int64_t{1} << 32;
  std::vector<std::int64_t> pages;
  const auto add = [&](std::int64_t other) {
    if (other != page) pages.push_back(other);
  };
  if (page >= two_to_16) add(page % two_to_16);
  for (const std::int64_t unit : {bytes_per_element, std::int64_t{1}}) {
    const std::int64_t step = stride * unit, offset = page * step;
    if (step == 0 || offset < two_to_32) continue;
    const std::int64_t rest = offset % two_to_32;
    add(rest / step);
    if (rest % step != 0) add(rest / step + 1);
  }
  return pages;
}

}  // namespace msabench
