// SPDX-License-Identifier: Apache-2.0
// Fills the key and value cache of a case: which tiles hold values, which are poison, which stay holes.
#pragma once

#include "core/case.h"
#include "inputs/batch.h"
#include "inputs/families/family.h"
#include "inputs/input_set.h"
#include "inputs/page_pool.h"
#include "inputs/selection.h"

namespace msabench {

// A slot of the cache holds
//  - its value, if some row of the call both selects and sees the key;
//  - NaN at and past N_b, in pages of no sequence, and, per KV head, in pages of which no row reads a key. Of a cache
//  above 64 MiB
//    only such pages next to one that is read (in the pool or in the table) and the first and the last page; the rest
//    stays hole;
//  - otherwise (no row reads the key, but its page or the contiguous cache is open to it) a finite value up to 1e4,
//  which a tile
//    kernel may multiply by zero.
// Families that name places write their values everywhere instead of the last two, but for the holes.
struct cache_job {
  const case_spec& definition;
  const problem& agreed;
  const batch& rows;
  const selection& chosen;
  const page_pool* pool;  // nullptr: contiguous
  const attend_family& values;
};
void fill_cache(const cache_job& job, buffer& k, buffer& v);

}  // namespace msabench
