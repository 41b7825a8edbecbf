// SPDX-License-Identifier: Apache-2.0
// Random legal cases, over everything that a case name can say but recorded files: operators, shapes, lengths, types,
// layouts, families and options.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/case.h"

namespace msabench {

// So small that oracle, launches and detectability take well under a second.
bool is_quick(const case_spec& c);

// parse_case takes the name of the case and gives it back: a name that reproduces it.
bool has_name(const case_spec& c);

class case_source {
 public:
  // Of these operators; none: of every one that has cases.
  case_source(std::uint64_t seed, std::vector<op> operators);

  // The case of this number: a function of seed, operators and number alone. It is quick and has a name.
  case_spec draw(std::uint64_t number) const;

 private:
  std::uint64_t seed_;
  std::vector<op> operators_;
};

}  // namespace msabench
