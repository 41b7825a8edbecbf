// SPDX-License-Identifier: Apache-2.0
// Independent normal q, k and v. Variants change the entropy of the weights by a power of two on q: scores have
// standard deviation 1.3 by default, 0.17 (flat: 2048 keys weigh nearly the same) or 5.3 (sharp: a few keys carry most
// weight). The index branch likewise.
#include "inputs/families/family.h"

namespace msabench {

namespace {

class random_values : public attend_family {
 public:
  explicit random_values(double q_scale) : q_scale_(q_scale) {}
  double q_scale() const override { return q_scale_; }
  bool writes_nothing() const override { return true; }

 private:
  double q_scale_;
};

class random_index : public index_family {
 public:
  explicit random_index(double q_scale) : q_scale_(q_scale) {}
  double q_scale() const override { return q_scale_; }
  bool writes_nothing() const override { return true; }

 private:
  double q_scale_;
};

// Rows whose queries are alike select alike: in shared64 those of 64 neighbouring rows of a sequence are the same, in
// realistic in every second channel; there the first block is hot, and keys near a query in steps of 64 blocks too.
class overlapping_index : public index_family {
 public:
  explicit overlapping_index(const index_context& in)
      : problem_(in.agreed),
        rows_(in.rows),
        realistic_(in.definition.variant == "realistic"),
        queries_(name_without_seed(in.definition), "q_idx", in.definition.seed) {}

  void write_q(std::int64_t row, void* dst) const override {
    const batch_row& at = rows_.rows()[static_cast<std::size_t>(row)];
    const std::int64_t first = rows_.first_row(at.sequence), width = std::int64_t{problem_.hi} * problem_.di;
    const std::int64_t leader = first + (row - first) / neighbours * neighbours;
    for (std::int64_t i = 0; i < width; ++i)
      if (!realistic_ || i % 2 == 0) {
        const double shared = queries_.normal(static_cast<std::uint64_t>(leader * width + i));
        store(dst, problem_.q_idx, i, shared);
      }
    if (!realistic_ || at.empty()) return;
    for (std::int64_t head = 0; head < problem_.hi; ++head)
      mark(at.position, head, problem_.q_idx, head * problem_.di, dst);
  }

  void write_k(const key_place& at, void* dst) const override {
    if (!realistic_) return;
    mark(at.key, 0, problem_.k_idx, 0, dst);
    if (at.key < problem_.block) store(dst, problem_.k_idx, 0, 8);
  }

 private:
  static constexpr std::int64_t neighbours = 64, period_blocks = 64;

  // A triangle wave of the position and one a quarter of its period later, so that their product is large where two
  // positions are near; whole multiples of 1/4, alike on every machine. Channel 0 is what the first block is hot in.
  void mark(std::int64_t position, std::int64_t head, dtype type, std::int64_t first, void* dst) const {
    if (problem_.di < 3) return;
    const auto wave = [&](std::int64_t blocks) {
      const std::int64_t phase = blocks % period_blocks;
      return static_cast<double>(phase < period_blocks / 2 ? phase : period_blocks - phase) / 4 - 4;
    };
    const std::int64_t at = position / problem_.block + 5 * head;
    store(dst, type, first, 2);
    store(dst, type, first + 1, wave(at));
    store(dst, type, first + 2, wave(at + period_blocks / 4));
  }

  problem problem_;
  const batch& rows_;
  bool realistic_;
  stream queries_;
};

double random_q_scale(const case_spec& c) { return c.variant == "flat" ? 0x1p-3 : c.variant == "sharp" ? 0x1p2 : 1.0; }

}  // namespace

std::unique_ptr<attend_family> make_random(const attend_context& in) {
  return std::make_unique<random_values>(random_q_scale(in.definition));
}

std::unique_ptr<index_family> make_random_index(const index_context& in) {
  const bool own = in.definition.family == "random";
  if (own && (in.definition.variant == "realistic" || in.definition.variant == "shared64"))
    return std::make_unique<overlapping_index>(in);
  return std::make_unique<random_index>(own ? random_q_scale(in.definition) : 1.0);
}

}  // namespace msabench
