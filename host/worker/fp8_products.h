// SPDX-License-Identifier: Apache-2.0
// Products of random e4m3 matrices by cuBLASLt, opened at run time: what a GPU can do with operands of 8 bits at most.
#pragma once

#include <memory>
#include <string>

#include "host/worker/cuda_driver.h"

namespace msabench {

class fp8_products {
 public:
  // Matrices of `side` x `side`, results in bf16, sums in fp32 as the tensor cores keep them (fast accumulation).
  fp8_products(std::shared_ptr<cuda_device> device, int side);
  ~fp8_products();
  fp8_products(const fp8_products&) = delete;

  // Why there are none: no library, or it refuses; empty: there are.
  const std::string& missing() const { return missing_; }
  const std::string& library() const { return library_; }

  // Enqueues one. Throws cuda_failure.
  void multiply(void* stream) const;

 private:
  struct functions;
  struct state;
  void make_matrices(int side);

  std::shared_ptr<cuda_device> device_;
  std::unique_ptr<state> state_;
  std::string missing_, library_;
};

}  // namespace msabench
