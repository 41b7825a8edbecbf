// SPDX-License-Identifier: Apache-2.0
// vit_attend gone wrong, each by one replaced stage of the naive kernels, and vit3d with what it hands back.
#include <initializer_list>

#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

row_place place_of_own_token(const lengths& segments, std::int64_t row) {
  row_place place = segments.place(row);
  place.position = row - segments.cu_seqlens_q[place.sequence];
  return place;
}

msabench_status run_without(msabench_plan* plan, const msabench_args* args, void* workspace, void* stream,
                            std::initializer_list<msabench_slot> absent) {
  const msabench_tensor* slots[MSABENCH_SLOT_COUNT_1_0] = {};
  for (int slot = 0; slot < MSABENCH_SLOT_COUNT_1_0; ++slot)
    slots[slot] = tensor_at(args, static_cast<msabench_slot>(slot));
  if (slots[MSABENCH_GRIDS] != nullptr && slots[MSABENCH_OUT] != nullptr)
    for (const msabench_slot slot : absent) slots[slot] = nullptr;
  msabench_args fewer = *args;
  fewer.slot = slots;
  return exact().run(plan, &fewer, workspace, stream);
}

}  // namespace

/// vit_attend: a causal mask inside segments.
const msabench_plugin* vit_causal(const msabench_host* host) {
  return with_stages(host, "vit_causal", [](stages s) {
    s.segment_place = place_of_own_token;
    return s;
  });
}

/// vit3d: what lies between the halves is left as it was, or only the rotated q and k are handed back.
const msabench_plugin* vit3d_hides_rotation(const msabench_host* host) {
  return changed(host, "vit3d_hides_rotation", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      return run_without(plan, args, workspace, stream,
                         {MSABENCH_Q_ROPE, MSABENCH_K_ROPE, MSABENCH_POSITIONS, MSABENCH_CU_SEGMENTS});
    };
  });
}

const msabench_plugin* vit3d_hides_positions(const msabench_host* host) {
  return changed(host, "vit3d_hides_positions", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      return run_without(plan, args, workspace, stream, {MSABENCH_POSITIONS, MSABENCH_CU_SEGMENTS});
    };
  });
}

/// vit3d: needs what it may be asked not to write.
const msabench_plugin* vit3d_needs_rotation(const msabench_host* host) {
  return changed(host, "vit3d_needs_rotation", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      const msabench_tensor *out = tensor_at(args, MSABENCH_OUT), *q = tensor_at(args, MSABENCH_Q_ROPE);
      const bool is_vision = tensor_at(args, MSABENCH_GRIDS) != nullptr && out != nullptr && tokens(args) > 0;
      const volatile char first = is_vision ? *static_cast<const char*>(q->data) : 0;
      (void)first;
      return exact().run(plan, args, workspace, stream);
    };
  });
}

}  // namespace msabench::faults
