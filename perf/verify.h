// SPDX-License-Identifier: Apache-2.0
// The judge's word on outputs of a timed run, after its loop, at a cost that a speed run can bear: sampled rows.
#pragma once

#include <cstdint>

#include "core/case.h"
#include "core/perf_record.h"
#include "host/executor.h"
#include "host/timing.h"
#include "inputs/input_set.h"

namespace msabench {

// (row, head, key) triples of the oracle that are spent on samples of an item.
inline constexpr std::int64_t verification_triples = 2'000'000;
// Gradients of so many are judged whole, and the oracle makes the forward results that are inputs of them.
inline constexpr std::int64_t most_whole_gradient_triples = 20'000'000;
// Rows, and as many keys, of larger ones; rows of the forward pass that makes their inputs.
inline constexpr std::int64_t fewest_gradient_samples = 8;

// Gradients of attention that are judged by samples, on forward results that an implementation has made.
bool is_large_gradient(const case_spec& c);

// Gradients of the index branch's loss that are judged by samples; the loss is not judged then.
bool is_large_kl(const case_spec& c);

// Triples that one look at samples of the case takes.
double sampled_triples(const case_spec& c, std::int64_t fewest);

// Fills in verification and state of the item: failed, unverified, or measured where everything that was judged is
// right. `side` is what the timed run saw, `agreed` the answer to the query that went before.
void verify_item(perf_item& item, const case_spec& c, const agreement& agreed, const input_set& set,
                 side_observation& side);

// About how long verify_item takes.
double verification_s(const case_spec& c);

// What the first implementation is compared with may want more than this machine has before it runs, which is no fault of
// the first: the item is then not run, and says why.
bool lacks_room(perf_item& item, const observation& seen);

// The state of an item whose query ended in anything but an agreement; false: there is one.
bool refuse_item(perf_item& item, const case_spec& c, const agreement& agreed);

}  // namespace msabench
