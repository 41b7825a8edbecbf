// SPDX-License-Identifier: Apache-2.0
#include "reference/tile_kernels.h"

#include <cstring>

// Sanitizers and the resolvers of function clones don't get along: resolvers run before the sanitizer is set up.
#if defined(__x86_64__) && !defined(MSABENCH_SANITIZED)
#define MSABENCH_CLONES __attribute__((target_clones("default", "arch=x86-64-v3")))
#else
#define MSABENCH_CLONES
#endif

namespace msabench::reference {
namespace {

// Vectors of four are passed by reference: by value they would have an ABI that depends on the clone.
using quad = double __attribute__((vector_size(32)));
using quad_bits = std::int64_t __attribute__((vector_size(32)));
constexpr std::int64_t quad_size = 4;
constexpr std::int64_t all_but_sign = 0x7fffffffffffffff;
constexpr std::int64_t quads = lanes / quad_size;

[[gnu::always_inline]] inline void load(quad& to, const double* from) { std::memcpy(&to, from, sizeof(quad)); }
[[gnu::always_inline]] inline void store(double* to, const quad& from) { std::memcpy(to, &from, sizeof(quad)); }
[[gnu::always_inline]] inline void make_absolute(quad& x) {
  x = __builtin_bit_cast(quad, __builtin_bit_cast(quad_bits, x) & all_but_sign);
}
// Lanes 0 .. 7 as ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
[[gnu::always_inline]] inline double sum_of(const quad& low, const quad& high) {
  const quad both = low + high;
  return (both[0] + both[2]) + (both[1] + both[3]);
}

}  // namespace

MSABENCH_CLONES
void score_tile(const double* keys, std::int64_t n, std::int64_t width, const double* query, double* dot,
                double* magnitude, double* squares) {
  for (std::int64_t j = 0; j < n; ++j, keys += width) {
    quad sum[quads] = {}, size[quads] = {}, square[quads] = {};
    if (squares != nullptr) {
      for (std::int64_t c = 0; c < width; c += lanes) {
        for (std::int64_t i = 0; i < quads; ++i) {
          quad q, k;
          load(q, query + c + i * quad_size);
          load(k, keys + c + i * quad_size);
          quad product = q * k;
          sum[i] += product;
          square[i] += product * product;
          make_absolute(product);
          size[i] += product;
        }
      }
      squares[j] = sum_of(square[0], square[1]);
    } else {
      for (std::int64_t c = 0; c < width; c += lanes) {
        for (std::int64_t i = 0; i < quads; ++i) {
          quad q, k;
          load(q, query + c + i * quad_size);
          load(k, keys + c + i * quad_size);
          quad product = q * k;
          sum[i] += product;
          make_absolute(product);
          size[i] += product;
        }
      }
    }
    dot[j] = sum_of(sum[0], sum[1]);
    magnitude[j] = sum_of(size[0], size[1]);
  }
}

MSABENCH_CLONES
void moments_tile(const double* values, std::int64_t n, const double* weight, const moment_sums& sums) {
  quad mean[quads] = {}, magnitude[quads] = {}, squares[quads] = {};
  for (std::int64_t j = 0; j < n; ++j, values += lanes) {
    for (std::int64_t i = 0; i < quads; ++i) {
      quad v;
      load(v, values + i * quad_size);
      quad term = weight[j] * v;
      mean[i] += term;
      squares[i] += term * term;
      make_absolute(term);
      magnitude[i] += term;
    }
  }
  for (std::int64_t i = 0; i < quads; ++i) {
    store(sums.mean + i * quad_size, mean[i]);
    store(sums.magnitude + i * quad_size, magnitude[i]);
    store(sums.squares + i * quad_size, squares[i]);
  }
}

MSABENCH_CLONES
void spreads_tile(const double* values, std::int64_t n, const double* weight, const double* weight1,
                  const double* weight2, const double* mean, const spread_sums& sums) {
  quad center[quads], dev[quads] = {}, e1[quads] = {}, e2[quads] = {}, x[quads] = {};
  for (std::int64_t i = 0; i < quads; ++i) load(center[i], mean + i * quad_size);
  for (std::int64_t j = 0; j < n; ++j, values += lanes) {
    for (std::int64_t i = 0; i < quads; ++i) {
      quad v;
      load(v, values + i * quad_size);
      quad u = v - center[i];
      make_absolute(u);
      make_absolute(v);
      dev[i] += weight[j] * u;
      e1[i] += weight1[j] * u;
      const quad spread = weight2[j] * u;
      e2[i] += spread * spread;
      x[i] += v > u ? v : u;
    }
  }
  for (std::int64_t i = 0; i < quads; ++i) {
    store(sums.dev + i * quad_size, dev[i]);
    store(sums.e1 + i * quad_size, e1[i]);
    store(sums.e2 + i * quad_size, e2[i]);
    store(sums.x + i * quad_size, x[i]);
  }
}

MSABENCH_CLONES
void mean_tile(const double* values, std::int64_t n, const double* weight, double* mean) {
  quad sum[quads] = {};
  for (std::int64_t j = 0; j < n; ++j, values += lanes) {
    for (std::int64_t i = 0; i < quads; ++i) {
      quad v;
      load(v, values + i * quad_size);
      sum[i] += weight[j] * v;
    }
  }
  for (std::int64_t i = 0; i < quads; ++i) store(mean + i * quad_size, sum[i]);
}

MSABENCH_CLONES
void gradient_tile(const double* terms, std::int64_t n, const gradient_weights& weights, const gradient_line& sums) {
  quad value[quads] = {}, magnitude[quads] = {}, error[quads] = {}, fine[quads] = {}, spread[quads] = {};
  for (std::int64_t j = 0; j < n; ++j, terms += lanes) {
    for (std::int64_t i = 0; i < quads; ++i) {
      quad x;
      load(x, terms + i * quad_size);
      quad term = weights.value[j] * x;
      value[i] += term;
      make_absolute(term);
      magnitude[i] += term;
      spread[i] += weights.spread[j] * (x * x);
      make_absolute(x);
      error[i] += weights.error[j] * x;
      fine[i] += weights.fine_error[j] * x;
    }
  }
  for (std::int64_t i = 0; i < quads; ++i) {
    store(sums.value + i * quad_size, value[i]);
    store(sums.magnitude + i * quad_size, magnitude[i]);
    store(sums.error + i * quad_size, error[i]);
    store(sums.fine_error + i * quad_size, fine[i]);
    store(sums.spread + i * quad_size, spread[i]);
  }
}

}  // namespace msabench::reference
