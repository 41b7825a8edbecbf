// SPDX-License-Identifier: Apache-2.0
#include <omp.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <type_traits>

#include "kernels/common/check.h"
#include "kernels/common/error.h"
#include "kernels/common/implementation.h"
#include "kernels/common/tensor_rules.h"

struct msabench_plan {
  msabench_problem problem;
  int threads;
  std::int64_t scratch_bytes;
  void* state = nullptr;
};

namespace msabench::kernels {
namespace {

constexpr std::int32_t cpu = 1;

// Set once by plugin(), before any other call.
const implementation* plugin_kernels = nullptr;
int plugin_threads = 1;
msabench_plugin plugin_table{};

std::uint32_t workspace_alignment() { return plugin_kernels->device == cpu ? 64 : 256; }

/// What allocates on the host, as libraries and their handles do, may find no memory; no exception leaves a call (rule R6).
template <class Body>
msabench_status guarded(Body body) noexcept {
  clear_error();
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(MSABENCH_NO_RESOURCES, "memory: the host has none left for %s; free some", plugin_kernels->name);
  } catch (const std::exception& e) {
    return fail(MSABENCH_INTERNAL, "%s: %s; report it to who makes the plugin", plugin_kernels->name, e.what());
  }
}

/// The whole of what query and plan check, and the scratch of a run, in whole cache lines.
msabench_status accept(const msabench_problem* given, msabench_problem& problem, std::int64_t& scratch_bytes) {
  const auto status = check_problem(*plugin_kernels, given, problem);
  if (status != MSABENCH_OK) return status;
  const double bytes = plugin_kernels->scratch_bytes(problem, plugin_threads);
  constexpr double most_bytes = 1e15;
  if (bytes > most_bytes) {
    return fail(MSABENCH_NO_RESOURCES,
                "max_kv_len %lld: the scratch of a run passes 10^15 bytes; use a smaller problem",
                static_cast<long long>(problem.max_kv_len));
  }
  const std::int64_t line = workspace_alignment();
  scratch_bytes = (static_cast<std::int64_t>(bytes) / line + 1) * line;
  return MSABENCH_OK;
}

msabench_status answer(const msabench_problem* given, msabench_capability* out) {
  msabench_problem problem;
  std::int64_t scratch_bytes = 0;
  const auto status = accept(given, problem, scratch_bytes);
  if (status != MSABENCH_OK) return status;
  if (out == nullptr) return fail(MSABENCH_INVALID_PROBLEM, "capability null: nowhere to answer; pass one");
  msabench_capability told{out->struct_size, plugin_kernels->numerics(problem), plugin_kernels->profile(problem)};
  std::memcpy(out, &told, std::min<std::size_t>(out->struct_size, sizeof told));
  return MSABENCH_OK;
}

msabench_status make(const msabench_problem* given, msabench_plan** out) {
  msabench_problem problem;
  std::int64_t scratch_bytes = 0;
  const auto status = accept(given, problem, scratch_bytes);
  if (status != MSABENCH_OK) return status;
  if (out == nullptr) return fail(MSABENCH_INVALID_PROBLEM, "plan null: nowhere to put it; pass a pointer");
  auto made = std::make_unique<msabench_plan>(msabench_plan{problem, plugin_threads, scratch_bytes});
  if (plugin_kernels->make_state != nullptr) {
    const auto made_status = plugin_kernels->make_state(made->problem, &made->state);
    if (made_status != MSABENCH_OK) return made_status;
  }
  *out = made.release();
  return MSABENCH_OK;
}

msabench_status workspace(const msabench_plan* plan, std::uint64_t* bytes, std::uint32_t* alignment) {
  clear_error();
  if (plan == nullptr || bytes == nullptr || alignment == nullptr) {
    return fail(MSABENCH_INVALID_PROBLEM, "workspace null: plan, bytes and alignment are needed; pass all three");
  }
  *bytes = static_cast<std::uint64_t>(plan->scratch_bytes);
  *alignment = workspace_alignment();
  return MSABENCH_OK;
}

template <class Call>
msabench_status run_checked(msabench_status (*check)(const msabench_problem&, const msabench_args*, Call&),
                            void (*compute)(const Call&, const run_context&), const run_context& context,
                            const msabench_args* args) {
  Call call{};
  const auto status = check(context.problem, args, call);
  if (status != MSABENCH_OK) return status;
  if constexpr (std::is_same_v<Call, msa_call>) {
    if (call.index.scores != nullptr && plugin_kernels->writes_scores != nullptr &&
        !plugin_kernels->writes_scores(context.problem))
      return fail(MSABENCH_UNSUPPORTED, "scores: %s keeps none of index keys of this type; leave them out",
                  plugin_kernels->name);
  }
  compute(call, context);
  if (plugin_kernels->enqueue_error == nullptr) return MSABENCH_OK;
  const char* const error = plugin_kernels->enqueue_error();
  return error == nullptr ? MSABENCH_OK : fail(MSABENCH_DEVICE_ERROR, "run: %s", error);
}

msabench_status compute(msabench_plan* plan, const msabench_args* args, void* scratch, void* stream) {
  if (plan == nullptr) return fail(MSABENCH_INVALID_PROBLEM, "plan null: nothing to run; pass a plan");
  if (scratch == nullptr || reinterpret_cast<std::uintptr_t>(scratch) % workspace_alignment() != 0) {
    return fail(MSABENCH_INVALID_PROBLEM,
                "workspace: null or not aligned to %u bytes; allocate what workspace asks for", workspace_alignment());
  }
  const run_context context{plan->problem, plan->threads, scratch, plan->scratch_bytes, stream, plan->state};
  switch (plan->problem.op) {
    case MSABENCH_OP_SELECT:
      return run_checked(check_select, plugin_kernels->select, context, args);
    case MSABENCH_OP_SCORE:
      return run_checked(check_index, plugin_kernels->score, context, args);
    case MSABENCH_OP_INDEX:
      return run_checked(check_index, plugin_kernels->index, context, args);
    case MSABENCH_OP_MSA:
      return run_checked(check_msa, plugin_kernels->msa, context, args);
    case MSABENCH_OP_DENSE:
      return run_checked(check_attend, plugin_kernels->dense, context, args);
    case MSABENCH_OP_VIT_ATTEND:
      return run_checked(check_vit_attend, plugin_kernels->vit_attend, context, args);
    case MSABENCH_OP_ROPE3D:
      return run_checked(check_rope3d, plugin_kernels->rope3d, context, args);
    case MSABENCH_OP_VIT3D:
      return run_checked(check_vit3d, plugin_kernels->vit3d, context, args);
    case MSABENCH_OP_QK_NORM_ROPE:
      return run_checked(check_norm_rope, plugin_kernels->norm_rope, context, args);
    case MSABENCH_OP_COMBINE:
      return run_checked(check_combine, plugin_kernels->combine, context, args);
    case MSABENCH_OP_ATTEND_BACKWARD:
      return run_checked(check_backward, plugin_kernels->attend_backward, context, args);
    case MSABENCH_OP_DENSE_BACKWARD:
      return run_checked(check_backward, plugin_kernels->dense_backward, context, args);
    case MSABENCH_OP_KL:
      return run_checked(check_kl, plugin_kernels->kl, context, args);
    default:
      return run_checked(check_attend, plugin_kernels->attend, context, args);
  }
}

msabench_status query(const msabench_problem* given, msabench_capability* out) {
  return guarded([=] { return answer(given, out); });
}

msabench_status plan(const msabench_problem* given, msabench_plan** out) {
  return guarded([=] { return make(given, out); });
}

msabench_status run(msabench_plan* plan, const msabench_args* args, void* scratch, void* stream) {
  return guarded([=] { return compute(plan, args, scratch, stream); });
}

void destroy(msabench_plan* plan) {
  clear_error();
  if (plan != nullptr && plan->state != nullptr) plugin_kernels->free_state(plan->state);
  delete plan;
}

}  // namespace

const msabench_plugin* plugin(const msabench_host* given, const implementation& kernels) {
  if (given == nullptr) return nullptr;
  msabench_host host;
  read_struct(given, host);  // nothing that a later host may say about itself matters here
  if (host.device.type != kernels.device) return nullptr;
  plugin_kernels = &kernels;
  set_tensor_rules(kernels.device, kernels.packed_only);
  plugin_threads = std::clamp(host.threads, 1, std::max(1, omp_get_thread_limit()));
  plugin_table = {sizeof(msabench_plugin),
                  MSABENCH_ABI_MAJOR,
                  MSABENCH_ABI_MINOR,
                  0,
                  kernels.name,
                  kernels.version == nullptr ? "0.1.0" : kernels.version(),
                  kernels.description,
                  query,
                  plan,
                  workspace,
                  run,
                  destroy,
                  error_text};
  return &plugin_table;
}

}  // namespace msabench::kernels
