// SPDX-License-Identifier: Apache-2.0
#include "host/worker/fp8_products.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "host/worker/cuda_libraries.h"

namespace msabench {
namespace {

// cublasLt.h and library_types.h: constants and structures of cuBLASLt's binary interface, the same since version 11.8.
constexpr int bf16 = 14, e4m3 = 28, fp32 = 0, in_fp32 = 68;
constexpr int transpose_a = 3, fast_accumulation = 25, most_workspace = 1, transposed = 1;
constexpr std::uint64_t workspace_bytes = std::uint64_t{32} << 20;

struct algorithm {
  std::array<std::uint64_t, 8> data;
};

struct heuristic_result {
  algorithm chosen{};
  std::size_t workspace = 0;
  int state = 0;
  float waves = 0;
  std::array<int, 4> reserved{};
};
static_assert(sizeof(heuristic_result) == 96);

void* pointer(device_address at) { return reinterpret_cast<void*>(at); }

}  // namespace

struct fp8_products::functions {
  int (*create)(void**) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*make_product)(void**, int compute, int scale) = nullptr;
  int (*destroy_product)(void*) = nullptr;
  int (*set_product)(void*, int attribute, const void*, std::size_t) = nullptr;
  int (*make_layout)(void**, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t stride) = nullptr;
  int (*destroy_layout)(void*) = nullptr;
  int (*make_preference)(void**) = nullptr;
  int (*destroy_preference)(void*) = nullptr;
  int (*set_preference)(void*, int attribute, const void*, std::size_t) = nullptr;
  int (*choose)(void*, void* product, void* a, void* b, void* c, void* d, void* preference, int wanted,
                heuristic_result*, int* found) = nullptr;
  int (*multiply)(void*, void* product, const void* alpha, const void* a, void* layout_a, const void* b, void* layout_b,
                  const void* beta, const void* c, void* layout_c, void* d, void* layout_d, const algorithm*,
                  void* workspace, std::size_t workspace_bytes, void* stream) = nullptr;

  // The name of what the library lacks; empty: nothing.
  std::string find_in(void* library) {
    std::string lacks;
    const auto find = [&](auto& to, const char* symbol) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, symbol));
      if (to == nullptr && lacks.empty()) lacks = symbol;
    };
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(make_product, "cublasLtMatmulDescCreate");
    find(destroy_product, "cublasLtMatmulDescDestroy");
    find(set_product, "cublasLtMatmulDescSetAttribute");
    find(make_layout, "cublasLtMatrixLayoutCreate");
    find(destroy_layout, "cublasLtMatrixLayoutDestroy");
    find(make_preference, "cublasLtMatmulPreferenceCreate");
    find(destroy_preference, "cublasLtMatmulPreferenceDestroy");
    find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    find(choose, "cublasLtMatmulAlgoGetHeuristic");
    find(multiply, "cublasLtMatmul");
    return lacks;
  }
};

struct fp8_products::state {
  functions call;
  void *handle = nullptr, *product = nullptr, *operand = nullptr, *result = nullptr, *preference = nullptr;
  heuristic_result how;
  device_address a = 0, b = 0, c = 0, workspace = 0;

  // What went wrong; empty: an algorithm has been chosen.
  std::string choose(int side) {
    const auto n = static_cast<std::uint64_t>(side);
    const auto failed = [](int status, const char* name) {
      return status == 0 ? std::string() : fmt::format("{}: status {}", name, status);
    };
    const int transpose = transposed;
    const std::int8_t fast = 1;
    const std::uint64_t room = workspace_bytes;
    int found = 0;
    std::string wrong = failed(call.create(&handle), "cublasLtCreate");
    if (wrong.empty()) wrong = failed(call.make_product(&product, in_fp32, fp32), "cublasLtMatmulDescCreate");
    if (wrong.empty())
      wrong = failed(call.set_product(product, transpose_a, &transpose, sizeof transpose), "transposition of A");
    if (wrong.empty())
      wrong = failed(call.set_product(product, fast_accumulation, &fast, sizeof fast), "fast accumulation");
    if (wrong.empty()) wrong = failed(call.make_layout(&operand, e4m3, n, n, side), "layout of e4m3");
    if (wrong.empty()) wrong = failed(call.make_layout(&result, bf16, n, n, side), "layout of bf16");
    if (wrong.empty()) wrong = failed(call.make_preference(&preference), "cublasLtMatmulPreferenceCreate");
    if (wrong.empty())
      wrong = failed(call.set_preference(preference, most_workspace, &room, sizeof room), "size of the workspace");
    if (wrong.empty())
      wrong = failed(call.choose(handle, product, operand, operand, result, result, preference, 1, &how, &found),
                     "cublasLtMatmulAlgoGetHeuristic");
    if (wrong.empty() && (found < 1 || how.state != 0)) wrong = "it has no algorithm for e4m3 on this device";
    return wrong;
  }

  ~state() {
    if (preference != nullptr) call.destroy_preference(preference);
    for (void* layout : {operand, result})
      if (layout != nullptr) call.destroy_layout(layout);
    if (product != nullptr) call.destroy_product(product);
    if (handle != nullptr) call.destroy(handle);
  }
};

fp8_products::fp8_products(std::shared_ptr<cuda_device> device, int side)
    : device_(std::move(device)), state_(std::make_unique<state>()) {
  if (under_sanitizer()) {
    missing_ = "left out under compute-sanitizer";
    return;
  }
  const found_library found = open_cuda_library("libcublasLt.so", {13, 12, 11});
  if (found.handle == nullptr)
    missing_ = "no cuBLASLt was found";
  else if (const std::string lacks = state_->call.find_in(found.handle); !lacks.empty())
    missing_ = fmt::format("{} has no {}", found.path, lacks);
  else if (const std::string wrong = state_->choose(side); !wrong.empty())
    missing_ = fmt::format("{} refuses e4m3: {}", found.path, wrong);
  library_ = found.path;
  if (missing_.empty()) make_matrices(side);
}

fp8_products::~fp8_products() {
  for (const device_address at : {state_->a, state_->b, state_->c, state_->workspace})
    if (at != 0) device_->release(at);
}

// Signs and bits at random, exponents about 1.
void fp8_products::make_matrices(int side) {
  const std::size_t elements = static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
  std::vector<std::uint8_t> values(elements);
  std::minstd_rand random(2);
  for (auto& v : values) {
    const auto bits = static_cast<std::uint32_t>(random());
    v = static_cast<std::uint8_t>((bits >> 8 & 0x87) | 0x30 | (bits >> 20 & 0x08));
  }
  for (device_address* at : {&state_->a, &state_->b}) {
    *at = device_->allocate(elements);
    device_->upload(*at, values.data(), elements);
    std::rotate(values.begin(), values.begin() + 12345, values.end());
  }
  state_->c = device_->allocate(elements * 2);
  state_->workspace = device_->allocate(workspace_bytes);
  device_->settle();
}

void fp8_products::multiply(void* stream) const {
  const float one = 1, zero = 0;
  const state& s = *state_;
  const int status =
      s.call.multiply(s.handle, s.product, &one, pointer(s.a), s.operand, pointer(s.b), s.operand, &zero, pointer(s.c),
                      s.result, pointer(s.c), s.result, &s.how.chosen, pointer(s.workspace), workspace_bytes, stream);
  if (status != 0) throw cuda_failure{fmt::format("cublasLtMatmul: status {}", status)};
}

}  // namespace msabench
