// SPDX-License-Identifier: Apache-2.0
#include "core/model_work.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/units.h"

namespace msabench {

namespace {

problem layer_problem(const model_spec& m, op operation) {
  problem p;
  p.operation = operation;
  p.hq = m.shape.hq;
  p.hkv = m.shape.hkv;
  p.d = m.shape.d;
  p.hi = m.shape.hi;
  p.di = m.shape.di;
  p.block = m.shape.block;
  p.topk = m.shape.topk;
  p.local_blocks = m.shape.local_blocks;
  p.init_blocks = m.shape.init_blocks;
  p.q = p.kv = m.type;
  p.q_idx = p.k_idx = m.index_type;
  p.out = m.type == e4m3 ? bf16 : m.type;
  p.partial = p.grad = fp32;
  p.kv_scale = m.type == e4m3 ? 1 : 0;
  p.idx_scale = m.index_type == e4m3 ? 1 : 0;
  p.softmax_scale = 1 / std::sqrt(static_cast<double>(p.d));
  p.index_scale = p.di > 0 ? 1 / std::sqrt(static_cast<double>(p.di)) : 0;
  p.kl_coeff = 1;
  return p;
}

operator_call call(const model_spec& m, op operation, batch_lengths batch) {
  const problem p = layer_problem(m, operation);
  operator_call c{operation, work_of(p, batch), 0};
  if (operation == op::msa) c.index_flops = 2.0 * p.di * p.hi * causal_pairs(batch);
  if (operation == op::kl)
    c.index_flops = c.amount.useful_flops * 3 * p.di * p.hi / (1.0 * p.d * p.hq + 3.0 * p.di * p.hi);
  return c;
}

}  // namespace

std::string_view name(work_phase phase) {
  switch (phase) {
    case work_phase::prefill:
      return "prefill";
    case work_phase::decode:
      return "decode";
    case work_phase::training:
      return "training";
  }
  throw suite_error("work model: unknown phase");
}

std::vector<operator_call> sparse_layer(const model_spec& m, work_phase phase, batch_lengths batch) {
  if (m.sparse_layers == 0) throw suite_error("work model: " + m.name + " has no sparse layers");
  std::vector<operator_call> calls{call(m, op::msa, batch)};
  if (phase != work_phase::training) return calls;
  calls.push_back(call(m, op::attend_backward, batch));
  calls.push_back(call(m, op::kl, batch));
  return calls;
}

std::vector<operator_call> dense_layer(const model_spec& m, work_phase phase, batch_lengths batch) {
  std::vector<operator_call> calls{call(m, op::dense, batch)};
  if (phase == work_phase::training) calls.push_back(call(m, op::dense_backward, batch));
  return calls;
}

double useful_flops(const std::vector<operator_call>& calls) {
  double sum = 0;
  for (const auto& c : calls) sum += c.amount.useful_flops;
  return sum;
}

sequence phase_sequence(work_phase phase, std::int64_t context, std::int64_t chunk) {
  if (phase == work_phase::decode) return {1, context};
  if (phase == work_phase::prefill && chunk > 0) return {std::min(chunk, context), context};
  return {context, context};
}

std::int64_t kv_bytes_per_token(const model_spec& m) {
  return std::int64_t{2} * m.shape.hkv * m.shape.d * size_bytes(m.type);
}

std::int64_t index_bytes_per_token(const model_spec& m) {
  return m.sparse_layers == 0 ? 0 : m.shape.di * size_bytes(m.index_type);
}

std::optional<std::int64_t> crossover(std::int64_t block, const std::function<bool(std::int64_t)>& cheaper) {
  if (!cheaper(max_size)) return std::nullopt;
  std::int64_t no = 0, yes = max_size;
  while (yes - no > 1) {
    const std::int64_t middle = no + (yes - no) / 2;
    (cheaper(middle) ? yes : no) = middle;
  }
  // Where it wavers the search ends at one of several changes; the last one counts.
  for (std::int64_t n = std::min(max_size, no + 2 * block); n > no; --n)
    if (!cheaper(n)) return n + 1;
  return yes;
}

}  // namespace msabench
