// Device bench of `attend` of cuda_sm90: correctness of sampled rows against a plain kernel, repeatability, times.
#include "attend_bench.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include "kernels/cuda/launch.cuh"

using namespace msabench::kernels;
using namespace msabench::cuda_sm90;
using bf16 = __nv_bfloat16;

__device__ unsigned mix(unsigned x) {
  x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; x ^= x >> 16;
  return x;
}
// About normal, of unit variance.
__global__ void fill(bf16* to, std::size_t n, unsigned seed) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n; i += std::size_t{gridDim.x} * blockDim.x) {
    const unsigned a = mix(static_cast<unsigned>(i) * 2654435761u + seed), b = mix(a + static_cast<unsigned>(i >> 32));
    const float u = (a & 0xffff) + (a >> 16) + (b & 0xffff) + (b >> 16);
    to[i] = __float2bfloat16((u / 65536.0f - 2.0f) * 1.7320508f);
  }
}
__global__ void fill_e4m3(unsigned char* to, std::size_t n, unsigned seed) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n; i += std::size_t{gridDim.x} * blockDim.x) {
    const unsigned a = mix(static_cast<unsigned>(i) * 2654435761u + seed), b = mix(a + static_cast<unsigned>(i >> 32));
    const float u = (a & 0xffff) + (a >> 16) + (b & 0xffff) + (b >> 16);
    to[i] = __nv_fp8_e4m3((u / 65536.0f - 2.0f) * 1.7320508f).__x;
  }
}
__global__ void fill_scales(float* to, std::size_t n, unsigned seed) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n; i += std::size_t{gridDim.x} * blockDim.x)
    to[i] = 0.5f + mix(static_cast<unsigned>(i) + seed) / 4294967296.0f;
}
__device__ float element(const cache& c, const char* row, int i) {
  if (c.type.bits == 16) return __bfloat162float(reinterpret_cast<const bf16*>(row)[i]);
  return float(reinterpret_cast<const __nv_fp8_e4m3*>(row)[i]);
}
// A warp for each query head of sampled tokens.
__global__ void plain(attend_call call, const int* rows, int count, float* out, float* lse) {
  const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, hq = call.kv_heads * call.group;
  if (warp >= count * hq) return;
  const int row = rows[warp / hq], h = warp % hq, kv = h / call.group;
  const row_place place = call.rows.place(row);
  const auto* q = reinterpret_cast<const bf16*>(call.q) + row * call.q_row_stride + h * call.q_head_stride;
  float qv[4], o[4] = {}, m = -INFINITY, l = 0;
  for (int i = 0; i < 4; ++i) qv[i] = __bfloat162float(q[lane * 4 + i]);
  const int* ids = call.ids + row * call.id_row_stride + kv * call.id_head_stride;
  for (int s = 0; s < call.topk; ++s) {
    const int id = ids[s];
    if (id < 0 || id > place.position / call.block) continue;
    for (int j = id * call.block; j < (id + 1) * call.block && j <= place.position; ++j) {
      const char* k = call.keys.token(place.sequence, kv, j);
      const char* v = call.values.token(place.sequence, kv, j);
      const float fk = call.keys.factor(place.sequence, kv, j), fv = call.values.factor(place.sequence, kv, j);
      float x = 0;
      for (int i = 0; i < 4; ++i) x += qv[i] * element(call.keys, k, lane * 4 + i);
      for (int d = 16; d; d /= 2) x += __shfl_xor_sync(~0u, x, d);
      x *= call.scale * fk;
      const float n = fmaxf(m, x), a = expf(m - n), p = expf(x - n);
      m = n; l = l * a + p;
      for (int i = 0; i < 4; ++i) o[i] = o[i] * a + p * fv * element(call.values, v, lane * 4 + i);
    }
  }
  for (int i = 0; i < 4; ++i) out[std::size_t{static_cast<unsigned>(warp)} * 128 + lane * 4 + i] = l > 0 ? o[i] / l : 0;
  if (lane == 0) lse[warp] = m + logf(l);
}

struct setting {
  int tokens; std::int64_t context; const char* selection; double budget; long chunk_tokens;
};

static std::vector<int> make_ids(const setting& s, int heads, int topk, int block) {
  std::vector<int> ids(std::size_t{static_cast<unsigned>(s.tokens)} * heads * topk, -1);
  std::mt19937 random(7);
  const std::string kind = std::string(s.selection).substr(0, std::string(s.selection).find('@'));
  for (int h = 0; h < heads; ++h) {
    std::vector<int> group;
    for (int t = 0; t < s.tokens; ++t) {
      const std::int64_t own = (s.context - s.tokens + t) / block;
      const int count = static_cast<int>(std::min<std::int64_t>(topk, own + 1));
      std::set<int> chosen{static_cast<int>(own)};
      const auto draw = [&] { return static_cast<int>(random() % static_cast<unsigned>(own + 1)); };
      // sharedN: N neighbours share all; mixP: half of the blocks shared by 64 neighbours, P percent of the rest too
      if (kind == "shared64") {
        if (t % 64 == 0) { group.clear(); while (static_cast<int>(group.size()) < topk * 2) group.push_back(draw()); }
        for (int b : group) if (static_cast<int>(chosen.size()) < count && b <= own) chosen.insert(b);
      } else if (kind == "mix") {
        if (t % 64 == 0) { group.clear(); while (static_cast<int>(group.size()) < topk * 2) group.push_back(draw()); }
        for (int b : group) if (static_cast<int>(chosen.size()) < count - 2 && b <= own) chosen.insert(b);
      } else if (kind == "half") {  // every other group of 64 tokens shares
        if (t % 64 == 0) { group.clear(); while (static_cast<int>(group.size()) < topk * 2) group.push_back(draw()); }
        if (t / 64 % 2) for (int b : group) if (static_cast<int>(chosen.size()) < count && b <= own) chosen.insert(b);
      }
      while (static_cast<int>(chosen.size()) < count) chosen.insert(draw());
      int i = 0;
      for (int b : chosen) ids[(std::size_t{static_cast<unsigned>(t)} * heads + h) * topk + i++] = b;
    }
  }
  return ids;
}

template <class T> T* device(std::size_t n) { T* p; must(cudaMalloc(&p, n * sizeof(T) + 256), "malloc"); return p; }

int main(int argc, char** argv) {
  const int heads = 4, group = 16, d = 128, block = 128, topk = 16;
  const bool quick = std::string(argv[1]) == "quick";  // or: full
  const std::int64_t most = quick ? 1 << 15 : 1 << 20;
  const int most_tokens = quick ? 512 : 8192;
  const std::size_t cache_elements = std::size_t(most) * heads * d, q_elements = std::size_t(most_tokens) * heads * group * d;
  bf16 *k = device<bf16>(cache_elements), *v = device<bf16>(cache_elements), *q = device<bf16>(q_elements), *out = device<bf16>(q_elements);
  float* lse = device<float>(std::size_t(most_tokens) * heads * group);
  fill<<<1024, 256>>>(k, cache_elements, 1); fill<<<1024, 256>>>(v, cache_elements, 2); fill<<<1024, 256>>>(q, q_elements, 3);
  unsigned char *k8 = device<unsigned char>(cache_elements), *v8 = device<unsigned char>(cache_elements);
  float *ks = device<float>(cache_elements / d), *vs = device<float>(cache_elements / d);
  fill_e4m3<<<1024, 256>>>(k8, cache_elements, 4); fill_e4m3<<<1024, 256>>>(v8, cache_elements, 5);
  fill_scales<<<1024, 256>>>(ks, cache_elements / d, 6); fill_scales<<<1024, 256>>>(vs, cache_elements / d, 7);
  must(cudaDeviceSynchronize(), "fill");
  std::vector<int> table(most / block);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int>(i);
  std::mt19937 random(5);
  std::shuffle(table.begin(), table.end(), random);
  int* d_table = device<int>(table.size());
  must(cudaMemcpy(d_table, table.data(), table.size() * 4, cudaMemcpyHostToDevice), "table");
  int *d_ids = device<int>(std::size_t(most_tokens) * heads * topk), *d_cu = device<int>(2), *d_len = device<int>(1), *d_rows = device<int>(1024);
  float *want = device<float>(std::size_t{1024} * heads * group * d), *want_lse = device<float>(1024 * heads * group);
  cudaStream_t stream;
  cudaStreamCreate(&stream);

  // settings: T:N:selection:budget in MB[:tokens of a chunk]
  std::vector<setting> settings;
  for (int i = 2; i < argc; ++i) {
    char selection[32];
    int tokens; long long context; double budget; long chunk_tokens = 0;
    if (std::sscanf(argv[i], "%d:%lld:%31[^:]:%lf:%ld", &tokens, &context, selection, &budget, &chunk_tokens) < 4) { std::printf("bad setting %s\n", argv[i]); return 64; }
    settings.push_back({tokens, context, strdup(selection), budget * 1e6, chunk_tokens});
  }
  int failures = 0;
  for (const setting& s : settings) {
    bench_budget = s.budget;
    bench_tokens = s.chunk_tokens;
    const auto ids = make_ids(s, heads, topk, block);
    must(cudaMemcpy(d_ids, ids.data(), ids.size() * 4, cudaMemcpyHostToDevice), "ids");
    const int cu[2] = {0, s.tokens}, len = static_cast<int>(s.context);
    must(cudaMemcpy(d_cu, cu, 8, cudaMemcpyHostToDevice), "cu");
    must(cudaMemcpy(d_len, &len, 4, cudaMemcpyHostToDevice), "len");
    msabench_problem p{};
    p.struct_size = sizeof p; p.op = MSABENCH_OP_ATTEND;
    p.hq = heads * group; p.hkv = heads; p.d = d; p.block = block; p.topk = topk; p.local_blocks = 1;
    p.page_layout = 1; p.page_size = block; p.batch = 1; p.total_q = p.max_q_len = s.tokens; p.max_kv_len = s.context;
    p.pool_pages = most / block; p.q = p.kv = p.out = bf16_type;
    attend_call call{};
    call.rows = {d_cu, d_len, 1, s.tokens};
    call.kv_heads = heads; call.group = group; call.d = d; call.block = block; call.topk = topk; call.capacity = topk;
    call.scale = 1 / std::sqrt(128.0f);
    call.keys.data = reinterpret_cast<const char*>(k); call.keys.type = bf16_type; call.keys.extent = most / block;
    call.keys.token_stride = heads * d; call.keys.head_stride = d; call.keys.page_stride = std::int64_t{block} * heads * d;
    call.keys.block_table = d_table; call.keys.table_stride = most / block; call.keys.page_size = block;
    if (std::strstr(s.selection, "@hnd")) call.keys.token_stride = d, call.keys.head_stride = std::int64_t{block} * d;
    const bool e4m3 = std::strstr(s.selection, "@e4m3") != nullptr;
    if (e4m3) {
      p.kv = call.keys.type = e4m3_type; p.kv_scale = 2;
      call.keys.data = reinterpret_cast<const char*>(k8);
      call.keys.scale = {ks, 1, block, std::int64_t{block} * heads, heads};
    }
    call.values = call.keys; call.values.data = e4m3 ? reinterpret_cast<const char*>(v8) : reinterpret_cast<const char*>(v);
    if (e4m3) call.values.scale.data = vs;
    call.q = reinterpret_cast<const char*>(q); call.q_type = bf16_type; call.q_row_stride = heads * group * d; call.q_head_stride = d;
    call.ids = d_ids; call.id_row_stride = heads * topk; call.id_head_stride = topk;
    call.out = reinterpret_cast<char*>(out); call.out_type = bf16_type; call.out_row_stride = heads * group * d; call.out_head_stride = d;
    call.lse = lse; call.lse_row_stride = heads * group; call.lse_head_stride = 1;
    double bytes = 0;
    lay_out_attend_chunk(p, nullptr, bytes);
    char* scratch = device<char>(static_cast<std::size_t>(bytes));
    must(cudaMemset(scratch, 0xff, static_cast<std::size_t>(bytes)), "scratch");
    attend_chunk chunk = lay_out_attend_chunk(p, scratch, bytes);
    std::printf("\n== T %d N %lld %s: budget %.0f MB, scratch %.1f MB, chunks of %lld tokens, groups %d of %d heads, ranges %d\n", s.tokens,
                static_cast<long long>(s.context), s.selection, s.budget / 1e6, bytes / 1e6, static_cast<long long>(chunk.tiles * tile_tokens), chunk.groups, chunk.heads_of_group, chunk.ranges);
    attend_maps maps;
    if (!make_attend_maps(maps, call)) { std::printf("map: %s\n", map_error()); return 1; }
    unsigned tiles_together = 0;
    bool counts_tiles = false;
    const auto run = [&](marks* mark) {
      attend_chunk part = chunk;
      const std::int64_t tiles = msabench::cuda::token_tile_bound(s.tokens, 1, tile_tokens);
      for (; part.first_tile < tiles; part.first_tile += part.tiles) {
        if (mark) {
          (*mark)("");
          bench_lists(call, part, stream, *mark);
          attend_shared_tiles(call, maps, part, stream);
          (*mark)("tiles");
          bench_scattered(call, maps, part, stream, *mark);
        } else {
          list_attend_work(call, part, stream);
          attend_shared_tiles(call, maps, part, stream);
          attend_scattered_tokens(call, maps, part, stream);
        }
        if (counts_tiles) {
          unsigned some = 0;
          must(cudaMemcpyAsync(&some, part.tile_counts, 4, cudaMemcpyDeviceToHost, stream), "tiles");
          must(cudaStreamSynchronize(stream), "run");
          tiles_together += some;
        }
      }
    };
    must(cudaMemset(out, 0xff, q_elements * 2), "out");
    counts_tiles = true;
    run(nullptr);
    counts_tiles = false;
    must(cudaGetLastError(), "launch");
    must(cudaStreamSynchronize(stream), "run");
    std::vector<bf16> first(std::size_t(s.tokens) * heads * group * d), second(first.size());
    std::vector<float> got_lse(std::size_t(s.tokens) * heads * group);
    must(cudaMemcpy(first.data(), out, first.size() * 2, cudaMemcpyDeviceToHost), "out");
    must(cudaMemcpy(got_lse.data(), lse, got_lse.size() * 4, cudaMemcpyDeviceToHost), "lse");
    // Sampled rows.
    const int count = 256;
    std::vector<int> rows(count);
    for (int i = 0; i < count; ++i) rows[i] = i < 64 ? i : i < 128 ? s.tokens - 1 - (i - 64) : static_cast<int>(random() % s.tokens);
    must(cudaMemcpy(d_rows, rows.data(), count * 4, cudaMemcpyHostToDevice), "rows");
    plain<<<count * heads * group / 4, 128, 0, stream>>>(call, d_rows, count, want, want_lse);
    std::vector<float> right(std::size_t{count} * heads * group * d), right_lse(count * heads * group);
    must(cudaStreamSynchronize(stream), "plain");
    must(cudaMemcpy(right.data(), want, right.size() * 4, cudaMemcpyDeviceToHost), "want");
    must(cudaMemcpy(right_lse.data(), want_lse, right_lse.size() * 4, cudaMemcpyDeviceToHost), "want lse");
    double worst = 0, worst_lse = 0, square = 0, size = 0;
    int bad = 0, bad_tokens = 0;
    for (int i = 0; i < count; ++i) {
      bool bad_token = false;
      for (int h = 0; h < heads * group; ++h) {
        double row_worst = 0;
        int column = 0;
        for (int c = 0; c < d; ++c) {
          const float got = __bfloat162float(first[(std::size_t(rows[i]) * heads * group + h) * d + c]), w = right[(std::size_t(i) * heads * group + h) * d + c];
          const double error = std::abs(got - w);
          square += error * error; size += double(w) * w;
          // a rounding of the output, and those of weights
          const double counted = std::isnan(error) ? error : std::max(0.0, error - std::abs(w) / 128);
          if (!(counted <= row_worst)) row_worst = counted, column = c;
        }
        const double error_lse = std::abs(got_lse[std::size_t(rows[i]) * heads * group + h] - right_lse[i * heads * group + h]);
        worst = std::max(worst, std::isnan(row_worst) ? 1e9 : row_worst);
        worst_lse = std::max(worst_lse, std::isnan(error_lse) ? 1e9 : error_lse);
        if (!(row_worst < 4e-3) || !(error_lse < 1e-3)) {
          bad_token = true;
          if (++bad <= 6)
            std::printf("  bad row %d head %d column %d: got %g want %g, lse %g want %g\n", rows[i], h, column,
                        __bfloat162float(first[(std::size_t(rows[i]) * heads * group + h) * d + column]),
                        right[(std::size_t(i) * heads * group + h) * d + column], got_lse[std::size_t(rows[i]) * heads * group + h], right_lse[i * heads * group + h]);
        }
      }
      bad_tokens += bad_token;
    }
    run(nullptr);
    must(cudaStreamSynchronize(stream), "second run");
    must(cudaMemcpy(second.data(), out, second.size() * 2, cudaMemcpyDeviceToHost), "out");
    std::size_t other = 0;
    for (std::size_t i = 0; i < first.size(); ++i) other += std::memcmp(&first[i], &second[i], 2) != 0;
    std::printf("  tiles together %u of %lld; %s: %d bad rows in %d of %d tokens, worst %.2e, relative rms %.2e, lse %.2e; %zu elements differ in a second run\n",
                tiles_together, static_cast<long long>(chunk.heads * ((s.tokens + 7) / 8)), bad || other ? "FAILED" : "right", bad, bad_tokens, count, worst, std::sqrt(square / size), worst_lse, other);
    failures += bad || other;
    if (!quick) {
      const int rounds = 10;
      cudaEvent_t begin, end;
      cudaEventCreate(&begin); cudaEventCreate(&end);
      std::vector<float> alone;
      for (int i = 0; i < rounds; ++i) {
        cudaEventRecord(begin, stream); run(nullptr); cudaEventRecord(end, stream);
        cudaEventSynchronize(end);
        float ms; cudaEventElapsedTime(&ms, begin, end); alone.push_back(ms);
      }
      std::sort(alone.begin(), alone.end());
      cudaEventRecord(begin, stream);
      for (int i = 0; i < rounds; ++i) run(nullptr);
      cudaEventRecord(end, stream);
      cudaEventSynchronize(end);
      float all; cudaEventElapsedTime(&all, begin, end);
      marks mark{stream, {}};
      for (int i = 0; i < 3; ++i) run(&mark);
      must(cudaStreamSynchronize(stream), "marks");
      std::map<std::string, double> sums;
      for (std::size_t i = 1; i < mark.list.size(); ++i) {
        float ms; cudaEventElapsedTime(&ms, mark.list[i - 1].second, mark.list[i].second);
        if (!mark.list[i].first.empty()) sums[mark.list[i].first] += ms / 3;
      }
      std::printf("  alone %.3f ms (best %.3f), back to back %.3f ms;", alone[rounds / 2], alone[0], all / rounds);
      for (const auto& [name, ms] : sums) std::printf(" %s %.3f", name.c_str(), ms);
      std::printf("\n");
    }
    must(cudaGetLastError(), "end");
    cudaFree(scratch);
    std::fflush(stdout);
  }
  std::printf("%s\n", failures ? "FAILED" : "all right");
  return failures != 0;
}
