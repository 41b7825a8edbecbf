// SPDX-License-Identifier: Apache-2.0
// The judge's word on outputs of a timed run, after its loop, at a cost that a speed run can bear: sampled rows.
#pragma once

#include "core/case.h"
#include "core/perf_record.h"
#include "host/executor.h"
#include "host/timing.h"
#include "inputs/input_set.h"

namespace msabench {

// Fills in verification and state of the item: failed, unverified, or measured where everything that was judged is
// right. `side` is what the timed run saw, `agreed` the answer to the query that went before.
void verify_item(perf_item& item, const case_spec& c, const agreement& agreed, const input_set& set,
                 side_observation& side);

// About how long verify_item takes.
double verification_s(const case_spec& c);

// The state of an item whose query ended in anything but an agreement; false: there is one.
bool refuse_item(perf_item& item, const case_spec& c, const agreement& agreed);

}  // namespace msabench
