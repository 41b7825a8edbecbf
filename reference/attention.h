// SPDX-License-Identifier: Apache-2.0
// Softmax attention of one KV group at one row over given keys, and the gauges that limits are made of
// (docs/verdicts.md, error model): what the attention operators share. They differ in which keys a row has.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"
#include "reference/cache_scale.h"
#include "reference/pairwise.h"
#include "reference/rows.h"

namespace msabench::reference {

// How a scaled score may be off, as an abstract model; who makes which error is not the reference's affair.
//   theta_j = per_magnitude * G_j + per_score * |s_j| + constant + per_size * (|s_j - m| + |m|),  eta_j = exp(theta_j)
//   - 1
//             (capped at 1e100, so that an endless chain of additions makes a huge bound and no NaN)
//   e_j^2   = var_score * s_j^2 + var_products * scale^2 sum_c (q_c k_jc)^2 + var_constant + var_size * s_j^2
struct score_error {
  double per_magnitude = 0, per_score = 0, constant = 0, per_size = 0;
  double var_score = 0, var_products = 0, var_constant = 0, var_size = 0;
};

// Result and gauges of one (row, query head); s_j are scaled scores, p_j softmax weights. Vectors have d elements. n =
// 0: an empty row, out 0, lse -inf, gauges 0.
struct attend_row {
  std::int64_t row = 0, head = 0;
  std::int64_t n = 0;       // keys
  double m = 0, lse = 0;    // largest scaled score; natural log of the sum of exp
  double eta_bar = 0;       // sum p_j eta_j
  double n_eff = 0;         // 1 / sum p_j^2
  std::vector<double> out;  // o_c
  std::vector<double> a;    // A_c = sum p_j |v_jc|
  std::vector<double> dev;  // D_c = sum p_j |v_jc - o_c|
  std::vector<double> q2;   // Q_c = sum p_j^2 v_jc^2
  std::vector<double> e1;   // sum p_j eta_j |v_jc - o_c|
  std::vector<double> e2;   // sum p_j^2 e_j^2 (v_jc - o_c)^2
  std::vector<double> x;    // sum_j max(|v_jc|, |v_jc - o_c|)
};

// Positions of keys in their sequence, ascending: those of a list that somebody else owns, or 0 .. count - 1.
class key_list {
 public:
  explicit key_list(std::int64_t count) : count_(count) {}
  explicit key_list(std::span<const std::int64_t> positions) : positions_(positions), count_(std::ssize(positions)) {}

  std::int64_t size() const { return count_; }
  std::int64_t operator[](std::int64_t i) const {
    return positions_.empty() ? i : positions_[static_cast<std::size_t>(i)];
  }

 private:
  std::span<const std::int64_t> positions_;
  std::int64_t count_;
};

// Factors of stored queries, keys and values, each 1 if absent: q [T,Hq]; k and v as in cache_scale.h.
struct operand_scales {
  const tensor_view &q, &k, &v;
};
inline const tensor_view no_scale;
inline const operand_scales no_scales{no_scale, no_scale, no_scale};

// What stays the same over all rows of a call. Holds references: problem and views must outlive it. Of p it reads heads,
// d, layout, page size and softmax_scale (0 stands for 1/sqrt(d)).
struct attention_context {
  // suite_error, which begins with `name`, where the shapes of q, k and v or of their scales contradict the problem.
  attention_context(std::string_view name, const problem& p, const tensor_view& queries, const tensor_view& keys,
                    const tensor_view& values, const tensor_view& block_table, const tensor_view& cu_seqlens_kv,
                    const operand_scales& scales = no_scales);

  const tensor_view &q, &k, &v, &q_scale;
  cache_map key_rows, value_rows;
  cache_scale key_scale, value_scale;
  std::int64_t hq, hkv, heads, d, width;  // heads: of a group; width: d in whole lanes
  double scale;
};

// One KV head's share of a row: the heads of its group see the same keys.
struct group_place {
  std::int64_t row, group;
  row_place place;
};

// Memory that a thread reuses from unit to unit, over the keys of one chunk.
struct attention_chunk {
  std::vector<double> tile;  // widened keys [128][width], or values [width / lanes][128][lanes]
  std::vector<double> line;  // [width] one widened value row
  std::vector<double> sums;  // one tile's sums [gauge][heads][width]
  pairwise_vectors total;
};

// Memory of one group, reused from group to group: [heads][n] doubles, three of them, and a fourth where var_products is
// wanted.
struct attention_scratch {
  std::vector<std::int64_t> positions;  // for whoever makes the key list
  std::vector<double> queries;          // [heads][width]
  std::vector<double> score, magnitude,
      squares;                        // s_j, G_j, scale^2 sum_c (q_c k_jc)^2; later weights times e_j, eta_j
  std::vector<double> weight;         // p_j
  std::vector<double> largest, sums;  // [heads][chunks], of a chunk each
  std::vector<double> means;          // [heads][width]
  std::vector<double> gauges;         // [chunks][gauge][heads][width]
  pairwise_vectors total;
  attention_chunk chunk;
};

// One result for each head of the group. Threads share the work of one group if `spread`; no bit depends on that.
void attend_group(const attention_context& c, const group_place& at, const key_list& keys, const score_error& err,
                  std::span<attend_row> out, attention_scratch& s, bool spread = false);

// The same of one query head of the group alone, bit by bit.
void attend_head(const attention_context& c, const group_place& at, std::int64_t head, const key_list& keys,
                 const score_error& err, attend_row& out, attention_scratch& s);

// All query heads of each row in `rows`, in the order rows x heads, over the keys that `find` gives; the list may lie in
// the memory that it is handed. Units are spread over threads, and long ones within.
using key_finder = std::function<key_list(const group_place& at, std::vector<std::int64_t>& memory)>;
std::vector<attend_row> attend_rows(const attention_context& c, const row_map& places,
                                    std::span<const std::int64_t> rows, const score_error& err, const key_finder& find);

// Scaled scores and softmax weights of one query head into s.score and s.weight, bitwise those of attend_group().
void weigh_head(const attention_context& c, const group_place& at, std::int64_t head, const key_list& keys,
                attention_scratch& s);

}  // namespace msabench::reference
