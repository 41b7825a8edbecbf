// SPDX-License-Identifier: Apache-2.0
// Mutants: the naive kernels with one planted fault each, of the kinds that public kernels have had. A suite that tells
// right from wrong rejects every one of them (docs/faults.md).
#pragma once

#include <msabench/plugin.h>

#include <span>
#include <string_view>

#include "kernels/naive/altered.h"
#include "kernels/naive/stages.h"

namespace msabench::mutants {

using namespace naive;

struct mutant {
  const char* id;                          ///< kind of fault and a letter: "IDX-3.a"
  const char* fault;                       ///< one line for a person: what it does wrong
  void (*change_stages)(stages&);          ///< nullptr = the contract's own
  void (*change_calls)(msabench_plugin&);  ///< changes entries of the table; exact() is what was there. nullptr = none
};

/// By the operator that has the fault, or by what the fault is about where it is no operator's own.
std::span<const mutant> score_mutants();
std::span<const mutant> select_mutants();
std::span<const mutant> attend_mutants();
std::span<const mutant> mask_mutants();
std::span<const mutant> arithmetic_mutants();
std::span<const mutant> combine_mutants();
std::span<const mutant> qk_norm_rope_mutants();
std::span<const mutant> attend_backward_mutants();
std::span<const mutant> kl_mutants();
std::span<const mutant> rope3d_mutants();
std::span<const mutant> vit_attend_mutants();
std::span<const mutant> tensor_mutants();
std::span<const mutant> launch_mutants();

/// The mutant of that id; nullptr: there is none.
const mutant* find(std::string_view id);

/// Every mutant, through `visit(const mutant&)`.
template <class Visit>
void for_each(Visit visit) {
  for (const auto& some : {score_mutants(), select_mutants(), attend_mutants(), mask_mutants(), arithmetic_mutants(),
                           combine_mutants(), qk_norm_rope_mutants(), attend_backward_mutants(), kl_mutants(),
                           rope3d_mutants(), vit_attend_mutants(), tensor_mutants(), launch_mutants()})
    for (const mutant& each : some) visit(each);
}

/// The plugin of a mutant, for msabench_plugin_get: nullptr where naive has none. `name` outlives the process.
const msabench_plugin* plugin(const msabench_host* host, const mutant& which, const char* name);

}  // namespace msabench::mutants
