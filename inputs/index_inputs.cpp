// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <optional>

#include "inputs/cache_fill.h"
#include "inputs/families/family.h"
#include "inputs/operators.h"
#include "inputs/page_pool.h"
#include "inputs/scales.h"
#include "inputs/selection.h"
#include "inputs/token_fill.h"

namespace msabench {

namespace {

// q_idx_scale [T,Hi].
void fill_query_scales(const fill_job& job, const operand_scales& scales, const auto& number) {
  buffer& into = job.input(scales.where());
  if (!into.region) return;
  prepare_whole(into, job.definition.seed);
  for (std::int64_t row = 0; row < job.rows.total_q(); ++row)
    for (std::int64_t head = 0; head < into.desc.shape[1]; ++head)
      store(into.region->data(), into.desc.type, row * into.desc.strides[0] + head, scales.at(number(row, head)));
}

}  // namespace

void fill_index_branch(const fill_job& job) {
  const index_family_info& family = index_family_of(job.definition);
  const std::unique_ptr<index_family> values = family.make({job.definition, job.set.agreed, job.rows});
  fill_index_branch(job, *values, family.shares_pages);
}

void fill_index_branch(const fill_job& job, const index_family& values, bool shares_pages, const selection* chosen) {
  const case_spec& c = job.definition;
  const problem& p = job.set.agreed;
  const bool share = p.paged() && shares_pages && c.lengths.form == lengths_spec::kind::ragged;
  std::optional<page_pool> pool;
  if (p.paged()) {
    pool.emplace(c, p, job.rows, share, slot::block_table_idx);
    fill_table(job, slot::block_table_idx, *pool);
  }
  const operand_scales scales(c, p, slot::q_idx);
  const auto number = [&](std::int64_t row, std::int64_t head) {
    return static_cast<std::uint64_t>(row * p.hi + head);
  };
  const bool divided = scales.present() && scales.divides();
  const auto write_q = [&](std::int64_t row, std::byte* packed) {
    values.write_q(row, packed);
    if (!divided) return;
    for (std::int64_t head = 0; head < p.hi; ++head)
      divide_stored(packed + head * p.di * size_bytes(p.q_idx), p.q_idx, p.di, scales.at(number(row, head)));
  };
  fill_queries(job, slot::q_idx, values.q_scale(),
               values.writes_nothing() && !divided ? std::function<void(std::int64_t, std::byte*)>() : write_q);
  if (scales.present()) fill_query_scales(job, scales, number);
  // The last row of a sequence sees all of its keys; a sequence without rows is read by nobody.
  const auto keys_read = [&](std::int64_t b, std::int64_t, std::int64_t block) {
    const sequence& s = job.rows.at(b);
    if (chosen == nullptr) return s.q_len == 0 ? 0 : std::clamp<std::int64_t>(s.kv_len - block * p.block, 0, p.block);
    std::int64_t most = 0;
    for (std::int64_t head = 0; head < chosen->heads(); ++head)
      most = std::max(most, chosen->keys_read(b, head, block));
    return most;
  };
  std::function<void(const key_place&, void*)> write_k;
  if (!values.writes_nothing()) write_k = [&](const key_place& at, void* dst) { values.write_k(at, dst); };
  fill_index_cache({c, p, job.rows, pool ? &*pool : nullptr, 1, p.di, false, keys_read, write_k, {}}, share,
                   job.input(slot::k_idx), p.idx_scale != 0 ? &job.input(slot::k_idx_scale) : nullptr);
}

void fill_index(const fill_job& job) { fill_index_branch(job); }

}  // namespace msabench
