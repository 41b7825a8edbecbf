// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/small_vit3d.h"

#include <algorithm>
#include <utility>

namespace msabench::plugin_test {
namespace {

small_attend attention_of(const small_rope3d& rope) {
  attend_shape shape{.hq = rope.shape.heads, .hkv = rope.shape.heads, .d = rope.shape.d, .type = rope.shape.type};
  shape.segments = true;
  shape.spare_rows = rope.shape.spare_rows;
  shape.padded_strides = rope.shape.gap != 0;
  shape.sequences.clear();
  for (std::size_t s = 1; s < rope.ends.size(); ++s) {
    const std::int32_t tokens = rope.ends[s] - rope.ends[s - 1];
    shape.sequences.emplace_back(tokens, tokens);
  }
  return small_attend(std::move(shape));
}

void copy(const buffer& from, std::int64_t rows, buffer& to) {
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < from.shape()[1]; ++head)
      for (std::int64_t c = 0; c < from.shape()[2]; ++c) to.set({row, head, c}, from.get({row, head, c}));
}

}  // namespace

small_vit3d::small_vit3d(const rope3d_shape& shape, bool is_bare)
    : rope(shape), attention(attention_of(rope)), bare(is_bare), problem(rope.problem) {
  problem.op = MSABENCH_OP_VIT3D;
  problem.max_q_len = attention.problem.max_q_len;
  problem.max_kv_len = attention.problem.max_kv_len;
}

arguments small_vit3d::args() const {
  arguments given = rope.args();
  if (bare)
    for (const msabench_slot slot : {MSABENCH_Q_ROPE, MSABENCH_K_ROPE, MSABENCH_POSITIONS, MSABENCH_CU_SEGMENTS})
      given.remove(slot);
  given.put(MSABENCH_V, attention.v);
  given.put(MSABENCH_OUT, attention.out);
  given.put(MSABENCH_LSE, attention.lse);
  return given;
}

std::optional<std::string> small_vit3d::fault() {
  if (auto found = rope.fault()) return found;
  const auto tokens = static_cast<std::int64_t>(rope.places.size());
  copy(rope.q_rope, tokens, attention.q);
  copy(rope.k_rope, tokens, attention.k);
  return attention.fault();
}

}  // namespace msabench::plugin_test
