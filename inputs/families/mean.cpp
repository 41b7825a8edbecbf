// SPDX-License-Identifier: Apache-2.0
// Values whose mean is the point. cancel: the keys 2i and 2i + 1 are alike and their values opposite, so that outputs are
// near 0 (of a row that sees only half of its last pair: that one value's share) while their terms are not: a limit
// relative to the output would ask for the impossible. offset: normal values plus 8, which no output may lose and which a
// normaliser that is slightly wrong multiplies.
#include <vector>

#include "inputs/families/family.h"

namespace msabench {

namespace {

class cancel_values : public attend_family {
 public:
  explicit cancel_values(const attend_context& in)
      : problem_(in.agreed),
        keys_(name_without_seed(in.definition), "cancel_k", in.definition.seed),
        values_(name_without_seed(in.definition), "cancel_v", in.definition.seed) {}

  void write_k(const key_place& at, void* dst) const override {
    keys_.fill_normal(dst, problem_.kv, first(at), static_cast<std::uint64_t>(problem_.d), 1);
  }

  void write_v(const key_place& at, void* dst) const override {
    values_.fill_normal(dst, problem_.kv, first(at), static_cast<std::uint64_t>(problem_.d), 1);
    if (at.key % 2 == 0) return;
    for (std::int64_t c = 0; c < problem_.d; ++c) store(dst, problem_.kv, c, -load(dst, problem_.kv, c));
  }

 private:
  // Of the pair that the key is of, whatever the sequence.
  std::uint64_t first(const key_place& at) const {
    return static_cast<std::uint64_t>((at.key / 2 * problem_.hkv + at.head) * problem_.d);
  }

  problem problem_;
  stream keys_, values_;
};

class offset_values : public attend_family {
 public:
  explicit offset_values(const attend_context& in) : problem_(in.agreed) {}

  void write_v(const key_place&, void* dst) const override {
    std::vector<double> values(static_cast<std::size_t>(problem_.d));
    widen(dst, problem_.kv, 0, problem_.d, values.data());
    for (double& v : values) v += mean;
    narrow(values.data(), problem_.d, dst, problem_.kv, 0);
  }

 private:
  static constexpr double mean = 8;
  problem problem_;
};

}  // namespace

std::unique_ptr<attend_family> make_cancel(const attend_context& in) { return std::make_unique<cancel_values>(in); }

std::unique_ptr<attend_family> make_offset(const attend_context& in) { return std::make_unique<offset_values>(in); }

}  // namespace msabench
