// SPDX-License-Identifier: Apache-2.0
#include "kernels/mutants/mutant.h"

namespace msabench::mutants {

const mutant* find(std::string_view id) {
  const mutant* found = nullptr;
  for_each([&](const mutant& each) {
    if (each.id == id) found = &each;
  });
  return found;
}

const msabench_plugin* plugin(const msabench_host* host, const mutant& which, const char* name) {
  static stages changed;
  changed = exact_stages;
  if (which.change_stages != nullptr) which.change_stages(changed);
  msabench_plugin* table = copy_of(host, name, changed);
  if (table == nullptr) return nullptr;
  table->description = which.fault;
  if (which.change_calls != nullptr) which.change_calls(*table);
  return table;
}

}  // namespace msabench::mutants
