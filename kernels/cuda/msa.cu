// SPDX-License-Identifier: Apache-2.0
// The index branch, and attention over the blocks that it selects.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"

namespace msabench::cuda {
namespace {

/// Bytes in front of what index and attend compute in, one after the other: the ids, which a caller need not want.
double id_bytes(const msabench_problem& p) {
  constexpr double line = 256;
  const double bytes = static_cast<double>(p.total_q) * p.hkv * p.topk * sizeof(std::int32_t);
  return std::ceil(bytes / line) * line;
}

}  // namespace

void msa_of(const msa_call& call, const run_context& context, const msa_stages& stages) {
  run_context rest = context;
  rest.scratch = static_cast<char*>(context.scratch) + static_cast<std::int64_t>(id_bytes(context.problem));
  index_call indexing = call.index;
  if (indexing.ids == nullptr) {
    indexing.ids = static_cast<std::int32_t*>(context.scratch);
    indexing.id_head_stride = indexing.rule.topk;
    indexing.id_row_stride = std::int64_t{indexing.heads} * indexing.rule.topk;
  }
  stages.index(indexing, rest);
  attend_call attending = call.attend;
  attending.ids = indexing.ids;
  attending.id_row_stride = indexing.id_row_stride;
  attending.id_head_stride = indexing.id_head_stride;
  stages.attend(attending, rest);
}

void msa(const msa_call& call, const run_context& context) { msa_of(call, context, {index, attend_selected}); }

double msa_scratch_bytes(const msabench_problem& problem, double index_bytes, double attend_bytes) {
  return id_bytes(problem) + std::max(index_bytes, attend_bytes);
}

double msa_scratch_bytes(const msabench_problem& problem) {
  return msa_scratch_bytes(problem, index_scratch_bytes(problem), attention_scratch_bytes(problem));
}

}  // namespace msabench::cuda
