// SPDX-License-Identifier: Apache-2.0
// q = 0; values +1 and -1 that cancel but for a small rest, which an output accumulated in 16 bits loses.
//
// In each block the first half of the keys is +1 and the second half -1; one key of the first half is 1 + 2^-7 instead
// (e4m3, with 3 bits of mantissa: 1 + 2^-3). Variant all does it on the scale of a row: the first half of its blocks is
// +1, with one such key each, the second half -1, the middle one of an odd number as above; every row of a sequence has
// the same blocks, so that what is first half for one row is for all.
//
// Every sum in any order is a multiple of 2^-7 (2^-3) and below 2^13 for 4096 keys: exact in fp32, so that the result
// is the rest divided by the number of keys, about 2^-14 at the M3 shape. For that the sum of ones must vanish, and the
// last block of a sequence, of which rows see any number of keys, is 0, +1, -1, +1, -1, ...: its sum is 0 or 1. A segment of
// a vision tower, which every row sees to its end, ends so that it is 0. Signs alternate by channel and by KV head, and
// the odd key moves with both.
#include <algorithm>
#include <cstring>
#include <vector>

#include "inputs/families/family.h"

namespace msabench {

namespace {

class carry_values : public attend_family {
 public:
  explicit carry_values(const attend_context& in)
      : problem_(in.agreed),
        rows_(in.rows),
        chosen_(in.chosen),
        all_(in.definition.variant == "all"),
        segments_(is_vision(in.definition.operation)) {}

  double q_scale() const override { return 0; }

  void write_v(const key_place& at, void* dst) const override {
    const role of_block = role_of(at);
    for (std::int64_t c = 0; c < problem_.d; ++c) store(dst, problem_.kv, c, value(at, of_block, c));
  }

 private:
  enum class role { halves, plus, minus, alternating };

  role role_of(const key_place& at) const {
    const std::int64_t block = at.key / problem_.block, last = (rows_.at(at.sequence).kv_len - 1) / problem_.block;
    if (block == last) return role::alternating;
    if (!all_) return role::halves;
    const auto blocks = chosen_.last_blocks(at.sequence, at.head);
    const auto found = std::lower_bound(blocks.begin(), blocks.end(), block);
    if (found == blocks.end() || *found != block) return role::halves;
    const auto count = static_cast<std::int64_t>(blocks.size()) - (blocks.back() == last ? 1 : 0);
    const std::int64_t rank = found - blocks.begin();
    return rank < count / 2 ? role::plus : rank >= count - count / 2 ? role::minus : role::halves;
  }

  double value(const key_place& at, role of_block, std::int64_t channel) const {
    const std::int64_t offset = at.key % problem_.block, shifted = channel + 17 * at.head;
    const double sign = shifted % 2 == 0 ? 1 : -1;
    const std::int64_t half = problem_.block / 2;
    switch (of_block) {
      case role::alternating:
        return offset == 0 || is_spare(at) ? 0 : offset % 2 == 1 ? sign : -sign;
      case role::minus:
        return -sign;
      case role::plus:
        return offset == shifted % problem_.block ? sign * odd_value() : sign;
      case role::halves:
        if (offset >= problem_.block - half) return -sign;
        if (offset >= half) return 0;
        return offset == shifted % half ? sign * odd_value() : sign;
    }
    return 0;
  }

  // The last key of a segment whose keys after the block's first one are no pairs.
  bool is_spare(const key_place& at) const {
    const std::int64_t keys = rows_.at(at.sequence).kv_len, of_block = (keys - 1) % problem_.block + 1;
    return segments_ && at.key + 1 == keys && of_block % 2 == 0;
  }

  double odd_value() const { return problem_.kv == e4m3 ? 1 + 0x1p-3 : 1 + 0x1p-7; }

  problem problem_;
  const batch& rows_;
  const selection& chosen_;
  bool all_, segments_;
};

}  // namespace

std::unique_ptr<attend_family> make_carry(const attend_context& in) { return std::make_unique<carry_values>(in); }

}  // namespace msabench
