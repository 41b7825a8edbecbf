// SPDX-License-Identifier: Apache-2.0
// Variants: right kernels that compute in all the ways in which honest ones differ, at the coarsest that each declares. A
// suite that tells right from wrong accepts every one of them.
#pragma once

#include <msabench/plugin.h>

#include <span>
#include <string_view>

#include "kernels/naive/altered.h"
#include "kernels/naive/stages.h"

namespace msabench::variants {

using namespace naive;

struct variant {
  const char* name;
  const char* what;                                              ///< one line for a person
  void (*change_stages)(stages&);                                ///< nullptr = those of naive
  bool (*takes)(const msabench_problem&);                        ///< nullptr = what naive takes
  void (*declare)(const msabench_problem&, msabench_numerics&);  ///< changes what naive declares; nullptr = the same
  void (*profile)(const msabench_problem&, msabench_profile&) = nullptr;
};

std::span<const variant> attention_variants();
std::span<const variant> other_variants();

/// nullptr: there is none of that name.
const variant* find(std::string_view name);

template <class Visit>
void for_each(Visit visit) {
  for (const auto& some : {attention_variants(), other_variants()})
    for (const variant& each : some) visit(each);
}

/// The plugin of a variant, for msabench_plugin_get: nullptr where naive has none. `name` outlives the process.
const msabench_plugin* plugin(const msabench_host* host, const variant& which, const char* name);

}  // namespace msabench::variants
