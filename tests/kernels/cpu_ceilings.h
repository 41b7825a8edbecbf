// SPDX-License-Identifier: Apache-2.0
// What this machine can do at the best, measured: the ceilings beside which cpu_speed puts the kernels.
#pragma once

#include <cstddef>

namespace msabench::plugin_test {

/// Fused multiply-adds of fp32 vectors on all threads, counted as two operations, in 10^9 per second.
double fma_gflops(int threads);

/// Reading `bytes` of memory once by all threads, in 10^9 bytes per second.
double read_gbytes(const float* from, std::size_t bytes, int threads);

}  // namespace msabench::plugin_test
