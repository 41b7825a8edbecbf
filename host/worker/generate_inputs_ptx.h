// SPDX-License-Identifier: Apache-2.0
// The text of generate_inputs.ptx, part of the program so that nothing has to be found when it runs.
#pragma once

namespace msabench {

const char* generate_inputs_ptx();

}  // namespace msabench
