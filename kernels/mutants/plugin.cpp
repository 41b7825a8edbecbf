// SPDX-License-Identifier: Apache-2.0
// One plugin of all mutants: which of them it is, the word behind the colon of `mutants:ID` says, which the host leaves in
// the environment (docs/conformance.md).
#include <cstdlib>
#include <string>

#include "kernels/mutants/mutant.h"

const msabench_plugin* msabench_plugin_get(const msabench_host* host) {
  const char* id = std::getenv("MSABENCH_PLUGIN_ARGUMENT");
  const msabench::mutants::mutant* which = id == nullptr ? nullptr : msabench::mutants::find(id);
  if (which == nullptr) return nullptr;
  static std::string name;
  name = std::string("mutants:") + which->id;
  return msabench::mutants::plugin(host, *which, name.c_str());
}
