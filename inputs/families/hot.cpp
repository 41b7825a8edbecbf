// SPDX-License-Identifier: Apache-2.0
// Scores far from 0. hot_flat: normal ones about a level that all keys share, so that the answer is that of random, but
// scores kept in 16 bits are all alike, a maximum that starts at 0 or at some finite number is wrong, and exp without a
// maximum overflows or vanishes. hot_peaked: queries times 2^2, 2^3, 2^4 or 2^5, so that the heaviest key has nearly all
// weight.
#include <charconv>

#include "core/error.h"
#include "inputs/families/family.h"
#include "inputs/families/level.h"

namespace msabench {

double level_of_variant(std::string_view variant) {
  double size = 0;
  std::from_chars(variant.data() + 1, variant.data() + variant.size(), size);
  return variant.front() == 'n' ? -size : size;
}

namespace {

class hot_values : public attend_family {
 public:
  explicit hot_values(const attend_context& in)
      : problem_(in.agreed),
        level_{.scale = in.agreed.softmax_scale},
        key_(level_.key(level_of_variant(in.definition.variant))) {}

  void write_q(std::int64_t, std::int64_t, void* dst) const override {
    level_.write_queries(problem_.group(), problem_.d, problem_.q, dst);
  }
  void write_k(const key_place&, void* dst) const override { store(dst, problem_.kv, 0, key_); }

 private:
  problem problem_;
  level level_;
  double key_;
};

class hot_index : public index_family {
 public:
  explicit hot_index(const index_context& in)
      : problem_(in.agreed),
        level_{.scale = in.agreed.index_scale},
        key_(level_.key(level_of_variant(in.definition.variant))) {}

  void write_q(std::int64_t, void* dst) const override {
    level_.write_queries(problem_.hi, problem_.di, problem_.q_idx, dst);
  }
  void write_k(const key_place&, void* dst) const override { store(dst, problem_.k_idx, 0, key_); }

 private:
  problem problem_;
  level level_;
  double key_;
};

class peaked_values : public attend_family {
 public:
  explicit peaked_values(std::string_view variant) {
    q_scale_ = variant == "s5" ? 0x1p2 : variant == "s11" ? 0x1p3 : variant == "s21" ? 0x1p4 : 0x1p5;
  }
  double q_scale() const override { return q_scale_; }

 private:
  double q_scale_ = 1;
};

}  // namespace

std::unique_ptr<attend_family> make_hot_flat(const attend_context& in) { return std::make_unique<hot_values>(in); }

std::unique_ptr<index_family> make_hot_index(const index_context& in) { return std::make_unique<hot_index>(in); }

std::unique_ptr<attend_family> make_hot_peaked(const attend_context& in) {
  return std::make_unique<peaked_values>(in.definition.variant);
}

}  // namespace msabench
