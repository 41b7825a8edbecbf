// SPDX-License-Identifier: Apache-2.0
// Each fault is a function that returns a changed table of the naive plugin; entry.cpp exports it.
#pragma once

#include "kernels/naive/altered.h"

namespace msabench::faults {

using namespace naive;

}  // namespace msabench::faults
