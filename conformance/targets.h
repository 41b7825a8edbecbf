// SPDX-License-Identifier: Apache-2.0
// The faults that a case has to see, by operator and family. Whether it does is computed (docs/verdicts.md,
// detectability): this table only says what is expected of it.
#pragma once

#include <vector>

#include "core/case.h"
#include "core/perturbation.h"

namespace msabench {

std::vector<perturbation> targets_of(const case_spec& c);

}  // namespace msabench
