// SPDX-License-Identifier: Apache-2.0
// Every key of a block is named by a direction, and each (row, index head) asks for one of them: the block's score is
// that key's magnitude, all other keys score exactly 0. Rows and heads go through the directions, and a block's
// directions are turned by its number, so that in one row the keys that count go through the offsets.
//
// Directions are rows of a Hadamard matrix (entries +1 and -1, any two orthogonal); the first 2^floor(log2 di) channels
// hold them, the rest is 0. Magnitudes have 8 significant bits, so that products and their sums in any order are exact
// in fp32. They are 1 + n/128 (e4m3: 1 + n/8) times a power of two, each power half as frequent as the one below: the
// best few of any number of blocks are far apart. Variant ties: 1, 1.5, 2 or 4, so that many blocks share the score at rank topk; who
// computes them in any order finds them equal.
#include <algorithm>
#include <bit>

#include "inputs/families/family.h"

namespace msabench {

namespace {

class index_code_values : public index_family {
 public:
  explicit index_code_values(const index_context& in)
      : problem_(in.agreed),
        rows_(in.rows),
        magnitudes_(name_without_seed(in.definition), "index_code", in.definition.seed),
        ties_(in.definition.variant == "ties"),
        channels_(static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint32_t>(in.agreed.di)))),
        directions_(std::min<std::int64_t>(channels_, in.agreed.block)) {}

  double q_scale() const override { return 0; }

  void write_q(std::int64_t row, void* dst) const override {
    for (std::int64_t head = 0; head < problem_.hi; ++head)
      write(dst, problem_.q_idx, head, (row * problem_.hi + head) % directions_, 1);
  }

  void write_k(const key_place& at, void* dst) const override {
    const std::int64_t block = at.key / problem_.block, offset = at.key % problem_.block;
    const auto number = static_cast<std::uint64_t>(rows_.first_key(at.sequence) + at.key);
    write(dst, problem_.k_idx, 0, (offset + 37 * block) % directions_, magnitude(magnitudes_.word(number)));
  }

 private:
  double magnitude(std::uint32_t word) const {
    if (ties_) {
      constexpr double values[] = {1, 1.5, 2, 4};
      return values[word % 4];
    }
    const int highest_power = problem_.k_idx == e4m3 ? 7 : 13;  // e4m3 ends at 448
    const std::uint32_t steps = problem_.k_idx == e4m3 ? 8 : 128;
    const int power = std::min(std::countr_zero(word >> 7), highest_power);
    return (1 + static_cast<double>(word % steps) / steps) * static_cast<double>(1 << power);
  }

  void write(void* dst, dtype type, std::int64_t head, std::int64_t direction, double size) const {
    for (std::int64_t c = 0; c < problem_.di; ++c) {
      const bool minus = std::popcount(static_cast<std::uint64_t>(direction & c)) % 2 != 0;
      store(dst, type, head * problem_.di + c, c >= channels_ ? 0 : minus ? -size : size);
    }
  }

  problem problem_;
  const batch& rows_;
  stream magnitudes_;
  bool ties_;
  std::int64_t channels_, directions_;
};

}  // namespace

std::unique_ptr<index_family> make_index_code(const index_context& in) {
  return std::make_unique<index_code_values>(in);
}

}  // namespace msabench
