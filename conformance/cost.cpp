// SPDX-License-Identifier: Apache-2.0
#include "conformance/cost.h"

namespace msabench {

// With rep: 20 launches, and four rounds on two plans at once.
std::int64_t launches_of(const case_spec& c) { return c.options.rep ? 29 : 3; }

std::int64_t implementation_triples(const case_spec& c) { return cost_triples(c) * launches_of(c); }

double expected_work(const case_spec& c) {
  // A plain kernel does about twice the triples of the oracle in a second.
  constexpr double kernel_per_oracle = 0.5, any_size = 300e3;
  return static_cast<double>(cost_triples(c)) + kernel_per_oracle * static_cast<double>(implementation_triples(c)) +
         any_size;
}

}  // namespace msabench
