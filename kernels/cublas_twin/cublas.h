// SPDX-License-Identifier: Apache-2.0
// cuBLAS, opened at run time, and the two products that everything here is composed of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/common/libraries.h"
#include "kernels/common/types.h"

namespace msabench::cublas_twin {

/// Functions and constants of cuBLAS's binary interface (cublas_api.h, library_types.h), the same since version 11.
struct cublas_library {
  using handle = void*;
  static constexpr int plain = 0, transposed = 1;             // cublasOperation_t
  static constexpr int fp32 = 0, fp16 = 2, bf16 = 14;         // cudaDataType_t
  static constexpr int in_fp32 = 68, usual_algorithm = -1;    // cublasComputeType_t, cublasGemmAlgo_t
  static constexpr int no_reduced_precision_reductions = 16;  // cublasMath_t

  int (*create)(handle*) = nullptr;
  int (*destroy)(handle) = nullptr;
  int (*set_math_mode)(handle, int) = nullptr;
  int (*set_stream)(handle, void*) = nullptr;
  int (*set_workspace)(handle, void*, std::size_t) = nullptr;
  int (*multiply)(handle, int, int, int, int, int, const void*, const void*, int, int, long long, const void*, int, int,
                  long long, const void*, void*, int, int, long long, int, int, int) = nullptr;
  const char* (*status_text)(int) = nullptr;

  kernels::found_library found;
  std::string fault;  ///< why it can't be used; "": it can

  cublas_library();
};

/// Opened by the first call.
const cublas_library& cublas();

/// Recommended for Hopper; enough for the others.
inline constexpr std::int64_t cublas_workspace_bytes = std::int64_t{32} << 20;

/// Sizes of `units` independent products, whose matrices follow each other densely.
struct product_sizes {
  std::int64_t units, lines, keys, width;
};

/// Products of one run: 16-bit operands of one type, fp32 sums and results.
class products {
 public:
  /// `workspace` has cublas_workspace_bytes.
  products(cublas_library::handle handle, void* stream, void* workspace, msabench_dtype operands);

  /// scores[unit][line][key] = sum of queries[unit][line][c] * keys[unit][key][c]
  void scores(const product_sizes& sizes, const void* queries, const void* keys, float* scores) const;

  /// outs[unit][line][c] = sum of weights[unit][line][key] * values[unit][key][c]
  void outs(const product_sizes& sizes, const void* weights, const void* values, float* outs) const;

 private:
  cublas_library::handle handle_;
  int type_;
};

/// Text of this thread's first call of cuBLAS that failed since the last question; nullptr: none.
const char* product_error();

}  // namespace msabench::cublas_twin
