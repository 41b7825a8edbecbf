// SPDX-License-Identifier: Apache-2.0
// The limits of a GPU, measured between the samples: cuBLAS products of random bf16 matrices and cuBLASLt products of
// random e4m3 ones, a kernel that only reads, an empty graph, and the true clock of the multiprocessors.
#pragma once

#include <memory>

#include "host/worker/cuda_driver.h"
#include "host/worker/probes.h"

namespace msabench {

// Without cuBLAS types() is empty, without cuBLASLt multiplies_e4m3() is false, under compute-sanitizer both, and source()
// says so. Throws cuda_failure.
std::unique_ptr<machine_probes> make_device_probes(std::shared_ptr<cuda_device> device);

}  // namespace msabench
