// SPDX-License-Identifier: Apache-2.0
// Images and videos as grids of patches, and the segments that they are cut into (docs/contract.md, section 8).
#pragma once

#include <cstdint>

#include "kernels/common/types.h"

namespace msabench::kernels {

struct patch_grid {
  std::int64_t t, h, w;  ///< t in temporal patches
  MSABENCH_HOST_DEVICE std::int64_t frame() const { return h * w; }
  MSABENCH_HOST_DEVICE std::int64_t tokens() const { return t * frame(); }
};

struct patch_grids {
  const std::int32_t* data;  ///< [items][3] t, h, w
  std::int64_t stride, items;
  std::int64_t window;  ///< temporal patches of a segment; 0 = unlimited

  MSABENCH_HOST_DEVICE patch_grid at(std::int64_t item) const {
    const std::int32_t* g = data + item * stride;
    return {g[0], g[1], g[2]};
  }

  /// Temporal patches of all segments of an item but the last, which has what is left.
  MSABENCH_HOST_DEVICE std::int64_t segment_length(const patch_grid& g) const {
    return window == 0 || g.t < window ? g.t : window;
  }

  MSABENCH_HOST_DEVICE std::int64_t tokens() const {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < items; ++i) sum += at(i).tokens();
    return sum;
  }

  MSABENCH_HOST_DEVICE std::int64_t segments() const {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < items; ++i) {
      const patch_grid g = at(i);
      if (g.t > 0) count += (g.t - 1) / segment_length(g) + 1;
    }
    return count;
  }
};

}  // namespace msabench::kernels
