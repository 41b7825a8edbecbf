// SPDX-License-Identifier: Apache-2.0
// Storage types that the naive kernels read and write. Arithmetic is fp32 throughout: loads widen exactly, and a store
// rounds once, to nearest even.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>

namespace msabench::naive {

inline constexpr msabench_dtype int32_type{0, 32, 1};
inline constexpr msabench_dtype fp32_type{2, 32, 1};
inline constexpr msabench_dtype bf16_type{4, 16, 1};

constexpr bool same_type(msabench_dtype a, msabench_dtype b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

constexpr bool is_float_storage(msabench_dtype type) {
  return same_type(type, bf16_type) || same_type(type, fp32_type);
}

constexpr std::int64_t bytes_of(msabench_dtype type) { return type.bits / 8; }

/// Reads `count` consecutive elements of a float storage type.
void load_row(const void* from, msabench_dtype type, std::int64_t count, float* to);

/// Writes `count` consecutive elements of a float storage type.
void store_row(const float* from, std::int64_t count, msabench_dtype type, void* to);

}  // namespace msabench::naive
