// SPDX-License-Identifier: Apache-2.0
#include "kernels/cublas_twin/cublas.h"

#include <dlfcn.h>

#include <type_traits>
#include <utility>

namespace msabench::cublas_twin {
namespace {

thread_local const char* failed = nullptr;

void note(int status) {
  if (status != 0 && failed == nullptr) failed = cublas().status_text(status);
}

}  // namespace

cublas_library::cublas_library()
    : found(kernels::open_library("libcublas.so", {13, 12, 11}, kernels::symbol_scope::handle)) {
  if (found.handle == nullptr) {
    fault = kernels::not_found("libcublas", found);
    return;
  }
  const auto find = [&](auto& to, const char* symbol) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(found.handle, symbol));
    if (to == nullptr && fault.empty())
      fault = "libcublas " + found.path + ": has no " + symbol + "; name the folder of version 11.4 or later in " +
              "MSABENCH_CUDA_LIBS";
  };
  find(create, "cublasCreate_v2");
  find(destroy, "cublasDestroy_v2");
  find(set_math_mode, "cublasSetMathMode");
  find(set_stream, "cublasSetStream_v2");
  find(set_workspace, "cublasSetWorkspace_v2");
  find(multiply, "cublasGemmStridedBatchedEx");
  find(status_text, "cublasGetStatusString");
}

const cublas_library& cublas() {
  static const cublas_library library;
  return library;
}

products::products(cublas_library::handle handle, void* stream, void* workspace, msabench_dtype operands)
    : handle_(handle),
      type_(kernels::same_type(operands, kernels::bf16_type) ? cublas_library::bf16 : cublas_library::fp16) {
  // In this order: a new stream takes the workspace away.
  note(cublas().set_stream(handle_, stream));
  note(cublas().set_workspace(handle_, workspace, static_cast<std::size_t>(cublas_workspace_bytes)));
}

// cuBLAS counts by columns: a matrix [rows][columns] of C is one of `columns` rows to it, with leading dimension `columns`.

void products::scores(const product_sizes& sizes, const void* queries, const void* keys, float* scores) const {
  constexpr float one = 1, zero = 0;
  const auto line_count = static_cast<int>(sizes.lines), key_count = static_cast<int>(sizes.keys),
             width = static_cast<int>(sizes.width);
  note(cublas().multiply(handle_, cublas_library::transposed, cublas_library::plain, key_count, line_count, width, &one,
                         keys, type_, width, sizes.keys * sizes.width, queries, type_, width, sizes.lines * sizes.width,
                         &zero, scores, cublas_library::fp32, key_count, sizes.lines * sizes.keys,
                         static_cast<int>(sizes.units), cublas_library::in_fp32, cublas_library::usual_algorithm));
}

void products::outs(const product_sizes& sizes, const void* weights, const void* values, float* outs) const {
  constexpr float one = 1, zero = 0;
  const auto line_count = static_cast<int>(sizes.lines), key_count = static_cast<int>(sizes.keys),
             width = static_cast<int>(sizes.width);
  note(cublas().multiply(handle_, cublas_library::plain, cublas_library::plain, width, line_count, key_count, &one,
                         values, type_, width, sizes.keys * sizes.width, weights, type_, key_count,
                         sizes.lines * sizes.keys, &zero, outs, cublas_library::fp32, width, sizes.lines * sizes.width,
                         static_cast<int>(sizes.units), cublas_library::in_fp32, cublas_library::usual_algorithm));
}

const char* product_error() { return std::exchange(failed, nullptr); }

}  // namespace msabench::cublas_twin
