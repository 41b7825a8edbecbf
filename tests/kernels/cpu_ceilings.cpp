// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/cpu_ceilings.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/cpu_ceilings.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <omp.h>

#include <chrono>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace msabench::plugin_test::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Operations done; `seed` keeps the compiler from knowing the result.
double multiply_add(std::int64_t steps, float seed, float* result) {
  const hn::ScalableTag<float> d;
  // Enough chains for a latency of 4 cycles on two units.
  constexpr int chains = 12;
  hn::Vec<decltype(d)> sums[chains];
  for (auto& sum : sums) sum = hn::Set(d, seed);
  const auto factor = hn::Set(d, 0.999f), term = hn::Set(d, seed);
  for (std::int64_t i = 0; i < steps; ++i) {
    for (auto& sum : sums) sum = hn::MulAdd(sum, factor, term);
  }
  auto total = hn::Zero(d);
  for (const auto& sum : sums) total = hn::Add(total, sum);
  *result = hn::GetLane(hn::SumOfLanes(d, total));
  return 2.0 * static_cast<double>(hn::Lanes(d)) * chains * static_cast<double>(steps);
}

float sum_of(const float* from, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Add(a, hn::LoadU(d, from + i));
    b = hn::Add(b, hn::LoadU(d, from + i + lanes));
    c = hn::Add(c, hn::LoadU(d, from + i + 2 * lanes));
    e = hn::Add(e, hn::LoadU(d, from + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

}  // namespace msabench::plugin_test::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msabench::plugin_test {

HWY_EXPORT(multiply_add);
HWY_EXPORT(sum_of);

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

volatile float sink;

}  // namespace

double fma_gflops(int threads) {
  double operations = 0;
  const auto start = std::chrono::steady_clock::now();
#pragma omp parallel num_threads(threads) reduction(+ : operations)
  {
    float result = 0;
    operations += HWY_DYNAMIC_DISPATCH(multiply_add)(50'000'000, 1e-3f, &result);
    sink = result;
  }
  return operations / seconds_since(start) * 1e-9;
}

double read_gbytes(const float* from, std::size_t bytes, int threads) {
  const std::size_t part = bytes / sizeof(float) / static_cast<std::size_t>(threads);
  const auto start = std::chrono::steady_clock::now();
#pragma omp parallel num_threads(threads)
  sink = HWY_DYNAMIC_DISPATCH(sum_of)(from + part * static_cast<std::size_t>(omp_get_thread_num()), part);
  return static_cast<double>(bytes) / seconds_since(start) * 1e-9;
}

}  // namespace msabench::plugin_test
#endif
