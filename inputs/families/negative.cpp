// SPDX-License-Identifier: Apache-2.0
// Normal q_idx and k_idx but for channel 0, which lowers every score by at least eight standard deviations: the scores
// of all blocks are negative, and a ReLU makes them equal.
#include <cmath>

#include "inputs/families/family.h"

namespace msabench {

namespace {

class negative_values : public index_family {
 public:
  explicit negative_values(const index_context& in) : problem_(in.agreed) {
    // The sum of di products of normal values has a standard deviation of 1.33 sqrt(di).
    const double wanted = 8 * 1.34 * std::sqrt(static_cast<double>(problem_.di));
    while (q_ * k_ < wanted) k_ *= 2;
  }

  void write_q(std::int64_t, void* dst) const override {
    for (std::int64_t head = 0; head < problem_.hi; ++head) store(dst, problem_.q_idx, head * problem_.di, q_);
  }
  void write_k(const key_place&, void* dst) const override { store(dst, problem_.k_idx, 0, -k_); }

 private:
  problem problem_;
  double q_ = 8, k_ = 1;
};

}  // namespace

std::unique_ptr<index_family> make_negative(const index_context& in) { return std::make_unique<negative_values>(in); }

}  // namespace msabench
