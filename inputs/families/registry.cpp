// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/error.h"
#include "inputs/families/family.h"

namespace msabench {

namespace {

constexpr attend_family_info attend_families[] = {
    {"random", make_random, true, "-"},      {"block_code", make_block_code, true, "-"},
    {"key_code", make_key_code, false, "-"},  // each sequence codes another block
    {"carry", make_carry, false, "all"},      // the last block of a sequence differs from the others
    {"needle", make_needle, false, "-"},     {"planted", make_random, true, "-"},
    {"cancel", make_cancel, true, "-"},      {"offset", make_offset, true, "-"},
    {"hot_flat", make_hot_flat, true, "-"},  {"hot_peaked", make_hot_peaked, true, "-"},
    {"ramp", make_ramp, false, "-"},  // the height of a block depends on how many there are
    {"recorded", make_recorded, false, "-"},
};

constexpr index_family_info index_families[] = {
    {"random", make_random_index, true},      {"index_code", make_index_code, false}, {"negative", make_negative, true},
    {"special", make_special, false},         {"hot_flat", make_hot_index, true},     {"ramp", make_ramp_index, false},
    {"recorded", make_recorded_index, false},
};

}  // namespace

const attend_family_info& attend_family_of(const case_spec& c) {
  for (const auto& family : attend_families)
    if (family.name == c.family) return family;
  throw suite_error(fmt::format("no values for family {} of operator {}", c.family, name(c.operation)));
}

const index_family_info& index_family_of(const case_spec& c) {
  for (const auto& family : index_families)
    if (family.name == c.family) return family;
  if (c.operation == op::score || c.operation == op::index)
    throw suite_error(fmt::format("no values for family {} of operator {}", c.family, name(c.operation)));
  return index_families[0];
}

}  // namespace msabench
