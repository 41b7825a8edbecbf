// SPDX-License-Identifier: Apache-2.0
// An index branch whose outcome is known: whoever scores honestly selects the blocks that the case's rows are meant to
// select, with a margin that no arithmetic comes near. So the main branch may hold codes and needles in them, and poison
// in blocks that no row selects.
//
// Each (row of a sequence, index head) has a direction, a row of a Hadamard matrix: entries +1 and -1, any two
// orthogonal; the first 2^floor(log2 di) channels hold them, the rest is 0. Its query is the direction, and in each block
// that it is to select for its score one key that it sees is the direction too, or the sum of several where rows share a
// key. So its planted blocks all score one number, 2^floor(log2 di) times the scale, keys planted for others 0, and all
// other keys, normal values times 2^-4, less than a tenth of it. Forced blocks have nothing planted: who does not force
// them loses them.
#include <algorithm>
#include <bit>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "inputs/families/family.h"

namespace msabench {

namespace {

class planted_index : public index_family {
 public:
  planted_index(const index_context& in, const selection& chosen)
      : problem_(in.agreed), rows_(in.rows), channels_(planted_directions(in.agreed.di)) {
    for (std::int64_t row = 0; row < rows_.total_q(); ++row)
      for (std::int64_t head = 0; head < problem_.hi; ++head) plant(row, head, chosen.blocks(row, head));
  }

  double q_scale() const override { return 0; }

  void write_q(std::int64_t row, void* dst) const override {
    for (std::int64_t head = 0; head < problem_.hi; ++head)
      for (std::int64_t c = 0; c < problem_.di; ++c)
        store(dst, problem_.q_idx, head * problem_.di + c, entry(direction_of(row, head), c));
  }

  void write_k(const key_place& at, void* dst) const override {
    const auto found = planted_.find(number(at.sequence, at.key));
    if (found == planted_.end()) {
      std::vector<double> values(static_cast<std::size_t>(problem_.di));
      widen(dst, problem_.k_idx, 0, problem_.di, values.data());
      for (double& x : values) x *= 0x1p-4;
      narrow(values.data(), problem_.di, dst, problem_.k_idx, 0);
      return;
    }
    for (std::int64_t c = 0; c < problem_.di; ++c) {
      double sum = 0;
      for (const std::int64_t direction : found->second) sum += entry(direction, c);
      store(dst, problem_.k_idx, c, sum);
    }
  }

 private:
  std::int64_t direction_of(std::int64_t row, std::int64_t head) const {
    const batch_row& at = rows_.rows()[static_cast<std::size_t>(row)];
    return (row - rows_.first_row(at.sequence)) * problem_.hi + head;
  }

  void plant(std::int64_t row, std::int64_t head, std::span<const std::int32_t> blocks) {
    const batch_row& at = rows_.rows()[static_cast<std::size_t>(row)];
    if (at.visible_blocks(problem_.block) <= problem_.topk) return;  // all of them are due
    const std::int64_t direction = direction_of(row, head);
    if (direction >= channels_)
      throw suite_error("more rows and heads in a sequence than directions to plant their selection in");
    for (const std::int64_t block : blocks) {
      if (is_forced(block, at.own(problem_.block), problem_.local_blocks, problem_.init_blocks)) continue;
      const std::int64_t first = block * problem_.block;
      const std::int64_t seen = std::min<std::int64_t>(problem_.block, at.position + 1 - first);
      planted_[number(at.sequence, first + direction % seen)].push_back(direction);
    }
  }

  std::uint64_t number(std::int64_t sequence, std::int64_t key) const {
    return static_cast<std::uint64_t>(rows_.first_key(sequence) + key);
  }

  double entry(std::int64_t direction, std::int64_t channel) const {
    if (channel >= channels_) return 0;
    return std::popcount(static_cast<std::uint64_t>(direction & channel)) % 2 != 0 ? -1 : 1;
  }

  problem problem_;
  const batch& rows_;
  std::int64_t channels_;
  std::unordered_map<std::uint64_t, std::vector<std::int64_t>> planted_;  // directions of a key
};

}  // namespace

std::unique_ptr<index_family> make_planted_index(const index_context& in, const selection& chosen) {
  return std::make_unique<planted_index>(in, chosen);
}

}  // namespace msabench
