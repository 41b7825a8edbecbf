// SPDX-License-Identifier: Apache-2.0
// Scaled scores of single index keys: what `score` takes maxima of and `index` the log-sum-exp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/score.h"

namespace msabench::reference {

// coefficient * x; 0 times an endless chain's infinity is no contribution.
inline double contribution(double coefficient, double x) { return x == 0 ? 0 : coefficient * x; }

class index_keys {
 public:
  // suite_error for shapes that contradict the problem. Holds a reference: the inputs must outlive it.
  explicit index_keys(const score_inputs& in);

  // Memory of one thread, reused.
  struct scratch {
    std::vector<std::int64_t> keys;        // for callers: positions in a sequence
    std::vector<double> queries, factors;  // [heads][width], [heads]: index_scale times the query's scale
    std::vector<double> tile;              // [128][width] widened keys
    std::vector<double> score, magnitude;  // [heads][128] s_j and G_j of the last score()
  };

  void load_queries(std::int64_t row, std::int64_t first_head, std::int64_t heads, scratch& s) const;

  // s_j and G_j of the `count` <= 128 keys from keys[first] on, for the heads loaded last: element
  // [head * 128 + i] is that of keys[first + i].
  void score(std::int64_t sequence, std::span<const std::int64_t> keys, std::int64_t first, std::int64_t count,
             scratch& s) const;

  // Multiplications for so many keys of one head.
  std::int64_t work(std::int64_t keys) const { return keys * in_.p.di; }

 private:
  void widen_key(std::int64_t sequence, std::span<const std::int64_t> keys, std::int64_t i, double* to) const;
  double key_scale(std::int64_t sequence, std::int64_t key) const;

  const score_inputs& in_;
  cache_map map_;
  double scale_;
  std::int64_t width_;  // di in whole lanes
};

}  // namespace msabench::reference
