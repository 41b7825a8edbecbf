// SPDX-License-Identifier: Apache-2.0
// Spreads the tasks of a run over threads, each with a slice of the scratch.
#pragma once

#include <omp.h>

#include <cstdint>

namespace msabench::naive {

/// compute(task, slice) for tasks 0 .. count-1, `chunk` at a time. `scratch` holds `threads` slices.
template <class Compute>
void for_each_task(std::int64_t count, int threads, int chunk, void* scratch, std::int64_t slice_bytes,
                   const Compute& compute) {
  // libgomp allocates a team of one anew in each parallel region; R3 forbids that.
  if (threads == 1) {
    for (std::int64_t task = 0; task < count; ++task) compute(task, scratch);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    void* slice = static_cast<char*>(scratch) + slice_bytes * omp_get_thread_num();
#pragma omp for schedule(dynamic, chunk)
    for (std::int64_t task = 0; task < count; ++task) compute(task, slice);
  }
}

}  // namespace msabench::naive
