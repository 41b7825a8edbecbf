// SPDX-License-Identifier: Apache-2.0
// vit_attend gone wrong, each by one replaced stage of the naive kernels, and vit3d with what it hands back.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "kernels/naive/attend.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

row_place place_in_joined_segments(const lengths& segments, std::int64_t row) {
  row_place place = segments.place(row);
  if (place.sequence + 1 < segments.batch)
    place.length += segments.cu_seqlens_q[place.sequence + 2] - segments.cu_seqlens_q[place.sequence + 1];
  place.position = place.length - 1;
  return place;
}

row_place place_of_own_token(const lengths& segments, std::int64_t row) {
  row_place place = segments.place(row);
  place.position = row - segments.cu_seqlens_q[place.sequence];
  return place;
}

row_place place_outside_of_last_segment(const lengths& segments, std::int64_t row) {
  row_place place = segments.place(row);
  if (place.sequence + 1 == segments.batch) place.position = -1;
  return place;
}

// What zeros would have added: exp(0 - maximum) each, and no value.
void attend_padded_block(const float* scores, float maximum, const tile& values, weighted_sum& sum) {
  attend_block(scores, maximum, values, sum);
  sum.weight += static_cast<float>(dense_block - values.count) * std::exp(-maximum);
}

std::int32_t head_of_next(std::int32_t kv_head, std::int32_t member, std::int32_t kv_heads, std::int32_t group) {
  return query_head((kv_head + 1) % kv_heads, member, kv_heads, group);
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

/// vit_attend: the keys and values of the head before. wrong_kv_head changes nothing where there are no groups.
const msabench_plugin* vit_other_head(const msabench_host* host) {
  return with_stages(host, "vit_other_head", [](stages s) {
    s.query_head = head_of_next;
    return s;
  });
}

/// vit_attend: a segment's tokens read the next segment as well.
const msabench_plugin* vit_joins_segments(const msabench_host* host) {
  return with_stages(host, "vit_joins_segments", [](stages s) {
    s.segment_place = place_in_joined_segments;
    return s;
  });
}

/// vit_attend: a causal mask inside segments.
const msabench_plugin* vit_causal(const msabench_host* host) {
  return with_stages(host, "vit_causal", [](stages s) {
    s.segment_place = place_of_own_token;
    return s;
  });
}

/// vit_attend: the tokens of the last segment read nothing.
const msabench_plugin* vit_drops_remainder(const msabench_host* host) {
  return with_stages(host, "vit_drops_remainder", [](stages s) {
    s.segment_place = place_outside_of_last_segment;
    return s;
  });
}

/// dense and vit_attend: keys are filled up with zeros to whole tiles, and the zeros take part.
const msabench_plugin* pads_tiles(const msabench_host* host) {
  return with_stages(host, "pads_tiles", [](stages s) {
    s.attend_block = attend_padded_block;
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
