// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/glue.h"

#include <omp.h>

#include <algorithm>
#include <new>

#include "kernels/naive/check.h"
#include "kernels/naive/error.h"

struct msabench_plan {
  msabench_problem problem;
  const msabench::naive::stages* stage;
  int threads;
  std::int64_t slice_bytes;  // scratch of one thread
};

namespace msabench::naive {
namespace {

constexpr std::uint32_t workspace_alignment = 64;

// Set once by plugin(), before any other call.
const stages* plugin_stages = nullptr;
int plugin_threads = 1;
msabench_plugin plugin_table{};

/// The whole of what query and plan check, and the scratch of a thread, in whole cache lines.
msabench_status accept(const msabench_problem* given, msabench_problem& problem, std::int64_t& slice_bytes) {
  const auto status = check_problem(given, problem);
  if (status != MSABENCH_OK) return status;
  const std::int64_t capacity = block_capacity(problem);
  const double bytes = problem.op == MSABENCH_OP_SELECT
                           ? static_cast<double>(select_scratch_bytes(max_blocks(problem)))
                           : attend_scratch_bytes({problem.hq / problem.hkv, problem.d, problem.block, capacity});
  constexpr double most_bytes = 1e15;
  if (bytes > most_bytes) {
    return fail(MSABENCH_NO_RESOURCES, "max_kv_len %lld: the scores of one row pass 10^15 bytes; use a smaller problem",
                static_cast<long long>(problem.max_kv_len));
  }
  const std::int64_t lines = static_cast<std::int64_t>(bytes) / workspace_alignment + 1;
  slice_bytes = lines * workspace_alignment;
  return MSABENCH_OK;
}

msabench_status query(const msabench_problem* given, msabench_capability* out) {
  clear_error();
  msabench_problem problem;
  std::int64_t slice_bytes = 0;
  const auto status = accept(given, problem, slice_bytes);
  if (status != MSABENCH_OK) return status;
  if (out == nullptr) return fail(MSABENCH_INVALID_PROBLEM, "capability null: nowhere to answer; pass one");
  msabench_capability answer{out->struct_size, declared_numerics(problem), delivered_profile(problem)};
  std::memcpy(out, &answer, std::min<std::size_t>(out->struct_size, sizeof answer));
  return MSABENCH_OK;
}

msabench_status plan(const msabench_problem* given, msabench_plan** out) {
  clear_error();
  msabench_problem problem;
  std::int64_t slice_bytes = 0;
  const auto status = accept(given, problem, slice_bytes);
  if (status != MSABENCH_OK) return status;
  if (out == nullptr) return fail(MSABENCH_INVALID_PROBLEM, "plan null: nowhere to put it; pass a pointer");
  auto* made = new (std::nothrow) msabench_plan{problem, plugin_stages, plugin_threads, slice_bytes};
  if (made == nullptr) return fail(MSABENCH_NO_RESOURCES, "plan: out of memory; free some");
  *out = made;
  return MSABENCH_OK;
}

msabench_status workspace(const msabench_plan* plan, std::uint64_t* bytes, std::uint32_t* alignment) {
  clear_error();
  if (plan == nullptr || bytes == nullptr || alignment == nullptr) {
    return fail(MSABENCH_INVALID_PROBLEM, "workspace null: plan, bytes and alignment are needed; pass all three");
  }
  *bytes = static_cast<std::uint64_t>(plan->slice_bytes) * static_cast<std::uint64_t>(plan->threads);
  *alignment = workspace_alignment;
  return MSABENCH_OK;
}

msabench_status run(msabench_plan* plan, const msabench_args* args, void* scratch, void*) {
  clear_error();
  if (plan == nullptr) return fail(MSABENCH_INVALID_PROBLEM, "plan null: nothing to run; pass a plan");
  if (scratch == nullptr || reinterpret_cast<std::uintptr_t>(scratch) % workspace_alignment != 0) {
    return fail(MSABENCH_INVALID_PROBLEM,
                "workspace: null or not aligned to %u bytes; allocate what workspace asks for", workspace_alignment);
  }
  if (plan->problem.op == MSABENCH_OP_SELECT) {
    select_call call{};
    const auto status = check_select(plan->problem, args, call);
    if (status == MSABENCH_OK) select(*plan->stage, call, plan->threads, scratch, plan->slice_bytes);
    return status;
  }
  attend_call call{};
  const auto status = check_attend(plan->problem, args, call);
  if (status == MSABENCH_OK) attend(*plan->stage, call, plan->threads, scratch, plan->slice_bytes);
  return status;
}

void destroy(msabench_plan* plan) {
  clear_error();
  delete plan;
}

}  // namespace

const msabench_plugin* plugin(const msabench_host* given, const char* name, const char* description,
                              const stages& stage) {
  constexpr std::int32_t cpu = 1;
  if (given == nullptr) return nullptr;
  msabench_host host;
  read_struct(given, host);  // nothing that a later host may say about itself matters here
  if (host.device.type != cpu) return nullptr;
  plugin_stages = &stage;
  plugin_threads = std::clamp(host.threads, 1, std::max(1, omp_get_thread_limit()));
  plugin_table = {sizeof(msabench_plugin),
                  MSABENCH_ABI_MAJOR,
                  MSABENCH_ABI_MINOR,
                  0,
                  name,
                  "0.1.0",
                  description,
                  query,
                  plan,
                  workspace,
                  run,
                  destroy,
                  error_text};
  return &plugin_table;
}

}  // namespace msabench::naive
