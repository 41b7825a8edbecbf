// SPDX-License-Identifier: Apache-2.0
// Small attention problems for the tests of the reference: values by logical place (sequence, position, head), so that
// every storage layout holds the same ones, and NaN wherever no key is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/problem.h"
#include "reference/attend.h"

namespace msabench::reference::testing {

struct batch_spec {
  std::vector<std::pair<std::int64_t, std::int64_t>> sequences;  // q_b, N_b
  std::int32_t hq = 4, hkv = 2, d = 16, block = 16, topk = 4, local_blocks = 1, init_blocks = 0;
  dtype type = fp32;
  page_layout layout = page_layout::contiguous;
  std::int32_t page_size = 0;         // 0: block
  std::uint64_t page_order = 0;       // seed of the permutation of the pages
  double softmax_scale = 0;           // 0: 1/sqrt(d)
  double query_size = 1, offset = 0;  // factor of q; mean of v
  std::uint64_t seed = 1;
};

// Values around zero with variance about 1, by hashing; index picks one of a stream.
double hashed_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

class batch {
 public:
  explicit batch(const batch_spec& spec);
  // Views refer to the batch's own memory, which copies would not share.
  batch(const batch&) = delete;
  batch& operator=(const batch&) = delete;

  const batch_spec& spec() const { return spec_; }
  std::int64_t rows() const { return total_rows_; }
  std::vector<std::int64_t> all_rows() const;
  const attend_inputs& inputs() const { return inputs_; }
  double scale() const;

  // Stored values, by logical place.
  double query(std::int64_t row, std::int64_t head, std::int64_t channel) const;
  double key(std::int64_t sequence, std::int64_t position, std::int64_t head, std::int64_t channel) const;
  double value(std::int64_t sequence, std::int64_t position, std::int64_t head, std::int64_t channel) const;
  void set_value(std::int64_t sequence, std::int64_t position, std::int64_t head, std::int64_t channel, double x);
  void set_query(std::int64_t row, std::int64_t head, std::int64_t channel, double x);

  std::int32_t& id(std::int64_t row, std::int64_t group, std::int64_t slot);
  // Ids of each (row, group), by default those that select_row picks from hashed scores.
  void set_ids(const std::function<std::vector<std::int32_t>(std::int64_t row, std::int64_t group)>& ids);

 private:
  std::int64_t place(std::int64_t sequence, std::int64_t position, std::int64_t head, std::int64_t channel) const;
  void lay_out_cache();
  void fill();

  batch_spec spec_;
  std::int64_t total_rows_ = 0, total_keys_ = 0, max_kv_len_ = 0, pages_ = 0;
  std::vector<std::int32_t> cu_q_, kv_lens_, cu_kv_, table_, ids_;
  std::vector<std::byte> q_, kv_, v_;
  attend_inputs inputs_;
};

struct plain_row : attend_row {
  double e_size = 0;  // sqrt(sum p_j^2 e_j^2)
};

// The formulas of the contract and of the error model, one after the other in long double.
plain_row plain_attend(const batch& b, std::int64_t row, std::int64_t head, const score_error& err);

// Fails the running test where a result or gauge is off by more than `tolerance` of its natural size.
void expect_close(const attend_row& got, const plain_row& want, double tolerance);
// The same, bit by bit.
void expect_same_bits(const std::vector<attend_row>& got, const std::vector<attend_row>& want);

}  // namespace msabench::reference::testing
