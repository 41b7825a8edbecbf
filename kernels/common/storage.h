// SPDX-License-Identifier: Apache-2.0
// Storage types that kernels on a CPU read and write. Loads widen to fp32 exactly, a store rounds once, to nearest even.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>

#include "kernels/common/types.h"

namespace msabench::kernels {

constexpr bool is_float_storage(msabench_dtype type) {
  return same_type(type, bf16_type) || same_type(type, fp16_type) || same_type(type, fp32_type);
}

/// The same for people.
inline constexpr const char* float_storage_types = "bf16 {4,16,1}, fp16 {2,16,1} and fp32 {2,32,1}";

/// Reads `count` consecutive elements of a float storage type or of e4m3.
void load_row(const void* from, msabench_dtype type, std::int64_t count, float* to);

/// Writes `count` consecutive elements of a float storage type.
void store_row(const float* from, std::int64_t count, msabench_dtype type, void* to);

}  // namespace msabench::kernels
