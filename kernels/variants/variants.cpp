// SPDX-License-Identifier: Apache-2.0
#include "kernels/variants/variant.h"

namespace msabench::variants {
namespace {

/// There is one plugin to a shared object.
const variant* chosen = nullptr;

msabench_status query(const msabench_problem* problem, msabench_capability* out) {
  const msabench_status status = exact().query(problem, out);
  if (status != MSABENCH_OK) return status;
  if (chosen->takes != nullptr && !chosen->takes(*problem)) return MSABENCH_UNSUPPORTED;
  if (chosen->declare != nullptr) chosen->declare(*problem, out->numerics);
  if (chosen->profile != nullptr) chosen->profile(*problem, out->profile);
  return MSABENCH_OK;
}

/// naive's own words where it has some: it refuses first.
const char* last_error() {
  const char* own = exact().last_error();
  return own[0] != 0 ? own : "problem: computed in no other way than naive does; take naive";
}

}  // namespace

const variant* find(std::string_view name) {
  const variant* found = nullptr;
  for_each([&](const variant& each) {
    if (each.name == name) found = &each;
  });
  return found;
}

const msabench_plugin* plugin(const msabench_host* host, const variant& which, const char* name) {
  static stages changed;
  changed = exact_stages;
  chosen = &which;
  if (which.change_stages != nullptr) which.change_stages(changed);
  msabench_plugin* table = copy_of(host, name, changed);
  if (table == nullptr) return nullptr;
  table->description = which.what;
  table->query = query;
  table->plan = plan_as_naive;
  table->last_error = last_error;
  return table;
}

}  // namespace msabench::variants
