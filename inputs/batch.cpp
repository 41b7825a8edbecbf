// SPDX-License-Identifier: Apache-2.0
#include "inputs/batch.h"

namespace msabench {

batch::batch(const case_spec& c) : sequences_(msabench::sequences(c)), first_row_{0}, first_key_{0} {
  const bool both_ways = is_vision(c.operation);
  for (std::int64_t b = 0; b < size(); ++b) {
    const sequence& s = at(b);
    for (std::int64_t i = 0; i < s.q_len; ++i)
      rows_.push_back({b, both_ways ? s.kv_len - 1 : s.kv_len - s.q_len + i, s.kv_len});
    first_row_.push_back(first_row_.back() + s.q_len);
    first_key_.push_back(first_key_.back() + s.kv_len);
  }
}

}  // namespace msabench
