// SPDX-License-Identifier: Apache-2.0
// msa: index, then attend over the ids that it wrote (docs/contract.md, section 5).
#pragma once

#include <cstdint>

#include "kernels/naive/stages.h"

namespace msabench::naive {

/// All rows. `scratch` holds `threads` slices of `slice_bytes`.
void msa(const stages& stage, const msa_call& call, int threads, void* scratch, std::int64_t slice_bytes);

}  // namespace msabench::naive
