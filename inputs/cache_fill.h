// SPDX-License-Identifier: Apache-2.0
// Fills the key and value cache of a case: which tiles hold values, which are poison, which stay holes.
#pragma once

#include <functional>

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
//    only such pages next to one that is read (in the pool or in the table), those that one that is read is taken for
//    when its number or offset is cut to 16 or 32 bits, and the first and the last page; the rest stays hole, under
//    option pool one without access;
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
  bool shares_pages;  // sequences may share pages: nothing of a key depends on its sequence
};
// nullptr: there are no values.
void fill_cache(const cache_job& job, buffer& k, buffer* v);

// Scales of the keys of a cache (inputs/scales.h): finite for every key that the cache has or may have a value of, poison
// past N_b and in pages of no sequence.
void fill_cache_scales(const cache_job& job, buffer& k_scale, buffer& v_scale);

// What any cache holds, that of the index branch too.
struct cache_contents {
  const case_spec& definition;
  const problem& agreed;
  const batch& rows;
  const page_pool* pool;  // nullptr: contiguous
  std::int64_t heads;     // KV heads of the cache
  std::int64_t width;     // values of one key and head
  bool names_places;      // as attend_family::names_places
  // How many keys of a block of (sequence, head) some row reads: the first so many.
  std::function<std::int64_t(std::int64_t sequence, std::int64_t head, std::int64_t block)> keys_read;
  // Overwrites the normal values of one key, or leaves them; empty: leaves all.
  std::function<void(const key_place&, void*)> write_k, write_v;
};

// The index cache, [N,di] or [pages,page_size,di]: one head. Its scales, [1], [N] or [pages,page_size], if it has any;
// `shares_pages` as in cache_job.
void fill_index_cache(const cache_contents& contents, bool shares_pages, buffer& k_idx, buffer* k_idx_scale);

}  // namespace msabench
