// SPDX-License-Identifier: Apache-2.0
// Device bench of `attend` of cuda_sm90: not part of the tree.
#pragma once
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
#include "kernels/cuda_sm90/attend_kernels.h"

inline void must(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  std::printf("CUDA %s: %s\n", what, cudaGetErrorString(e));
  std::fflush(stdout);
  std::exit(1);
}
/// Events between launches.
struct marks {
  cudaStream_t stream;
  std::vector<std::pair<std::string, cudaEvent_t>> list;
  void operator()(const std::string& name) {
    cudaEvent_t e;
    cudaEventCreate(&e);
    cudaEventRecord(e, stream);
    list.push_back({name, e});
  }
};
namespace msabench::cuda_sm90 {
extern double bench_budget;
extern long bench_tokens;
void bench_lists(const attend_call&, const attend_chunk&, cudaStream_t, marks&);
void bench_scattered(const attend_call&, const attend_maps&, const attend_chunk&, cudaStream_t, marks&);
}
