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

 private:
  double q_scale_;
};

class random_index : public index_family {
 public:
  explicit random_index(double q_scale) : q_scale_(q_scale) {}
  double q_scale() const override { return q_scale_; }

 private:
  double q_scale_;
};

double random_q_scale(const case_spec& c) { return c.variant == "flat" ? 0x1p-3 : c.variant == "sharp" ? 0x1p2 : 1.0; }

}  // namespace

std::unique_ptr<attend_family> make_random(const attend_context& in) {
  return std::make_unique<random_values>(random_q_scale(in.definition));
}

std::unique_ptr<index_family> make_random_index(const index_context& in) {
  const bool own = in.definition.family == "random";
  return std::make_unique<random_index>(own ? random_q_scale(in.definition) : 1.0);
}

}  // namespace msabench
