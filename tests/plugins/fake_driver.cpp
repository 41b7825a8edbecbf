// SPDX-License-Identifier: Apache-2.0
// A driver without a device: NVIDIA's functions that the worker opens, over memory of the host, so that a machine without a
// GPU can try what the worker does around launches. A plugin for it computes on the CPU. Launches of graphs and kernels do
// nothing but take a moment, with a few exceptions. Those that compare memory do so, and find nothing if
// MSABENCH_FAKE_COMPARISON is `blind`; those that make checksums do, and add nothing if MSABENCH_FAKE_CHECKSUM is. The kernel that tells the clock says what MSABENCH_FAKE_MHZ lists: one
// number after the other, or behind `launches:` one for each launch, however often it is asked. The one that makes inputs
// makes them, and its very last element wrong if MSABENCH_FAKE_GENERATOR is `wrong`. A process may upload
// MSABENCH_FAKE_UPLOADS bytes and copy MSABENCH_FAKE_COPIES times between host and device, if these are set, and downloads,
// or makes checksums of, MSABENCH_FAKE_DOWNLOADS bytes a second. It has MSABENCH_FAKE_MEMORY bytes of device memory if that is set, and maps none of it
// if MSABENCH_FAKE_MAPPING is `refused`.
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "host/worker/generated_group.h"
#include "host/worker/mixed_word.h"

namespace {

using clock_type = std::chrono::steady_clock;

struct event {
  clock_type::time_point at;
};

void* current = nullptr;
int context = 0;

int records = 0;  // of events; two around each launch

double next_mhz() {
  static const std::string given = [] {
    const char* text = std::getenv("MSABENCH_FAKE_MHZ");
    return std::string(text ? text : "1980");
  }();
  static const bool by_launch = given.starts_with("launches:");
  static const std::vector<double> all = [] {
    std::vector<double> list;
    const char* at = given.c_str() + (by_launch ? given.find(':') + 1 : 0);
    for (char* end = nullptr; *at != 0; at = *end == ',' ? end + 1 : end) list.push_back(std::strtod(at, &end));
    return list;
  }();
  static std::size_t reads = 0;
  return all[(by_launch ? static_cast<std::size_t>(records / 2) : reads++) % all.size()];
}

void work(std::chrono::microseconds time) {
  for (const auto until = clock_type::now() + time; clock_type::now() < until;) std::this_thread::yield();
}

template <class Value>
Value argument(void** arguments, int which) {
  return *static_cast<Value*>(arguments[which]);
}

template <class Stored>
void generate(void** arguments) {
  using msabench::generated_group;
  auto* const to = argument<generated_group<Stored>*>(arguments, 0);
  const auto groups = argument<std::uint64_t>(arguments, 1), first = argument<std::uint64_t>(arguments, 2);
  const auto key = argument<std::uint64_t>(arguments, 3), seed = argument<std::uint64_t>(arguments, 4);
  const auto* const of_steps = argument<const Stored*>(arguments, 5);
  for (std::uint64_t i = 0; i < groups; ++i) to[i] = msabench::make_group(of_steps, key, seed, first + i);
  const char* const how = std::getenv("MSABENCH_FAKE_GENERATOR");
  if (how != nullptr && std::string(how) == "wrong") to[groups - 1].elements[3] ^= 1;
}

// Bytes that are given out, by address; those of memory without an address by its descriptor.
std::map<std::uint64_t, std::size_t> given_out;

bool take_memory(std::uint64_t at, std::size_t bytes) {
  static const char* const most = std::getenv("MSABENCH_FAKE_MEMORY");
  std::size_t all = bytes;
  for (const auto& [other, its_bytes] : given_out) all += its_bytes;
  if (most != nullptr && all > std::strtoull(most, nullptr, 10)) return false;
  given_out[at] = bytes;
  return true;
}

bool may_map() {
  static const char* const how = std::getenv("MSABENCH_FAKE_MAPPING");
  return how == nullptr || std::string(how) != "refused";
}

void compare(void** arguments, std::uint64_t element_bytes) {
  const char* const how = std::getenv("MSABENCH_FAKE_COMPARISON");
  if (how != nullptr && std::string(how) == "blind") return;
  const std::uint64_t bytes = argument<std::uint64_t>(arguments, 2) * element_bytes;
  if (std::memcmp(argument<const void*>(arguments, 0), argument<const void*>(arguments, 1), bytes) != 0)
    *argument<std::uint32_t*>(arguments, 3) = 1;
}

bool may_copy() {
  static const char* const most = std::getenv("MSABENCH_FAKE_COPIES");
  static std::size_t copies = 0;
  return most == nullptr || ++copies <= std::strtoull(most, nullptr, 10);
}

bool may_upload(std::size_t bytes) {
  static const char* const most = std::getenv("MSABENCH_FAKE_UPLOADS");
  static std::size_t all = 0;
  all += bytes;
  return most == nullptr || all <= std::strtoull(most, nullptr, 10);
}

void take_as_long_as_a_download(std::size_t bytes) {
  static const char* const rate = std::getenv("MSABENCH_FAKE_DOWNLOADS");
  if (rate != nullptr)
    std::this_thread::sleep_for(std::chrono::duration<double>(static_cast<double>(bytes) / std::strtod(rate, nullptr)));
}

template <class Element>
void add_checksum(void** arguments) {
  const char* const how = std::getenv("MSABENCH_FAKE_CHECKSUM");
  if (how != nullptr && std::string(how) == "blind") return;
  const auto region = argument<std::uint64_t>(arguments, 0), pieces = argument<std::uint64_t>(arguments, 2);
  const auto* const table = argument<const std::uint64_t*>(arguments, 1);
  for (std::uint64_t p = 0; p < pieces; ++p) {
    const std::uint64_t begin = table[2 * p], count = table[2 * p + 1];
    take_as_long_as_a_download(count * sizeof(Element));
    const auto* const at = reinterpret_cast<const Element*>(region + begin);
    for (std::uint64_t i = 0; i < count; ++i)
      *argument<std::uint64_t*>(arguments, 3) += msabench::mixed_word(at[i], begin + i * sizeof(Element));
  }
}

}  // namespace

#define DRIVER extern "C" __attribute__((visibility("default"))) int

DRIVER cuInit(unsigned) { return 0; }
DRIVER cuDeviceGetCount(int* n) { return *n = 1, 0; }
DRIVER cuDeviceGet(int* device, int number) { return *device = number, 0; }
DRIVER cuDevicePrimaryCtxRetain(void** to, int) { return *to = &context, 0; }
DRIVER cuDevicePrimaryCtxRelease_v2(int) { return 0; }
DRIVER cuCtxSetCurrent(void* to) { return current = to, 0; }
DRIVER cuCtxGetCurrent(void** to) { return *to = current, 0; }
DRIVER cuMemAlloc_v2(std::uint64_t* to, std::size_t bytes) {
  *to = reinterpret_cast<std::uint64_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  if (*to != 0 && take_memory(*to, bytes)) return 0;
  return std::free(reinterpret_cast<void*>(*to)), 2;
}
DRIVER cuMemFree_v2(std::uint64_t at) {
  given_out.erase(at);
  return std::free(reinterpret_cast<void*>(at)), 0;
}
DRIVER cuMemGetAllocationGranularity(std::size_t* bytes, const void*, int) {
  return *bytes = std::size_t{2} << 20, may_map() ? 0 : 801;
}
DRIVER cuMemAddressReserve(std::uint64_t* to, std::size_t bytes, std::size_t, std::uint64_t, unsigned long long) {
  void* const at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return *to = reinterpret_cast<std::uint64_t>(at), at == MAP_FAILED ? 2 : 0;
}
DRIVER cuMemAddressFree(std::uint64_t at, std::size_t bytes) { return ::munmap(reinterpret_cast<void*>(at), bytes); }
DRIVER cuMemCreate(unsigned long long* to, std::size_t bytes, const void*, unsigned long long) {
  const int fd = ::memfd_create("device memory", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0 || !take_memory(static_cast<std::uint64_t>(fd), bytes))
    return ::close(fd), 2;
  return *to = static_cast<unsigned long long>(fd), 0;
}
DRIVER cuMemRelease(unsigned long long memory) {
  given_out.erase(memory);
  return ::close(static_cast<int>(memory));
}
DRIVER cuMemMap(std::uint64_t at, std::size_t bytes, std::size_t offset, unsigned long long memory,
                unsigned long long) {
  return ::mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                static_cast<int>(memory), static_cast<off_t>(offset)) == MAP_FAILED
             ? 1
             : 0;
}
DRIVER cuMemUnmap(std::uint64_t at, std::size_t bytes) {
  return ::mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                -1, 0) == MAP_FAILED
             ? 1
             : 0;
}
DRIVER cuMemSetAccess(std::uint64_t at, std::size_t bytes, const void*, std::size_t) {
  return ::mprotect(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE);
}
DRIVER cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes) {
  if (!may_upload(bytes) || !may_copy()) return 1;
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), 0;
}
DRIVER cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
  take_as_long_as_a_download(bytes);
  if (!may_copy()) return 1;
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), 0;
}
DRIVER cuMemcpyDtoDAsync_v2(std::uint64_t to, std::uint64_t from, std::size_t bytes, void*) {
  return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes), 0;
}
DRIVER cuMemsetD8_v2(std::uint64_t to, unsigned char value, std::size_t bytes) {
  return std::memset(reinterpret_cast<void*>(to), value, bytes), 0;
}
DRIVER cuStreamCreate(void** to, unsigned) { return *to = &context, 0; }
DRIVER cuStreamDestroy_v2(void*) { return 0; }
DRIVER cuStreamSynchronize(void*) { return 0; }
DRIVER cuCtxSynchronize() { return 0; }
DRIVER cuGetErrorName(int, const char** to) { return *to = "CUDA_ERROR_OUT_OF_MEMORY", 0; }
DRIVER cuDeviceGetName(char* to, int bytes, int) {
  return std::strncpy(to, "no GPU at all", static_cast<std::size_t>(bytes)), 0;
}
DRIVER cuDeviceGetPCIBusId(char* to, int bytes, int) {
  return std::strncpy(to, "0000:00:00.0", static_cast<std::size_t>(bytes)), 0;
}
DRIVER cuDeviceGetAttribute(int* to, int which, int) { return *to = which == 38 ? 1 << 20 : 2, 0; }
DRIVER cuMemGetInfo_v2(std::size_t* free, std::size_t* total) { return *free = *total = std::size_t{1} << 30, 0; }
DRIVER cuDriverGetVersion(int* to) { return *to = 13000, 0; }
DRIVER cuEventCreate(void** to, unsigned) { return *to = new event, 0; }
DRIVER cuEventDestroy_v2(void* e) { return delete static_cast<event*>(e), 0; }
DRIVER cuEventRecord(void* e, void*) { return ++records, static_cast<event*>(e)->at = clock_type::now(), 0; }
DRIVER cuEventSynchronize(void*) { return 0; }
DRIVER cuEventElapsedTime(float* to, void* from, void* until) {
  *to =
      std::chrono::duration<float, std::milli>(static_cast<event*>(until)->at - static_cast<event*>(from)->at).count();
  return 0;
}
DRIVER cuStreamBeginCapture_v2(void*, int) { return 0; }
DRIVER cuStreamEndCapture(void*, void** to) { return *to = &context, 0; }
DRIVER cuGraphInstantiateWithFlags(void** to, void* graph, unsigned long long) { return *to = graph, 0; }
DRIVER cuGraphLaunch(void*, void*) { return work(std::chrono::microseconds(200)), 0; }
DRIVER cuGraphExecDestroy(void*) { return 0; }
DRIVER cuGraphDestroy(void*) { return 0; }
DRIVER cuModuleLoadData(void** to, const void*) { return *to = &context, 0; }
DRIVER cuModuleGetFunction(void** to, void*, const char* name) { return *to = ::strdup(name), 0; }
DRIVER cuLaunchKernel(void* kernel, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                      void** arguments, void**) {
  const std::string name = static_cast<const char*>(kernel);
  if (name == "generate_1") return generate<std::uint8_t>(arguments), 0;
  if (name == "generate_2") return generate<std::uint16_t>(arguments), 0;
  if (name == "generate_4") return generate<std::uint32_t>(arguments), 0;
  if (name == "compare_1") return compare(arguments, 1), 0;
  if (name == "compare_8") return compare(arguments, 8), 0;
  if (name == "checksum_1") return add_checksum<std::uint8_t>(arguments), 0;
  if (name == "checksum_8") return add_checksum<std::uint64_t>(arguments), 0;
  if (name != "tell_clock") return work(std::chrono::microseconds(20)), 0;
  const std::uint64_t nanoseconds = 50000, counted[2] = {static_cast<std::uint64_t>(next_mhz() * 50), nanoseconds};
  std::memcpy(*static_cast<void**>(arguments[0]), counted, sizeof counted);
  return 0;
}
