// SPDX-License-Identifier: Apache-2.0
// What a set of kernels is to the plugin interface: what it takes, what it says of itself, and a function per operator.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>

#include "kernels/common/calls.h"

namespace msabench::kernels {

/// What a run has beside the tensors. Nothing in the scratch outlives a run.
struct run_context {
  const msabench_problem& problem;
  int threads;
  void* scratch;  ///< 64-byte aligned on a CPU, 256-byte aligned on CUDA; dirty
  std::int64_t scratch_bytes;
  void* stream = nullptr;  ///< cudaStream_t; nullptr on a CPU
  void* state = nullptr;   ///< of the plan, from make_state; nullptr without it
};

/// Functions of operators on a CPU must not allocate or throw; what others throw becomes a status. An operator without
/// function is refused as unsupported.
struct implementation {
  const char* name;
  const char* description;
  bool (*stores)(msabench_dtype);  ///< whether q, k, v and out may be stored so
  const char* storage_types;       ///< the same for people
  /// Whether a tensor that no matrix product reads may be stored so: all of combine, qk_norm_rope and rope3d, and
  /// gradients; nullptr = as above.
  bool (*stores_unmultiplied)(msabench_dtype) = nullptr;
  msabench_profile (*profile)(const msabench_problem&);    ///< taken and delivered, for a problem that has been checked
  msabench_numerics (*numerics)(const msabench_problem&);  ///< how it computes it
  /// Bytes of scratch for a run by so many threads; a double, since sizes that no machine has must not wrap around.
  double (*scratch_bytes)(const msabench_problem&, int threads);
  /// Whether k and v, and q_idx and k_idx, may be e4m3 with scales.
  bool scaled_e4m3 = false;
  /// Text for MSABENCH_UNSUPPORTED of a problem that is sound but not taken; nullptr: taken.
  const char* (*refusal)(const msabench_problem&) = nullptr;
  /// Whether msa writes block scores if they are wanted; nullptr: always.
  bool (*writes_scores)(const msabench_problem&) = nullptr;
  /// DLPack type of the memory that tensors lie in: 1 a CPU, 2 CUDA.
  std::int32_t device = 1;
  /// Of what computes, where that is not this suite; asked once.
  const char* (*version)() = nullptr;
  /// Whether tensors have to be packed; others are refused when a run is checked.
  bool packed_only = false;
  /// What a plan keeps from run to run, such as the handle of a library: made by plan, released by destroy. A status but
  /// MSABENCH_OK, with its text, becomes that of plan.
  msabench_status (*make_state)(const msabench_problem&, void** state) = nullptr;
  void (*free_state)(void* state) = nullptr;
  /// Text of what went wrong when this thread's last run enqueued its work; nullptr: nothing.
  const char* (*enqueue_error)() = nullptr;
  void (*select)(const select_call&, const run_context&) = nullptr;
  void (*attend)(const attend_call&, const run_context&) = nullptr;
  void (*dense)(const attend_call&, const run_context&) = nullptr;
  void (*vit_attend)(const attend_call&, const run_context&) = nullptr;
  void (*rope3d)(const rope3d_call&, const run_context&) = nullptr;
  void (*vit3d)(const vit3d_call&, const run_context&) = nullptr;
  void (*msa)(const msa_call&, const run_context&) = nullptr;
  void (*score)(const index_call&, const run_context&) = nullptr;
  void (*index)(const index_call&, const run_context&) = nullptr;
  void (*combine)(const combine_call&, const run_context&) = nullptr;
  void (*norm_rope)(const norm_rope_call&, const run_context&) = nullptr;
  void (*attend_backward)(const backward_call&, const run_context&) = nullptr;
  void (*dense_backward)(const backward_call&, const run_context&) = nullptr;
  void (*kl)(const kl_call&, const run_context&) = nullptr;
};

/// The plugin's table over these kernels, for msabench_plugin_get: nullptr where `host` is absent or names another
/// device than that of the kernels. `kernels` must outlive the process. Called once per shared object.
const msabench_plugin* plugin(const msabench_host* host, const implementation& kernels);

}  // namespace msabench::kernels
