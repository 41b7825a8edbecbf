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

namespace msabench {

namespace {

void fill_q(const fill_job& job, const attend_family& values) {
  buffer& q = job.input(slot::q);
  if (!q.region) return;
  prepare_whole(q, job.definition.seed);
  const problem& p = job.set.agreed;
  const auto& strides = q.desc.strides;
  const std::int64_t size = size_bytes(p.q), row_values = std::int64_t{p.hq} * p.d, rows = job.rows.total_q();
  const stream normal(name_without_seed(job.definition), "q", job.definition.seed);
  const double scale = values.q_scale();
  const bool large = q.region->bytes() > small_bytes;
#pragma omp parallel if (large)
  {
    std::vector<std::byte> packed_row(static_cast<std::size_t>(row_values * size));
#pragma omp for schedule(static)
    for (std::int64_t row = 0; row < rows; ++row) {
      if (scale != 0)
        normal.fill_normal(packed_row.data(), p.q, static_cast<std::uint64_t>(row * row_values),
                           static_cast<std::uint64_t>(row_values), scale);
      for (std::int64_t head = 0; head < p.hkv; ++head)
        values.write_q(row, head, packed_row.data() + head * p.group() * p.d * size);
      for (std::int64_t head = 0; head < p.hq; ++head)
        std::memcpy(q.region->data() + (row * strides[0] + head * strides[1]) * size,
                    packed_row.data() + head * p.d * size, static_cast<std::size_t>(p.d * size));
    }
  }
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

void fill_table(const fill_job& job, const page_pool& pool) {
  buffer& table = job.input(slot::block_table);
  if (!table.region) return;
  prepare_whole(table, job.definition.seed);
  auto* const data = reinterpret_cast<std::int32_t*>(table.region->data());
  for (std::int64_t b = 0; b < table.desc.shape[0]; ++b)
    for (std::int64_t column = 0; column < table.desc.shape[1]; ++column)
      data[b * table.desc.strides[0] + column] = pool.entry(b, column);
}

}  // namespace

void fill_attend(const fill_job& job) {
  const case_spec& c = job.definition;
  const problem& p = job.set.agreed;
  const attend_family_info& family = attend_family_of(c);
  const selection chosen(c, p, job.rows, family.shares_blocks_variant == c.variant);
  const std::unique_ptr<attend_family> values = family.make({c, p, job.rows, chosen});
  std::optional<page_pool> pool;
  if (p.paged()) {
    pool.emplace(c, p, job.rows, family.shares_pages && c.lengths.form == lengths_spec::kind::ragged);
    fill_table(job, *pool);
  }
  fill_q(job, *values);
  fill_ids(job, chosen);
  fill_cache({c, p, job.rows, chosen, pool ? &*pool : nullptr, *values}, job.input(slot::k), job.input(slot::v));
}

}  // namespace msabench
