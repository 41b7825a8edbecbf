// SPDX-License-Identifier: Apache-2.0
// The symbol of a plugin with the fault MSABENCH_FAULT, which the build names.
#include <msabench/plugin.h>

namespace msabench::faults {

const msabench_plugin* MSABENCH_FAULT(const msabench_host* host);

}  // namespace msabench::faults

const msabench_plugin* msabench_plugin_get(const msabench_host* host) { return msabench::faults::MSABENCH_FAULT(host); }
