// SPDX-License-Identifier: Apache-2.0
// Small problems of the index branch for the tests of the reference: values by logical place (sequence, position,
// head), so that every layout, chunk and order of a batch holds the same ones, and NaN wherever no key is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/problem.h"
#include "reference/index.h"

namespace msabench::reference::testing {

struct index_spec {
  std::vector<std::pair<std::int64_t, std::int64_t>> sequences;  // q_b, N_b
  std::vector<std::int64_t> labels;                              // who a sequence is, for its values; empty: 0, 1, ..
  std::int32_t hi = 2, di = 16, block = 16, topk = 4, local_blocks = 1, init_blocks = 0;
  dtype type = fp32;
  page_layout layout = page_layout::contiguous;
  std::int32_t page_size = 0;    // 0: block
  std::uint64_t page_order = 0;  // seed of the permutation of the pages
  double index_scale = 0;        // 0: 1/sqrt(di)
  std::int32_t scales = 0;       // 0 none, 1 one for all keys, 2 one per key; queries have theirs where keys have
  double query_size = 1;         // factor of q_idx
  std::uint64_t seed = 1;
};

class index_batch {
 public:
  explicit index_batch(const index_spec& spec);
  // Views refer to the batch's own memory, which copies would not share.
  index_batch(const index_batch&) = delete;
  index_batch& operator=(const index_batch&) = delete;

  const index_spec& spec() const { return spec_; }
  std::int64_t rows() const { return total_rows_; }
  std::vector<std::int64_t> all_rows() const;
  const index_inputs& inputs() const { return inputs_; }
  row_place place(std::int64_t row) const;

  // Stored values, by logical place; scales are 1 where there are none.
  double query(std::int64_t row, std::int64_t head, std::int64_t channel) const;
  double key(std::int64_t sequence, std::int64_t position, std::int64_t channel) const;
  double query_scale(std::int64_t row, std::int64_t head) const;
  double key_scale(std::int64_t sequence, std::int64_t position) const;
  void set_query(std::int64_t row, std::int64_t head, std::int64_t channel, double x);
  void set_key(std::int64_t sequence, std::int64_t position, std::int64_t channel, double x);
  void set_key_scale(std::int64_t sequence, std::int64_t position, float scale);

 private:
  std::int64_t slot(std::int64_t sequence, std::int64_t position) const;
  std::int64_t lay_out_pages();
  void lay_out_scales(std::int64_t slots);
  void fill();

  index_spec spec_;
  std::int64_t total_rows_ = 0, total_keys_ = 0, max_kv_len_ = 0;
  std::vector<std::int32_t> cu_q_, kv_lens_, cu_kv_, table_;
  std::vector<std::byte> q_, k_;
  std::vector<float> q_scale_, k_scale_;
  index_inputs inputs_;
};

// One visible key of a (row, head), by the contract's formula in long double.
struct plain_index_key {
  std::int64_t position = 0, block = 0;
  long double score = 0, magnitude = 0;  // s_j, G_j
  long double delta(const interval_model& model) const;
};
std::vector<plain_index_key> plain_index_keys(const index_batch& b, std::int64_t row, std::int64_t head);

// The contract's scores and the error model's intervals, one after the other in long double.
score_row plain_score(const index_batch& b, std::int64_t row, std::int64_t head, const interval_model& model);

// Log-sum-exp and gauges over the visible keys of the blocks that `ids` names, in long double.
index_lse_row plain_lse(const index_batch& b, std::int64_t row, std::int64_t head, const std::vector<std::int32_t>& ids,
                        const score_error& err);

// Fails the running test where a score or interval of `got` is off the plain ones by more than `tolerance` of the
// largest size that a key of the row has.
void expect_plain_scores(const index_batch& b, const score_row& got, const interval_model& model, double tolerance);
// The same for lse and gauges.
void expect_plain_lse(const index_batch& b, const index_lse_row& got, const std::vector<std::int32_t>& ids,
                      const score_error& err, double tolerance);
// Bit by bit.
void expect_same_bits(const std::vector<score_row>& got, const std::vector<score_row>& want);
void expect_same_bits(const std::vector<index_lse_row>& got, const std::vector<index_lse_row>& want);
void expect_same_bits(const std::vector<index_row>& got, const std::vector<index_row>& want);

}  // namespace msabench::reference::testing
