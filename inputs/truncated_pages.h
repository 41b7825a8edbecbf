// SPDX-License-Identifier: Apache-2.0
// Where a kernel looks for a page of a cache that has cut the page's number or its offset to too few bits.
#pragma once

#include <cstdint>
#include <vector>

namespace msabench {

// Pages, other than `page`, that hold the place which is left of the page's beginning: of its number modulo 2^16, of its
// offset in bytes or in elements modulo 2^32. What comes out negative lies in the guard below the cache and is not
// listed. `stride`: elements from one page to the next.
std::vector<std::int64_t> truncated_pages(std::int64_t page, std::int64_t stride, std::int64_t bytes_per_element);

}  // namespace msabench
