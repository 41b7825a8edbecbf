// SPDX-License-Identifier: Apache-2.0
// Each (row, KV head) has one key, the needle, that carries at least 0.99 of its weight: a lost, doubled or exchanged
// needle is plain to see, even at a million keys.
//
// A needle's key is a direction of random signs times a magnitude; the queries of the row that looks for it are that
// direction plus small noise. Rows that choose the same key share its direction, and a block has at most two needles,
// so that one row is not surrounded by the needles of others. A row's needle lies in slot (row + most / Hkv * head) mod
// count, most = blocks that a row has at most, so that batches go through the slots; its offset in the block is random, or 0 where the row doesn't see it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_set>
#include <vector>

#include "inputs/families/family.h"

namespace msabench {

namespace {

class needle_values : public attend_family {
 public:
  explicit needle_values(const attend_context& in)
      : problem_(in.agreed),
        rows_(in.rows),
        chosen_(in.chosen),
        directions_(name_without_seed(in.definition), "needle_direction", in.definition.seed),
        offsets_(name_without_seed(in.definition), "needle_offset", in.definition.seed),
        noise_(name_without_seed(in.definition), "q", in.definition.seed),
        magnitude_(magnitude()) {
    first_block_.push_back(0);
    for (const sequence& s : rows_.sequences())
      first_block_.push_back(first_block_.back() + (s.kv_len + problem_.block - 1) / problem_.block);
    for (std::int64_t row = 0; row < rows_.total_q(); ++row)
      for (std::int64_t head = 0; head < problem_.hkv; ++head)
        if (const auto needle = needle_of(row, head); needle.key >= 0) needles_.insert(number(needle));
  }

  void write_k(const key_place& at, void* dst) const override {
    if (!needles_.contains(number(at))) return;
    for (std::int64_t c = 0; c < problem_.d; ++c) store(dst, problem_.kv, c, sign(at, c) * magnitude_);
  }

  void write_q(std::int64_t row, std::int64_t head, void* dst) const override {
    const key_place needle = needle_of(row, head);
    if (needle.key < 0) return;
    const std::int64_t values = problem_.group() * problem_.d;
    std::vector<float> noise(static_cast<std::size_t>(values));
    noise_.fill_normal(noise.data(), fp32, static_cast<std::uint64_t>((row * problem_.hkv + head) * values),
                       static_cast<std::uint64_t>(values), 0x1p-3);
    for (std::int64_t i = 0; i < values; ++i)
      store(dst, problem_.q, i, sign(needle, i % problem_.d) + static_cast<double>(noise[static_cast<std::size_t>(i)]));
  }

 private:
  // Scores of other keys are about normal with variance (scale * d^0.5 * 1.16)^2, so that n of them weigh about 2 n at
  // the default scale; 0.99 against that needs a score of ln n + ln 2 + ln 99, and the noise on q and the needles of
  // other rows want a margin.
  double magnitude() const {
    const auto keys = static_cast<std::uint64_t>(chosen_.most_blocks()) * static_cast<std::uint64_t>(problem_.block);
    const double ln_keys = 0.693147 * static_cast<double>(std::bit_width(keys - 1));
    const double score_of_one = problem_.softmax_scale * problem_.d;
    return std::ceil(8 * (ln_keys + 7.5) / score_of_one) / 8;
  }

  key_place needle_of(std::int64_t row, std::int64_t head) const {
    const auto blocks = chosen_.blocks(row, head);
    const batch_row& at = rows_.rows()[static_cast<std::size_t>(row)];
    if (blocks.empty()) return {at.sequence, -1, head};
    const auto start =
        static_cast<std::size_t>(row + std::max<std::int64_t>(1, chosen_.most_blocks() / problem_.hkv) * head);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::int64_t block = blocks[(start + i) % blocks.size()];
      const std::int64_t drawn = (first_block_[static_cast<std::size_t>(at.sequence)] + block) * problem_.hkv + head;
      const std::int64_t key =
          block * problem_.block + offsets_.word(static_cast<std::uint64_t>(drawn)) % problem_.block;
      if (key <= at.position) return {at.sequence, key, head};
    }
    return {at.sequence, blocks[start % blocks.size()] * std::int64_t{problem_.block}, head};
  }

  std::uint64_t number(const key_place& at) const {
    return static_cast<std::uint64_t>((rows_.first_key(at.sequence) + at.key) * problem_.hkv + at.head);
  }

  double sign(const key_place& needle, std::int64_t channel) const {
    const auto words_each = static_cast<std::uint64_t>((problem_.d + 31) / 32);
    const std::uint32_t word = directions_.word(number(needle) * words_each + static_cast<std::uint64_t>(channel / 32));
    return (word >> (channel % 32) & 1) != 0 ? 1 : -1;
  }

  problem problem_;
  const batch& rows_;
  const selection& chosen_;
  stream directions_, offsets_, noise_;
  double magnitude_;
  std::vector<std::int64_t> first_block_;
  std::unordered_set<std::uint64_t> needles_;
};

}  // namespace

std::unique_ptr<attend_family> make_needle(const attend_context& in) { return std::make_unique<needle_values>(in); }

}  // namespace msabench
