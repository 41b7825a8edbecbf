// SPDX-License-Identifier: Apache-2.0
#include "inputs/token_fill.h"

#include <cstring>
#include <vector>

#include "core/generator.h"

namespace msabench {

void fill_queries(const fill_job& job, slot where, double scale,
                  const std::function<void(std::int64_t, std::byte*)>& write) {
  buffer& q = job.input(where);
  if (!q.region) return;
  prepare_whole(q, job.definition.seed);
  const dtype type = q.desc.type;
  const auto& strides = q.desc.strides;
  const std::int64_t heads = q.desc.shape[1], width = q.desc.shape[2], size = size_bytes(type);
  const std::int64_t row_values = heads * width, rows = job.rows.total_q();
  const stream normal(name_without_seed(job.definition), name(where), job.definition.seed);
  const bool large = q.region->bytes() > small_bytes;
#pragma omp parallel if (large)
  {
    std::vector<std::byte> packed_row(static_cast<std::size_t>(row_values * size));
#pragma omp for schedule(static)
    for (std::int64_t row = 0; row < rows; ++row) {
      if (scale != 0)
        normal.fill_normal(packed_row.data(), type, static_cast<std::uint64_t>(row * row_values),
                           static_cast<std::uint64_t>(row_values), scale);
      if (write) write(row, packed_row.data());
      for (std::int64_t head = 0; head < heads; ++head)
        std::memcpy(q.region->data() + (row * strides[0] + head * strides[1]) * size,
                    packed_row.data() + head * width * size, static_cast<std::size_t>(width * size));
    }
  }
  if (write || scale == 0 || strides != packed_strides(q.desc.shape)) return;
  generated_runs drawn(where, type, normal, scale);
  drawn.add(q.offset, 0, static_cast<std::uint64_t>(rows * row_values));
  q.generated = drawn.finish();
}

void fill_table(const fill_job& job, slot where, const page_pool& pool) {
  buffer& table = job.input(where);
  if (!table.region) return;
  prepare_whole(table, job.definition.seed);
  auto* const data = reinterpret_cast<std::int32_t*>(table.region->data());
  for (std::int64_t b = 0; b < table.desc.shape[0]; ++b)
    for (std::int64_t column = 0; column < table.desc.shape[1]; ++column)
      data[b * table.desc.strides[0] + column] = pool.entry(b, column);
}

}  // namespace msabench
