// SPDX-License-Identifier: Apache-2.0
// Not part of the product. Compares ids of variants of the prefill index with those of the portable kernel, then times them.
// Built by build_bench.sh, which compiles each variant with its own name in place of cuda_sm90.
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <msabench/plugin.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/common/tensor_rules.h"
#include "kernels/common/error.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.h"

using msabench::kernels::index_call;
using msabench::kernels::run_context;

#define VARIANT(name)                                                              \
  namespace msabench::name {                                                       \
  void prefill_index(const index_call& call, const run_context& context);         \
  double prefill_index_scratch_bytes(const msabench_problem& problem);            \
  bool takes_prefill_index(const msabench_problem& problem);                      \
  const char* map_error();                                                        \
  }
#include "variants.inc"
#undef VARIANT

struct variant {
  const char* name;
  void (*run)(const index_call&, const run_context&);
  double (*bytes)(const msabench_problem&);
  const char* (*map_error)();
};
const variant variants[] = {
    {"portable", msabench::cuda::index, msabench::cuda::index_scratch_bytes, nullptr},
#define VARIANT(name) \
  {#name, msabench::name::prefill_index, msabench::name::prefill_index_scratch_bytes, msabench::name::map_error},
#include "variants.inc"
};

const char* v_name(size_t i) { return variants[i].name; }

#define CHECK(x)                                                                              \
  do {                                                                                        \
    const cudaError_t e = (x);                                                                \
    if (e != cudaSuccess) {                                                                   \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e));           \
      std::fflush(stdout);                                                                    \
      std::exit(1);                                                                           \
    }                                                                                         \
  } while (0)

__device__ unsigned hash(unsigned long long x) {
  x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
  return static_cast<unsigned>(x);
}
// Normal values; with `ramp` their channel 0 is ramp * row / rows instead.
__global__ void fill(__nv_bfloat16* to, long rows, int width, unsigned seed, float ramp) {
  for (long i = blockIdx.x * 256l + threadIdx.x; i < rows * width; i += gridDim.x * 256l) {
    const unsigned a = hash(i * 2 + seed * 0x9e3779b97f4a7c15ull), b = hash(i * 2 + 1 + seed * 0x9e3779b97f4a7c15ull);
    float v = sqrtf(-2 * logf((a + 1.0f) / 4294967808.0f)) * cospif(b / 2147483648.0f);
    if (ramp != 0 && i % width == 0) v = ramp * (static_cast<float>(i / width) / rows);
    to[i] = __float2bfloat16(v);
  }
}
__global__ void to_e4m3(const __nv_bfloat16* from, __nv_fp8_e4m3* to, long count) {
  for (long i = blockIdx.x * 256l + threadIdx.x; i < count; i += gridDim.x * 256l) to[i] = __nv_fp8_e4m3(__bfloat162float(from[i]));
}
// From 1/2 to 2, or about as far apart as the largest of 128 normal values are.
__global__ void fill_scales(float* to, long count, bool narrow) {
  for (long i = blockIdx.x * 256l + threadIdx.x; i < count; i += gridDim.x * 256l) {
    const float x = (hash(i) % 1024) / 1024.0f, y = (hash(i + 12345678) % 1024) / 1024.0f;
    to[i] = narrow ? 1 + 0.3f * (x + y - 1) : (1 + x) * (hash(i + 77777777) % 2 ? 1 : 0.5f);
  }
}
__global__ void fill_one(__nv_bfloat16* to, long rows, int width, float value) {
  for (long i = blockIdx.x * 256l + threadIdx.x; i < rows; i += gridDim.x * 256l) to[i * width] = __float2bfloat16(value);
}
// Block maxima of one row in double.
__global__ void exact(const __nv_bfloat16* q, const __nv_bfloat16* k, const int* table, long page, int width, long seen, double* to) {
  __shared__ double best[128];
  double sum = 0;
  const long key = blockIdx.x * 128l + threadIdx.x;
  if (key < seen) {
    const long at = table == nullptr ? key : table[key / page] * page + key % page;
    for (int c = 0; c < width; ++c) sum += double(__bfloat162float(q[c])) * double(__bfloat162float(k[at * width + c]));
  }
  best[threadIdx.x] = key < seen ? sum : -1e300;
  __syncthreads();
  if (threadIdx.x == 0) {
    double m = -1e300;
    for (double b : best) m = fmax(m, b);
    to[blockIdx.x] = m;
  }
}

struct config {
  const char* name;
  long keys, tokens, batch;
  int heads, width, page, topk, local, initial;
  float ramp;  // rising scores
  bool timed;
  int e4m3 = 0;  // idx_scale of e4m3 operands; there the first variant is the reference
};

struct tensors {
  std::vector<msabench_tensor> held;
  std::vector<long> shapes;
  msabench_args args{};
  const msabench_tensor* slots[MSABENCH_SLOT_COUNT_1_0] = {};
  long store[64][3];
  msabench_tensor all[64];
  int count = 0;
  int64_t shape[64][3], stride[64][3];
  void add(msabench_slot slot, void* data, msabench_dtype type, std::initializer_list<long> dims) {
    const int i = count++;
    int r = 0;
    for (long d : dims) shape[i][r++] = d;
    long s = 1;
    for (int a = r - 1; a >= 0; --a) stride[i][a] = s, s *= shape[i][a];
    all[i] = {data, shape[i], stride[i], r, type, {2, 0}};
    slots[slot] = &all[i];
  }
};

int main(int argc, char** argv) {
  const config configs[] = {
      {"e4m3 ragged, scales of keys", 5000, 700, 3, 3, 128, 128, 16, 2, 1, 0, false, 2},
      {"ragged 3 x (5000, 700), hi 3", 5000, 700, 3, 3, 128, 128, 16, 2, 1, 0, false},
      {"e4m3 1M x 8K, scales of keys from 1/2 to 2", 1 << 20, 8192, 1, 4, 128, 128, 16, 1, 0, 0, true, 2},
      {"e4m3 1M x 8K, scales of keys about 1", 1 << 20, 8192, 1, 4, 128, 128, 16, 1, 0, 0, true, 3},
      {"e4m3 1M x 8K, a scale", 1 << 20, 8192, 1, 4, 128, 128, 16, 1, 0, 0, true, 1},
      {"1M x 8K", 1 << 20, 8192, 1, 4, 128, 0, 16, 1, 0, 0, true},
      {"1M x 8K rising", 1 << 20, 8192, 1, 4, 128, 0, 16, 1, 0, 40, true},
      {"128K x 8K", 1 << 17, 8192, 1, 4, 128, 0, 16, 1, 0, 0, true},
      {"e4m3 128K x 8K, scales of keys about 1", 1 << 17, 8192, 1, 4, 128, 128, 16, 1, 0, 0, true, 3},
      {"e4m3 1M x 8K rising, a scale", 1 << 20, 8192, 1, 4, 128, 128, 16, 1, 0, 40, true, 1},
      {"1M x 512", 1 << 20, 512, 1, 4, 128, 128, 16, 1, 0, 0, true},
      {"e4m3 1M x 512, a scale", 1 << 20, 512, 1, 4, 128, 128, 16, 1, 0, 0, true, 1},
      {"33K, 100 tokens, di 64, hi 1", 33000, 100, 2, 1, 64, 256, 16, 0, 0, 0, false},
      {"256K whole", 1 << 18, 1 << 18, 1, 4, 128, 0, 16, 1, 0, 0, true},
  };
  msabench::kernels::set_tensor_rules(2, false);
  const char* const only = argc > 1 ? argv[1] : "";  // configurations whose name contains it
  const msabench_dtype bf16{4, 16, 1}, e4m3{10, 8, 1}, fp32{2, 32, 1}, i32{0, 32, 1};
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  for (const config& c : configs) {
    if (std::strstr(c.name, only) == nullptr) continue;
    const long t = c.tokens * c.batch, n = c.keys * c.batch;
    const long pages_each = c.page == 0 ? 0 : (c.keys + c.page - 1) / c.page, pages = pages_each * c.batch;
    const long rows = c.page == 0 ? n : pages * c.page;
    __nv_bfloat16 *q, *k;
    CHECK(cudaMalloc(&q, t * c.heads * c.width * 2));
    CHECK(cudaMalloc(&k, rows * c.width * 2));
    fill<<<1024, 256>>>(q, t * c.heads, c.width, 1, 0);
    fill<<<4096, 256>>>(k, rows, c.width, 2, c.ramp);
    if (c.ramp != 0) fill_one<<<256, 256>>>(q, t * c.heads, c.width, 3);
    const msabench_dtype type = c.e4m3 ? e4m3 : bf16;
    float *q_scale = nullptr, *k_scale = nullptr;
    if (c.e4m3) {
      void *q8, *k8;
      CHECK(cudaMalloc(&q8, t * c.heads * c.width));
      CHECK(cudaMalloc(&k8, rows * c.width));
      to_e4m3<<<1024, 256>>>(q, static_cast<__nv_fp8_e4m3*>(q8), t * c.heads * c.width);
      to_e4m3<<<4096, 256>>>(k, static_cast<__nv_fp8_e4m3*>(k8), rows * c.width);
      CHECK(cudaFree(q));
      CHECK(cudaFree(k));
      q = static_cast<__nv_bfloat16*>(q8), k = static_cast<__nv_bfloat16*>(k8);
      CHECK(cudaMalloc(&q_scale, t * c.heads * 4));
      CHECK(cudaMalloc(&k_scale, rows * 4));
      fill_scales<<<256, 256>>>(q_scale, t * c.heads, false);
      fill_scales<<<256, 256>>>(k_scale, rows, c.e4m3 == 3);
    }
    std::vector<int> cu_q, lens, cu_k, table(pages);
    for (long i = 0; i <= c.batch; ++i) cu_q.push_back(i * c.tokens), cu_k.push_back(i * c.keys);
    for (long i = 0; i < c.batch; ++i) lens.push_back(c.keys);
    for (long i = 0; i < pages; ++i) table[i] = (i * 7919 + 13) % pages;  // a permutation where 7919 does not divide
    if (c.ramp != 0) for (long i = 0; i < pages; ++i) table[i] = i;
    int *d_cu_q, *d_lens, *d_cu_k, *d_table;
    const auto up = [](int** to, const std::vector<int>& from) {
      CHECK(cudaMalloc(to, std::max<size_t>(from.size(), 1) * 4));
      CHECK(cudaMemcpy(*to, from.data(), from.size() * 4, cudaMemcpyHostToDevice));
    };
    up(&d_cu_q, cu_q), up(&d_lens, lens), up(&d_cu_k, cu_k), up(&d_table, table);
    const long id_count = t * c.heads * c.topk;
    int* ids;
    CHECK(cudaMalloc(&ids, id_count * 4));
    msabench_problem p{};
    p.struct_size = sizeof p;
    p.op = MSABENCH_OP_INDEX;
    p.hq = c.heads * 16, p.hkv = p.hi = c.heads, p.d = 128, p.di = c.width;
    p.block = 128, p.topk = c.topk, p.local_blocks = c.local, p.init_blocks = c.initial;
    p.page_layout = c.page != 0, p.page_size = c.page;
    p.batch = c.batch, p.total_q = t, p.max_q_len = c.tokens, p.max_kv_len = c.keys, p.total_kv = n, p.pool_pages = pages;
    p.q = p.kv = p.out = bf16;
    p.q_idx = p.k_idx = type;
    p.idx_scale = std::min(c.e4m3, 2);
    p.profile.struct_size = sizeof p.profile;
    tensors in;
    in.add(MSABENCH_Q_IDX, q, type, {t, c.heads, c.width});
    if (c.page == 0)
      in.add(MSABENCH_K_IDX, k, type, {n, c.width}), in.add(MSABENCH_CU_SEQLENS_KV, d_cu_k, i32, {c.batch + 1});
    else
      in.add(MSABENCH_K_IDX, k, type, {pages, c.page, c.width}),
          in.add(MSABENCH_BLOCK_TABLE_IDX, d_table, i32, {c.batch, pages_each});
    if (c.e4m3) {
      in.add(MSABENCH_Q_IDX_SCALE, q_scale, fp32, {t, c.heads});
      if (c.e4m3 == 1)
        in.add(MSABENCH_K_IDX_SCALE, k_scale, fp32, {1});
      else if (c.page == 0)
        in.add(MSABENCH_K_IDX_SCALE, k_scale, fp32, {n});
      else
        in.add(MSABENCH_K_IDX_SCALE, k_scale, fp32, {pages, c.page});
    }
    in.add(MSABENCH_CU_SEQLENS_Q, d_cu_q, i32, {c.batch + 1});
    in.add(MSABENCH_KV_LENS, d_lens, i32, {c.batch});
    in.add(MSABENCH_IDS, ids, i32, {t, c.heads, c.topk});
    msabench_args args{sizeof(msabench_args), MSABENCH_SLOT_COUNT_1_0, in.slots};
    std::fflush(stdout);
    std::vector<int> want(id_count), got(id_count);
    std::printf("== %s: %ld tokens, %ld keys, hi %d di %d page %d k %d L %d I %d\n", c.name, t, c.keys, c.heads, c.width,
                c.page, c.topk, c.local, c.initial);
    index_call call{};
    if (msabench::kernels::check_index(p, &args, call) != MSABENCH_OK) {
      std::printf("check: %s\n", msabench::kernels::error_text());
      return 1;
    }
    const size_t first = c.e4m3 ? 1 : 0;
    for (size_t i = first; i < std::size(variants); ++i) {
      if (c.e4m3 != 0 && c.e4m3 < 2 && std::strstr(v_name(i), "group")) continue;
      if (c.e4m3 == 0 && std::strstr(v_name(i), "group")) continue;
      const variant& v = variants[i];
      const auto bytes = static_cast<uint64_t>(v.bytes(p));
      void* work;
      CHECK(cudaMalloc(&work, std::max<uint64_t>(bytes, 1)));
      CHECK(cudaMemset(work, 0xff, bytes));
      CHECK(cudaMemset(ids, 0x7f, id_count * 4));
      const run_context context{p, 1, work, static_cast<std::int64_t>(bytes)};
      const auto run = [&] {
        v.run(call, context);
        if (v.map_error != nullptr)
          if (const char* text = v.map_error()) std::printf("%s: %s\n", v.name, text), std::exit(1);
        CHECK(cudaGetLastError());
      };
      run();
      CHECK(cudaDeviceSynchronize());
      CHECK(cudaMemcpy(got.data(), ids, id_count * 4, cudaMemcpyDeviceToHost));
      if (i == first) {
        want = got;
      } else {
        long different = 0, shown = 0;
        for (long r = 0; r < t * c.heads; ++r) {
          if (std::memcmp(&want[r * c.topk], &got[r * c.topk], c.topk * 4) == 0) continue;
          ++different;
          if (c.e4m3 || shown++ >= 3) continue;
          const long token = r / c.heads, sequence = token / c.tokens, seen = c.keys - c.tokens + token % c.tokens + 1;
          double* d_best;
          const long blocks = (seen + 127) / 128;
          CHECK(cudaMalloc(&d_best, blocks * 8));
          exact<<<blocks, 128>>>(q + r * c.width, c.page == 0 ? k + sequence * c.keys * c.width : k,
                                 c.page == 0 ? nullptr : d_table + sequence * pages_each, c.page, c.width, seen, d_best);
          std::vector<double> best(blocks);
          CHECK(cudaMemcpy(best.data(), d_best, blocks * 8, cudaMemcpyDeviceToHost));
          CHECK(cudaFree(d_best));
          std::printf("   row %ld (token %ld head %ld) sees %ld:", r, token, r % c.heads, seen);
          for (int s = 0; s < c.topk; ++s) std::printf(" %d", got[r * c.topk + s]);
          std::printf("\n     only here:");
          for (int s = 0; s < c.topk; ++s) {
            const int id = got[r * c.topk + s];
            if (std::find(&want[r * c.topk], &want[r * c.topk] + c.topk, id) == &want[r * c.topk] + c.topk)
              std::printf(" %d (%.9g)", id, id >= 0 && id < blocks ? best[id] : NAN);
          }
          std::printf("; only in the reference:");
          for (int s = 0; s < c.topk; ++s) {
            const int id = want[r * c.topk + s];
            if (std::find(&got[r * c.topk], &got[r * c.topk] + c.topk, id) == &got[r * c.topk] + c.topk)
              std::printf(" %d (%.9g)", id, id >= 0 && id < blocks ? best[id] : NAN);
          }
          std::printf("\n");
        }
        std::printf("  %s: %ld of %ld rows differ\n", v.name, different, t * c.heads);
      }
      if (c.timed) {
        float alone = 1e9f, together;
        const int repeats = i == first ? 2 : 4;
        for (int s = 0; s < repeats; ++s) {
          usleep(15000);
          CHECK(cudaEventRecord(a));
          run();
          CHECK(cudaEventRecord(b));
          CHECK(cudaEventSynchronize(b));
          float ms;
          CHECK(cudaEventElapsedTime(&ms, a, b));
          alone = std::min(alone, ms);
        }
        const int many = i == 0 ? 2 : std::clamp(static_cast<int>(150 / alone), 4, 20);
        CHECK(cudaEventRecord(a));
        for (int s = 0; s < many; ++s) run();
        CHECK(cudaEventRecord(b));
        CHECK(cudaEventSynchronize(b));
        CHECK(cudaEventElapsedTime(&together, a, b));
        double pairs = 0;
        for (long x = 0; x < c.tokens; ++x) pairs += c.keys - c.tokens + x + 1;
        const double flops = 2.0 * c.width * c.heads * pairs * c.batch;
        std::printf("  %-28s alone %8.3f ms %6.1f TFLOP/s, back to back %8.3f ms, scratch %.1f MB\n", v.name, alone,
                    flops / alone * 1e-9, together / many, bytes / 1e6);
      }
      std::fflush(stdout);
      CHECK(cudaFree(work));
    }
    for (void* x : {(void*)q, (void*)k, (void*)d_cu_q, (void*)d_lens, (void*)d_cu_k, (void*)d_table, (void*)ids}) CHECK(cudaFree(x));
  }
}
