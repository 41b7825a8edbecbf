// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "inputs/cache_fill.h"
#include "inputs/families/family.h"
#include "inputs/operators.h"
#include "inputs/page_pool.h"
#include "inputs/selection.h"
#include "inputs/token_fill.h"

namespace msabench {

namespace {

void fill_q(const fill_job& job, const attend_family& values) {
  const problem& p = job.set.agreed;
  const std::int64_t group_bytes = std::int64_t{p.group()} * p.d * size_bytes(p.q);
  if (values.writes_nothing()) return fill_queries(job, slot::q, values.q_scale(), {});
  fill_queries(job, slot::q, values.q_scale(), [&](std::int64_t row, std::byte* packed) {
    for (std::int64_t head = 0; head < p.hkv; ++head) values.write_q(row, head, packed + head * group_bytes);
  });
}

}  // namespace

void fill_attention(const fill_job& job, const selection& chosen) {
  const case_spec& c = job.definition;
  const problem& p = job.set.agreed;
  const attend_family_info& family = attend_family_of(c);
  const std::unique_ptr<attend_family> values = family.make({c, p, job.rows, chosen});
  const bool share = p.paged() && family.shares_pages && c.lengths.form == lengths_spec::kind::ragged;
  std::optional<page_pool> pool;
  if (p.paged()) {
    pool.emplace(c, p, job.rows, share);
    fill_table(job, slot::block_table, *pool);
  }
  fill_q(job, *values);
  const cache_job cache{c, p, job.rows, chosen, pool ? &*pool : nullptr, *values, share};
  fill_cache(cache, job.input(slot::k), p.operation == op::kl ? nullptr : &job.input(slot::v));
  if (p.kv_scale != 0) fill_cache_scales(cache, job.input(slot::k_scale), job.input(slot::v_scale));
}

void fill_ids(const fill_job& job, const selection& chosen) {
  buffer& ids = job.input(slot::ids);
  if (!ids.region) return;
  prepare_whole(ids, job.definition.seed);
  const auto& strides = ids.desc.strides;
  const bool heads_first = job.set.agreed.asked.in_id_layout == id_layout::htk;
  const std::int64_t row_stride = strides[heads_first ? 1 : 0], head_stride = strides[heads_first ? 0 : 1];
  for (std::int64_t row = 0; row < job.rows.total_q(); ++row)
    for (std::int64_t head = 0; head < chosen.heads(); ++head) {
      const auto written = chosen.written(row, head);
      std::memcpy(ids.region->data() + (row * row_stride + head * head_stride) * 4, written.data(), written.size() * 4);
    }
}

void fill_attend(const fill_job& job) {
  const case_spec& c = job.definition;
  const bool shared = attend_family_of(c).shares_blocks_variant == c.variant;
  const selection chosen(c, job.set.agreed, job.rows, shared);
  fill_attention(job, chosen);
  fill_ids(job, chosen);
}

void fill_dense(const fill_job& job) {
  fill_attention(job, selection(job.definition, job.set.agreed, job.rows, false));
}

}  // namespace msabench
