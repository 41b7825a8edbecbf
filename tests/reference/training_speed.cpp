// SPDX-License-Identifier: Apache-2.0
// Prints how many (row, head, key) triples a second of processor time the gradients take with all gauges.
#include <fmt/core.h>

#include <ctime>
#include <string_view>

#include "training_batch.h"

int main() {
  using namespace msabench::reference;
  testing::training_spec spec;
  spec.sequences = {{256, 1024}};
  spec.hq = 16, spec.hkv = 1, spec.d = spec.di = 128, spec.block = 128, spec.topk = 4, spec.type = msabench::bf16;
  const testing::training_batch b(spec);
  const auto print = [&](std::string_view name, const auto& run) {
    const std::clock_t start = std::clock();
    const gradient rows = run();
    const double cpu_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    double triples = 0;
    for (const auto n : rows.chain) triples += static_cast<double>(n);
    if (rows.heads != spec.hq) triples *= spec.hq;
    fmt::print("{}, d 128, bf16, 16 query heads, 1 KV head: {:.2f} M triples per second of processor time\n", name,
               triples / cpu_s / 1e6);
  };
  print("attend_backward", [&] { return attend_backward(b.attend(), {}).dq; });
  print("dense_backward", [&] { return dense_backward(b.dense(), {}).dq; });
  print("kl", [&] { return kl(b.kl(), {}).dq_idx; });
}
