// SPDX-License-Identifier: Apache-2.0
// Independent units of work over the machine's threads. Each unit writes results of its own and sums in an order of its
// own, so the number of threads can't change a bit.
#pragma once

#include <cstdint>
#include <exception>

namespace msabench::reference {

// Below this many multiplications starting threads costs more than it brings, most of all on a busy machine.
inline constexpr std::int64_t worth_threads = 1 << 20;

// body(i, scratch) for i in 0 .. count - 1, each thread with a default-constructed Scratch that it reuses; `work` is
// the rough number of multiplications of the whole. The first exception ends up at the caller once all threads are
// done.
template <class Scratch, class Body>
void parallel_for(std::int64_t count, std::int64_t work, const Body& body) {
  std::exception_ptr failure;
#pragma omp parallel if (count > 1 && work > worth_threads)
  {
    Scratch scratch;
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t i = 0; i < count; ++i) {
      try {
        body(i, scratch);
      } catch (...) {
#pragma omp critical(msabench_reference_failure)
        if (!failure) failure = std::current_exception();
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace msabench::reference
