// SPDX-License-Identifier: Apache-2.0
// Normal q_idx and k_idx, and keys that are no numbers. By turns a block has none of them, one, all, or all but one.
// Variant nan: a NaN in one channel of the key. Variant inf: an infinity there, whose sign alternates by block, so that
// some blocks score +inf and others -inf; q_idx is +1 or -1 by head in that channel, as 0 would make it a NaN.
#include <limits>

#include "inputs/families/family.h"

namespace msabench {

namespace {

class special_values : public index_family {
 public:
  explicit special_values(const index_context& in)
      : problem_(in.agreed),
        rows_(in.rows),
        places_(name_without_seed(in.definition), "special", in.definition.seed),
        inf_(in.definition.variant == "inf") {}

  void write_q(std::int64_t, void* dst) const override {
    for (std::int64_t head = 0; inf_ && head < problem_.hi; ++head)
      store(dst, problem_.q_idx, head * problem_.di, head % 2 == 0 ? 1 : -1);
  }

  void write_k(const key_place& at, void* dst) const override {
    const std::int64_t block = at.key / problem_.block, offset = at.key % problem_.block;
    const auto number = static_cast<std::uint64_t>(rows_.first_key(at.sequence) + at.key - offset);
    const bool odd_one =
        offset == static_cast<std::int64_t>(places_.word(number) % static_cast<std::uint32_t>(problem_.block));
    const std::int64_t kind = block % 4;
    if (kind == 0 || (kind == 1 && !odd_one) || (kind == 3 && odd_one)) return;
    const double infinity =
        block / 4 % 2 == 0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
    store(dst, problem_.k_idx, 0, inf_ ? infinity : std::numeric_limits<double>::quiet_NaN());
  }

 private:
  problem problem_;
  const batch& rows_;
  stream places_;
  bool inf_;
};

}  // namespace

std::unique_ptr<index_family> make_special(const index_context& in) { return std::make_unique<special_values>(in); }

}  // namespace msabench
