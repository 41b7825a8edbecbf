// SPDX-License-Identifier: Apache-2.0
// One query token over given keys and values, run on an implementation: the instrument of `msabench probe-numerics`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/numerics.h"
#include "core/operator.h"
#include "host/executor.h"

namespace msabench {

// The elements of a call. All sequences have one token and all KV heads the same keys and values; what no function says is 0.
struct probe_call {
  std::int64_t keys = 1;  // at most topk x block, so that every one of them is attended to
  double scale = 0.125;
  std::function<double(std::int64_t head, std::int64_t channel)> q;
  std::function<double(std::int64_t key, std::int64_t channel)> k, v;
};

struct probe_answer {
  std::vector<std::vector<double>> out;  // [head][channel]
  std::vector<double> lse;               // [head], natural; empty: the implementation emits none
};

class probe_session {
 public:
  // operation: attend or dense. Takes the first shape and layout that the implementation accepts for the type; usage_error
  // if there is none.
  probe_session(executor& on, op operation, dtype type);

  // Values are rounded to the type; nothing may be lost by that. usage_error if the implementation doesn't run it.
  probe_answer run(const probe_call& call);

  std::int64_t heads() const { return heads_; }
  std::int64_t channels() const { return channels_; }
  std::int64_t block() const { return block_; }
  std::int64_t most_keys() const { return most_keys_; }
  dtype type() const { return type_; }
  const std::string& asked() const { return asked_; }  // the problem, as a case without its family
  const numerics& declared() const { return declared_; }

 private:
  case_spec case_of(std::int64_t keys, double scale) const;

  executor& on_;
  dtype type_;
  std::string prefix_, suffix_, asked_;
  std::int64_t heads_ = 0, channels_ = 0, block_ = 0, most_keys_ = 0;
  numerics declared_;
};

}  // namespace msabench
