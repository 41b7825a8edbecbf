// SPDX-License-Identifier: Apache-2.0
// From a case that fails to a smaller one that fails alike: delta debugging over the parts of its name.
#pragma once

#include <functional>
#include <vector>

#include "core/case.h"

namespace msabench {

// Cases with one part made simpler, the boldest steps first: fewer sequences, shorter ones, fewer options, a smaller shape,
// a plainer layout and type, a plainer family, seed 0. Each has a name and is quick, and following them ends.
std::vector<case_spec> simpler_cases(const case_spec& c);

struct shrunk {
  case_spec smallest;
  int tried = 0;
  bool finished = false;  // nothing simpler fails; false: `may_go_on` said no
};

// Follows simpler cases as long as `still_fails` holds for one.
shrunk shrink(const case_spec& failing, const std::function<bool(const case_spec&)>& still_fails,
              const std::function<bool()>& may_go_on);

}  // namespace msabench
