// SPDX-License-Identifier: Apache-2.0
// q = 0; V is 1 for the keys of one block only, in the channel of the key's offset in it: every key of the block is
// named. Variant high codes offset / d, for blocks of more keys than channels. Which block: that in slot (sequence mod
// count) of the sequence's last row, so that a batch of topk sequences goes through all slots. Where every visible block
// is read there are too many for that: the sequences of a batch divide them evenly from the first to the last, and one
// sequence alone has the last.
#include <cstring>

#include "inputs/families/family.h"

namespace msabench {

namespace {

class key_code_values : public attend_family {
 public:
  explicit key_code_values(const attend_context& in)
      : problem_(in.agreed), rows_(in.rows), chosen_(in.chosen), high_(in.definition.variant == "high") {}

  double q_scale() const override { return 0; }
  bool names_places() const override { return true; }

  void write_v(const key_place& at, void* dst) const override {
    const std::int64_t d = problem_.d, offset = at.key % problem_.block;
    std::memset(dst, 0, static_cast<std::size_t>(d * size_bytes(problem_.kv)));
    if (at.key / problem_.block != coded_block(at)) return;
    store(dst, problem_.kv, code_channel(high_ ? offset / d : offset, at.head, d), 1);
  }

 private:
  std::int64_t coded_block(const key_place& at) const {
    const auto blocks = chosen_.last_blocks(at.sequence, at.head);
    if (blocks.empty()) return -1;
    const auto sequence = static_cast<std::size_t>(at.sequence), last = blocks.size() - 1;
    if (problem_.operation != op::dense) return blocks[sequence % blocks.size()];
    return rows_.size() == 1 ? blocks[last] : blocks[sequence * last / static_cast<std::size_t>(rows_.size() - 1)];
  }

  problem problem_;
  const batch& rows_;
  const selection& chosen_;
  bool high_;
};

}  // namespace

std::unique_ptr<attend_family> make_key_code(const attend_context& in) { return std::make_unique<key_code_values>(in); }

}  // namespace msabench
