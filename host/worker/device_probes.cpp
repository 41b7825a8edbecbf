// SPDX-License-Identifier: Apache-2.0
#include "host/worker/device_probes.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/units.h"
#include "host/worker/cuda_libraries.h"
#include "host/worker/fp8_products.h"

namespace msabench {
namespace {

// The probes' own kernels, in PTX so that building the suite needs no CUDA toolkit; the driver compiles them.
//   read_all(data, n, out): every 16 bytes of data once, four loads on their way at a time; n counts 16 bytes, a multiple of
//     4 * threads. What is written at the end depends on all of it and never happens for data that is zero.
//   tell_clock(out): cycles and nanoseconds of one multiprocessor over about 50 us.
//   nothing(): nothing.
constexpr const char* kernels = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .entry nothing() { ret; }

.visible .entry read_all(.param .u64 data, .param .u64 n, .param .u64 out) {
  .reg .pred %p;
  .reg .u32 %t<4>, %v<16>, %sum;
  .reg .u64 %at, %end, %step, %stride, %offset, %count, %to;
  ld.param.u64 %at, [data];
  ld.param.u64 %count, [n];
  ld.param.u64 %to, [out];
  cvta.to.global.u64 %at, %at;
  cvta.to.global.u64 %to, %to;
  shl.b64 %end, %count, 4;
  add.u64 %end, %end, %at;
  mov.u32 %t0, %ctaid.x;
  mov.u32 %t1, %ntid.x;
  mov.u32 %t2, %tid.x;
  mad.lo.u32 %t3, %t0, %t1, %t2;
  mul.wide.u32 %offset, %t3, 16;
  add.u64 %at, %at, %offset;
  mov.u32 %t0, %nctaid.x;
  mul.wide.u32 %stride, %t0, %t1;
  shl.b64 %stride, %stride, 4;
  shl.b64 %step, %stride, 2;
  mov.u32 %sum, 0;
again:
  setp.ge.u64 %p, %at, %end;
  @%p bra done;
  ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%at];
  add.u64 %offset, %at, %stride;
  ld.global.v4.u32 {%v4, %v5, %v6, %v7}, [%offset];
  add.u64 %offset, %offset, %stride;
  ld.global.v4.u32 {%v8, %v9, %v10, %v11}, [%offset];
  add.u64 %offset, %offset, %stride;
  ld.global.v4.u32 {%v12, %v13, %v14, %v15}, [%offset];
  or.b32 %v0, %v0, %v1;
  or.b32 %v2, %v2, %v3;
  or.b32 %v4, %v4, %v5;
  or.b32 %v6, %v6, %v7;
  or.b32 %v8, %v8, %v9;
  or.b32 %v10, %v10, %v11;
  or.b32 %v12, %v12, %v13;
  or.b32 %v14, %v14, %v15;
  or.b32 %v0, %v0, %v2;
  or.b32 %v4, %v4, %v6;
  or.b32 %v8, %v8, %v10;
  or.b32 %v12, %v12, %v14;
  or.b32 %v0, %v0, %v4;
  or.b32 %v8, %v8, %v12;
  or.b32 %v0, %v0, %v8;
  or.b32 %sum, %sum, %v0;
  add.u64 %at, %at, %step;
  bra again;
done:
  setp.eq.u32 %p, %sum, 0;
  @%p bra quiet;
  st.global.u32 [%to], %sum;
quiet:
  ret;
}

.visible .entry tell_clock(.param .u64 out) {
  .reg .pred %p;
  .reg .u64 %to, %c0, %c1, %n0, %n1, %passed;
  ld.param.u64 %to, [out];
  cvta.to.global.u64 %to, %to;
  mov.u64 %n0, %globaltimer;
  mov.u64 %c0, %clock64;
again:
  mov.u64 %n1, %globaltimer;
  sub.u64 %passed, %n1, %n0;
  setp.lt.u64 %p, %passed, 50000;
  @%p bra again;
  mov.u64 %c1, %clock64;
  sub.u64 %c1, %c1, %c0;
  st.global.v2.u64 [%to], {%c1, %passed};
  ret;
}
)";

constexpr unsigned read_threads = 512;

// cublas_api.h and library_types.h: functions and constants of cuBLAS's binary interface, the same since version 11.
struct cublas {
  using handle = void*;
  static constexpr int no_transpose = 0, transpose = 1, bf16 = 14, fp32 = 0, in_fp32 = 68, usual = -1;
  int (*create)(handle*) = nullptr;
  int (*destroy)(handle) = nullptr;
  int (*set_stream)(handle, void*) = nullptr;
  int (*version)(handle, int*) = nullptr;
  int (*multiply)(handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                  const void*, void*, int, int, int, int) = nullptr;
  found_library library;

  void open() {
    library = open_cuda_library("libcublas.so", {13, 12, 11});
    if (library.handle == nullptr) return;
    const auto find = [&](auto& to, const char* symbol) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library.handle, symbol));
    };
    find(create, "cublasCreate_v2");
    find(destroy, "cublasDestroy_v2");
    find(set_stream, "cublasSetStream_v2");
    find(version, "cublasGetVersion_v2");
    find(multiply, "cublasGemmEx");
  }
  bool complete() const { return create && destroy && set_stream && version && multiply; }
};

class device_probes final : public machine_probes {
 public:
  explicit device_probes(std::shared_ptr<cuda_device> device)
      : device_(std::move(device)), stream_(device_), facts_(device_->facts()) {
    first_ = device_->make_event();
    last_ = device_->make_event();
    read_ = device_->load_kernel(kernels, "read_all");
    clock_ = device_->load_kernel(kernels, "tell_clock");
    nothing_ = device_->load_kernel(kernels, "nothing");
    answer_ = device_->allocate(64);
    make_read_memory();
    make_matrices();
    try_e4m3();
    empty_graph_us_ = time_empty_graph();
  }

  ~device_probes() override {
    if (handle_ != nullptr) blas_.destroy(handle_);
    for (const device_address at : {data_, a_, b_, c_, answer_})
      if (at != 0) device_->release(at);
    for (void* event : {first_, last_})
      if (event != nullptr) device_->destroy_event(event);
  }

  double flops_per_s(double seconds) override {
    const auto multiply = [&] { multiply_once(); };
    return repeated(multiply, seconds) * 2 * std::pow(static_cast<double>(side), 3);
  }

  bool multiplies_e4m3() const override { return e4m3_missing_.empty(); }

  double e4m3_flops_per_s(double seconds) override {
    const auto multiply = [&] { e4m3_.multiply(stream_.get()); };
    return repeated(multiply, seconds) * 2 * std::pow(static_cast<double>(side), 3);
  }

  double read_bytes_per_s(double seconds) override {
    std::uint64_t count = bytes_ / 16;
    void* parameters[] = {&data_, &count, &answer_};
    const auto read = [&] { device_->launch_kernel(read_, blocks(), read_threads, parameters, stream_.get()); };
    return repeated(read, seconds) * static_cast<double>(bytes_);
  }

  std::uint64_t read_bytes() const override { return bytes_; }

  std::vector<std::string> types() const override {
    return handle_ == nullptr ? std::vector<std::string>{} : std::vector<std::string>{"bf16", "fp16"};
  }

  std::string source() const override {
    return fmt::format("{}, {}, and a kernel that reads {} of memory; empty graph {:.2f} us; {}", products(),
                       e4m3_missing_.empty() ? fmt::format("the same of e4m3 ones to bf16 by {}", e4m3_.library())
                                             : "no limit of arithmetic in e4m3: " + e4m3_missing_,
                       format_bytes(static_cast<double>(bytes_)), empty_graph_us_, facts_.name);
  }

  double clock_mhz() override {
    void* parameters[] = {&answer_};
    device_->launch_kernel(clock_, 1, 1, parameters, stream_.get());
    stream_.wait();
    std::uint64_t counted[2] = {};
    device_->download(counted, answer_, sizeof counted);
    return counted[1] == 0 ? 0 : static_cast<double>(counted[0]) / static_cast<double>(counted[1]) * 1e3;
  }

 private:
  static constexpr int side = 8192;

  std::string products() const {
    if (handle_ != nullptr)
      return fmt::format(
          "{0}x{0}x{0} products of random bf16 matrices by cuBLAS {1}.{2}.{3} ({4}, from {5}; searched in {6})", side,
          version_ / 10000, version_ / 100 % 100, version_ % 100, blas_.library.path, blas_.library.place,
          blas_.library.searched);
    if (under_sanitizer())
      return "no products of matrices, since compute-sanitizer runs this process and would need minutes for them, so "
             "no "
             "limit of arithmetic is known";
    return fmt::format("{} (searched in {}), so no limit of arithmetic is known",
                       blas_.library.handle == nullptr ? "no cuBLAS was found" : blas_.library.path + " refuses",
                       blas_.library.searched);
  }

  unsigned blocks() const { return static_cast<unsigned>(facts_.multiprocessors) * 4; }

  // Far beyond the cache, and a multiple of what all threads read in one step.
  void make_read_memory() {
    const std::uint64_t step = std::uint64_t{blocks()} * read_threads * 64;
    const std::uint64_t wanted = std::max<std::uint64_t>(8 * facts_.cache_bytes, std::uint64_t{1} << 30);
    bytes_ = (wanted + step - 1) / step * step;
    data_ = device_->allocate(bytes_);
    device_->fill(data_, 0, bytes_);
  }

  // Random numbers: products of zeros need less power and run faster.
  void make_matrices() {
    if (under_sanitizer()) return;
    blas_.open();
    if (!blas_.complete() || blas_.create(&handle_) != 0) {
      handle_ = nullptr;
      return;
    }
    blas_.version(handle_, &version_);
    blas_.set_stream(handle_, stream_.get());
    constexpr std::size_t elements = std::size_t{side} * side;
    std::vector<std::uint16_t> values(elements);
    std::minstd_rand random(1);
    // Signs and bits at random, exponents about 1.
    for (auto& v : values) {
      const auto bits = static_cast<std::uint32_t>(random());
      v = static_cast<std::uint16_t>((bits & 0x807F) | 0x3F00 | (bits >> 20 & 0x80));
    }
    for (device_address* at : {&a_, &b_}) {
      *at = device_->allocate(elements * 2);
      device_->upload(*at, values.data(), elements * 2);
      std::rotate(values.begin(), values.begin() + 12345, values.end());
    }
    c_ = device_->allocate(elements * 2);
    multiply_once();
    stream_.wait();
  }

  // A library that chooses an algorithm and then refuses it is no reason to give up what else can be measured.
  void try_e4m3() {
    e4m3_missing_ = e4m3_.missing();
    if (!e4m3_missing_.empty()) return;
    try {
      e4m3_.multiply(stream_.get());
    } catch (const cuda_failure& f) {
      e4m3_missing_ = f.text;
    }
    stream_.wait();
  }

  void multiply_once() {
    const float one = 1, zero = 0;
    const auto pointer = [](device_address at) { return reinterpret_cast<void*>(at); };
    const int status = blas_.multiply(handle_, cublas::transpose, cublas::no_transpose, side, side, side, &one,
                                      pointer(a_), cublas::bf16, side, pointer(b_), cublas::bf16, side, &zero,
                                      pointer(c_), cublas::bf16, side, cublas::in_fp32, cublas::usual);
    if (status != 0) throw cuda_failure{fmt::format("cublasGemmEx: status {}", status)};
  }

  // Calls a second: so many that they take about `seconds`, one of them first.
  template <class Call>
  double repeated(const Call& call, double seconds) {
    const auto time = [&](int count) {
      device_->record(first_, stream_.get());
      for (int i = 0; i < count; ++i) call();
      device_->record(last_, stream_.get());
      return device_->seconds_between(first_, last_) / count;
    };
    const double one = time(1);
    return 1 / time(std::clamp(static_cast<int>(seconds / one), 1, 1000));
  }

  double time_empty_graph() {
    device_->begin_capture(stream_.get());
    device_->launch_kernel(nothing_, 1, 1, nullptr, stream_.get());
    void* const graph = device_->end_capture(stream_.get());
    std::vector<double> us;
    for (int i = 0; i < 50; ++i) {
      device_->record(first_, stream_.get());
      device_->launch_graph(graph, stream_.get());
      device_->record(last_, stream_.get());
      us.push_back(device_->seconds_between(first_, last_) * 1e6);
    }
    device_->destroy_graph(graph);
    std::ranges::nth_element(us, us.begin() + 25);
    return us[25];
  }

  std::shared_ptr<cuda_device> device_;
  device_stream stream_;
  cuda_facts facts_;
  cublas blas_;
  fp8_products e4m3_{device_, side};
  std::string e4m3_missing_;
  cublas::handle handle_ = nullptr;
  void *first_ = nullptr, *last_ = nullptr, *read_ = nullptr, *clock_ = nullptr, *nothing_ = nullptr;
  device_address data_ = 0, a_ = 0, b_ = 0, c_ = 0, answer_ = 0;
  std::uint64_t bytes_ = 0;
  int version_ = 0;  // of cuBLAS: 130100
  double empty_graph_us_ = 0;
};

}  // namespace

std::unique_ptr<machine_probes> make_device_probes(std::shared_ptr<cuda_device> device) {
  return std::make_unique<device_probes>(std::move(device));
}

}  // namespace msabench
