// SPDX-License-Identifier: Apache-2.0
// Prints how long the reference takes to score one row of a million keys at the M3 shape, and to select from it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "index_batch.h"

namespace {

template <class Body>
double best_s(const Body& body) {
  double best = 1e9;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
  }
  return best;
}

}  // namespace

int main() {
  using namespace msabench;
  using namespace msabench::reference;
  for (const auto layout : {page_layout::contiguous, page_layout::paged}) {
    testing::index_spec spec;
    spec.sequences = {{1, 1 << 20}};
    spec.hi = 4, spec.di = 128, spec.block = 128, spec.topk = 16, spec.type = bf16, spec.layout = layout;
    spec.page_order = 7;
    const testing::index_batch b(spec);
    const interval_model model{1e-5, 0};
    score_error err;
    err.per_magnitude = 1e-5;
    const auto name = layout == page_layout::paged ? "paged" : "contiguous";
    const double score_s = best_s([&] { score(b.inputs(), b.all_rows(), model); });
    const double index_s = best_s([&] { index(b.inputs(), b.all_rows(), model, err); });
    fmt::print("1048576 keys, 4 index heads, di 128, bf16, {}: score {:.2f} s, index with lse_idx {:.2f} s\n", name,
               score_s, index_s);
  }
}
