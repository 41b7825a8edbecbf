// SPDX-License-Identifier: Apache-2.0
// A small attend problem whose keys and values are stored in e4m3 with a scale for each (head, token), or one for all.
// The attend problem that it is made of holds their products, which are exact in fp32, and says what is right.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/kernels/small_attend.h"

namespace msabench::plugin_test {

class small_scaled {
 public:
  /// `form`: kv_scale of the problem. `paged`: pages of eight tokens.
  small_scaled(std::int32_t form, bool paged);

  msabench_problem problem;
  arguments args() const;
  std::optional<std::string> fault() const { return products_.fault(); }

 private:
  struct stored {
    std::vector<std::uint8_t> values;
    std::vector<float> scales;
    msabench_tensor tensor{}, scale{};
  };
  void store_products(buffer& products, double first_scale, stored& to);

  small_attend products_;
  std::vector<std::int64_t> shape_, strides_, scale_shape_, scale_strides_;
  stored k_, v_;
};

}  // namespace msabench::plugin_test
