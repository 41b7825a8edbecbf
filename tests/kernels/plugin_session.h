// SPDX-License-Identifier: Apache-2.0
// Loads a plugin and drives it through the calls of a run.
#pragma once

#include <msabench/plugin.h>

#include <map>
#include <string>
#include <vector>

#include "tests/kernels/buffer.h"

namespace msabench::plugin_test {

/// Path of a plugin of the tree, by its name.
std::string plugin_path(const std::string& name);

inline constexpr msabench_device cpu{1, 0};

/// Loads a plugin and returns its table; the shared object stays loaded. Throws with the loader's text.
const msabench_plugin* load_plugin(const std::string& path, int threads = 2, msabench_device device = cpu);

/// A problem of the fields that every case has, everything else 0.
msabench_problem empty_problem(msabench_op op);

/// Tensors by slot, as run takes them. Buffers must outlive it.
class arguments {
 public:
  void put(msabench_slot slot, const buffer& from) { tensors_[slot] = from.tensor(); }
  void put(msabench_slot slot, const msabench_tensor& tensor) { tensors_[slot] = tensor; }
  void remove(msabench_slot slot) { tensors_.erase(slot); }
  msabench_tensor& at(msabench_slot slot) { return tensors_.at(slot); }
  /// Valid until the next change.
  const msabench_args* get();

 private:
  std::map<msabench_slot, msabench_tensor> tensors_;
  std::vector<const msabench_tensor*> slots_;
  msabench_args args_{};
};

/// query, plan and workspace, once; then any number of runs.
class session {
 public:
  session(const msabench_plugin* plugin, msabench_problem problem);
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session();

  /// Of the last of the calls before run; if it is not OK there is nothing to run.
  msabench_status status() const { return status_; }
  const msabench_capability& capability() const { return capability_; }
  /// The workspace is filled with `dirt` first.
  msabench_status run(arguments& args, unsigned char dirt = 0xCD);
  msabench_plan* plan() const { return plan_; }
  void* workspace();

 private:
  const msabench_plugin* plugin_;
  msabench_plan* plan_ = nullptr;
  msabench_capability capability_{};
  msabench_status status_ = MSABENCH_INTERNAL;
  std::uint32_t alignment_ = 1;
  std::size_t bytes_ = 0;
  std::vector<unsigned char> memory_;
};

}  // namespace msabench::plugin_test
