// SPDX-License-Identifier: Apache-2.0
// Small vision problems for the tests of the reference, and the plain formulas beside it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/attention.h"

namespace msabench::reference::testing {

using item = std::array<std::int32_t, 3>;  // t, h, w

struct vision_spec {
  std::vector<item> items;
  std::int32_t heads = 2, d = 80, window = 4;
  std::int64_t merge = 2;
  double theta = 0;  // 0: 1e4
  dtype type = fp32;
  double query_size = 1;
  std::uint64_t seed = 1;
};

// Hashed values of q, k, v; of a token they depend on its item and its place in it, not on the items before it.
class vision {
 public:
  explicit vision(const vision_spec& spec);
  // Views refer to the object's own memory.
  vision(const vision&) = delete;
  vision& operator=(const vision&) = delete;

  const vision_spec& spec() const { return spec_; }
  const problem& p() const { return p_; }
  std::int64_t tokens() const { return tokens_; }
  std::vector<std::int64_t> all_rows() const;
  tensor_view q() const { return view(q_); }
  tensor_view k() const { return view(k_); }
  tensor_view v() const { return view(v_); }
  tensor_view grids() const { return {spec_.items.data(), packed(i32, {std::ssize(spec_.items), 3})}; }

 private:
  tensor_view view(const std::vector<std::byte>& bytes) const;

  vision_spec spec_;
  problem p_;
  std::int64_t tokens_ = 0;
  std::vector<std::byte> q_, k_, v_;
};

// Where a token stands, by dividing its number: item, segment (counted over all items), the segment's first token and
// its number of tokens, and the three coordinates.
struct plain_place {
  std::int64_t item = 0, segment = 0, first = 0, tokens = 0;
  std::array<std::int64_t, 3> position{};
};
plain_place place_by_division(const vision_spec& spec, std::int64_t token);

// One head of one token rotated in long double, pair by pair.
std::vector<long double> plain_rotation(const vision_spec& spec, const tensor_view& x, std::int64_t token,
                                        std::int64_t head);

// softmax attention of one query over rows of keys and values in long double, with every gauge. [n][d] each.
attend_row plain_attention(const std::vector<long double>& q, const std::vector<std::vector<long double>>& k,
                           const std::vector<std::vector<long double>>& v, long double scale, const score_error& err);

// Fails the running test where a result or gauge is off by more than `tolerance` of its natural size.
void expect_near_row(const attend_row& got, const attend_row& want, double tolerance);

}  // namespace msabench::reference::testing
