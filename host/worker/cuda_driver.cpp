// SPDX-License-Identifier: Apache-2.0
#include "host/worker/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "core/environment_error.h"
#include "core/error.h"

namespace msabench {
namespace {

// Of cuda.h; like the names with _v2 they belong to the driver's binary interface, as it is since CUDA 11.
constexpr int success = 0, error_out_of_memory = 2;

[[noreturn]] void refuse(int number, std::string problem) {
  throw environment_error({"--device", fmt::format("cuda:{}", number), std::move(problem),
                           "run on a machine with an NVIDIA GPU, or choose --device cpu"});
}

}  // namespace

struct cuda_device::functions {
  int (*init)(unsigned);
  int (*device_count)(int*);
  int (*device_get)(int*, int);
  int (*retain)(void**, int);
  int (*release)(int);
  int (*set_current)(void*);
  int (*get_current)(void**);
  int (*allocate)(device_address*, std::size_t);
  int (*free)(device_address);
  int (*upload)(device_address, const void*, std::size_t);
  int (*download)(void*, device_address, std::size_t);
  int (*fill)(device_address, unsigned char, std::size_t);
  int (*make_stream)(void**, unsigned);
  int (*destroy_stream)(void*);
  int (*wait)(void*);
  int (*name_of)(int, const char**);
};

std::shared_ptr<cuda_device> cuda_device::open(int number) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) refuse(number, "this machine has no NVIDIA driver (libcuda.so.1)");
  auto calls = std::make_unique<functions>();
  const auto find = [&](auto& to, const char* symbol) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, symbol));
    if (to == nullptr) refuse(number, fmt::format("its NVIDIA driver has no {}", symbol));
  };
  find(calls->init, "cuInit");
  find(calls->device_count, "cuDeviceGetCount");
  find(calls->device_get, "cuDeviceGet");
  find(calls->retain, "cuDevicePrimaryCtxRetain");
  find(calls->release, "cuDevicePrimaryCtxRelease_v2");
  find(calls->set_current, "cuCtxSetCurrent");
  find(calls->get_current, "cuCtxGetCurrent");
  find(calls->allocate, "cuMemAlloc_v2");
  find(calls->free, "cuMemFree_v2");
  find(calls->upload, "cuMemcpyHtoD_v2");
  find(calls->download, "cuMemcpyDtoH_v2");
  find(calls->fill, "cuMemsetD8_v2");
  find(calls->make_stream, "cuStreamCreate");
  find(calls->destroy_stream, "cuStreamDestroy_v2");
  find(calls->wait, "cuStreamSynchronize");
  find(calls->name_of, "cuGetErrorName");

  std::shared_ptr<cuda_device> opened(new cuda_device);
  opened->call_ = std::move(calls);
  try {
    int count = 0;
    opened->check(opened->call_->init(0), "cuInit");
    opened->check(opened->call_->device_count(&count), "cuDeviceGetCount");
    if (number < 0 || number >= count) refuse(number, fmt::format("this machine has {} CUDA devices", count));
    opened->check(opened->call_->device_get(&opened->device_, number), "cuDeviceGet");
    opened->check(opened->call_->retain(&opened->context_, opened->device_), "cuDevicePrimaryCtxRetain");
    opened->make_current();
  } catch (const cuda_failure& f) {
    refuse(number, f.text);
  }
  return opened;
}

cuda_device::~cuda_device() {
  if (context_ != nullptr) call_->release(device_);
}

void cuda_device::check(int code, const char* call) const {
  if (code == success) return;
  const char* name = nullptr;
  const bool named = call_->name_of(code, &name) == success && name != nullptr;
  throw cuda_failure{fmt::format("{}: {}", call, named ? name : fmt::format("error {}", code)),
                     code == error_out_of_memory};
}

void cuda_device::make_current() const { check(call_->set_current(context_), "cuCtxSetCurrent"); }

bool cuda_device::is_current() const {
  void* now = nullptr;
  check(call_->get_current(&now), "cuCtxGetCurrent");
  return now == context_;
}

device_address cuda_device::allocate(std::uint64_t bytes) const {
  device_address at = 0;
  check(call_->allocate(&at, bytes), "cuMemAlloc");
  return at;
}

void cuda_device::release(device_address at) const noexcept { call_->free(at); }

void cuda_device::upload(device_address to, const void* from, std::uint64_t bytes) const {
  check(call_->upload(to, from, bytes), "cuMemcpyHtoD");
}

void cuda_device::download(void* to, device_address from, std::uint64_t bytes) const {
  check(call_->download(to, from, bytes), "cuMemcpyDtoH");
}

void cuda_device::fill(device_address to, std::uint8_t value, std::uint64_t bytes) const {
  check(call_->fill(to, value, bytes), "cuMemsetD8");
}

void* cuda_device::make_stream() const {
  constexpr unsigned non_blocking = 1;  // waits for nothing that a plugin puts on the default stream
  void* stream = nullptr;
  check(call_->make_stream(&stream, non_blocking), "cuStreamCreate");
  return stream;
}

void cuda_device::destroy_stream(void* stream) const noexcept { call_->destroy_stream(stream); }

void cuda_device::wait(void* stream) const { check(call_->wait(stream), "cuStreamSynchronize"); }

}  // namespace msabench
