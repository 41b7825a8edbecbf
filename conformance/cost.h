// SPDX-License-Identifier: Apache-2.0
// What judging a case costs, in (row, head, visible key) triples (core/case.h): the caps of the lists, the split into
// shards and the estimate of what is left of a run rest on it.
#pragma once

#include <cstdint>

#include "core/case.h"

namespace msabench {

// Launches that a case is given, the rehearsal included, so far as they depend on its name.
std::int64_t launches_of(const case_spec& c);

// Of all launches together.
std::int64_t implementation_triples(const case_spec& c);

// Of oracle and launches, as triples of the oracle, with what a case costs at any size.
double expected_work(const case_spec& c);

}  // namespace msabench
