// SPDX-License-Identifier: Apache-2.0
#include "host/worker/probes.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/units.h"

namespace msabench {
namespace {

using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point start) { return std::chrono::duration<double>(clock::now() - start).count(); }

// Vectors of the compiler, so that the same text is NEON, AVX2 or AVX-512.
template <int Bytes>
struct vectors_of {
  typedef float floats __attribute__((vector_size(Bytes)));
  typedef std::uint64_t words __attribute__((vector_size(Bytes), aligned(8), may_alias));
};

// As many chains as hide the latency of a multiply-add on two units, and fit into the registers.
template <int Bytes, int Chains>
__attribute__((always_inline)) inline double multiply_add(std::int64_t rounds) {
  using floats = typename vectors_of<Bytes>::floats;
  constexpr int lanes = Bytes / 4;
  // The compiler may not reorder sums, so every one of these is computed.
  floats sum[Chains], factor, addend;
  for (int i = 0; i < lanes; ++i) {
    factor[i] = 0.999f + 1e-5f * static_cast<float>(i);
    addend[i] = 0.25f;
  }
  for (int c = 0; c < Chains; ++c) sum[c] = addend * static_cast<float>(c + 1);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < Chains; ++c) sum[c] = sum[c] * factor + addend;
  }
  double result = 0;
  for (int c = 0; c < Chains; ++c)
    for (int i = 0; i < lanes; ++i) result += static_cast<double>(sum[c][i]);
  return result;
}

template <int Bytes>
__attribute__((always_inline)) inline std::uint64_t read_through(const std::byte* from, std::size_t bytes) {
  using words = typename vectors_of<Bytes>::words;
  constexpr int streams = 8;
  words sum[streams] = {};
  const auto* at = reinterpret_cast<const words*>(from);
  const std::size_t steps = bytes / (streams * Bytes);
  for (std::size_t i = 0; i < steps; ++i, at += streams)
#pragma GCC unroll 8
    for (int s = 0; s < streams; ++s) sum[s] ^= at[s];
  std::uint64_t result = 0;
  for (const words& s : sum)
    for (int i = 0; i < Bytes / 8; ++i) result ^= s[i];
  return result;
}

struct kernels {
  double (*multiply_add)(std::int64_t rounds);
  std::int64_t flops_per_round;
  std::uint64_t (*read)(const std::byte*, std::size_t);
  const char* vectors;
};

double multiply_add_baseline(std::int64_t rounds) { return multiply_add<16, 12>(rounds); }
std::uint64_t read_baseline(const std::byte* from, std::size_t bytes) { return read_through<16>(from, bytes); }

#if defined(__x86_64__)
__attribute__((target("avx512f"))) double multiply_add_avx512(std::int64_t rounds) {
  return multiply_add<64, 16>(rounds);
}
__attribute__((target("avx512f"))) std::uint64_t read_avx512(const std::byte* from, std::size_t bytes) {
  return read_through<64>(from, bytes);
}
__attribute__((target("avx2,fma"))) double multiply_add_avx2(std::int64_t rounds) {
  return multiply_add<32, 12>(rounds);
}
__attribute__((target("avx2,fma"))) std::uint64_t read_avx2(const std::byte* from, std::size_t bytes) {
  return read_through<32>(from, bytes);
}
#endif

kernels best_kernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f"))
    return {multiply_add_avx512, std::int64_t{2} * 16 * 16, read_avx512, "AVX-512"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {multiply_add_avx2, std::int64_t{2} * 12 * 8, read_avx2, "AVX2 with FMA"};
#endif
  return {multiply_add_baseline, std::int64_t{2} * 12 * 4, read_baseline, "the compiler's baseline vectors"};
}

// Work that must not be optimized away ends here.
std::atomic<std::uint64_t> results{0};

}  // namespace

class cpu_probes::state {
 public:
  state(int threads, std::uint64_t read_bytes) : kernels_(best_kernels()), threads_(std::max(threads, 1)) {
    // Halved until the machine has it; resident before anything is timed.
    for (bytes_ = std::max<std::uint64_t>(read_bytes, least); bytes_ > least; bytes_ /= 2) {
      void* at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (at == MAP_FAILED) continue;
      memory_ = static_cast<std::byte*>(at);
      break;
    }
    if (memory_ == nullptr) {
      bytes_ = least;
      memory_ =
          static_cast<std::byte*>(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    }
    ::madvise(memory_, bytes_, MADV_HUGEPAGE);
    for (std::uint64_t at = 0; at < bytes_; at += 4096) memory_[at] = static_cast<std::byte>(at >> 12);
    for (int i = 1; i < threads_; ++i) helpers_.emplace_back([this, i] { serve(i); });
  }

  ~state() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    for (auto& t : helpers_) t.join();
    ::munmap(memory_, bytes_);
  }

  double flops_per_s(double seconds) {
    // About 20 us: adding up the lanes at the end of a call, a third of a microsecond, must not count.
    constexpr std::int64_t rounds = 8192;
    return together(seconds, [this](int, double until_s, clock::time_point start) {
      double done = 0;
      do {
        results.fetch_add(static_cast<std::uint64_t>(kernels_.multiply_add(rounds)), std::memory_order_relaxed);
        done += static_cast<double>(rounds * kernels_.flops_per_round);
      } while (seconds_since(start) < until_s);
      return done;
    });
  }

  double read_bytes_per_s(double seconds) {
    const std::uint64_t share = bytes_ / static_cast<std::uint64_t>(threads_) / step * step;
    const double rate = together(seconds, [this, share](int thread, double until_s, clock::time_point start) {
      // Each thread goes on where it stopped the last time, in a part of its own.
      auto& next = next_[static_cast<std::size_t>(thread)].at;
      double done = 0;
      do {
        results.fetch_xor(kernels_.read(memory_ + static_cast<std::uint64_t>(thread) * share + next, step),
                          std::memory_order_relaxed);
        next = next + 2 * step > share ? 0 : next + step;
        done += static_cast<double>(step);
      } while (seconds_since(start) < until_s);
      return done;
    });
    return rate;
  }

  std::uint64_t bytes() const { return bytes_; }
  const char* vectors() const { return kernels_.vectors; }

 private:
  static constexpr std::uint64_t step = 256 << 10, least = 64 << 20;
  using job = std::function<double(int thread, double until_s, clock::time_point start)>;

  // All threads start together; the amount that they did, over the time until the last one stopped.
  double together(double seconds, const job& what) {
    {
      const std::lock_guard lock(mutex_);
      job_ = &what;
      seconds_ = seconds;
      arrived_.store(0);
      left_ = threads_ - 1;
      done_ = 0;
      ++generation_;
    }
    wake_.notify_all();
    arrived_.fetch_add(1);
    while (arrived_.load() < threads_) std::this_thread::yield();
    const auto start = clock::now();
    const double own = what(0, seconds, start);
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return left_ == 0; });
    const double elapsed = seconds_since(start);
    return (own + done_) / elapsed;
  }

  void serve(int thread) {
    std::uint64_t seen = 0;
    for (;;) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return ending_ || generation_ != seen; });
      if (ending_) return;
      seen = generation_;
      const job* what = job_;
      const double seconds = seconds_;
      lock.unlock();
      arrived_.fetch_add(1);
      while (arrived_.load() < threads_) std::this_thread::yield();
      const double amount = (*what)(thread, seconds, clock::now());
      lock.lock();
      done_ += amount;
      if (--left_ == 0) finished_.notify_one();
    }
  }

  struct alignas(64) position {
    std::uint64_t at = 0;
  };

  kernels kernels_;
  int threads_;
  std::byte* memory_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::vector<position> next_{static_cast<std::size_t>(threads_)};
  std::vector<std::thread> helpers_;
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  const job* job_ = nullptr;
  double seconds_ = 0, done_ = 0;
  std::atomic<int> arrived_{0};
  int left_ = 0;
  std::uint64_t generation_ = 0;
  bool ending_ = false;
};

cpu_probes::cpu_probes(int threads, std::uint64_t read_bytes)
    : state_(std::make_unique<state>(threads, read_bytes)), threads_(threads) {}
cpu_probes::~cpu_probes() = default;
double cpu_probes::flops_per_s(double seconds) { return state_->flops_per_s(seconds); }
double cpu_probes::read_bytes_per_s(double seconds) { return state_->read_bytes_per_s(seconds); }
std::uint64_t cpu_probes::read_bytes() const { return state_->bytes(); }

std::string cpu_probes::source() const {
  return fmt::format(
      "fp32 multiply-adds in {}, and reading {} of memory, {} thread{}; narrower operands count at the fp32 peak",
      state_->vectors(), format_bytes(static_cast<double>(read_bytes())), threads_, threads_ == 1 ? "" : "s");
}

}  // namespace msabench
