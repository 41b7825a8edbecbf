// SPDX-License-Identifier: Apache-2.0
// NOT TO BE MERGED. Decode on the device: first whether it is right against the portable kernels, then how long it takes, each
// run a graph replay over inputs that are not in the cache. With -DSTAMPS (build.sh) also when each phase begins.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda_sm90/decode.cu"

namespace msabench::cuda_sm90 {
using bf16 = __nv_bfloat16;

#define CHECK(x)                                                                            \
  do {                                                                                      \
    const cudaError_t e = (x);                                                              \
    if (e != cudaSuccess) {                                                                 \
      std::printf("CUDA error at line %d: %s (%s)\n", __LINE__, cudaGetErrorString(e), #x); \
      std::exit(1);                                                                         \
    }                                                                                       \
  } while (0)

__device__ std::uint32_t mix(std::uint64_t x) {
  x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
  return static_cast<std::uint32_t>(x);
}
/// Sums of four bytes, so about normal.
__global__ void fill(uint4* to, std::int64_t vectors, std::uint64_t seed, float scale) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < vectors;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    std::uint32_t words[4];
    for (int w = 0; w < 4; ++w) {
      float two[2];
      for (int h = 0; h < 2; ++h) {
        const std::uint32_t bits = mix(seed + i * 8 + w * 2 + h);
        two[h] = (static_cast<float>((bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24)) - 510) * scale;
      }
      words[w] = cuda::storage<bf16>::pack(two[0], two[1]);
    }
    to[i] = {words[0], words[1], words[2], words[3]};
  }
}
__global__ void empty() {}

template <class T>
T* device(std::size_t count) {
  T* p = nullptr;
  CHECK(cudaMalloc(&p, count * sizeof(T)));
  return p;
}
template <class T>
T* device(const std::vector<T>& host) {
  T* const p = device<T>(host.size());
  CHECK(cudaMemcpy(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}
template <class T>
std::vector<T> host(const T* from, std::size_t count) {
  std::vector<T> to(count);
  CHECK(cudaMemcpy(to.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
  return to;
}

constexpr int heads = 4, group = 16, d = 128, topk = 16;
constexpr std::int64_t page_bytes = 128 * 128 * 2;

struct pools {
  std::int64_t pages;
  char *index, *keys, *values;
  explicit pools(std::int64_t count) : pages(count) {
    index = device<char>(pages * page_bytes);
    keys = device<char>(pages * heads * page_bytes);
    values = device<char>(pages * heads * page_bytes);
    fill<<<4096, 256>>>(reinterpret_cast<uint4*>(index), pages * page_bytes / 16, 1, 1.0f / 128);
    fill<<<4096, 256>>>(reinterpret_cast<uint4*>(keys), pages * heads * page_bytes / 16, 1ull << 40, 1.0f / 128);
    fill<<<4096, 256>>>(reinterpret_cast<uint4*>(values), pages * heads * page_bytes / 16, 1ull << 41, 1.0f / 128);
    CHECK(cudaDeviceSynchronize());
  }
};

/// One shape, with several sets of inputs.
struct setting {
  std::vector<std::int32_t> lengths;  // of the sequences
  int tokens;                         // of each
  int sets;
  msabench_problem p{};
  std::vector<msa_call> calls;
  char* scratch;
  std::int64_t scratch_bytes;
  std::int32_t* ids;
  char* out;
  float* lse;
  std::int64_t rows;

  setting(const pools& pool, std::vector<std::int32_t> lens, int tokens_each, int set_count)
      : lengths(std::move(lens)), tokens(tokens_each), sets(set_count) {
    const auto batch = static_cast<std::int64_t>(lengths.size());
    std::int32_t longest = 0;
    for (auto n : lengths) longest = std::max(longest, n);
    rows = batch * tokens;
    p.struct_size = sizeof p;
    p.op = MSABENCH_OP_MSA;
    p.hq = heads * group, p.hkv = heads, p.d = d, p.hi = heads, p.di = d, p.block = 128, p.topk = topk;
    p.local_blocks = 1, p.page_layout = 1, p.page_size = 128, p.batch = batch, p.total_q = rows, p.max_q_len = tokens;
    p.max_kv_len = longest, p.pool_pages = pool.pages;
    p.q = p.kv = p.q_idx = p.k_idx = p.out = bf16_type;
    const std::int64_t blocks = max_blocks(p), columns = (longest + 127) / 128;
    std::vector<std::int32_t> ends(batch + 1);
    for (int b = 0; b <= batch; ++b) ends[b] = b * tokens;
    const std::int32_t *cu = device(ends), *lens_d = device(lengths);
    ids = device<std::int32_t>(rows * heads * topk);
    out = device<char>(rows * heads * group * d * 2);
    lse = device<float>(rows * heads * group);
    double most = decode_scratch_bytes(p);
    for (auto op : {MSABENCH_OP_MSA, MSABENCH_OP_INDEX, MSABENCH_OP_ATTEND}) {
      msabench_problem other = p;
      other.op = op;
      most = std::max(most, cuda::index_scratch_bytes(other) + cuda::attention_scratch_bytes(other) +
                                cuda::msa_scratch_bytes(other));
    }
    scratch_bytes = static_cast<std::int64_t>(most) + 4096;
    scratch = device<char>(scratch_bytes);
    CHECK(cudaMemset(scratch, 0x7f, scratch_bytes));
    std::uint64_t random = 12345;
    std::int64_t next_page = 0;
    for (int set = 0; set < sets; ++set) {
      std::vector<std::int32_t> table(batch * columns);
      // Pages one after the other from the pool, in blocks of odd order.
      for (std::int64_t i = 0; i < batch * columns; ++i) table[i] = static_cast<std::int32_t>(next_page++ % pool.pages);
      for (std::int64_t i = batch * columns - 1; i > 0; --i) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        std::swap(table[i], table[(random >> 33) % (i + 1)]);
      }
      const std::int32_t* const pages = device(table);
      char *const q = device<char>(rows * heads * group * d * 2), *const q_idx = device<char>(rows * heads * d * 2);
      fill<<<64, 256>>>(reinterpret_cast<uint4*>(q), rows * heads * group * d * 2 / 16, (1ull << 42) + set * 1000003, 1.0f / 64);
      fill<<<64, 256>>>(reinterpret_cast<uint4*>(q_idx), rows * heads * d * 2 / 16, (1ull << 43) + set * 1000003, 1.0f / 128);
      msa_call call{};
      call.index.rows = call.attend.rows = {cu, lens_d, batch, rows};
      call.index.rule = {128, topk, 1, 0};
      call.index.heads = heads, call.index.width = d, call.index.scale = 0.088388f, call.index.max_blocks = blocks;
      call.index.keys = {pool.index, bf16_type, pool.pages, d, 0, 128 * d, pages, columns, nullptr, 128, {}, columns};
      call.index.q = q_idx, call.index.q_type = bf16_type, call.index.q_row_stride = heads * d, call.index.q_head_stride = d;
      call.index.ids = ids, call.index.id_row_stride = heads * topk, call.index.id_head_stride = topk;
      call.attend.kv_heads = heads, call.attend.group = group, call.attend.d = d, call.attend.block = 128;
      call.attend.topk = topk, call.attend.capacity = topk, call.attend.scale = 0.088388f;
      call.attend.keys = {pool.keys, bf16_type, pool.pages, d, 128 * d, heads * 128 * d, pages, columns, nullptr, 128, {}, columns};
      call.attend.values = call.attend.keys;
      call.attend.values.data = pool.values;
      call.attend.q = q, call.attend.q_type = bf16_type, call.attend.q_row_stride = heads * group * d, call.attend.q_head_stride = d;
      call.attend.ids = ids, call.attend.id_row_stride = heads * topk, call.attend.id_head_stride = topk;
      call.attend.out = out, call.attend.out_type = bf16_type, call.attend.out_row_stride = heads * group * d, call.attend.out_head_stride = d;
      call.attend.lse = lse, call.attend.lse_row_stride = heads * group, call.attend.lse_head_stride = 1;
      calls.push_back(call);
    }
    CHECK(cudaDeviceSynchronize());
  }
};

cudaStream_t stream;

run_context context_of(const msabench_problem& p, const setting& s) { return {p, 1, s.scratch, s.scratch_bytes, stream, nullptr}; }

using enqueue = std::function<void(const msa_call&, const run_context&)>;

msabench_problem with_op(const setting& s, msabench_op op) {
  msabench_problem p = s.p;
  p.op = op;
  return p;
}

/// Median and least of replays of a graph for each set.
void time_it(const char* name, const setting& s, msabench_op op, int repeats, const enqueue& run) {
  const msabench_problem p = with_op(s, op);
  std::vector<cudaGraphExec_t> graphs;
  for (const msa_call& call : s.calls) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    run(call, context_of(p, s));
    CHECK(cudaGetLastError());
    CHECK(cudaStreamEndCapture(stream, &graph));
    graphs.emplace_back();
    CHECK(cudaGraphInstantiate(&graphs.back(), graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  std::vector<float> times;
  // The first launch of a graph brings it to the device.
  const int warm = static_cast<int>(graphs.size()) + 3;
  for (int i = 0; i < repeats + warm; ++i) {
    CHECK(cudaEventRecord(a, stream));
    CHECK(cudaGraphLaunch(graphs[i % graphs.size()], stream));
    CHECK(cudaEventRecord(b, stream));
    CHECK(cudaStreamSynchronize(stream));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, a, b));
    if (i >= warm) times.push_back(ms * 1000);
  }
  std::sort(times.begin(), times.end());
  std::printf("  %-44s %8.2f us  (least %.2f, 90 %% %.2f)\n", name, times[times.size() / 2], times[0], times[times.size() * 9 / 10]);
  std::fflush(stdout);
  for (auto g : graphs) CHECK(cudaGraphExecDestroy(g));
  CHECK(cudaEventDestroy(a));
  CHECK(cudaEventDestroy(b));
}

/// As decode_msa, with what it decides decided by hand.
struct variant {
  int spans;
  bool selects;   // in attend
  bool overlaps;  // kernels of a run
};

void run_variant(const variant& v, const msa_call& call, const run_context& context) {
  const select_call select = start_scores(call.index, context);
  using S = decode_attention_shape<bf16>;
  const int tiles = cuda::ceil_div(topk, v.spans) > 1 ? 2 : 1;
  const launch_shape shape{rows_of(call.attend.rows, context.problem) * v.spans, S::threads, S::shared_bytes(tiles),
                           static_cast<unsigned>(v.spans), v.overlaps};
  if (!v.selects)
    launch(select_few, {rows_of(call.index.rows, context.problem), select_threads, 0, 1, v.overlaps}, context, select);
  launch(attend_few<S>, shape, context, decode_attention_call{call.attend, __builtin_ctz(v.spans), v.selects ? select : select_call{}});
}

/// Of a shape, other numbers of blocks that are known from the start.
template <int stages, int first>
struct first_shape : stream_shape<bf16, 1, stages> {
  static constexpr int first_blocks = first;
};
template <class S, bool hands_out>
void run_stream(const msa_call& call, const run_context& context) {
  const std::int64_t columns = score_columns(context.problem);
  auto* const scratch = static_cast<char*>(context.scratch);
  launch_stream<S>({call.index, reinterpret_cast<float*>(scratch + handed_bytes), context.problem.total_q * columns, columns, false, 1,
                    hands_out ? reinterpret_cast<std::uint32_t*>(scratch) : nullptr}, context);
}

/// Scores of both kernels bit by bit, ids and outputs of every way.
bool check(const char* name, const setting& s) {
  bool good = true;
  const msabench_problem index = with_op(s, MSABENCH_OP_INDEX), attend = with_op(s, MSABENCH_OP_ATTEND);
  const std::int64_t columns = score_columns(s.p), count = s.rows * heads * columns;
  const msa_call& call = s.calls[0];
  float *const want = device<float>(count), *const got = device<float>(count);
  CHECK(cudaMemset(want, 0, count * 4));
  cuda::stream_scores(call.index, want, s.p.total_q * columns, columns, false, context_of(index, s));
  const auto compare = [&](const char* which, const enqueue& run) {
    CHECK(cudaMemset(s.scratch, 0x7f, s.scratch_bytes));
    run(call, context_of(s.p, s));
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    const auto a = host(want, count), b = host(reinterpret_cast<const float*>(s.scratch + handed_bytes), count);
    std::int64_t bits = 0, wrong = 0, first = -1;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = i / columns % s.rows, block = i % columns;
      if (block * 128 >= s.lengths[row / s.tokens]) continue;
      if (std::memcmp(&a[i], &b[i], 4) != 0) {
        ++bits;
        if (!(std::abs(a[i] - b[i]) <= 1e-4f * (1 + std::abs(a[i])))) {
          if (first < 0) first = i;
          ++wrong;
        }
      }
    }
    std::printf("%s %s: scores differ in bits %lld, wrong %lld of %lld", name, which, (long long)bits, (long long)wrong, (long long)count);
    if (first >= 0)
      std::printf("; first head %lld row %lld block %lld: got %g want %g", (long long)(first / columns / s.rows),
                  (long long)(first / columns % s.rows), (long long)(first % columns), b[first], a[first]);
    std::printf("\n");
    good = good && wrong == 0;
  };
  const std::int64_t rows = s.tokens * heads;
  if (rows <= 8) {
    compare("4 stages, handed out", [](auto&... x) { run_stream<first_shape<4, 8>, true>(x...); });
    compare("4 stages, in turn", [](auto&... x) { run_stream<first_shape<4, 8>, false>(x...); });
    compare("5 stages, 5 first, handed out", [](auto&... x) { run_stream<first_shape<5, 5>, true>(x...); });
    compare("6 stages, handed out", [](auto&... x) { run_stream<first_shape<6, 8>, true>(x...); });
    compare("2 stages, handed out", [](auto&... x) { run_stream<first_shape<2, 3>, true>(x...); });
  }
  compare("chosen", [](const msa_call& c, const run_context& x) { start_scores(c.index, x); });

  // Ids and outputs.
  const std::int64_t id_count = s.rows * heads * topk, out_count = s.rows * heads * group * d;
  CHECK(cudaMemset(s.ids, 0x55, id_count * 4));
  cuda::index(call.index, context_of(index, s));
  CHECK(cudaStreamSynchronize(stream));
  const auto want_ids = host(s.ids, id_count);
  CHECK(cudaMemset(s.out, 0x55, out_count * 2));
  cuda::attend(call.attend, context_of(attend, s));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGetLastError());
  const auto want_out = host(reinterpret_cast<const std::uint16_t*>(s.out), out_count);
  const auto want_lse = host(s.lse, s.rows * heads * group);
  const auto widen = [](std::uint16_t x) {
    const std::uint32_t bits = std::uint32_t{x} << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  };
  std::vector<std::uint16_t> before;
  const auto compare_all = [&](const std::string& which, bool has_ids, const enqueue& run, msabench_op op) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      CHECK(cudaMemset(s.scratch, repeat == 1 ? 0xff : 0x00, s.scratch_bytes));
      if (has_ids) CHECK(cudaMemset(s.ids, 0x55, id_count * 4));
      CHECK(cudaMemset(s.out, 0x55, out_count * 2));
      CHECK(cudaMemset(s.lse, 0x55, s.rows * heads * group * 4));
      run(call, context_of(with_op(s, op), s));
      CHECK(cudaGetLastError());
      const cudaError_t e = cudaStreamSynchronize(stream);
      if (e != cudaSuccess) {
        std::printf("%s %s: %s\n", name, which.c_str(), cudaGetErrorString(e));
        std::exit(1);
      }
      const auto ids = host(s.ids, id_count);
      const auto out = host(reinterpret_cast<const std::uint16_t*>(s.out), out_count);
      const auto lse = host(s.lse, s.rows * heads * group);
      std::int64_t wrong_ids = 0, wrong_out = 0, first_id = -1, first_out = -1;
      float most = 0, most_lse = 0;
      for (std::int64_t i = 0; i < id_count; ++i)
        if (ids[i] != want_ids[i]) {
          if (first_id < 0) first_id = i;
          ++wrong_ids;
        }
      if (op != MSABENCH_OP_INDEX) {
        for (std::int64_t i = 0; i < out_count; ++i) {
          const float error = std::abs(widen(out[i]) - widen(want_out[i]));
          if (!(error <= 0.01f * std::abs(widen(want_out[i])) + 0.002f)) {
            if (first_out < 0) first_out = i;
            ++wrong_out;
          }
          most = std::max(most, error);
        }
        for (std::size_t i = 0; i < lse.size(); ++i) most_lse = std::max(most_lse, std::abs(lse[i] - want_lse[i]));
      }
      const bool same = repeat == 0 || before == out;
      before = out;
      const bool right = wrong_ids == 0 && wrong_out == 0 && same && !(most_lse > 1e-3f);
      good = good && right;
      if (right && repeat < 2) continue;
      std::printf("%s %s: wrong ids %lld, wrong outputs %lld, greatest error %g, of lse %g%s", name, which.c_str(), (long long)wrong_ids,
                  (long long)wrong_out, most, most_lse, same ? "" : ", NOT REPEATABLE");
      if (first_id >= 0)
        std::printf("; id row %lld head %lld place %lld: got %d want %d", (long long)(first_id / topk / heads),
                    (long long)(first_id / topk % heads), (long long)(first_id % topk), ids[first_id], want_ids[first_id]);
      if (first_out >= 0)
        std::printf("; out row %lld head %lld column %lld: got %g want %g", (long long)(first_out / d / (heads * group)),
                    (long long)(first_out / d % (heads * group)), (long long)(first_out % d), widen(out[first_out]), widen(want_out[first_out]));
      std::printf("\n");
      if (!right) break;
    }
  };
  compare_all("index", true, [](const msa_call& c, const run_context& x) { decode_index(c.index, x); }, MSABENCH_OP_INDEX);
  CHECK(cudaMemcpy(s.ids, want_ids.data(), id_count * 4, cudaMemcpyHostToDevice));
  compare_all("attend", false, [](const msa_call& c, const run_context& x) { decode_attend(c.attend, x); }, MSABENCH_OP_ATTEND);
  compare_all("msa", true, [](const msa_call& c, const run_context& x) { decode_msa(c, x); }, MSABENCH_OP_MSA);
  for (int spans : {2, 4, 8, 16})
    for (bool selects : {false, true})
      compare_all("msa spans " + std::to_string(spans) + (selects ? " selecting" : ""), true,
                  [=](const msa_call& c, const run_context& x) { run_variant({spans, selects, true}, c, x); }, MSABENCH_OP_MSA);
  CHECK(cudaFree(want));
  CHECK(cudaFree(got));
  return good;
}

#ifdef STAMPS
void print_stamps(const char* name) {
  static std::vector<unsigned long long> all(stamp_kinds * stamp_blocks);
  CHECK(cudaMemcpyFromSymbol(all.data(), stamps, all.size() * 8));
  unsigned long long origin = ~0ull;
  for (auto x : all)
    if (x != 0) origin = std::min(origin, x);
  std::printf("  %s, in us after the first thread block began: least, median, greatest over thread blocks\n", name);
  for (int k = 0; k < stamp_kinds; ++k) {
    std::vector<double> of;
    for (int b = 0; b < stamp_blocks; ++b)
      if (all[k * stamp_blocks + b] != 0) of.push_back((all[k * stamp_blocks + b] - origin) / 1000.0);
    if (of.empty()) continue;
    std::sort(of.begin(), of.end());
    std::printf("    %-28s %8.2f %8.2f %8.2f  (%zu)\n", stamp_names[k], of[0], of[of.size() / 2], of.back(), of.size());
  }
}
void stamp_it(const char* name, const setting& s, msabench_op op, const enqueue& run) {
  const msabench_problem p = with_op(s, op);
  std::vector<cudaGraphExec_t> graphs;
  for (const msa_call& call : s.calls) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    run(call, context_of(p, s));
    CHECK(cudaGetLastError());
    CHECK(cudaStreamEndCapture(stream, &graph));
    graphs.emplace_back();
    CHECK(cudaGraphInstantiate(&graphs.back(), graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }
  for (std::size_t i = 0; i < graphs.size() + 2; ++i) {
    void* address;
    CHECK(cudaGetSymbolAddress(&address, stamps));
    CHECK(cudaMemsetAsync(address, 0, sizeof stamps, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphLaunch(graphs[i % graphs.size()], stream));
    CHECK(cudaStreamSynchronize(stream));
    if (i >= graphs.size()) print_stamps(name);
  }
  for (auto g : graphs) CHECK(cudaGraphExecDestroy(g));
}
#endif

void time_all(const char* name, const setting& s, bool streams) {
  std::printf("== %s\n", name);
  constexpr int n = 60;
  time_it("portable msa", s, MSABENCH_OP_MSA, n, [](auto& c, auto& x) { cuda::msa(c, x); });
  if (streams) {
    time_it("scores: 4 stages, 8 first, handed out", s, MSABENCH_OP_MSA, n, run_stream<first_shape<4, 8>, true>);
    time_it("scores: 4 stages, 8 first, in turn", s, MSABENCH_OP_MSA, n, run_stream<first_shape<4, 8>, false>);
    time_it("scores: 4 stages, 4 first, handed out", s, MSABENCH_OP_MSA, n, run_stream<first_shape<4, 4>, true>);
    time_it("scores: 4 stages, 16 first, handed out", s, MSABENCH_OP_MSA, n, run_stream<first_shape<4, 16>, true>);
    time_it("scores: 3 stages, 8 first, handed out", s, MSABENCH_OP_MSA, n, run_stream<first_shape<3, 8>, true>);
    time_it("scores: 2 stages, 8 first, handed out", s, MSABENCH_OP_MSA, n, run_stream<first_shape<2, 8>, true>);
    time_it("scores: 5 stages, 8 first, handed out", s, MSABENCH_OP_MSA, n, run_stream<first_shape<5, 8>, true>);
    time_it("scores: 6 stages, 8 first, handed out", s, MSABENCH_OP_MSA, n, run_stream<first_shape<6, 8>, true>);
    time_it("scores: 6 stages, 8 first, in turn", s, MSABENCH_OP_MSA, n, run_stream<first_shape<6, 8>, false>);
    time_it("scores: 6 stages, 6 first, in turn", s, MSABENCH_OP_MSA, n, run_stream<first_shape<6, 6>, false>);
  }
  time_it("index", s, MSABENCH_OP_INDEX, n, [](auto& c, auto& x) { decode_index(c.index, x); });
  time_it("msa as chosen", s, MSABENCH_OP_MSA, n, [](auto& c, auto& x) { decode_msa(c, x); });
  for (int spans : {4, 8, 16}) {
    const std::string text = " spans " + std::to_string(spans);
    const auto with = [&](const char* what, variant v) {
      time_it((std::string("msa") + text + what).c_str(), s, MSABENCH_OP_MSA, n, [=](auto& c, auto& x) { run_variant(v, c, x); });
    };
    with(", selecting", {spans, true, true});
    if (spans == 16) with(", select apart", {spans, false, true});
    if (spans == 16) with(", selecting, no overlap", {spans, true, false});
  }
  time_it("attend (ids of the last set)", s, MSABENCH_OP_ATTEND, n, [](auto& c, auto& x) { decode_attend(c.attend, x); });
}

int bench(int argc, char** argv) {
  const std::int64_t pages = argc > 1 ? std::atoll(argv[1]) : 16 * 8192;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const pools pool(pages);
  constexpr std::int32_t K = 1024, M = K * K;
  const auto now = [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
  const double begin = now();
#ifdef QUICK
  const auto quick = [&](const char* name, const setting& s) {
    std::printf("== %s, variant %s\n", name, QUICK);
    time_it("index", s, MSABENCH_OP_INDEX, 60, [](auto& c, auto& x) { decode_index(c.index, x); });
    for (int i = 0; i < 3; ++i) time_it("msa as chosen", s, MSABENCH_OP_MSA, 60, [](auto& c, auto& x) { decode_msa(c, x); });
  };
  quick("1M, batch 1", setting(pool, {M}, 1, 16));
  quick("128K, batch 1", setting(pool, {128 * K}, 1, 64));
  quick("128K, batch 16", setting(pool, std::vector<std::int32_t>(16, 128 * K), 1, 8));
#elif !defined STAMPS
  if (argc > 2) {  // a launch without a cluster
    const setting s(pool, {4096}, 1, 1);
    cudaFuncSetAttribute(attend_few<decode_attention_shape<bf16>>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    run_variant({1, true, true}, s.calls[0], context_of(s.p, s));
    std::printf("one span: %s\n", cudaGetErrorString(cudaStreamSynchronize(stream)));
    return 0;
  }
  bool good = true;
  good &= check("128K", setting(pool, {128 * K}, 1, 1));
  good &= check("ragged", setting(pool, {1, 128, 129, 2047, 2049, 5000, 77777, 3, 31000}, 1, 1));
  good &= check("ragged, 2 tokens", setting(pool, {2, 128, 129, 2047, 2050, 5000, 77777, 130, 31001}, 2, 1));
  good &= check("1M", setting(pool, {M}, 1, 1));
  good &= check("4 tokens", setting(pool, {100001, 5003}, 4, 1));
  good &= check("5 tokens", setting(pool, {100001, 5003}, 5, 1));
  good &= check("16 tokens", setting(pool, {100001, 5003, 16}, 16, 1));
  good &= check("64K x 40", setting(pool, std::vector<std::int32_t>(40, 64 * K), 1, 1));
  std::printf("%s, %.1f s\n", good ? "ALL RIGHT" : "SOMETHING IS WRONG", now() - begin);
  {
    const setting s(pool, {K}, 1, 1);
    time_it("empty graph (floor)", s, MSABENCH_OP_MSA, 60, [](auto&, auto&) { empty<<<1, 32, 0, stream>>>(); });
  }
  time_all("1M, batch 1", setting(pool, {M}, 1, 16), true);
  time_all("128K, batch 1", setting(pool, {128 * K}, 1, 64), true);
  time_all("8K, batch 1", setting(pool, {8 * K}, 1, 64), false);
  time_all("1M, batch 16", setting(pool, std::vector<std::int32_t>(16, M), 1, 1), true);
  time_all("128K, batch 16", setting(pool, std::vector<std::int32_t>(16, 128 * K), 1, 8), true);
  time_all("128K, batch 128", setting(pool, std::vector<std::int32_t>(128, 128 * K), 1, 1), false);
  if (false) time_all("1M, 4 tokens", setting(pool, {M}, 4, 16), false);
  time_all("1M, 16 tokens", setting(pool, {M}, 16, 16), false);
#else
  for (auto n : {8 * K, 128 * K, M}) {
    const setting s(pool, {n}, 1, 8);
    const std::string name = std::to_string(n / K) + "K, batch 1";
    stamp_it((name + ", selecting, 16 spans").c_str(), s, MSABENCH_OP_MSA, [](auto& c, auto& x) { run_variant({16, true, true}, c, x); });
  }
  const setting s(pool, std::vector<std::int32_t>(16, 128 * K), 1, 8);
  for (int spans : {4, 8, 16})
    stamp_it(("128K, batch 16, spans " + std::to_string(spans)).c_str(), s, MSABENCH_OP_MSA, [=](auto& c, auto& x) { run_variant({spans, true, true}, c, x); });
#endif
  std::printf("%.1f s in all\n", now() - begin);
  return 0;
}

}  // namespace msabench::cuda_sm90

int main(int argc, char** argv) { return msabench::cuda_sm90::bench(argc, argv); }
