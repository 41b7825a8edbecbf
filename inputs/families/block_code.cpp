// SPDX-License-Identifier: Apache-2.0
// q = 0, so that all selected keys weigh the same; V is 1 in one channel that says which block a key is in. The output
// is a histogram of the blocks that were read: a dropped, doubled or exchanged one is named by its channel. Blocks that
// differ by a multiple of d share a channel; variant high codes the quotient, and both together name any block up to d
// * d.
#include <cstring>

#include "inputs/families/family.h"

namespace msabench {

namespace {

class block_code_values : public attend_family {
 public:
  explicit block_code_values(const attend_context& in) : problem_(in.agreed), high_(in.definition.variant == "high") {}

  double q_scale() const override { return 0; }
  bool names_places() const override { return true; }

  void write_v(const key_place& at, void* dst) const override {
    const std::int64_t d = problem_.d, block = at.key / problem_.block;
    std::memset(dst, 0, static_cast<std::size_t>(d * size_bytes(problem_.kv)));
    store(dst, problem_.kv, code_channel(high_ ? block / d : block, at.head, d), 1);
  }

 private:
  problem problem_;
  bool high_;
};

}  // namespace

std::unique_ptr<attend_family> make_block_code(const attend_context& in) {
  return std::make_unique<block_code_values>(in);
}

}  // namespace msabench
