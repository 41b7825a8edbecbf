// SPDX-License-Identifier: Apache-2.0
// Changes the rounding mode while it is loaded, as shared objects linked with -ffast-math change that of subnormals.
// Everything else is naive.
#include <cfenv>

#include "kernels/naive/glue.h"

namespace {

[[gnu::constructor]] void at_load() { std::fesetround(FE_UPWARD); }

}  // namespace

const msabench_plugin* msabench_plugin_get(const msabench_host* host) {
  return msabench::naive::plugin(host, "flips_fp_load", "naive with a fault, for tests", msabench::naive::exact_stages);
}
