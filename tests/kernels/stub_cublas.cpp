// SPDX-License-Identifier: Apache-2.0
// Stands in for cuBLAS where a test needs none of its products: it counts handles and keeps what it was told.
#pragma GCC visibility push(default)
extern "C" {

int stub_handles = 0;        // that are there
int stub_create_status = 0;  // what cublasCreate answers
int stub_math_mode = -1;

int cublasCreate_v2(void** handle) {
  if (stub_create_status != 0) return stub_create_status;
  *handle = &stub_handles;
  ++stub_handles;
  return 0;
}
int cublasDestroy_v2(void*) {
  --stub_handles;
  return 0;
}
int cublasSetMathMode(void*, int mode) {
  stub_math_mode = mode;
  return 0;
}
int cublasSetStream_v2(void*, void*) { return 0; }
int cublasSetWorkspace_v2(void*, void*, unsigned long) { return 0; }
const char* cublasGetStatusString(int) { return "the stub's status"; }
#ifndef STUB_INCOMPLETE
int cublasGemmStridedBatchedEx() { return 0; }
#endif
}
#pragma GCC visibility pop
