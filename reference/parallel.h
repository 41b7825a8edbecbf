// SPDX-License-Identifier: Apache-2.0
// Independent units of work over the machine's threads. Each unit writes results of its own and sums in an order of its own,
// so the number of threads can't change a bit.
#pragma once

#include <cstdint>
#include <exception>

namespace msabench::reference {

// body(i, scratch) for i in 0 .. count - 1, each thread with a default-constructed Scratch that it reuses. The first exception
// ends up at the caller once all threads are done.
template <class Scratch, class Body>
void parallel_for(std::int64_t count, const Body& body) {
  std::exception_ptr failure;
#pragma omp parallel if (count > 1)
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
