// SPDX-License-Identifier: Apache-2.0
// How an implementation computes, told from calls whose exact results differ by the rounding that it uses
// (docs/probe-numerics.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "conformance/probe_session.h"

namespace msabench {

enum class comparison {
  equal,
  coarser,  // more is declared than was seen: wider limits than need be
  finer,    // less is declared than was seen: would fail
  untold    // the probe cannot tell
};
std::string_view name(comparison c);

struct probed_number {
  std::string field;                // of msabench_numerics
  std::optional<std::string> seen;  // nothing: not told apart
  std::string declared;
  comparison against = comparison::untold;
  std::string how;  // one clause: what was seen, or why it can't be told
};

struct probed_numerics {
  numerics proposed;  // what was seen; where nothing was, what is declared
  std::vector<probed_number> numbers;
};

probed_numerics probe_numerics(probe_session& session);

// The C initialiser of a declaration, its fields by name.
std::string c_initialiser(const numerics& n);

}  // namespace msabench
