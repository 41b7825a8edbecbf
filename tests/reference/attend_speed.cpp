// SPDX-License-Identifier: Apache-2.0
// Prints how many (row, head, key) triples a second the reference does with all gauges at the M3 head shape; the cost
// rules of the case lists rest on this number.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "batch.h"

int main() {
  using namespace msabench;
  using namespace msabench::reference;
  for (const std::int32_t hq : {64, 4}) {
    testing::batch_spec spec;
    spec.sequences = {{32, 8192}};
    spec.hq = hq, spec.hkv = 4, spec.d = 128, spec.block = 128, spec.topk = 16, spec.type = bf16;
    const testing::batch b(spec);
    for (const bool products : {false, true}) {
      score_error err;
      err.per_magnitude = 1e-5;
      err.var_products = products ? 1e-10 : 0;
      double best_s = 1e9, best_cpu_s = 1e9, triples = 0;
      for (int repeat = 0; repeat < 3; ++repeat) {
        const auto start = std::chrono::steady_clock::now();
        const std::clock_t cpu_start = std::clock();
        const auto result = attend(b.inputs(), b.all_rows(), err);
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
        best_s = std::min(best_s, time.count());
        best_cpu_s = std::min(best_cpu_s, static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC);
        triples = 0;
        for (const auto& row : result) triples += static_cast<double>(row.n);
      }
      fmt::print(
          "attend, d 128, bf16, {} query heads, {} KV heads, rounded operands {}: {:.1f} M triples/s, "
          "{:.1f} M per second of processor time\n",
          spec.hq, spec.hkv, products ? "yes" : "no", triples / best_s / 1e6, triples / best_cpu_s / 1e6);
    }
  }
}
