// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/vit3d.h"

#include "kernels/common/vit3d_tensors.h"
#include "kernels/naive/attend.h"
#include "kernels/naive/rope3d.h"

namespace msabench::naive {
namespace {

/// As many as the rotation will write.
std::int64_t count_segments(const stages& stage, const patch_grids& items) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < items.items; ++i) {
    const patch_grid g = items.at(i);
    const std::int64_t length = stage.segment_patches(items, g);
    count += g.t / length + (g.t % length != 0);
  }
  return count;
}

}  // namespace

double vit3d_shared_bytes(const msabench_problem& problem) { return vit3d_tensor_bytes(problem); }

void vit3d(const stages& stage, const vit3d_call& call, const msabench_problem& problem, int threads, void* scratch,
           std::int64_t slice_bytes) {
  const vit3d_call whole = complete(call, problem, count_segments(stage, call.rope.items),
                                    static_cast<char*>(scratch) + slice_bytes * threads);
  rope3d(stage, whole.rope, threads, scratch, slice_bytes);
  attend(stage, whole.attend, threads, scratch, slice_bytes);
}

}  // namespace msabench::naive
