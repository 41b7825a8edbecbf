// SPDX-License-Identifier: Apache-2.0
#include "core/verdict.h"

#include <array>

namespace msabench {
namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 12> verdict_names = {
    "pass",    "quality-warning", "fail",        "unsupported", "broken-promise", "insensitive",
    "timeout", "crash",           "device-lost", "waived",      "xpass",          "suite-error"};
static_assert(verdict_names.size() == static_cast<std::size_t>(verdict::suite_error) + 1);

constexpr std::array<std::string_view, 8> fail_kind_names = {
    "",  // none
    "numeric", "nonfinite", "selection", "out-of-bounds", "input-modified", "nondeterministic", "contract"};
static_assert(fail_kind_names.size() == static_cast<std::size_t>(fail_kind::contract) + 1);

template <class Enum, class Names>
std::optional<Enum> from_name(std::string_view text, const Names& names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == text) return static_cast<Enum>(i);
  return std::nullopt;
}

}  // namespace

std::string_view name(verdict v) { return verdict_names.at(static_cast<std::size_t>(v)); }

std::string_view name(fail_kind k) { return fail_kind_names.at(static_cast<std::size_t>(k)); }

std::optional<verdict> verdict_from_name(std::string_view text) { return from_name<verdict>(text, verdict_names); }

std::optional<fail_kind> fail_kind_from_name(std::string_view text) {
  return from_name<fail_kind>(text, fail_kind_names);
}

}  // namespace msabench
