// SPDX-License-Identifier: Apache-2.0
#include "kernels/cublas_twin/implementation.h"

#include <limits>

#include "kernels/common/declare.h"
#include "kernels/common/error.h"
#include "kernels/cublas_twin/cublas.h"
#include "kernels/cublas_twin/launch.cuh"
#include "kernels/cublas_twin/operators.h"
#include "kernels/cublas_twin/passes.h"

namespace msabench::cublas_twin {
namespace {

bool stores(msabench_dtype type) { return same_type(type, bf16_type) || same_type(type, fp16_type); }

msabench_profile profile(const msabench_problem& problem) {
  msabench_profile delivered = canonical_profile(problem);
  delivered.graph_safe = 1;
  // The library chooses the order of its sums by the sizes of a product, which depend on the rows of the call.
  delivered.batch_invariant = 0;
  return delivered;
}

msabench_numerics numerics(const msabench_problem& problem) {
  msabench_numerics declared = fp32_numerics(problem);
  const passes p = passes_of(problem);
  if (!p.attends) return declared;
  const std::int64_t parts = p.key_passes * p.parts;
  declared.p_operand = problem.q;
  // In which order a product is summed is the library's affair; none is longer than this.
  declared.chain_out = static_cast<std::uint32_t>(p.padded_keys + parts);
  // Of a thread, over the lanes and warps of a line, and over the parts.
  constexpr std::int64_t threads = 128, joins = 5 + threads / warp;
  declared.chain_row_sum = static_cast<std::uint32_t>(ceil_div(p.padded_keys, threads) + joins + parts);
  // expf is off by two units in the last place, and a key's weight is the product of two where there are parts.
  declared.exp_rel_error = 0x1p-21f;
  return declared;
}

double scratch_bytes(const msabench_problem& problem, int) { return pass_memory(passes_of(problem), nullptr).bytes; }

const char* refusal(const msabench_problem& problem) {
  const passes p = passes_of(problem);
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (p.padded_keys > most || p.lines() > most || p.padded_width > most)
    return "max_kv_len, hq or d: a matrix with more than 2^31 - 1 rows or columns, which is all that cuBLAS counts to; "
           "use a smaller problem";
  return cublas().fault.empty() ? nullptr : cublas().fault.c_str();
}

/// One handle for each plan, since a handle is for one thread at a time.
msabench_status make_state(const msabench_problem&, void** state) {
  cublas_library::handle handle = nullptr;
  int status = cublas().create(&handle);
  // Sums of 16-bit products are in fp32 to the end, also where a product is split and put together again.
  if (status == 0) status = cublas().set_math_mode(handle, cublas_library::no_reduced_precision_reductions);
  if (status == 0) {
    *state = handle;
    return MSABENCH_OK;
  }
  if (handle != nullptr) cublas().destroy(handle);
  return fail(MSABENCH_NO_RESOURCES, "cuBLAS: no handle: %s; free memory of the device, or see that it works",
              cublas().status_text(status));
}

void free_state(void* state) { cublas().destroy(state); }

const char* enqueue_error() {
  const char* const product = product_error();
  const cudaError_t launch = cudaGetLastError();
  if (launch != cudaSuccess) return cudaGetErrorString(launch);
  return product;
}

}  // namespace

const kernels::implementation twin_kernels = {
    .name = "cublas_twin",
    .description = "cuBLAS products and simple kernels around them, a baseline on NVIDIA GPUs: score, attend and dense",
    .stores = stores,
    .storage_types = "bf16 {4,16,1} and fp16 {2,16,1}",
    .profile = profile,
    .numerics = numerics,
    .scratch_bytes = scratch_bytes,
    .refusal = refusal,
    .device = 2,
    .make_state = make_state,
    .free_state = free_state,
    .enqueue_error = enqueue_error,
    .attend = attend,
    .dense = dense,
    .score = score,
};

}  // namespace msabench::cublas_twin
