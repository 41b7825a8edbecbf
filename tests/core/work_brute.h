// SPDX-License-Identifier: Apache-2.0
// The work model by brute force: every operator as the loops of its definition, with a ledger of what they touch. Slow, and shares no
// formula with core/work.h.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/case.h"
#include "core/operator.h"
#include "core/problem.h"

namespace msabench::brute {

// Vectors (a query of one head, a key, a score) that were read and written.
class ledger {
 public:
  // `scope`: what a straightforward kernel keeps while it lasts (a token, or a token and head). Reads of the same vector count once in it.
  void read(slot s, std::int64_t vector, std::int64_t bytes, std::int64_t scope);
  void write(slot s, std::int64_t vector, std::int64_t bytes);  // once in all
  void scratch(std::int64_t bytes) { algorithmic_ += bytes; }   // moved by a straightforward kernel only

  std::int64_t compulsory() const { return compulsory_; }
  std::int64_t algorithmic() const { return algorithmic_; }

 private:
  std::set<std::pair<slot, std::int64_t>> read_, written_;
  std::set<std::tuple<slot, std::int64_t, std::int64_t>> in_scope_;
  std::int64_t compulsory_ = 0, algorithmic_ = 0;
};

struct counted {
  std::int64_t flops = 0, compulsory = 0, algorithmic = 0, ranked = 0;
};

struct setting {
  problem p;
  std::vector<sequence> batch;
  std::vector<std::int32_t> ids;  // [T][hkv][topk], canonical
  std::vector<slot> outputs;      // optional ones that are asked for

  std::int64_t rows() const;
  bool asks(slot s) const;
  std::int64_t position(std::int64_t sequence, std::int64_t row) const;
  // Of a row of the whole batch: selected and visible keys, ascending.
  std::vector<std::int64_t> selected(std::int64_t row, std::int64_t head, std::int64_t position) const;
};

counted count(const setting& s);
// Least FLOPs and bytes of `select`, `index` and `msa`: only block scores that can matter to the ids.
counted count_least(const setting& s);

struct vision_setting {
  problem p;
  std::vector<grid> items;
  std::vector<slot> outputs;
};
counted count(const vision_setting& s);

// Selections that obey the rule: random, or greedy for few or for many different keys over all rows (and, if `heads_share`, over all
// heads of a row as well).
enum class habit { random, same_keys, new_keys };
std::vector<std::int32_t> make_ids(const problem& p, std::span<const sequence> batch, habit how, bool heads_share,
                                   std::mt19937& rng);

}  // namespace msabench::brute
