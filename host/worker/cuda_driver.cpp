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

// As in the driver's interface: CUmemAllocationProp and CUmemAccessDesc.
struct cuda_device::memory_properties {
  int type = 1, requested_handles = 0;  // pinned
  int location_type = 1, location = 0;  // a device, its number
  void* windows_only = nullptr;
  unsigned char compression = 0, direct_rdma = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};
struct cuda_device::memory_access {
  int location_type = 1, location = 0;
  int flags = 3;  // read and write
};

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
  int (*settle)();
  int (*copy)(device_address, device_address, std::size_t, void*);
  int (*device_name)(char*, int, int);
  int (*bus_id)(char*, int, int);
  int (*attribute)(int*, int, int);
  int (*memory)(std::size_t*, std::size_t*);
  int (*version)(int*);
  int (*make_event)(void**, unsigned);
  int (*destroy_event)(void*);
  int (*record)(void*, void*);
  int (*wait_for_event)(void*);
  int (*elapsed_ms)(float*, void*, void*);
  int (*begin_capture)(void*, int);
  int (*end_capture)(void*, void**);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*launch_graph)(void*, void*);
  int (*destroy_executable)(void*);
  int (*destroy_graph)(void*);
  int (*load_module)(void**, const void*);
  int (*get_function)(void**, void*, const char*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*name_of)(int, const char**);
  // These may be absent.
  int (*granularity)(std::size_t*, const memory_properties*, int);
  int (*reserve)(device_address*, std::size_t, std::size_t, device_address, unsigned long long);
  int (*unreserve)(device_address, std::size_t);
  int (*create_memory)(unsigned long long*, std::size_t, const memory_properties*, unsigned long long);
  int (*release_memory)(unsigned long long);
  int (*map)(device_address, std::size_t, std::size_t, unsigned long long, unsigned long long);
  int (*unmap)(device_address, std::size_t);
  int (*set_access)(device_address, std::size_t, const memory_access*, std::size_t);
};

std::string describe(const cuda_facts& facts) {
  return fmt::format("{}, CUDA driver {}.{}", facts.name, facts.cuda_version / 1000, facts.cuda_version % 1000 / 10);
}

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
  find(calls->settle, "cuCtxSynchronize");
  find(calls->copy, "cuMemcpyDtoDAsync_v2");
  find(calls->device_name, "cuDeviceGetName");
  find(calls->bus_id, "cuDeviceGetPCIBusId");
  find(calls->attribute, "cuDeviceGetAttribute");
  find(calls->memory, "cuMemGetInfo_v2");
  find(calls->version, "cuDriverGetVersion");
  find(calls->make_event, "cuEventCreate");
  find(calls->destroy_event, "cuEventDestroy_v2");
  find(calls->record, "cuEventRecord");
  find(calls->wait_for_event, "cuEventSynchronize");
  find(calls->elapsed_ms, "cuEventElapsedTime");
  find(calls->begin_capture, "cuStreamBeginCapture_v2");
  find(calls->end_capture, "cuStreamEndCapture");
  find(calls->instantiate, "cuGraphInstantiateWithFlags");
  find(calls->launch_graph, "cuGraphLaunch");
  find(calls->destroy_executable, "cuGraphExecDestroy");
  find(calls->destroy_graph, "cuGraphDestroy");
  find(calls->load_module, "cuModuleLoadData");
  find(calls->get_function, "cuModuleGetFunction");
  find(calls->launch, "cuLaunchKernel");
  const auto look_for = [&](auto& to, const char* symbol) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, symbol));
  };
  look_for(calls->granularity, "cuMemGetAllocationGranularity");
  look_for(calls->reserve, "cuMemAddressReserve");
  look_for(calls->unreserve, "cuMemAddressFree");
  look_for(calls->create_memory, "cuMemCreate");
  look_for(calls->release_memory, "cuMemRelease");
  look_for(calls->map, "cuMemMap");
  look_for(calls->unmap, "cuMemUnmap");
  look_for(calls->set_access, "cuMemSetAccess");

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

std::uint64_t cuda_device::mapping_granularity() const noexcept {
  const functions& c = *call_;
  if (c.granularity == nullptr || c.reserve == nullptr || c.unreserve == nullptr || c.create_memory == nullptr ||
      c.release_memory == nullptr || c.map == nullptr || c.unmap == nullptr || c.set_access == nullptr)
    return 0;
  memory_properties what;
  what.location = device_;
  std::size_t bytes = 0;
  return c.granularity(&bytes, &what, 0) == success ? bytes : 0;
}

device_address cuda_device::reserve(std::uint64_t bytes) const {
  device_address at = 0;
  check(call_->reserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve");
  return at;
}

void cuda_device::unreserve(device_address at, std::uint64_t bytes) const noexcept { call_->unreserve(at, bytes); }

std::uint64_t cuda_device::create_memory(std::uint64_t bytes) const {
  memory_properties what;
  what.location = device_;
  unsigned long long memory = 0;
  check(call_->create_memory(&memory, bytes, &what, 0), "cuMemCreate");
  return memory;
}

void cuda_device::release_memory(std::uint64_t memory) const noexcept { call_->release_memory(memory); }

void cuda_device::map(device_address at, std::uint64_t memory, std::uint64_t bytes) const {
  check(call_->map(at, bytes, 0, memory, 0), "cuMemMap");
}

void cuda_device::unmap(device_address at, std::uint64_t bytes) const noexcept { call_->unmap(at, bytes); }

void cuda_device::allow_access(device_address at, std::uint64_t bytes) const {
  memory_access access;
  access.location = device_;
  check(call_->set_access(at, bytes, &access, 1), "cuMemSetAccess");
}

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

void cuda_device::settle() const { check(call_->settle(), "cuCtxSynchronize"); }

void cuda_device::copy(device_address to, device_address from, std::uint64_t bytes, void* stream) const {
  check(call_->copy(to, from, bytes, stream), "cuMemcpyDtoDAsync");
}

cuda_facts cuda_device::facts() const {
  constexpr int multiprocessor_count = 16, cache_size = 38;  // CU_DEVICE_ATTRIBUTE_*
  cuda_facts f;
  char text[128] = "";
  check(call_->device_name(text, sizeof text, device_), "cuDeviceGetName");
  f.name = text;
  check(call_->bus_id(text, sizeof text, device_), "cuDeviceGetPCIBusId");
  f.bus = text;
  int cache = 0;
  check(call_->attribute(&cache, cache_size, device_), "cuDeviceGetAttribute");
  check(call_->attribute(&f.multiprocessors, multiprocessor_count, device_), "cuDeviceGetAttribute");
  std::size_t free = 0, total = 0;
  check(call_->memory(&free, &total), "cuMemGetInfo");
  check(call_->version(&f.cuda_version), "cuDriverGetVersion");
  f.cache_bytes = static_cast<std::uint64_t>(cache);
  f.free_bytes = free;
  f.total_bytes = total;
  return f;
}

void* cuda_device::make_event() const {
  void* event = nullptr;
  check(call_->make_event(&event, 0), "cuEventCreate");
  return event;
}

void cuda_device::destroy_event(void* event) const noexcept { call_->destroy_event(event); }

void cuda_device::record(void* event, void* stream) const { check(call_->record(event, stream), "cuEventRecord"); }

double cuda_device::seconds_between(void* earlier, void* later) const {
  check(call_->wait_for_event(later), "cuEventSynchronize");
  float ms = 0;
  check(call_->elapsed_ms(&ms, earlier, later), "cuEventElapsedTime");
  return static_cast<double>(ms) * 1e-3;
}

void cuda_device::begin_capture(void* stream) const {
  constexpr int thread_local_mode = 1;  // what other threads do to the device meanwhile is no business of the graph
  check(call_->begin_capture(stream, thread_local_mode), "cuStreamBeginCapture");
}

void* cuda_device::end_capture(void* stream) const {
  void *graph = nullptr, *executable = nullptr;
  check(call_->end_capture(stream, &graph), "cuStreamEndCapture");
  const int made = call_->instantiate(&executable, graph, 0);
  call_->destroy_graph(graph);
  check(made, "cuGraphInstantiate");
  return executable;
}

void cuda_device::launch_graph(void* graph, void* stream) const {
  check(call_->launch_graph(graph, stream), "cuGraphLaunch");
}

void cuda_device::destroy_graph(void* graph) const noexcept { call_->destroy_executable(graph); }

void* cuda_device::load_kernel(const char* ptx, const char* name) const {
  void*& module = modules_[ptx];
  void* kernel = nullptr;
  if (module == nullptr) check(call_->load_module(&module, ptx), "cuModuleLoadData");
  check(call_->get_function(&kernel, module, name), "cuModuleGetFunction");
  return kernel;
}

void cuda_device::launch_kernel(void* kernel, unsigned blocks, unsigned threads, void** parameters,
                                void* stream) const {
  check(call_->launch(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr), "cuLaunchKernel");
}

}  // namespace msabench
