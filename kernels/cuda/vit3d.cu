// SPDX-License-Identifier: Apache-2.0
// Rotation of patches, and attention inside of their segments. Only the device knows how many segments there are, so the
// attention gets as many as there can be, the surplus ones empty, from boundaries in the workspace.
#include "kernels/common/vit3d_tensors.h"

#include "kernels/cuda/operators.h"
#include "kernels/cuda/rope3d.cuh"

namespace msabench::cuda {
namespace {

struct layout {
  rope3d_workspace rotation;
  padded_segments segments;
  char *tensors, *attention;
  double bytes;

  layout(void* scratch, const msabench_problem& problem, const msabench_problem& attended) {
    workspace_cutter memory(scratch);
    rotation = rope3d_workspace::cut(memory, problem);
    segments = {memory.take<std::int32_t>(static_cast<double>(attended.batch) + 1), attended.batch};
    tensors = memory.take<char>(vit3d_tensor_bytes(problem));
    attention = memory.take<char>(attention_scratch_bytes(attended));
    bytes = memory.bytes();
  }
};

}  // namespace

void vit3d_of(const vit3d_call& call, const run_context& context,
              void (*attend)(const attend_call&, const run_context&)) {
  const msabench_problem attended = attention_of_vit3d(context.problem);
  const layout memory(context.scratch, context.problem, attended);
  vit3d_call whole = complete(call, context.problem, memory.segments.bound, memory.tensors);
  rotate_patches(whole.rope, memory.rotation, memory.segments, context.stream);
  for (const std::int32_t** boundaries :
       {&whole.attend.rows.cu_seqlens_q, &whole.attend.keys.cu_seqlens_kv, &whole.attend.values.cu_seqlens_kv})
    *boundaries = memory.segments.boundaries;
  attend(whole.attend, {attended, context.threads, memory.attention, context.scratch_bytes, context.stream});
}

void vit3d(const vit3d_call& call, const run_context& context) { vit3d_of(call, context, vit_attend); }

double vit3d_scratch_bytes(const msabench_problem& problem) {
  return layout(nullptr, problem, attention_of_vit3d(problem)).bytes;
}

}  // namespace msabench::cuda
