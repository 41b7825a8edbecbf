// SPDX-License-Identifier: Apache-2.0
// Storage types that the naive kernels read and write. Arithmetic is fp32 throughout: loads widen exactly, and a store
// rounds once, to nearest even.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>

#include "kernels/common/types.h"

namespace msabench::naive {

using namespace kernels;

constexpr bool is_float_storage(msabench_dtype type) {
  return same_type(type, bf16_type) || same_type(type, fp16_type) || same_type(type, fp32_type);
}

/// Reads `count` consecutive elements of a float storage type.
void load_row(const void* from, msabench_dtype type, std::int64_t count, float* to);

/// Writes `count` consecutive elements of a float storage type.
void store_row(const float* from, std::int64_t count, msabench_dtype type, void* to);

}  // namespace msabench::naive
