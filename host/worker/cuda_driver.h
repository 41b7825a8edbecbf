// SPDX-License-Identifier: Apache-2.0
// The few functions of NVIDIA's driver that the worker needs to own device memory and streams. The driver library is
// opened when a plugin is loaded for a CUDA device, so nothing links CUDA, and a build without its toolkit has this too.
// Plugins that use the CUDA runtime share the device's primary context with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace msabench {

using device_address = std::uint64_t;

// A call into the driver that failed. Unless memory ran out, nothing that the device holds can be relied on any more.
struct cuda_failure {
  std::string text;  // "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"
  bool out_of_memory = false;
};

struct cuda_facts {
  std::string name, bus;  // bus: "0000:17:00.0", by which NVML knows it
  std::uint64_t cache_bytes = 0, total_bytes = 0, free_bytes = 0;
  int multiprocessors = 0;
  int cuda_version = 0;  // that the driver speaks: 13000
};

// "NVIDIA H200, CUDA driver 13.0"
std::string describe(const cuda_facts& facts);

// The primary context of one device, current on the thread that opens it. All functions throw cuda_failure.
class cuda_device {
 public:
  // Throws environment_error if this machine has no driver or no such device.
  static std::shared_ptr<cuda_device> open(int number);
  ~cuda_device();
  cuda_device(const cuda_device&) = delete;

  // On every further thread that calls anything here.
  void make_current() const;
  // Whether it still is: no call of a plugin may change that (rule R6).
  bool is_current() const;

  // 256-byte aligned at the least.
  device_address allocate(std::uint64_t bytes) const;
  void release(device_address at) const noexcept;
  void upload(device_address to, const void* from, std::uint64_t bytes) const;
  void download(void* to, device_address from, std::uint64_t bytes) const;
  void fill(device_address to, std::uint8_t value, std::uint64_t bytes) const;

  // Addresses and memory apart: memory may lie at several addresses at once. All sizes are multiples of what this says; 0:
  // driver or device can't do it.
  std::uint64_t mapping_granularity() const noexcept;
  device_address reserve(std::uint64_t bytes) const;
  void unreserve(device_address at, std::uint64_t bytes) const noexcept;
  std::uint64_t create_memory(std::uint64_t bytes) const;
  void release_memory(std::uint64_t memory) const noexcept;  // once nothing of it is mapped
  void map(device_address at, std::uint64_t memory, std::uint64_t bytes) const;
  void unmap(device_address at, std::uint64_t bytes) const noexcept;
  // Of a range that is mapped without gaps.
  void allow_access(device_address at, std::uint64_t bytes) const;

  // Waits for all that was uploaded and filled: neither is done when its call returns, and the streams that are made here
  // wait for nothing.
  void settle() const;

  void* make_stream() const;
  void destroy_stream(void* stream) const noexcept;
  // Waits for all work of the stream, and tells what became of it.
  void wait(void* stream) const;
  void copy(device_address to, device_address from, std::uint64_t bytes, void* stream) const;

  cuda_facts facts() const;

  void* make_event() const;
  void destroy_event(void* event) const noexcept;
  void record(void* event, void* stream) const;
  // Between two recorded events; waits for the later one.
  double seconds_between(void* earlier, void* later) const;

  // What is enqueued on the stream from begin_capture on becomes a graph, which end_capture makes ready for replay.
  void begin_capture(void* stream) const;
  void* end_capture(void* stream) const;
  void launch_graph(void* graph, void* stream) const;
  void destroy_graph(void* graph) const noexcept;

  // A kernel of PTX text, which stays loaded and is known by its address afterwards. `parameters`: addresses of its arguments.
  void* load_kernel(const char* ptx, const char* name) const;
  void launch_kernel(void* kernel, unsigned blocks, unsigned threads, void** parameters, void* stream) const;

 private:
  struct functions;
  struct memory_properties;
  struct memory_access;
  cuda_device() = default;
  void check(int code, const char* call) const;

  std::unique_ptr<functions> call_;
  mutable std::map<const char*, void*> modules_;
  int device_ = 0;
  void* context_ = nullptr;
};

// A stream of its own; none without a device.
class device_stream {
 public:
  explicit device_stream(std::shared_ptr<cuda_device> device)
      : device_(std::move(device)), stream_(device_ ? device_->make_stream() : nullptr) {}
  ~device_stream() {
    if (device_) device_->destroy_stream(stream_);
  }
  device_stream(const device_stream&) = delete;

  void* get() const { return stream_; }
  void wait() const {
    if (device_) device_->wait(stream_);
  }

 private:
  std::shared_ptr<cuda_device> device_;
  void* stream_;
};

}  // namespace msabench
