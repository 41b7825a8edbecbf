// SPDX-License-Identifier: Apache-2.0
// What one counter of the generator gives: four stored elements in a row. The kernel that makes inputs on a device
// (generate_inputs.cu) is this function for each counter; integers only, so that it agrees with the host to the bit.
#pragma once

#include <cstdint>

#include "core/normal_step.h"
#include "core/philox.h"

#ifdef __CUDACC__
#define MSABENCH_HOST_DEVICE __host__ __device__
#else
#define MSABENCH_HOST_DEVICE
#endif

namespace msabench {

inline constexpr std::uint64_t group_elements = 4;

// Aligned so that it is written at once.
template <class Stored>
struct alignas(group_elements * sizeof(Stored)) generated_group {
  Stored elements[group_elements];
};

// Elements 4 * counter to 4 * counter + 3 of a stream. `of_steps`: the element of each step, that of -510 first.
template <class Stored>
MSABENCH_HOST_DEVICE generated_group<Stored> make_group(const Stored* of_steps, std::uint64_t key, std::uint64_t seed,
                                                        std::uint64_t counter) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto words =
      philox4x32_10({low(counter), low(counter >> 32), low(seed), low(seed >> 32)}, {low(key), low(key >> 32)});
  generated_group<Stored> made;
  for (int i = 0; i < 4; ++i) made.elements[i] = of_steps[normal_step_of(words[i]) + most_normal_step];
  return made;
}

}  // namespace msabench
