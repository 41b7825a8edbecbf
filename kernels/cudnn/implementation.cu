// SPDX-License-Identifier: Apache-2.0
#include "kernels/cudnn/implementation.h"

#include <cuda_runtime.h>

#include <cstring>
#include <map>
#include <mutex>

#include "kernels/common/declare.h"
#include "kernels/common/error.h"
#include "kernels/cudnn/graph.h"
#include "kernels/cudnn/operators.h"

namespace msabench::cudnn {
namespace {

bool stores(msabench_dtype type) { return same_type(type, bf16_type) || same_type(type, fp16_type); }

msabench_profile profile(const msabench_problem& problem) {
  msabench_profile delivered = canonical_profile(problem);
  delivered.graph_safe = 1;
  // It splits keys as the batch leaves multiprocessors idle, and adds the parts of one query token as they arrive, and those of
  // the gradients of queries.
  delivered.batch_invariant = 0;
  delivered.repeatable = !trains(problem.op) && problem.max_q_len > 1;
  return delivered;
}

/// cuDNN says nothing of how it sums; so this claims no more than what the formats make of any order.
msabench_numerics numerics(const msabench_problem& problem) {
  msabench_numerics declared = fp32_numerics(problem);
  declared.p_operand = problem.q;
  if (trains(problem.op)) {
    declared.ds_operand = problem.q;
    constexpr std::uint32_t p = 8;
    // Seen, not said: weights that it computes again for gradients are off by more than rounding to nearest makes them.
    declared.truncated = p;
  }
  return declared;
}

/// What building a graph for a problem told. Only that shows whether cuDNN takes it and what workspace it needs, and it
/// takes long, so the graph is kept for the plan that follows.
struct trial {
  std::string refusal;
  std::int64_t workspace_bytes = 0;
};

class trials {
 public:
  const trial& of(const msabench_problem& problem) {
    const std::lock_guard lock(mutex_);
    const std::string key = key_of(problem);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    trial made;
    std::unique_ptr<graph> built = graph::build(problem, made.refusal);
    if (built != nullptr) {
      made.workspace_bytes = built->workspace_bytes();
      ready_ = std::move(built);
      ready_key_ = key;
    }
    return known_.emplace(key, std::move(made)).first->second;
  }

  /// The graph of the last trial if it is this problem's; the next one has to build its own.
  std::unique_ptr<graph> take(const msabench_problem& problem) {
    const std::lock_guard lock(mutex_);
    return ready_ != nullptr && ready_key_ == key_of(problem) ? std::move(ready_) : nullptr;
  }

 private:
  /// Profiles don't change what cuDNN is asked.
  static std::string key_of(const msabench_problem& problem) {
    msabench_problem asked = problem;
    asked.struct_size = 0;
    asked.profile = {};
    std::string key(sizeof asked, '\0');
    std::memcpy(key.data(), &asked, sizeof asked);
    return key;
  }

  std::mutex mutex_;
  std::map<std::string, trial> known_;
  std::unique_ptr<graph> ready_;
  std::string ready_key_;
};

trials& all_trials() {
  static trials all;
  return all;
}

const char* refusal(const msabench_problem& problem) {
  const msabench_problem p = with_keys(problem);
  if (p.d % 8 != 0 || p.d > 256) return "d: cuDNN has multiples of 8 up to 256; use one of them";
  if (p.batch < 1 || p.max_q_len < 1 || p.max_kv_len < 1)
    return "batch, max_q_len, max_kv_len: cuDNN has no graph for nothing to do; leave the call out";
  constexpr std::int64_t most_sequences = 65535;  // it puts them on an axis of a grid that has no more
  if (p.batch > most_sequences) return "batch: cuDNN has at most 65535 sequences in a call; use fewer";
  if (p.page_layout == 2) return "page_layout 2: cuDNN takes k and v apart; use 0 or 1";
  if (!same_type(p.q, p.out)) return "out: cuDNN writes the type of q; use that";
  if (trains(p.op) && !same_type(p.q, p.grad)) return "grad: cuDNN writes gradients of the type of q; use that";
  const trial& tried = all_trials().of(p);
  return tried.refusal.empty() ? nullptr : tried.refusal.c_str();
}

double scratch_bytes(const msabench_problem& problem, int) {
  const msabench_problem p = with_keys(problem);
  return form_bytes(p) + static_cast<double>(all_trials().of(p).workspace_bytes);
}

msabench_status make_state(const msabench_problem& problem, void** state) {
  const msabench_problem p = with_keys(problem);
  std::unique_ptr<graph> built = all_trials().take(p);
  std::string why;
  if (built == nullptr) built = graph::build(p, why);
  if (built == nullptr) return fail(MSABENCH_NO_RESOURCES, "%s", why.c_str());
  *state = built.release();
  return MSABENCH_OK;
}

const char* version() {
  static const std::string text = library_version();
  return text.c_str();
}

void free_state(void* state) { delete static_cast<graph*>(state); }

const char* enqueue_error() {
  const cudaError_t launch = cudaGetLastError();
  if (!graph_error().empty()) return graph_error().c_str();
  return launch == cudaSuccess ? nullptr : cudaGetErrorString(launch);
}

}  // namespace

std::string& graph_error() {
  thread_local std::string text;
  return text;
}

const kernels::implementation cudnn_kernels = {
    .name = "cudnn",
    .description = "attention of NVIDIA cuDNN, the dense baseline on NVIDIA GPUs: dense, dense_backward and vit_attend",
    .stores = stores,
    .storage_types = "bf16 {4,16,1} and fp16 {2,16,1}",
    .profile = profile,
    .numerics = numerics,
    .scratch_bytes = scratch_bytes,
    .refusal = refusal,
    .device = 2,
    .version = version,
    .packed_only = true,
    .make_state = make_state,
    .free_state = free_state,
    .enqueue_error = enqueue_error,
    .dense = dense,
    .vit_attend = vit_attend,
    .dense_backward = dense_backward,
};

}  // namespace msabench::cudnn
