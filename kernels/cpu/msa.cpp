// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/operators.h"
#include "kernels/cpu/tile.h"

namespace msabench::cpu {
namespace {

/// The ids, which a caller need not want, and behind them what index and attend compute in, one after the other.
struct layout {
  std::int32_t* ids;
  char* rest;
  double bytes;

  layout(void* memory, const msabench_problem& p, int threads) {
    carver shared(memory);
    ids = shared.take<std::int32_t>(static_cast<double>(p.total_q) * p.hkv * p.topk);
    rest = shared.take<char>(std::max(index_scratch_bytes(p, threads), attend_scratch_bytes(p, threads)));
    bytes = shared.bytes();
  }
};

}  // namespace

void msa(const msa_call& call, const run_context& context) {
  const layout memory(context.scratch, context.problem, context.threads);
  const run_context rest{context.problem,       context.threads, memory.rest,
                         context.scratch_bytes, context.stream,  context.state};
  index_call indexing = call.index;
  if (indexing.ids == nullptr) {
    indexing.ids = memory.ids;
    indexing.id_head_stride = indexing.rule.topk;
    indexing.id_row_stride = std::int64_t{indexing.heads} * indexing.rule.topk;
  }
  index(indexing, rest);
  attend_call attending = call.attend;
  attending.ids = indexing.ids;
  attending.id_row_stride = indexing.id_row_stride;
  attending.id_head_stride = indexing.id_head_stride;
  attend(attending, rest);
}

double msa_scratch_bytes(const msabench_problem& problem, int threads) {
  return layout(nullptr, problem, threads).bytes;
}

}  // namespace msabench::cpu
