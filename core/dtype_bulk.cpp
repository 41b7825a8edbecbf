// SPDX-License-Identifier: Apache-2.0
// Whole rows of elements at once. Kept apart so that these loops alone are built for the vectorizer.
#include <cstddef>
#include <cstring>
#include <string>

#include "core/dtype.h"
#include "core/error.h"
#include "core/number_format.h"

// One binary serves every x86-64 CPU: these loops exist again for wider vectors, and the loader picks. Conversions are
// exact, so all give the same. Sanitizers are not ready at the time of that choice.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(MSABENCH_SANITIZED)
#define MSABENCH_WIDE_CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define MSABENCH_WIDE_CLONES
#endif

namespace msabench {
namespace {

// src may be unaligned; the compiler is told that nothing overlaps.
template <class Stored, class Wide, class Convert>
[[gnu::always_inline]] inline void widen_as(const void* src, std::int64_t first, std::int64_t count,
                                            Wide* __restrict dst, Convert convert) {
  const auto* __restrict from = static_cast<const std::byte*>(src) + first * static_cast<std::int64_t>(sizeof(Stored));
  for (std::int64_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof(Stored)), sizeof(Stored));
    dst[i] = static_cast<Wide>(convert(value));
  }
}

template <class Wide>
[[gnu::always_inline]] inline void widen_small(const void* src, dtype type, std::int64_t first, std::int64_t count,
                                               Wide* dst) {
  if (type == bf16) return widen_as<std::uint16_t>(src, first, count, dst, bf16_to_float);
  if (type == fp16) return widen_as<std::uint16_t>(src, first, count, dst, fp16_to_float);
  if (type == e4m3) return widen_as<std::uint8_t>(src, first, count, dst, e4m3_to_float);
  if (type == fp32) return widen_as<float>(src, first, count, dst, [](float x) { return x; });
  throw suite_error("elements of type " + std::string(name(type)) + " can't be widened to this type exactly");
}

MSABENCH_WIDE_CLONES
void widen_to_double(const void* src, dtype type, std::int64_t first, std::int64_t count, double* dst) {
  widen_small(src, type, first, count, dst);
}

MSABENCH_WIDE_CLONES
void widen_to_float(const void* src, dtype type, std::int64_t first, std::int64_t count, float* dst) {
  widen_small(src, type, first, count, dst);
}

template <class Stored, class Convert>
void narrow_as(const double* src, std::int64_t count, void* dst, std::int64_t first, Convert convert) {
  auto* to = static_cast<std::byte*>(dst) + first * static_cast<std::int64_t>(sizeof(Stored));
  for (std::int64_t i = 0; i < count; ++i, to += sizeof(Stored)) {
    const Stored value = convert(src[i]);
    std::memcpy(to, &value, sizeof(Stored));
  }
}

}  // namespace

void widen(const void* src, dtype type, std::int64_t first, std::int64_t count, double* dst) {
  if (type == fp64) return widen_as<double>(src, first, count, dst, [](double x) { return x; });
  if (type == i32) return widen_as<std::int32_t>(src, first, count, dst, [](std::int32_t x) { return x; });
  widen_to_double(src, type, first, count, dst);
}

void widen(const void* src, dtype type, std::int64_t first, std::int64_t count, float* dst) {
  widen_to_float(src, type, first, count, dst);
}

void narrow(const double* src, std::int64_t count, void* dst, dtype type, std::int64_t first) {
  using namespace detail;
  if (type == bf16)
    return narrow_as<std::uint16_t>(src, count, dst, first,
                                    [](double x) { return encode<std::uint16_t>(x, bf16_format); });
  if (type == fp16)
    return narrow_as<std::uint16_t>(src, count, dst, first,
                                    [](double x) { return encode<std::uint16_t>(x, fp16_format); });
  if (type == fp32)
    return narrow_as<std::uint32_t>(src, count, dst, first,
                                    [](double x) { return encode<std::uint32_t>(x, fp32_format); });
  for (std::int64_t i = 0; i < count; ++i) store(dst, type, first + i, src[i]);
}

}  // namespace msabench
