// SPDX-License-Identifier: Apache-2.0
// Not part of the product. Compares loss and gradients of variants of kl with those of the portable kernel, then times
// them and their phases. Built by build_bench_kl.sh, which compiles each variant with its own name for cuda_sm90.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <msabench/plugin.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"

using msabench::kernels::kl_call;
using msabench::kernels::run_context;

#define VARIANT(name)                                                        \
  namespace msabench::name {                                                 \
  void kl(const kl_call& call, const run_context& context); \
  double kl_scratch_bytes(const msabench_problem& problem);     \
  bool taken(const msabench_problem& problem);  \
  void time_phases(const kl_call& call, const run_context& context);   \
  const char* map_error();                                                   \
  }
#include "variants.inc"
#undef VARIANT

struct variant {
  const char* name;
  void (*run)(const kl_call&, const run_context&);
  double (*bytes)(const msabench_problem&);
  const char* (*map_error)();
  void (*phases)(const kl_call&, const run_context&);
  bool (*taken)(const msabench_problem&);
};
const variant variants[] = {
    {"portable", msabench::cuda::kl, msabench::cuda::kl_scratch_bytes, nullptr, nullptr, nullptr},
#define VARIANT(name)                                                                                \
  {#name, msabench::name::kl, msabench::name::kl_scratch_bytes, msabench::name::map_error, \
   msabench::name::time_phases, msabench::name::taken},
#include "variants.inc"
};

#define CHECK(x)                                                                    \
  do {                                                                              \
    const cudaError_t e = (x);                                                      \
    if (e != cudaSuccess) {                                                         \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e)); \
      std::fflush(stdout);                                                          \
      std::_Exit(1);                                                                \
    }                                                                               \
  } while (0)

__device__ unsigned hash(unsigned long long x) {
  x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
  return static_cast<unsigned>(x);
}
/// About normal, by four uniform values.
__global__ void fill(__nv_bfloat16* to, long long n, unsigned long long seed, float scale) {
  for (long long i = blockIdx.x * 1ll * blockDim.x + threadIdx.x; i < n; i += gridDim.x * 1ll * blockDim.x) {
    float sum = 0;
    for (int k = 0; k < 4; ++k) sum += hash(seed * 77777777ull + i * 4 + k) * 0x1p-32f - 0.5f;
    to[i] = __float2bfloat16(sum * 1.73f * scale);
  }
}
__global__ void fill_lse(float* to, long long n, float value) {
  for (long long i = blockIdx.x * 1ll * blockDim.x + threadIdx.x; i < n; i += gridDim.x * 1ll * blockDim.x) to[i] = value;
}
/// sums: of squares of a, of squares of a - b, of NaN or infinite differences; worst[0] the largest |a - b|, worst[1] where.
__global__ void compare(const float* a, const float* b, long long n, double* sums, unsigned long long* worst) {
  double square = 0, error = 0, bad = 0;
  unsigned long long most = 0;
  for (long long i = blockIdx.x * 1ll * blockDim.x + threadIdx.x; i < n; i += gridDim.x * 1ll * blockDim.x) {
    const float d = b[i] - a[i];
    if (!isfinite(d)) {
      bad += 1;
      most = max(most, 0x7f80000000000000ull | (i / 128 & 0xffffffff));
      continue;
    }
    square += double(a[i]) * a[i], error += double(d) * d;
    most = max(most, static_cast<unsigned long long>(__float_as_uint(fabsf(d))) << 32 | (i / 128 & 0xffffffff));
  }
  atomicAdd(sums, square), atomicAdd(sums + 1, error), atomicAdd(sums + 2, bad);
  atomicMax(worst, most);
}

template <class T>
T* device(long long n) {
  void* p = nullptr;
  CHECK(cudaMalloc(&p, std::max<long long>(n, 1) * sizeof(T)));
  return static_cast<T*>(p);
}

struct timer {
  cudaEvent_t a, b;
  timer() {
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
  }
  template <class Run>
  float operator()(const Run& run) {
    CHECK(cudaEventRecord(a));
    run();
    CHECK(cudaEventRecord(b));
    CHECK(cudaEventSynchronize(b));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, a, b));
    return ms;
  }
};

constexpr int hq = 64, hkv = 4, d = 128, topk = 16, block = 128;
constexpr msabench_dtype bf16{4, 16, 1}, fp32{2, 32, 1};

void bench(long long n, bool dense, int samples) {
  std::printf("== kl, %s %lld tokens, M3 shape, bf16, gradients fp32\n", dense ? "warm-up" : "random selection", n);
  const long long q_size = n * hq * d, k_size = n * hkv * d, qi_size = n * hkv * d, ki_size = n * d;
  auto *q = device<__nv_bfloat16>(q_size), *qi = device<__nv_bfloat16>(qi_size);
  auto *k = device<__nv_bfloat16>(k_size), *ki = device<__nv_bfloat16>(ki_size);
  unsigned long long seed = 1;
  fill<<<1024, 256>>>(q, q_size, ++seed, 1.0f);
  fill<<<1024, 256>>>(qi, qi_size, ++seed, 1.0f);
  fill<<<1024, 256>>>(k, k_size, ++seed, 1.0f);
  fill<<<1024, 256>>>(ki, ki_size, ++seed, 1.0f);
  std::vector<int> ids(dense ? 1 : n * hkv * topk);
  double readings = 0, pairs = 0;
  std::mt19937 random(5);
  if (!dense)
    for (long long t = 0; t < n; ++t)
      for (int h = 0; h < hkv; ++h) {
        int* const row = &ids[(t * hkv + h) * topk];
        const int own = static_cast<int>(t / block);
        int count = 0;
        row[count++] = own;
        const int want = std::min(topk, own + 1);
        while (count < want) {
          const int id = static_cast<int>(random() % (own + 1));
          if (std::find(row, row + count, id) == row + count) row[count++] = id;
        }
        std::sort(row, row + count);
        std::fill(row + count, row + topk, -1);
        readings += count;
        pairs += (count - 1) * double(block) + t % block + 1;
      }
  else
    pairs = hkv * (n * (n + 1.0) / 2);
  auto* dids = device<int>(ids.size());
  CHECK(cudaMemcpy(dids, ids.data(), ids.size() * 4, cudaMemcpyHostToDevice));
  const int lengths[3] = {0, static_cast<int>(n), static_cast<int>(n)};
  auto* dl = device<int>(3);
  CHECK(cudaMemcpy(dl, lengths, 12, cudaMemcpyHostToDevice));
  float* grads[2][2];
  double* losses[2];
  for (auto& g : grads) g[0] = device<float>(qi_size), g[1] = device<float>(ki_size);
  for (auto& l : losses) l = device<double>(1);

  msabench_problem p{};
  p.struct_size = sizeof p;
  p.op = MSABENCH_OP_KL;
  p.hq = hq, p.hkv = hkv, p.d = d, p.hi = hkv, p.di = d, p.block = dense ? 0 : block, p.topk = dense ? 0 : topk;
  p.local_blocks = dense ? 0 : 1;
  p.batch = 1, p.total_q = p.max_q_len = p.max_kv_len = p.total_kv = n;
  p.q = p.kv = p.out = p.q_idx = p.k_idx = bf16, p.grad = fp32;
  p.kl_coeff = 1, p.kl_warm_up = dense;
  kl_call c{};
  c.rows = {dl, dl + 2, 1, n};
  c.kv_heads = hkv, c.group = hq / hkv, c.d = d, c.di = d, c.block = block, c.topk = p.topk;
  c.max_blocks = (n + block - 1) / block;
  c.scale = c.index_scale = 0.08838834764f;
  c.coeff = 1;
  c.keys.type = bf16, c.keys.extent = n, c.keys.token_stride = hkv * d, c.keys.head_stride = d, c.keys.cu_seqlens_kv = dl;
  c.index_keys = c.keys;
  c.index_keys.token_stride = d;
  c.keys.data = reinterpret_cast<const char*>(k), c.index_keys.data = reinterpret_cast<const char*>(ki);
  c.q = {reinterpret_cast<const char*>(q), bf16, hq * d, d};
  c.q_idx = {reinterpret_cast<const char*>(qi), bf16, hkv * d, d};
  c.ids = dense ? nullptr : dids, c.id_row_stride = hkv * topk, c.id_head_stride = topk;
  c.gradient_type = fp32;
  const auto with = [&](int set) {
    kl_call own = c;
    own.loss = losses[set];
    own.dq_idx = {reinterpret_cast<char*>(grads[set][0]), hkv * d, d};
    own.dk_idx = {reinterpret_cast<char*>(grads[set][1]), d, d};
    return own;
  };
  const double flops = 2.0 * (d * (hq / hkv) + 3.0 * d) * pairs;
  auto* sums = device<double>(3);
  auto* worst = device<unsigned long long>(1);
  timer time;
  for (const variant& x : variants) {
    const bool reference = x.phases == nullptr;
    const auto bytes = static_cast<std::int64_t>(x.bytes(p));
    auto* const scratch = device<char>(bytes);
    CHECK(cudaMemset(scratch, 0xff, bytes));
    for (int i = 0; i < 2; ++i) CHECK(cudaMemset(grads[!reference][i], 0xff, (i ? ki_size : qi_size) * 4));
    if (x.taken != nullptr && !x.taken(p)) std::printf("   WRONG: this is the portable kernel\n");
    const run_context context{p, 1, scratch, bytes, nullptr, nullptr};
    const kl_call own = with(!reference);
    std::vector<float> ms;
    for (int i = 0; i <= samples; ++i) {
      ms.push_back(time([&] { x.run(own, context); }));
      CHECK(cudaGetLastError());
      if (x.map_error != nullptr)
        if (const char* text = x.map_error()) std::printf("map: %s\n", text);
    }
    ms.erase(ms.begin());
    const float together = samples == 1 ? ms[0] : time([&] { for (int i = 0; i < samples; ++i) x.run(own, context); }) / samples;
    std::sort(ms.begin(), ms.end());
    const float median = ms[ms.size() / 2];
    std::printf("%-12s scratch %5.2f GB  median %8.3f ms %6.1f TFLOP/s  back to back %8.3f ms %6.1f\n", x.name, bytes * 1e-9,
                median, flops / median * 1e-9, together, flops / together * 1e-9);
    if (!reference) {
      for (int i = 0; i < 2; ++i) {
        CHECK(cudaMemset(sums, 0, 24));
        CHECK(cudaMemset(worst, 0, 8));
        compare<<<512, 256>>>(grads[0][i], grads[1][i], i ? ki_size : qi_size, sums, worst);
        double s[3];
        unsigned long long w;
        CHECK(cudaMemcpy(s, sums, 24, cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(&w, worst, 8, cudaMemcpyDeviceToHost));
        const auto line = static_cast<long long>(w & 0xffffffff);
        const unsigned bits = static_cast<unsigned>(w >> 32);
        float most;
        std::memcpy(&most, &bits, 4);
        const int heads = i ? 1 : hkv;
        const double relative = std::sqrt(s[1] / s[0]);
        const bool good = s[2] == 0 && relative < 2e-3 && s[0] > 0;
        std::printf("   d%c %s: difference / size (rms) %.2e, rms %.3g, not finite %.0f, worst %.3g in row %lld head %lld\n",
                    "qk"[i], good ? "ok" : "WRONG", relative, std::sqrt(s[0] / (i ? ki_size : qi_size)), s[2], most,
                    line / heads, line % heads);
        if (good) continue;
        // Where: lines that differ by more than a tenth of their size, the first ones, and how many.
        const long long lines = (i ? ki_size : qi_size) / 128, looked = std::min<long long>(lines, 1 << 20);
        std::vector<float> a(looked * 128), b(looked * 128);
        CHECK(cudaMemcpy(a.data(), grads[0][i], a.size() * 4, cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(b.data(), grads[1][i], b.size() * 4, cudaMemcpyDeviceToHost));
        long long off = 0;
        for (long long l = 0; l < looked; ++l) {
          double size = 0, error = 0;
          int first = -1, wrong = 0;
          for (int col = 0; col < 128; ++col) {
            const double x0 = a[l * 128 + col], x1 = b[l * 128 + col];
            size += x0 * x0, error += (x0 - x1) * (x0 - x1);
            if (!(std::fabs(x0 - x1) <= 0.02 * (std::fabs(x0) + 1e-6))) ++wrong, first = first < 0 ? col : first;
          }
          if (error <= 0.01 * size) continue;
          if (++off <= 8)
            std::printf("     row %lld head %lld: %d columns differ from %d on: %g for %g\n", l / heads, l % heads, wrong,
                        first, b[l * 128 + std::max(first, 0)], a[l * 128 + std::max(first, 0)]);
        }
        std::printf("     %lld of the first %lld lines are wrong\n", off, looked);
      }
      double loss[2];
      for (int i = 0; i < 2; ++i) CHECK(cudaMemcpy(loss + i, losses[i], 8, cudaMemcpyDeviceToHost));
      std::printf("   loss %s: %.9g for %.9g\n", std::fabs(loss[1] - loss[0]) < 1e-5 * loss[0] ? "ok" : "WRONG", loss[1], loss[0]);
      // The same bits again?
      std::vector<float> first(1 << 22), again(1 << 22);
      const auto size = std::min<long long>(first.size(), ki_size);
      CHECK(cudaMemcpy(first.data(), grads[1][1], size * 4, cudaMemcpyDeviceToHost));
      x.run(own, context);
      CHECK(cudaMemcpy(again.data(), grads[1][1], size * 4, cudaMemcpyDeviceToHost));
      if (std::memcmp(first.data(), again.data(), size * 4) != 0) std::printf("   WRONG: dk is not repeatable\n");
      x.phases(own, context);
    }
    std::fflush(stdout);
    CHECK(cudaFree(scratch));
  }
  for (void* x : {static_cast<void*>(q), static_cast<void*>(qi), static_cast<void*>(k), static_cast<void*>(ki),
                  static_cast<void*>(dids), static_cast<void*>(dl), static_cast<void*>(sums), static_cast<void*>(worst)})
    CHECK(cudaFree(x));
  for (auto& g : grads)
    for (float* x : g) CHECK(cudaFree(x));
  for (double* x : losses) CHECK(cudaFree(x));
}

/// [samples] [tokens dense(0 or 1)]...
int main(int argc, char** argv) {
  const int samples = argc > 1 ? std::atoi(argv[1]) : 5;
  if (argc > 3) {
    for (int i = 2; i + 1 < argc; i += 2) bench(std::atoll(argv[i]), std::atoi(argv[i + 1]) != 0, samples);
    return 0;
  }
  bench(1000, false, 1);  // the last block is not whole
  bench(1000, true, 1);
  bench(65536, false, samples);
  bench(16384, false, samples);
  bench(16384, true, samples);
  return 0;
}
