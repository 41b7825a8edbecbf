// SPDX-License-Identifier: Apache-2.0
// The plugin interface over a set of stages.
#pragma once

#include <msabench/plugin.h>

#include "kernels/naive/stages.h"

namespace msabench::naive {

/// What msabench_plugin_get returns: the naive kernels with these stages. nullptr where `host` is absent or names
/// another device than a CPU. Texts and stages must outlive the process. Called once per shared object.
const msabench_plugin* plugin(const msabench_host* host, const char* name, const char* description,
                              const stages& stage);

}  // namespace msabench::naive
