// SPDX-License-Identifier: Apache-2.0
// Speed of a plugin's kernels at the M3 shape beside the ceilings of the machine, for people who tune them; no test.
// usage: msabench_cpu_speed [PLUGIN [THREADS [CONTEXT_IN_K]]]. Figures of a machine that does anything else mean nothing, so the
// load is printed with them.
#include <fmt/format.h>
#include <omp.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/cpu_ceilings.h"
#include "tests/kernels/plugin_session.h"

using namespace msabench::plugin_test;

namespace {

constexpr std::int64_t hq = 64, hkv = 4, d = 128, block = 128, topk = 16;

struct tensor {
  std::vector<std::int64_t> shape, strides;
  std::vector<std::uint16_t> halves;
  std::vector<float> floats;
  std::vector<std::int32_t> numbers;
  msabench_dtype type;

  tensor(msabench_dtype given, std::vector<std::int64_t> sizes) : shape(std::move(sizes)), type(given) {
    strides.assign(shape.size(), 1);
    for (std::size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
    const auto count =
        static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
    if (type.bits == 16) {
      halves.resize(count);
      std::mt19937 random(1);
      // bf16 between 1/2 and 2, of either sign.
      for (auto& half : halves) half = static_cast<std::uint16_t>((random() & 0x80ffu) | 0x3f00u);
    } else if (type.code == fp32_type.code) {
      floats.resize(count);
    } else {
      numbers.resize(count);
    }
  }

  msabench_tensor view() {
    void* data = type.bits == 16               ? static_cast<void*>(halves.data())
                 : type.code == fp32_type.code ? static_cast<void*>(floats.data())
                                               : static_cast<void*>(numbers.data());
    return {data, shape.data(), strides.data(), static_cast<std::int32_t>(shape.size()), type, cpu};
  }
};

struct ceilings {
  double gflops, gbytes;
};

/// Useful work of one run.
struct work {
  double flops, bytes;
};

/// One sequence of `keys` keys, of which the last `tokens` are this call's.
class benchmark {
 public:
  benchmark(const msabench_plugin* plugin, std::int64_t tokens, std::int64_t keys)
      : plugin_(plugin),
        tokens_(tokens),
        keys_(keys),
        blocks_((keys + block - 1) / block),
        q_(bf16_type, {tokens, hq, d}),
        out_(bf16_type, {tokens, hq, d}),
        lse_(fp32_type, {tokens, hq}),
        k_(bf16_type, {keys, hkv, d}),
        v_(bf16_type, {keys, hkv, d}),
        q_idx_(bf16_type, {tokens, hkv, d}),
        k_idx_(bf16_type, {keys, d}),
        scores_(fp32_type, {hkv, tokens, blocks_}),
        ids_(int32_type, {tokens, hkv, topk}),
        cu_seqlens_q_(int32_type, {2}),
        cu_seqlens_kv_(int32_type, {2}),
        kv_lens_(int32_type, {1}) {
    cu_seqlens_q_.numbers = {0, static_cast<std::int32_t>(tokens)};
    cu_seqlens_kv_.numbers = {0, static_cast<std::int32_t>(keys)};
    kv_lens_.numbers = {static_cast<std::int32_t>(keys)};
  }

  void print(msabench_op op, const char* name, const ceilings& top) {
    msabench_problem p = empty_problem(op);
    p.hq = hq;
    p.hkv = p.hi = hkv;
    p.d = p.di = d;
    p.block = block;
    p.topk = topk;
    p.local_blocks = 1;
    p.batch = 1;
    p.total_q = p.max_q_len = tokens_;
    p.max_kv_len = p.total_kv = keys_;
    p.q = p.kv = p.out = p.q_idx = p.k_idx = bf16_type;
    session plan(plugin_, p);
    if (plan.status() != MSABENCH_OK) {
      fmt::print("{:<10} {}\n", name, plugin_->last_error());
      return;
    }
    arguments args;
    args.put(MSABENCH_Q, q_.view());
    args.put(MSABENCH_K, k_.view());
    args.put(MSABENCH_V, v_.view());
    args.put(MSABENCH_Q_IDX, q_idx_.view());
    args.put(MSABENCH_K_IDX, k_idx_.view());
    args.put(MSABENCH_OUT, out_.view());
    args.put(MSABENCH_LSE, lse_.view());
    args.put(MSABENCH_SCORES, scores_.view());
    args.put(MSABENCH_IDS, ids_.view());
    args.put(MSABENCH_CU_SEQLENS_Q, cu_seqlens_q_.view());
    args.put(MSABENCH_CU_SEQLENS_KV, cu_seqlens_kv_.view());
    args.put(MSABENCH_KV_LENS, kv_lens_.view());
    if (op == MSABENCH_OP_MSA) args.remove(MSABENCH_SCORES);
    double best = 1e30, spent = 0;
    for (int i = 0; i < 3 || (spent < 2 && i < 50); ++i) {
      const auto start = std::chrono::steady_clock::now();
      if (plugin_->run(plan.plan(), args.get(), plan.workspace(), nullptr) != MSABENCH_OK) {
        fmt::print("{:<10} {}\n", name, plugin_->last_error());
        return;
      }
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (i > 0) best = std::min(best, seconds);
      spent += seconds;
    }
    const work done = work_of(op);
    const double bound = std::max(done.flops / top.gflops, done.bytes / top.gbytes) * 1e-9;
    fmt::print("{:<10} T {:>6} N {:>8}: {:>10.3f} ms {:>8.1f} GFLOP/s {:>7.2f} GB/s  of the roofline {:.2f}\n", name,
               tokens_, keys_, best * 1e3, done.flops / best * 1e-9, done.bytes / best * 1e-9, bound / best);
  }

 private:
  work work_of(msabench_op op) const {
    const auto t = static_cast<double>(tokens_), n = static_cast<double>(keys_);
    const double visible = t * n - t * (t - 1) / 2;
    double selected = 0;
    for (std::int64_t i = keys_ - tokens_; i < keys_; ++i) {
      const std::int64_t own = i / block;
      selected += static_cast<double>(std::min(own, topk - 1) * block + i % block + 1);
    }
    const double attended = op == MSABENCH_OP_DENSE ? visible : selected;
    const double attend_flops = 4.0 * d * hq * attended, score_flops = 2.0 * d * hkv * visible;
    const double rows = t * hq * d * 2 * 2;  // q and out
    // The keys that some row reads: all of them in a prefill, each once.
    const double cache = 2.0 * 2 * d * hkv * std::min(n, op == MSABENCH_OP_DENSE ? n : selected);
    const double index = 2.0 * d * n + t * hkv * d * 2;
    switch (op) {
      case MSABENCH_OP_SCORE:
        return {score_flops, index + t * hkv * static_cast<double>(blocks_) * 4};
      case MSABENCH_OP_INDEX:
        return {score_flops, index + t * hkv * topk * 4};
      case MSABENCH_OP_MSA:
        return {score_flops + attend_flops, index + rows + cache};
      default:
        return {attend_flops, rows + cache};
    }
  }

  const msabench_plugin* plugin_;
  std::int64_t tokens_, keys_, blocks_;
  tensor q_, out_, lse_, k_, v_, q_idx_, k_idx_, scores_, ids_, cu_seqlens_q_, cu_seqlens_kv_, kv_lens_;
};

void print_all(const msabench_plugin* plugin, std::int64_t tokens, std::int64_t keys, const ceilings& top) {
  benchmark test(plugin, tokens, keys);
  test.print(MSABENCH_OP_SCORE, "score", top);
  test.print(MSABENCH_OP_INDEX, "index", top);  // its ids are those that attend takes
  test.print(MSABENCH_OP_ATTEND, "attend", top);
  test.print(MSABENCH_OP_DENSE, "dense", top);
  test.print(MSABENCH_OP_MSA, "msa", top);
}

std::int64_t number(const char* text) {
  std::int64_t value = 0;
  const std::string_view view(text);
  if (std::from_chars(view.data(), view.data() + view.size(), value).ec != std::errc{}) std::exit(64);
  return value;
}

}  // namespace

int main(int count, char** words) {
  const std::string plugin = count > 1 ? words[1] : plugin_path("cpu");
  const int threads = count > 2 ? static_cast<int>(number(words[2])) : omp_get_max_threads();
  const std::int64_t context = count > 3 ? number(words[3]) * 1024 : 1 << 20;
  double load[1] = {-1};
  if (getloadavg(load, 1) != 1) load[0] = -1;
  const std::vector<float> memory(std::size_t{1} << 28, 1.0f);
  ceilings top{0, 0};
  for (int i = 0; i < 3; ++i) {
    top.gflops = std::max(top.gflops, fma_gflops(threads));
    top.gbytes = std::max(top.gbytes, read_gbytes(memory.data(), memory.size() * sizeof(float), threads));
  }
  fmt::print("{} threads, load {:.2f}; multiply-adds {:.1f} GFLOP/s, reading {:.2f} GB/s\n", threads, load[0],
             top.gflops, top.gbytes);
  const msabench_plugin* tested = load_plugin(plugin, threads);
  if (tested == nullptr) return 64;
  print_all(tested, 1, 131072, top);
  print_all(tested, 1, context, top);
  print_all(tested, 2048, 2048, top);
  print_all(tested, 8192, 8192, top);
  return 0;
}
