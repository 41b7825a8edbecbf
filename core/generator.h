// SPDX-License-Identifier: Apache-2.0
// The random numbers of inputs: one stream per (case, slot, seed), with random access by index.
//
// key = FNV-1a-64 of "case name without seed|slot", low word first; counter = {i/4 low, i/4 high, seed low, seed high};
// word i is output i mod 4 of Philox4x32-10. Index i counts the packed slot tensor as stored: pages in pool order, no
// stride padding.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/dtype.h"

namespace msabench {

class stream {
 public:
  stream(std::string_view name_without_seed, std::string_view slot, std::uint64_t seed);

  std::uint32_t word(std::uint64_t i) const noexcept;

  // Sum of the word's four bytes - 510: an integer in [-510, 510], approximately normal, mean 0, standard deviation
  // 147.8.
  int normal_step(std::uint64_t i) const noexcept;
  // normal_step * 2^-7: a multiple of 1/128 in (-4, 4), mean 0, standard deviation 1.155.
  double normal(std::uint64_t i) const noexcept { return normal_step(i) * 0x1p-7; }

  // normal(first + j) * scale, rounded to nearest even, into element j of the array of stored elements at dst (no
  // alignment asked), j < count. scale is a positive power of two (suite_error otherwise), which keeps the products
  // exact before the one rounding, in every language that repeats this.
  void fill_normal(void* dst, dtype type, std::uint64_t first, std::uint64_t count, double scale = 1.0) const;
  void fill_words(std::uint32_t* dst, std::uint64_t first, std::uint64_t count) const noexcept;

  std::uint64_t key() const noexcept { return key_[0] | std::uint64_t{key_[1]} << 32; }
  std::uint64_t seed() const noexcept { return seed_; }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t seed_;
};

// The normal_steps elements that fill_normal takes, in storage form, that of the lowest step first.
void fill_normal_elements(void* dst, dtype type, double scale);

}  // namespace msabench
