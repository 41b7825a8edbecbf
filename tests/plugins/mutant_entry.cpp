// SPDX-License-Identifier: Apache-2.0
// The symbol of a plugin that is the mutant MSABENCH_MUTANT under the name MSABENCH_NAME, both of which the build names.
#include "kernels/mutants/mutant.h"

const msabench_plugin* msabench_plugin_get(const msabench_host* host) {
  return msabench::mutants::plugin(host, *msabench::mutants::find(MSABENCH_MUTANT), MSABENCH_NAME);
}
