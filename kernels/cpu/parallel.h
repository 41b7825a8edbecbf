// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <omp.h>

#include <cstdint>

namespace msabench::cpu {

/// task(index, thread) for 0 <= index < tasks, in any order and on any of the threads. Whoever is free takes the next
/// index, so tasks should be ordered from long to short.
template <class Task>
void for_each_task(int threads, std::int64_t tasks, const Task& task) {
  // libgomp allocates a team of one anew in each parallel region, and a run must not allocate.
  if (threads == 1 || tasks <= 1) {
    for (std::int64_t i = 0; i < tasks; ++i) task(i, 0);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num();
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t i = 0; i < tasks; ++i) task(i, thread);
  }
}

}  // namespace msabench::cpu
