// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/vit3d_tensors.h"

#include <cstdint>

#include "kernels/common/types.h"

namespace msabench::kernels {
namespace {

constexpr double line_bytes = 64;

/// Sides of a patch grid are even, so a segment has four patches or more.
constexpr std::int64_t fewest_patches = 4;

std::int64_t most_segments(const msabench_problem& p) { return p.total_q / fewest_patches; }

/// Bytes of one of q and k, and of positions and segments, in whole cache lines.
double head_bytes(const msabench_problem& p) {
  return static_cast<double>(p.total_q) * p.hq * p.d * static_cast<double>(bytes_of(p.q)) + line_bytes;
}
double position_bytes(const msabench_problem& p) {
  return static_cast<double>(p.total_q) * 3 * sizeof(std::int32_t) + line_bytes;
}
double segment_bytes(const msabench_problem& p) {
  return static_cast<double>(most_segments(p) + 1) * sizeof(std::int32_t) + line_bytes;
}
std::int64_t whole_lines(double bytes) { return static_cast<std::int64_t>(bytes) / 64 * 64; }

}  // namespace

double vit3d_tensor_bytes(const msabench_problem& p) {
  return 2 * head_bytes(p) + position_bytes(p) + segment_bytes(p);
}

vit3d_call complete(const vit3d_call& call, const msabench_problem& p, std::int64_t segments, void* memory) {
  vit3d_call whole = call;
  char* rest = static_cast<char*>(memory);
  for (auto& t : whole.rope.tensors) {
    if (t.y == nullptr) {
      t.y = rest;
      t.y_head_stride = p.d;
      t.y_row_stride = std::int64_t{p.hq} * p.d;
    }
    rest += whole_lines(head_bytes(p));
  }
  if (whole.rope.positions == nullptr) {
    whole.rope.positions = reinterpret_cast<std::int32_t*>(rest);
    whole.rope.position_stride = 3;
  }
  rest += whole_lines(position_bytes(p));
  if (whole.rope.cu_segments == nullptr) whole.rope.cu_segments = reinterpret_cast<std::int32_t*>(rest);
  const auto &q = whole.rope.tensors[0], &k = whole.rope.tensors[1];
  attend_call& attend = whole.attend;
  attend.rows = {whole.rope.cu_segments, nullptr, segments, whole.rope.tokens};
  attend.q = q.y;
  attend.q_row_stride = q.y_row_stride;
  attend.q_head_stride = q.y_head_stride;
  attend.values.cu_seqlens_kv = whole.rope.cu_segments;
  attend.keys = attend.values;
  attend.keys.data = k.y;
  attend.keys.token_stride = k.y_row_stride;
  attend.keys.head_stride = k.y_head_stride;
  return whole;
}

msabench_problem attention_of_vit3d(const msabench_problem& p) {
  msabench_problem attention = p;
  attention.op = MSABENCH_OP_VIT_ATTEND;
  attention.batch = most_segments(p);
  return attention;
}

}  // namespace msabench::kernels
