// SPDX-License-Identifier: Apache-2.0
// The rotation of patches as a step of other operators.
#pragma once

#include "kernels/common/calls.h"
#include "kernels/common/implementation.h"
#include "kernels/cuda/workspace.cuh"

namespace msabench::cuda {

using namespace msabench::kernels;

/// What kernels find out of the grids, which the host can't read.
struct rope3d_workspace {
  std::int64_t* item_starts;  ///< [items + 1] first token of each item, and all tokens
  float* frequencies;         ///< [d / 6] of an axis, the same for all

  static rope3d_workspace cut(workspace_cutter& memory, const msabench_problem& problem);
};

/// Boundaries of segments, as many as there can be: those behind the last segment repeat its end, so that whoever counts on
/// all of them meets empty segments.
struct padded_segments {
  std::int32_t* boundaries;  ///< [bound + 1]; nullptr = not wanted
  std::int64_t bound;
};

/// Enqueues all of rope3d. call.cu_segments may be nullptr.
void rotate_patches(const rope3d_call& call, const rope3d_workspace& memory, const padded_segments& segments,
                    void* stream);

}  // namespace msabench::cuda
