// SPDX-License-Identifier: Apache-2.0
// A small case of the index branch made by hand, for `score` and `index`, and an emulation of implementations of it in
// single precision: honest ones that round where kernels do, and faulty ones.
#pragma once

#include <functional>
#include <vector>

#include "attend_world.h"

namespace msabench::judge::test {

struct index_shape {
  std::int32_t heads = 2, di = 16, block = 8, topk = 4, local_blocks = 1, init_blocks = 0;
  std::vector<sequence> sequences = {{4, 125}, {1, 0}, {6, 70}};
  dtype type = bf16;
};

// Where an emulated implementation departs from plain single precision and the contract.
struct index_variant {
  dtype score_store = fp32, accumulator = fp32;
  bool reversed = false, prescaled_q = false;  // order of products; q times the scale, rounded to its type
  bool raw = false, propagates_nan = false, relu = false;
  std::int64_t visible_more = 0;  // keys past the diagonal that count
  std::int64_t head_shift = 0;    // the query of another head
  std::int64_t dropped_key = -1;
  double lse_factor = 1;
};

class index_world {
 public:
  index_world(op operation, const index_shape& shape);

  void fill_random(unsigned seed, double q_scale = 1);
  void set_key(std::int64_t sequence, std::int64_t key, std::int64_t channel, double value);

  judge::subject subject() const;
  std::vector<std::int64_t> all_rows() const;
  void run(const index_variant& v);
  launch outputs() const;
  std::vector<check_result> checks() const;
  std::int64_t visible(std::int64_t row) const;  // blocks

  index_shape shape;
  case_spec definition;
  problem agreed;
  profile delivers;
  numerics declared;
  std::vector<perturbation> targets;
  tensor q_idx, k_idx, cu_q, cu_kv, kv_lens, scores, ids, lse_idx;

 private:
  struct place {
    std::int64_t sequence, position, kv_len, first_key;
  };
  float score_of(const index_variant& v, std::int64_t row, std::int64_t head, std::int64_t key) const;
  std::vector<place> places_;
};

}  // namespace msabench::judge::test
