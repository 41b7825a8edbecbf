// SPDX-License-Identifier: Apache-2.0
// The naive plugin with something changed in its stages or in its function table: what plugins with a planted fault are
// made of, and right ones that compute in another way. One to a shared object.
#pragma once

#include <msabench/plugin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/naive/stages.h"

namespace msabench::naive {

/// The naive plugin's own functions. Valid once copy_of_naive has been called.
const msabench_plugin& exact();

/// naive with changed stages.
const msabench_plugin* with_stages(const msabench_host* host, const char* name, stages (*change)(stages));

/// A copy of naive's table under another name, to be changed; it lives as long as the shared object.
msabench_plugin* copy_of_naive(const msabench_host* host, const char* name);

/// The same over other stages, which outlive the process.
msabench_plugin* copy_of(const msabench_host* host, const char* name, const stages& stages);

/// A plugin that changes entries of the table.
template <class Change>
const msabench_plugin* changed(const msabench_host* host, const char* name, Change change) {
  msabench_plugin* table = copy_of_naive(host, name);
  if (table != nullptr) change(*table);
  return table;
}

/// naive's query, and what it answers changed.
template <class Answer>
msabench_status answered(const msabench_problem* problem, msabench_capability* out, Answer answer) {
  const msabench_status status = exact().query(problem, out);
  if (status == MSABENCH_OK) answer(out->profile);
  return status;
}

/// naive's plan for a profile that the changed plugin has: naive sees its own, and the form of the ids.
msabench_status plan_as_naive(const msabench_problem* problem, msabench_plan** plan);

/// Arguments with one tensor after another seen in another way; what they point to must outlive them.
class changed_args {
 public:
  explicit changed_args(const msabench_args* args);
  changed_args(const changed_args&) = delete;
  changed_args& operator=(const changed_args&) = delete;

  /// The tensor under other shapes and strides; nullptr = absent, and stays it.
  struct view {
    msabench_tensor tensor;
    std::int64_t shape[4], strides[4];
  };
  view* change(msabench_slot slot);
  const msabench_args* get() const { return &args_; }

 private:
  msabench_args args_{};
  const msabench_tensor* slots_[MSABENCH_SLOT_COUNT_1_0] = {};
  view views_[4];
  int used_ = 0;
};

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

}  // namespace msabench::naive
