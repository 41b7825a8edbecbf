// SPDX-License-Identifier: Apache-2.0
// Faulty plugins are the naive one with something changed in its function table or in its stages. Each fault is a
// function that returns the changed table; entry.cpp exports it.
#pragma once

#include <msabench/plugin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/naive/stages.h"

namespace msabench::faults {

/// The naive plugin's own functions. Valid once copy_of_naive has been called.
const msabench_plugin& exact();

/// naive with changed stages.
const msabench_plugin* with_stages(const msabench_host* host, const char* name, naive::stages (*change)(naive::stages));

/// A copy of naive's table under another name, to be changed; it lives as long as the shared object.
msabench_plugin* copy_of_naive(const msabench_host* host, const char* name);

/// The same over other stages, which outlive the process.
msabench_plugin* copy_of(const msabench_host* host, const char* name, const naive::stages& stages);

/// A fault that changes one entry of the table.
template <class Change>
const msabench_plugin* changed(const msabench_host* host, const char* name, Change change) {
  msabench_plugin* table = copy_of_naive(host, name);
  if (table != nullptr) change(*table);
  return table;
}

/// nullptr = absent
const msabench_tensor* tensor_at(const msabench_args* args, msabench_slot slot);

/// out of attend, ids of select and index, scores of score.
const msabench_tensor& output_of(const msabench_args* args);

/// From the first to behind the last element, strides counted; 0 if there is none.
std::size_t extent_bytes(const msabench_tensor& tensor);

/// T
std::int64_t tokens(const msabench_args* args);

/// Row `row` of a token tensor, and its extent.
struct row_bytes {
  unsigned char* first;
  std::size_t size;
};
row_bytes row_of(const msabench_tensor& tensor, std::int64_t row);

}  // namespace msabench::faults
