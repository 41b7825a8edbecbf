// SPDX-License-Identifier: Apache-2.0
// The types of msabench_dtype that kernels meet.
#pragma once

#include <msabench/plugin.h>

#include <cstdint>

/// On functions that kernels on a GPU call too.
#if defined(__CUDACC__)
#define MSABENCH_HOST_DEVICE __host__ __device__
#else
#define MSABENCH_HOST_DEVICE
#endif

namespace msabench::kernels {

inline constexpr msabench_dtype int32_type{0, 32, 1};
inline constexpr msabench_dtype fp64_type{2, 64, 1};
inline constexpr msabench_dtype fp32_type{2, 32, 1};
inline constexpr msabench_dtype fp16_type{2, 16, 1};
inline constexpr msabench_dtype bf16_type{4, 16, 1};
inline constexpr msabench_dtype e4m3_type{10, 8, 1};

MSABENCH_HOST_DEVICE constexpr bool same_type(msabench_dtype a, msabench_dtype b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

MSABENCH_HOST_DEVICE constexpr std::int64_t bytes_of(msabench_dtype type) { return type.bits / 8; }

}  // namespace msabench::kernels
