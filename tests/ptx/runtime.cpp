// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA runtime that our kernels call, over the interpreter: a plugin linked with these instead of
// cudart runs on a CPU, with tensors in the host's memory. A launch is done when it returns.
//
// Environment: MSABENCH_PTX_THREADS (all cores), MSABENCH_PTX_SEED (0: warps in the order of their numbers),
// MSABENCH_PTX_SMS (8 multiprocessors), MSABENCH_PTX_RACES (0: races on
// shared memory are not looked for).
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tests/ptx/machine.h"
#include "tests/ptx/tensor_map.h"

namespace {

using namespace msabench::ptx;

constexpr int most_shared = 232448, shared_without_asking = 48 * 1024, most_threads = 1024;

int from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

struct fat_binary {
  std::string text;  ///< of its PTX
  std::once_flag once;
  std::unique_ptr<module> read;

  const module& contents() {
    std::call_once(once, [this] { read = read_module(text); });
    return *read;
  }
};

struct function {
  fat_binary* from;
  std::string name;
  std::atomic<int> dynamic_shared = shared_without_asking;  ///< as it was set last, by whichever thread
};

struct state {
  std::vector<std::unique_ptr<fat_binary>> binaries;
  std::map<const void*, std::unique_ptr<function>> functions;
  std::unique_ptr<helpers> threads;
};
/// A plugin may not grow while it runs (rule R3), and what is interpreted takes memory: it is taken beforehand, in one
/// arena that all threads share, and given back to the heap.
void grow_heap() {
  constexpr int never = 0x7fffffff;
  constexpr std::size_t room = std::size_t{3} << 29;
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, never);
  void* volatile const taken = std::malloc(room);  // volatile: or the compiler leaves both calls out
  static void* const top = std::malloc(
      1
      << 20);  // no bin has this much, so it is the highest; what lies below it stays with the process, whoever trims the heap
  std::free(taken);
  if (top == nullptr) std::abort();
}

state& all() {
  // Kernels register while the plugin is loaded, and nobody says when the last one was asked for.
  static state* const s = [] {
    grow_heap();
    auto* const made = new state;
    made->threads = std::make_unique<helpers>(
        from_environment("MSABENCH_PTX_THREADS", static_cast<int>(std::thread::hardware_concurrency())));
    return made;
  }();
  return *s;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string last_text;

cudaError_t failed(cudaError_t error, std::string text) {
  last_error = error;
  last_text = std::move(text);
  return error;
}

/// PTX is stored as it is if nvcc was told not to compress it.
std::string text_in(const void* fat_cubin) {
  struct wrapper {
    std::uint32_t magic, version;
    const unsigned char* data;
  };
  struct header {
    std::uint32_t magic;
    std::uint16_t version, bytes;
    std::uint64_t size;
  };
  struct entry {
    std::uint16_t kind, version;
    std::uint32_t header_bytes;
    std::uint64_t size;
  };
  const auto* const w = static_cast<const wrapper*>(fat_cubin);
  header h;
  std::memcpy(&h, w->data, sizeof h);
  std::string found;
  for (std::uint64_t at = h.bytes; at < h.bytes + h.size;) {
    entry e;
    std::memcpy(&e, w->data + at, sizeof e);
    const char* const begin = reinterpret_cast<const char*>(w->data + at + e.header_bytes);
    if (e.kind == 1) found.assign(begin, strnlen(begin, e.size));
    at += e.header_bytes + e.size;
  }
  return found;
}

/// Bytes of shared memory that a kernel has without any that a launch adds.
std::int64_t static_shared(const function& f) noexcept {
  try {
    return f.from->contents().kernels.at(f.name).dynamic_offset;
  } catch (const std::exception&) {
    return 0;  // the launch will tell what is wrong
  }
}

cudaError_t start(function& f, dim3 grid, dim3 block, void** arguments, std::size_t dynamic, unsigned cluster) {
  try {
    const module& m = f.from->contents();
    const auto found = m.kernels.find(f.name);
    if (found == m.kernels.end())
      return failed(cudaErrorInvalidDeviceFunction,
                    f.name + ": not in the PTX of this plugin; build it with PTX that is not compressed");
    const kernel& k = found->second;
    if (!k.cluster.empty()) cluster = std::max(1u, k.cluster[0]);
    const std::string name = f.name + ": ";
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0 || grid.y > 65535 ||
        grid.z > 65535 || grid.x > 0x7fffffffu)
      return failed(cudaErrorInvalidConfiguration, name + "a grid that no device has");
    if (std::uint64_t{block.x} * block.y * block.z > most_threads)
      return failed(cudaErrorInvalidConfiguration, name + "more than 1024 threads");
    if (static_cast<std::int64_t>(dynamic) > f.dynamic_shared)
      return failed(cudaErrorInvalidValue, name + "more dynamic shared memory than was asked for");
    if (k.dynamic_offset + static_cast<std::int64_t>(dynamic) > most_shared)
      return failed(cudaErrorInvalidValue, name + "more shared memory than a thread block can have");
    if (grid.x % cluster != 0) return failed(cudaErrorInvalidValue, name + "a grid that is not whole clusters");
    launch l;
    l.what = &k;
    l.grid = {grid.x, grid.y, grid.z};
    l.block = {block.x, block.y, block.z};
    l.cluster = cluster;
    l.dynamic_shared = static_cast<std::int64_t>(dynamic);
    // 64-byte alignment, which tensor maps among the parameters need
    l.parameters.resize(static_cast<std::size_t>(k.parameter_bytes + 7) / 8 + 16);
    l.parameter_base = (reinterpret_cast<std::uint64_t>(l.parameters.data()) + 63) / 64 * 64;
    for (std::size_t i = 0; i < k.parameters.size(); ++i)
      std::memcpy(reinterpret_cast<char*>(l.parameter_base) + k.parameters[i].offset, arguments[i],
                  static_cast<std::size_t>(k.parameters[i].bytes));
    schedule how;
    how.seed = static_cast<std::uint64_t>(from_environment("MSABENCH_PTX_SEED", 0));
    how.races = from_environment("MSABENCH_PTX_RACES", 1) != 0;
    run(l, how, *all().threads);
    return cudaSuccess;
  } catch (const std::exception& e) {
    return failed(cudaErrorLaunchFailure, e.what());
  }
}

struct configuration {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<configuration> pushed;

CUresult encode_tiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank, void* address,
                      const cuuint64_t* size, const cuuint64_t* stride, const cuuint32_t* box,
                      const cuuint32_t* element_stride, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  tensor_map m{};
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      m.element_bytes = 1;
      break;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      m.element_bytes = 2;
      break;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
      m.element_bytes = 4;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  const auto at = reinterpret_cast<std::uint64_t>(address);
  const int span = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE   ? 0
                   : swizzle == CU_TENSOR_MAP_SWIZZLE_32B  ? 1
                   : swizzle == CU_TENSOR_MAP_SWIZZLE_64B  ? 2
                   : swizzle == CU_TENSOR_MAP_SWIZZLE_128B ? 3
                                                           : -1;
  const std::uint64_t row = std::uint64_t{box[0]} * m.element_bytes;
  if (rank < 1 || rank > 5 || at == 0 || at % 16 != 0 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || span < 0 ||
      row % 16 != 0 || (span > 0 && row > 16u << span))
    return CUDA_ERROR_INVALID_VALUE;
  m.magic = tensor_map::known;
  m.rank = rank;
  m.address = at;
  m.swizzle = static_cast<std::uint8_t>(span);
  for (cuuint32_t d = 0; d < rank; ++d) {
    if (size[d] == 0 || size[d] > std::uint64_t{1} << 32 || box[d] == 0 || box[d] > 256 || element_stride[d] != 1)
      return CUDA_ERROR_INVALID_VALUE;
    m.size[d] = static_cast<std::uint32_t>(std::min<std::uint64_t>(size[d], 0xffffffff));
    m.box[d] = static_cast<std::uint16_t>(box[d]);
    if (d == 0) continue;
    if (stride[d - 1] % 16 != 0 || stride[d - 1] >= std::uint64_t{1} << 40) return CUDA_ERROR_INVALID_VALUE;
    m.stride[d - 1] = stride[d - 1];
  }
  std::memcpy(out, &m, sizeof m);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* fat_cubin) {
  all().binaries.push_back(std::make_unique<fat_binary>());
  all().binaries.back()->text = text_in(fat_cubin);
  return reinterpret_cast<void**>(all().binaries.back().get());
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  auto f = std::make_unique<function>();
  f->from = reinterpret_cast<fat_binary*>(binary);
  f->name = name;
  all().functions[host] = std::move(f);
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  pushed.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  if (pushed.empty()) return failed(cudaErrorMissingConfiguration, "no configuration of a launch");
  const configuration c = pushed.back();
  pushed.pop_back();
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* host) {
  const auto found = all().functions.find(host);
  if (found == all().functions.end()) return cudaErrorInvalidDeviceFunction;
  *out = reinterpret_cast<cudaKernel_t>(found->second.get());
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t) {
  if (kernel == nullptr) return failed(cudaErrorInvalidDeviceFunction, "no such kernel");
  return start(*reinterpret_cast<function*>(kernel), grid, block, arguments, shared, 1);
}
cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t) {
  const auto found = all().functions.find(host);
  if (found == all().functions.end()) return failed(cudaErrorInvalidDeviceFunction, "no such kernel");
  return start(*found->second, grid, block, arguments, shared, 1);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* host, void** arguments) {
  const auto found = all().functions.find(host);
  if (found == all().functions.end()) return failed(cudaErrorInvalidDeviceFunction, "no such kernel");
  unsigned cluster = 1;
  for (unsigned i = 0; i < c->numAttrs; ++i)
    if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) cluster = c->attrs[i].val.clusterDim.x;
  return start(*found->second, c->gridDim, c->blockDim, arguments, c->dynamicSmemBytes, cluster);
}
cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute attribute, int value) {
  const auto found = all().functions.find(host);
  if (found == all().functions.end()) return failed(cudaErrorInvalidDeviceFunction, "no such kernel");
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    function& f = *found->second;
    const std::int64_t room = most_shared - static_shared(f);
    if (value < 0 || value > room)
      return failed(cudaErrorInvalidValue, f.name + ": more shared memory than a thread block can have");
    // The driver would take this, and then refuse a launch that another thread has just asked for more for (rule R5).
    if (value < f.dynamic_shared)
      return failed(cudaErrorInvalidValue, f.name + ": a lower limit of shared memory than another run may count on");
    f.dynamic_shared = value;
  }
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* host) {
  const auto found = all().functions.find(host);
  if (found == all().functions.end()) return failed(cudaErrorInvalidDeviceFunction, "no such kernel");
  *out = {};
  out->sharedSizeBytes = static_cast<std::size_t>(static_shared(*found->second));
  out->maxDynamicSharedSizeBytes = found->second->dynamic_shared;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = from_environment("MSABENCH_PTX_SMS", 8);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = most_shared;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = most_shared + 1024;
      break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = 2048;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 50 << 20;
      break;
    default:
      return failed(cudaErrorInvalidValue,
                    "an attribute that the interpreter does not know: " + std::to_string(attribute));
  }
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, std::size_t,
                                                                   unsigned) {
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, std::size_t) {
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  const cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorString(cudaError_t) { return last_text.c_str(); }
const char* cudaGetErrorName(cudaError_t) { return "of the interpreter"; }
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** out, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const bool known = std::string_view(symbol) == "cuTensorMapEncodeTiled";
  *out = known ? reinterpret_cast<void*>(encode_tiled) : nullptr;
  if (found != nullptr) *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // extern "C"
