// SPDX-License-Identifier: Apache-2.0
// What one attention layer of a model does in prefill, decode and training, as calls of operators with their work. Projections, norms,
// rotary embedding and experts are no part of it: they cost the same with either kind of attention.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "core/model.h"
#include "core/operator.h"
#include "core/pairs.h"
#include "core/work.h"

namespace msabench {

enum class work_phase { prefill, decode, training };

std::string_view name(work_phase phase);  // "prefill"

struct operator_call {
  op operation = op::msa;
  work amount;
  double index_flops = 0;  // of the useful FLOPs, those between operands of the model's index_type
};

// prefill: msa. decode: the same. training: msa, attend_backward, kl in its sparse stage. suite_error for a model without sparse layers.
std::vector<operator_call> sparse_layer(const model_spec& m, work_phase phase, batch_lengths batch);
// The same with every visible key: dense, in training dense_backward. It takes the model's heads whatever its layers are, so it is also
// the baseline of a sparse layer: full attention with the same query and KV heads.
std::vector<operator_call> dense_layer(const model_spec& m, work_phase phase, batch_lengths batch);

double useful_flops(const std::vector<operator_call>& calls);

// The batch of a phase: one sequence of `context` tokens, of which decode computes the last, training all, prefill all or, with
// chunk > 0, the last min(chunk, context).
sequence phase_sequence(work_phase phase, std::int64_t context, std::int64_t chunk = 0);

// Cache that a token leaves in one layer; index keys in sparse layers only. Scales per tensor are no part of it.
std::int64_t kv_bytes_per_token(const model_spec& m);
std::int64_t index_bytes_per_token(const model_spec& m);

// The shortest context from which on `cheaper(n)` holds, up to max_size; nothing if it does not hold there. `cheaper` may waver within
// two blocks of the crossover (the own block fills up with the context) and nowhere else.
std::optional<std::int64_t> crossover(std::int64_t block, const std::function<bool(std::int64_t)>& cheaper);

}  // namespace msabench
