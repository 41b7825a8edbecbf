// SPDX-License-Identifier: Apache-2.0
// Not part of the product. Compares variants of wide_attention with the portable kernel, then times them. Built by
// build_dense.sh, which compiles each variant with its own name in place of cuda_sm90.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <msabench/plugin.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"

using msabench::kernels::attend_call;
using msabench::kernels::run_context;

#define VARIANT(name)                                                     \
  namespace msabench::name {                                              \
  void wide_attention(const attend_call& call, const run_context& context); \
  const char* map_error();                                                \
  }
#include "dense_variants.inc"
#undef VARIANT

struct variant {
  const char* name;
  void (*run)(const attend_call&, const run_context&);
  const char* (*map_error)();
};
const variant variants[] = {
    {"portable", msabench::cuda::dense, nullptr},
#define VARIANT(name) {#name, msabench::name::wide_attention, msabench::name::map_error},
#include "dense_variants.inc"
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
__device__ float read(const void* at, long i, bool half) {
  return half ? __half2float(static_cast<const __half*>(at)[i]) : __bfloat162float(static_cast<const __nv_bfloat16*>(at)[i]);
}
__global__ void fill(void* to, long count, unsigned seed, bool half) {
  for (long i = blockIdx.x * 256l + threadIdx.x; i < count; i += gridDim.x * 256l) {
    const unsigned a = hash(i * 2 + seed * 0x9e3779b97f4a7c15ull), b = hash(i * 2 + 1 + seed * 0x9e3779b97f4a7c15ull);
    const float v = sqrtf(-2 * logf((a + 1.0f) / 4294967808.0f)) * cospif(b / 2147483648.0f);
    if (half)
      static_cast<__half*>(to)[i] = __float2half(v);
    else
      static_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16(v);
  }
}
struct found {
  unsigned long long bad_rows, bad_lse, first_bad, nans;
  float greatest;
};
// A warp a row: differences in units of the row's root mean square.
__global__ void compare(const void* want, const void* got, const float* want_lse, const float* got_lse, long rows, int d, bool half,
                        float allowed, found* to) {
  const int lane = threadIdx.x % 32;
  for (long r = blockIdx.x * 8l + threadIdx.x / 32; r < rows; r += gridDim.x * 8l) {
    float square = 0, difference = 0;
    bool nan = false;
    for (int c = lane; c < d; c += 32) {
      const float x = read(want, r * d + c, half), y = read(got, r * d + c, half);
      square += x * x;
      difference = fmaxf(difference, fabsf(x - y));
      nan |= isnan(y);
    }
    for (int s = 16; s > 0; s /= 2) {
      square += __shfl_xor_sync(~0u, square, s);
      difference = fmaxf(difference, __shfl_xor_sync(~0u, difference, s));
    }
    const bool any_nan = __any_sync(~0u, nan);
    if (lane != 0) continue;
    const float relative = difference / (sqrtf(square / d) + 1e-20f);
    if (any_nan) atomicAdd(&to->nans, 1ull);
    atomicMax(reinterpret_cast<int*>(&to->greatest), __float_as_int(relative));
    if (any_nan || relative > allowed) {
      atomicAdd(&to->bad_rows, 1ull);
      atomicMin(&to->first_bad, static_cast<unsigned long long>(r));
    }
    if (!(fabsf(want_lse[r] - got_lse[r]) <= 2e-5f * fmaxf(1.0f, fabsf(want_lse[r])) || want_lse[r] == got_lse[r])) atomicAdd(&to->bad_lse, 1ull);
  }
}

struct config {
  const char* name;
  long keys, tokens, batch;  // vit: patches of a segment, 0, segments
  int hq, hkv, d, page;
  bool half, timed;
  int uneven;  // lengths of sequences differ by so many
};

int main(int argc, char** argv) {
  const config configs[] = {
      {"one tile", 128, 128, 1, 1, 1, 128, 0, false, false, 0},
      {"two warpgroups, 300 keys", 300, 300, 1, 16, 1, 128, 0, false, false, 0},
      {"d 80, 300 patches", 300, 0, 2, 2, 2, 80, 0, false, false, 0},
      {"d 64 fp16", 1111, 777, 2, 4, 2, 64, 0, true, false, 100},
      {"ragged, group 3, paged 256", 5000, 700, 3, 12, 4, 128, 256, false, false, 37},
      {"few tokens, spans", 100000, 64, 1, 64, 4, 128, 128, false, false, 0},
      {"vit ragged", 1000, 0, 9, 16, 16, 80, 0, false, false, 61},
      {"vit 16 x 4096", 4096, 0, 16, 16, 16, 80, 0, false, true, 0},
      {"d 64 8K x 8K, 32/8", 8192, 8192, 1, 32, 8, 64, 0, true, true, 0},
      {"8K x 8K", 8192, 8192, 1, 64, 4, 128, 0, false, true, 0},
      {"32K x 8K paged", 32768, 8192, 1, 64, 4, 128, 128, false, true, 0},
      {"32K x 32K 64/8", 32768, 32768, 1, 64, 8, 128, 0, false, true, 0},
      {"128K x 8K", 131072, 8192, 1, 64, 4, 128, 0, false, true, 0},
  };
  const char* const only = argc > 1 ? argv[1] : "";
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  found* to;
  CHECK(cudaMalloc(&to, sizeof(found)));
  for (const config& c : configs) {
    if (std::strstr(c.name, only) == nullptr) continue;
    const bool vit = c.tokens == 0;
    std::vector<int> cu_q{0}, cu_k{0}, lens, table;
    long pages = 0, columns = 0, longest = 0, most_q = 0;
    double pairs = 0;
    for (long i = 0; i < c.batch; ++i) {
      const long n = c.keys - i * c.uneven, q = vit ? n : std::min(c.tokens, n);
      lens.push_back(n), cu_q.push_back(cu_q.back() + q), cu_k.push_back(cu_k.back() + n);
      longest = std::max(longest, n), most_q = std::max(most_q, q);
      pairs += vit ? double(n) * n : double(q) * n - double(q) * (q - 1) / 2;
      if (c.page != 0) pages += (n + c.page - 1) / c.page, columns = std::max(columns, (n + c.page - 1) / c.page);
    }
    table.assign(std::max(1l, columns * c.batch), -1);
    long at = 0;
    for (long i = 0; i < c.batch && c.page != 0; ++i)
      for (long j = 0; j < (lens[i] + c.page - 1) / c.page; ++j) table[i * columns + j] = pages - 1 - at++;
    const long t = cu_q.back(), n = c.page == 0 ? cu_k.back() : pages * c.page;
    void *q, *k, *v, *out, *want;
    float *lse, *want_lse;
    CHECK(cudaMalloc(&q, t * c.hq * c.d * 2));
    CHECK(cudaMalloc(&k, n * c.hkv * c.d * 2));
    CHECK(cudaMalloc(&v, n * c.hkv * c.d * 2));
    CHECK(cudaMalloc(&out, t * c.hq * c.d * 2));
    CHECK(cudaMalloc(&want, t * c.hq * c.d * 2));
    CHECK(cudaMalloc(&lse, t * c.hq * 4));
    CHECK(cudaMalloc(&want_lse, t * c.hq * 4));
    fill<<<1024, 256>>>(q, t * c.hq * c.d, 1, c.half);
    fill<<<1024, 256>>>(k, n * c.hkv * c.d, 2, c.half);
    fill<<<1024, 256>>>(v, n * c.hkv * c.d, 3, c.half);
    int *d_cu_q, *d_lens, *d_cu_k, *d_table;
    const auto up = [](int** where, const std::vector<int>& from) {
      CHECK(cudaMalloc(where, from.size() * 4));
      CHECK(cudaMemcpy(*where, from.data(), from.size() * 4, cudaMemcpyHostToDevice));
    };
    up(&d_cu_q, cu_q), up(&d_lens, lens), up(&d_cu_k, cu_k), up(&d_table, table);
    msabench_problem p{};
    p.struct_size = sizeof p;
    p.op = vit ? MSABENCH_OP_VIT_ATTEND : MSABENCH_OP_DENSE;
    p.hq = c.hq, p.hkv = c.hkv, p.d = c.d;
    p.page_layout = c.page != 0, p.page_size = c.page;
    p.batch = c.batch, p.total_q = t, p.max_q_len = most_q, p.max_kv_len = longest, p.total_kv = n, p.pool_pages = pages;
    const msabench_dtype type = c.half ? msabench::kernels::fp16_type : msabench::kernels::bf16_type;
    p.q = p.kv = p.out = type;
    p.profile.struct_size = sizeof p.profile;
    attend_call call{};
    call.rows = {d_cu_q, vit ? nullptr : d_lens, c.batch, t};
    call.kv_heads = c.hkv, call.group = c.hq / c.hkv, call.d = c.d, call.block = msabench::kernels::dense_block;
    call.scale = 1 / std::sqrt(static_cast<float>(c.d));
    const long row = long{c.hkv} * c.d;
    call.keys.type = type;
    call.keys.data = static_cast<const char*>(k);
    call.keys.token_stride = row, call.keys.head_stride = c.d;
    if (c.page == 0) {
      call.keys.extent = n, call.keys.cu_seqlens_kv = d_cu_k;
    } else {
      // [pages][page][hkv][d]
      call.keys.extent = pages, call.keys.page_size = c.page, call.keys.page_stride = row * c.page;
      call.keys.block_table = d_table, call.keys.table_stride = columns;
    }
    call.values = call.keys;
    call.values.data = static_cast<const char*>(v);
    call.q = static_cast<const char*>(q), call.q_type = call.out_type = type;
    call.q_row_stride = call.out_row_stride = long{c.hq} * c.d, call.q_head_stride = call.out_head_stride = c.d;
    call.lse_row_stride = c.hq, call.lse_head_stride = 1;
    const double flops = 4.0 * c.d * c.hq * pairs;
    std::printf("== %s: %ld tokens, %ld keys, %d/%d heads, d %d, page %d, %.2f TFLOP\n", c.name, t, n, c.hq, c.hkv, c.d, c.page,
                flops * 1e-12);
    const auto bytes = static_cast<long>(msabench::cuda::attention_scratch_bytes(p));
    void* work;
    CHECK(cudaMalloc(&work, std::max(bytes, 1l)));
    CHECK(cudaMemset(work, 0xff, std::max(bytes, 1l)));
    for (size_t i = 0; i < std::size(variants); ++i) {
      const variant& x = variants[i];
      call.out = static_cast<char*>(i == 0 ? want : out);
      call.lse = i == 0 ? want_lse : lse;
      CHECK(cudaMemset(call.out, 0xff, t * c.hq * c.d * 2));
      CHECK(cudaMemset(call.lse, 0xff, t * c.hq * 4));
      const run_context context{p, 1, work, bytes};
      const auto run = [&] {
        x.run(call, context);
        if (x.map_error != nullptr)
          if (const char* text = x.map_error()) std::printf("%s: %s\n", x.name, text), std::_Exit(1);
        CHECK(cudaGetLastError());
      };
      CHECK(cudaEventRecord(a));
      run();
      CHECK(cudaEventRecord(b));
      CHECK(cudaDeviceSynchronize());
      float first_ms;
      CHECK(cudaEventElapsedTime(&first_ms, a, b));
      if (i > 0) {
        found none{0, 0, ~0ull, 0, 0}, f;
        CHECK(cudaMemcpy(to, &none, sizeof none, cudaMemcpyHostToDevice));
        compare<<<1024, 256>>>(want, out, want_lse, lse, t * c.hq, c.d, c.half, c.half ? 0.02f : 0.1f, to);
        CHECK(cudaMemcpy(&f, to, sizeof f, cudaMemcpyDeviceToHost));
        std::printf("  %-10s %s: %llu of %ld rows differ (%llu with NaN), %llu lse; greatest difference %.4f of a row's rms\n", x.name,
                    f.bad_rows + f.bad_lse == 0 ? "ok" : "WRONG", f.bad_rows, t * c.hq, f.nans, f.bad_lse, f.greatest);
        if (f.bad_rows > 0) {
          unsigned short w[2][128];
          CHECK(cudaMemcpy(w[0], static_cast<char*>(want) + f.first_bad * c.d * 2, c.d * 2, cudaMemcpyDeviceToHost));
          CHECK(cudaMemcpy(w[1], static_cast<char*>(out) + f.first_bad * c.d * 2, c.d * 2, cudaMemcpyDeviceToHost));
          std::printf("    first: token %llu head %llu;", f.first_bad / c.hq, f.first_bad % c.hq);
          for (int j = 0, shown = 0; j < c.d && shown < 12; ++j) {
            float y[2];
            for (int s = 0; s < 2; ++s) {
              unsigned bits = unsigned{w[s][j]} << 16;
              __half_raw raw;
              raw.x = w[s][j];
              std::memcpy(&y[s], &bits, 4);
              if (c.half) y[s] = __half2float(__half(raw));
            }
            if (!(std::fabs(y[0] - y[1]) <= 0.02f * std::fabs(y[0]))) std::printf(" [%d] %.4g not %.4g", j, y[1], y[0]), ++shown;
          }
          std::printf("\n");
        }
      }
      if (c.timed) {
        float alone = first_ms, together = 0;
        const int repeats = i == 0 ? 0 : 3;
        for (int s = 0; s < repeats; ++s) {
          usleep(20000);
          CHECK(cudaEventRecord(a));
          run();
          CHECK(cudaEventRecord(b));
          CHECK(cudaEventSynchronize(b));
          float ms;
          CHECK(cudaEventElapsedTime(&ms, a, b));
          alone = std::min(alone, ms);
        }
        const int many = i == 0 ? 1 : std::clamp(static_cast<int>(150 / alone), 2, 60);
        CHECK(cudaEventRecord(a));
        for (int s = 0; s < many; ++s) run();
        CHECK(cudaEventRecord(b));
        CHECK(cudaEventSynchronize(b));
        CHECK(cudaEventElapsedTime(&together, a, b));
        together /= many;
        std::printf("  %-10s alone %8.3f ms %6.1f TFLOP/s, back to back %8.3f ms %6.1f TFLOP/s\n", x.name, alone, flops / alone * 1e-9,
                    together, flops / together * 1e-9);
      }
      std::fflush(stdout);
    }
    for (void* x : {q, k, v, out, want, (void*)lse, (void*)want_lse, work, (void*)d_cu_q, (void*)d_lens, (void*)d_cu_k, (void*)d_table})
      CHECK(cudaFree(x));
  }
}
