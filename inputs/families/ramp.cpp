// SPDX-License-Identifier: Apache-2.0
// Block maxima that rise or fall by 8 from the first block of a sequence to the last, so that whoever goes through the
// blocks in order meets a new maximum in each or none; or all equal: the first key of each block has one score, which no
// other reaches.
#include "inputs/families/family.h"
#include "inputs/families/level.h"

namespace msabench {

slope slope_of_variant(std::string_view variant) {
  return variant == "rising" ? slope::rising : variant == "falling" ? slope::falling : slope::equal;
}

double raised_by_slope(slope way, std::int64_t block, std::int64_t blocks) {
  const double part = static_cast<double>(block + 1) / static_cast<double>(blocks);
  return way == slope::rising ? 8 * part - 4 : 4 - 8 * part;
}

namespace {

// What both branches share: one key, of which `width` channels are written.
class ramp_keys {
 public:
  ramp_keys(const case_spec& c, const problem& p, const batch& rows, double scale, dtype type, std::int64_t width)
      : rows_(rows),
        way_(slope_of_variant(c.variant)),
        block_(p.block),
        width_(width),
        type_(type),
        level_{.query = 16, .scale = scale} {}

  double q_scale() const { return way_ == slope::equal ? 0.5 : 1; }

  void write_queries(std::int64_t heads, dtype type, void* dst) const {
    level_.write_queries(heads, width_, type, dst);
  }

  void write_key(const key_place& at, void* dst) const {
    const std::int64_t block = at.key / block_;
    if (way_ != slope::equal) {
      const std::int64_t blocks = (rows_.at(at.sequence).kv_len + block_ - 1) / block_;
      return store(dst, type_, 0, level_.key(raised_by_slope(way_, block, blocks)));
    }
    store(dst, type_, 0, at.key % block_ == 0 ? level_.key(equal_maximum) : 0);
    if (at.key % block_ == 0)
      for (std::int64_t c = 1; c < width_; ++c) store(dst, type_, c, 0);
  }

 private:
  const batch& rows_;
  slope way_;
  std::int64_t block_, width_;
  dtype type_;
  level level_;
};

class ramp_values : public attend_family {
 public:
  explicit ramp_values(const attend_context& in)
      : problem_(in.agreed),
        keys_(in.definition, in.agreed, in.rows, in.agreed.softmax_scale, in.agreed.kv, in.agreed.d) {}

  double q_scale() const override { return keys_.q_scale(); }
  void write_q(std::int64_t, std::int64_t, void* dst) const override {
    keys_.write_queries(problem_.group(), problem_.q, dst);
  }
  void write_k(const key_place& at, void* dst) const override { keys_.write_key(at, dst); }

 private:
  problem problem_;
  ramp_keys keys_;
};

class ramp_index : public index_family {
 public:
  explicit ramp_index(const index_context& in)
      : problem_(in.agreed),
        keys_(in.definition, in.agreed, in.rows, in.agreed.index_scale, in.agreed.k_idx, in.agreed.di) {}

  double q_scale() const override { return keys_.q_scale(); }
  void write_q(std::int64_t, void* dst) const override { keys_.write_queries(problem_.hi, problem_.q_idx, dst); }
  void write_k(const key_place& at, void* dst) const override { keys_.write_key(at, dst); }

 private:
  problem problem_;
  ramp_keys keys_;
};

}  // namespace

std::unique_ptr<attend_family> make_ramp(const attend_context& in) { return std::make_unique<ramp_values>(in); }

std::unique_ptr<index_family> make_ramp_index(const index_context& in) { return std::make_unique<ramp_index>(in); }

}  // namespace msabench
