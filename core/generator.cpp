// SPDX-License-Identifier: Apache-2.0
#include "core/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/hashes.h"
#include "core/normal_step.h"
#include "core/philox.h"

// One binary serves every x86-64 CPU: these loops exist again for wider vectors, and the loader picks. Sanitizers are
// not ready at the time of that choice, so under them there is the plain loop only.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(MSABENCH_SANITIZED)
#define MSABENCH_WIDE_CLONES __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define MSABENCH_WIDE_CLONES
#endif

namespace msabench {
namespace {

constexpr std::size_t lanes = 16;          // counters side by side
constexpr std::size_t batch_words = 1024;  // stays in the first-level cache between the passes
static_assert(batch_words % (4 * lanes) == 0);

// The words of counters block, block + 1, ...: batch_words of them. The lane loops inside the round loop are what
// vectorizes.
MSABENCH_WIDE_CLONES
void philox_batch(std::uint32_t* words, std::uint64_t block, std::uint32_t key0, std::uint32_t key1,
                  std::uint64_t seed) {
  for (std::size_t done = 0; done < batch_words; done += 4 * lanes, block += lanes) {
    std::uint32_t c0[lanes], c1[lanes], c2[lanes], c3[lanes];
    for (std::size_t l = 0; l < lanes; ++l) {
      c0[l] = static_cast<std::uint32_t>(block + l);
      c1[l] = static_cast<std::uint32_t>((block + l) >> 32);
      c2[l] = static_cast<std::uint32_t>(seed);
      c3[l] = static_cast<std::uint32_t>(seed >> 32);
    }
    std::uint32_t k0 = key0, k1 = key1;
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      for (std::size_t l = 0; l < lanes; ++l) {
        const std::uint64_t a = std::uint64_t{0xD2511F53u} * c0[l];
        const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * c2[l];
        c0[l] = static_cast<std::uint32_t>(b >> 32) ^ c1[l] ^ k0;
        c1[l] = static_cast<std::uint32_t>(b);
        c2[l] = static_cast<std::uint32_t>(a >> 32) ^ c3[l] ^ k1;
        c3[l] = static_cast<std::uint32_t>(a);
      }
    }
    std::uint32_t* out = words + done;
    for (std::size_t l = 0; l < lanes; ++l) {
      out[4 * l] = c0[l];
      out[4 * l + 1] = c1[l];
      out[4 * l + 2] = c2[l];
      out[4 * l + 3] = c3[l];
    }
  }
}

MSABENCH_WIDE_CLONES
void steps_to_bf16(const std::uint32_t* __restrict words, std::size_t count, float unit,
                   std::uint16_t* __restrict out) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(normal_step_of(words[i])) * unit);
    out[i] = static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
}

MSABENCH_WIDE_CLONES
void steps_to_fp32(const std::uint32_t* __restrict words, std::size_t count, float unit, float* __restrict out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(normal_step_of(words[i])) * unit;
}

template <class Stored>
void steps_by_table(const std::uint32_t* words, std::size_t count, const Stored* table, Stored* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = table[normal_step_of(words[i]) + most_normal_step];
}

// Calls emit(words, count) for consecutive pieces of words first .. first + count - 1; count is at most batch_words.
template <class Emit>
void for_batches(std::array<std::uint32_t, 2> key, std::uint64_t seed, std::uint64_t first, std::uint64_t count,
                 Emit emit) {
  alignas(64) std::uint32_t words[batch_words];
  while (count > 0) {
    const std::size_t skipped = first % 4;
    const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(count, batch_words - skipped));
    philox_batch(words, first / 4, key[0], key[1], seed);
    emit(words + skipped, piece);
    first += piece;
    count -= piece;
  }
}

// As for_batches, for an emit(words, count, Stored* out): out is aligned, and then copied to the next elements of dst.
template <class Stored, class Emit>
void fill_batches(std::array<std::uint32_t, 2> key, std::uint64_t seed, std::uint64_t first, std::uint64_t count,
                  void* dst, Emit emit) {
  alignas(64) Stored elements[batch_words];
  auto* to = static_cast<std::byte*>(dst);
  for_batches(key, seed, first, count, [&](const std::uint32_t* words, std::size_t piece) {
    emit(words, piece, elements);
    std::memcpy(to, elements, piece * sizeof(Stored));
    to += piece * sizeof(Stored);
  });
}

std::array<std::uint32_t, 2> key_of(std::string_view name, std::string_view slot) {
  const std::uint64_t hash = fnv1a64(fmt::format("{}|{}", name, slot));
  return {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)};
}

bool is_power_of_two(double x) {
  int exponent = 0;
  return std::isfinite(x) && x > 0 && std::frexp(x, &exponent) == 0.5;
}

// Of a step.
double unit_of(double scale) {
  if (!is_power_of_two(scale))
    throw suite_error(fmt::format("the scale {} of a generated tensor is no power of two", scale));
  return scale * 0x1p-7;
}

constexpr std::uint64_t few = 2048;  // fewer elements than this don't pay for a table

}  // namespace

stream::stream(std::string_view name_without_seed, std::string_view slot, std::uint64_t seed)
    : key_(key_of(name_without_seed, slot)), seed_(seed) {}

std::uint32_t stream::word(std::uint64_t i) const noexcept {
  const std::uint64_t block = i / 4;
  return philox4x32_10({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                        static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)},
                       key_)[i % 4];
}

int stream::normal_step(std::uint64_t i) const noexcept { return normal_step_of(word(i)); }

void stream::fill_words(std::uint32_t* dst, std::uint64_t first, std::uint64_t count) const noexcept {
  for_batches(key_, seed_, first, count, [&](const std::uint32_t* words, std::size_t piece) {
    std::memcpy(dst, words, piece * sizeof(std::uint32_t));
    dst += piece;
  });
}

void stream::fill_normal(void* dst, dtype type, std::uint64_t first, std::uint64_t count, double scale) const {
  const double unit = unit_of(scale);
  // Within these bounds step * unit is an exact, normal float; beyond, only the general path rounds correctly.
  const bool exact_in_float = scale >= 0x1p-100 && scale <= 0x1p100;
  const auto float_unit = exact_in_float ? static_cast<float>(unit) : 0.0f;

  if (type == bf16 && exact_in_float) {
    fill_batches<std::uint16_t>(key_, seed_, first, count, dst,
                                [&](const std::uint32_t* words, std::size_t n, std::uint16_t* out) {
                                  steps_to_bf16(words, n, float_unit, out);
                                });
  } else if (type == fp32 && exact_in_float) {
    fill_batches<float>(key_, seed_, first, count, dst, [&](const std::uint32_t* words, std::size_t n, float* out) {
      steps_to_fp32(words, n, float_unit, out);
    });
  } else if (size_bytes(type) == 2 && count >= few) {
    std::uint16_t table[normal_steps];
    fill_normal_elements(table, type, scale);
    fill_batches<std::uint16_t>(
        key_, seed_, first, count, dst,
        [&](const std::uint32_t* words, std::size_t n, std::uint16_t* out) { steps_by_table(words, n, table, out); });
  } else if (size_bytes(type) == 1 && count >= few) {
    std::uint8_t table[normal_steps];
    fill_normal_elements(table, type, scale);
    fill_batches<std::uint8_t>(
        key_, seed_, first, count, dst,
        [&](const std::uint32_t* words, std::size_t n, std::uint8_t* out) { steps_by_table(words, n, table, out); });
  } else {
    std::int64_t index = 0;
    for_batches(key_, seed_, first, count, [&](const std::uint32_t* words, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i) store(dst, type, index++, normal_step_of(words[i]) * unit);
    });
  }
}

void fill_normal_elements(void* dst, dtype type, double scale) {
  const double unit = unit_of(scale);
  for (int i = 0; i < normal_steps; ++i) store(dst, type, i, (i - most_normal_step) * unit);
}

}  // namespace msabench
