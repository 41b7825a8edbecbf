// SPDX-License-Identifier: Apache-2.0
// One plugin of all variants: which of them it is, the word behind the colon of `variants:NAME` says, which the host leaves
// in the environment (docs/conformance.md).
#include <cstdlib>
#include <string>

#include "kernels/variants/variant.h"

const msabench_plugin* msabench_plugin_get(const msabench_host* host) {
  const char* word = std::getenv("MSABENCH_PLUGIN_ARGUMENT");
  const msabench::variants::variant* which = word == nullptr ? nullptr : msabench::variants::find(word);
  if (which == nullptr) return nullptr;
  static std::string name;
  name = std::string("variants:") + which->name;
  return msabench::variants::plugin(host, *which, name.c_str());
}
