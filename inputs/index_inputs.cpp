// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <optional>

#include "inputs/cache_fill.h"
#include "inputs/families/family.h"
#include "inputs/operators.h"
#include "inputs/page_pool.h"
#include "inputs/token_fill.h"

namespace msabench {

void fill_index_branch(const fill_job& job) {
  const index_family_info& family = index_family_of(job.definition);
  const std::unique_ptr<index_family> values = family.make({job.definition, job.set.agreed, job.rows});
  fill_index_branch(job, *values, family.shares_pages);
}

void fill_index_branch(const fill_job& job, const index_family& values, bool shares_pages) {
  const case_spec& c = job.definition;
  const problem& p = job.set.agreed;
  std::optional<page_pool> pool;
  if (p.paged()) {
    const bool share = shares_pages && c.lengths.form == lengths_spec::kind::ragged;
    pool.emplace(c, p, job.rows, share, slot::block_table_idx);
    fill_table(job, slot::block_table_idx, *pool);
  }
  fill_queries(job, slot::q_idx, values.q_scale(),
               [&](std::int64_t row, std::byte* packed) { values.write_q(row, packed); });
  // The last row of a sequence sees all of its keys; a sequence without rows is read by nobody.
  const auto keys_read = [&](std::int64_t b, std::int64_t, std::int64_t block) {
    const sequence& s = job.rows.at(b);
    return s.q_len == 0 ? 0 : std::clamp<std::int64_t>(s.kv_len - block * p.block, 0, p.block);
  };
  const auto write_k = [&](const key_place& at, void* dst) { values.write_k(at, dst); };
  fill_index_cache({c, p, job.rows, pool ? &*pool : nullptr, 1, p.di, false, keys_read, write_k, {}},
                   job.input(slot::k_idx));
}

void fill_index(const fill_job& job) { fill_index_branch(job); }

}  // namespace msabench
