// SPDX-License-Identifier: Apache-2.0
#include "inputs/token_heads.h"

#include "core/error.h"
#include "core/generator.h"

namespace msabench {

namespace {

constexpr token_variant variants[] = {
    {"random", 0x1p-7, 0, 0x1p-10},
    {"small", 0x1p-17, 0, 0x1p-10},             // mean square near norm_eps
    {"subnormal", 0x1p-24, -0.90625, 0x1p-13},  // of fp16: whole numbers of its last place before and after
    {"outlier", 0x1p-7, 0, 0x1p-10},
};

double value(const token_variant& variant, int step, bool marked) {
  // A few steps of fp16's last place, which the norm multiplies by 1000 and the weight by a tenth.
  if (variant.name == "subnormal") return step / 128 * variant.x_scale;
  return step * variant.x_scale * (marked && variant.name == "outlier" ? 128 : 1);
}

}  // namespace

const token_variant& token_variant_of(const case_spec& c) {
  for (const token_variant& v : variants)
    if (c.family == "tokens" && v.name == c.variant) return v;
  throw suite_error("no heads of tokens for case " + name(c));
}

void fill_token_heads(const fill_job& job, slot where) {
  buffer& b = job.input(where);
  if (!b.region) return;
  prepare_whole(b, job.definition.seed);
  const token_variant& variant = token_variant_of(job.definition);
  const stream values(name_without_seed(job.definition), name(where), job.definition.seed);
  // k_idx has no axis of heads.
  const bool one_head = b.desc.shape.size() == 2;
  const std::int64_t heads = one_head ? 1 : b.desc.shape[1], dim = b.desc.shape.back();
  const std::int64_t rows = job.rows.total_q(), head_stride = one_head ? 0 : b.desc.strides[1];
  const bool large = b.region->bytes() > small_bytes;
#pragma omp parallel for schedule(static) if (large)
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t c = 0; c < dim; ++c) {
        const int step = values.normal_step(static_cast<std::uint64_t>((row * heads + head) * dim + c));
        store(b.region->data(), b.desc.type, row * b.desc.strides[0] + head * head_stride + c,
              value(variant, step, c == (row + 5 * head) % dim));
      }
}

}  // namespace msabench
