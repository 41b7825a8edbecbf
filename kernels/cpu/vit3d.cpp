// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/vit3d_tensors.h"

#include <algorithm>

#include "kernels/cpu/operators.h"
#include "kernels/cpu/tile.h"

namespace msabench::cpu {
namespace {

/// What the rotation writes, and behind it what both compute in, one after the other.
struct layout {
  char *tensors, *rest;
  double bytes;

  layout(void* memory, const msabench_problem& p, int threads) {
    carver shared(memory);
    tensors = shared.take<char>(vit3d_tensor_bytes(p));
    rest = shared.take<char>(
        std::max(rope3d_scratch_bytes(p, threads), attend_scratch_bytes(attention_of_vit3d(p), threads)));
    bytes = shared.bytes();
  }
};

}  // namespace

void vit3d(const vit3d_call& call, const run_context& context) {
  const layout memory(context.scratch, context.problem, context.threads);
  const vit3d_call whole = complete(call, context.problem, call.rope.items.segments(), memory.tensors);
  rope3d(whole.rope, {context.problem, context.threads, memory.rest, context.scratch_bytes});
  const msabench_problem attention = attention_of_vit3d(context.problem);
  attend(whole.attend, {attention, context.threads, memory.rest, context.scratch_bytes});
}

double vit3d_scratch_bytes(const msabench_problem& problem, int threads) {
  return layout(nullptr, problem, threads).bytes;
}

}  // namespace msabench::cpu
