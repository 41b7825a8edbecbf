// SPDX-License-Identifier: Apache-2.0
#include "core/run_part.h"

#include <fmt/format.h>

#include <array>

#include "core/json.h"
#include "core/json_fields.h"

namespace msabench {
namespace {

constexpr std::array<enum_word<part_state>, 4> words = {{{part_state::passed, "passed"},
                                                         {part_state::failed, "failed"},
                                                         {part_state::incomplete, "incomplete"},
                                                         {part_state::not_run, "not-run"}}};

}  // namespace

std::string_view name(part_state s) {
  for (const auto& each : words)
    if (each.value == s) return each.word;
  return "";
}

std::string title_of(const run_part& part) {
  return fmt::format("{} {}{}{}", part.part, part.item, part.of.empty() ? "" : " of ", part.of);
}

nlohmann::json to_report_json(const run_part& part) {
  nlohmann::json out = {{"part", sentence(part.part)}, {"item", sentence(part.item)},
                        {"of", sentence(part.of)},     {"sha256", part.sha256},
                        {"state", name(part.state)},   {"detail", sentence(part.detail)}};
  put_number(out, "seconds", part.seconds);
  return out;
}

run_part read_run_part(std::string_view path, const nlohmann::json& in) {
  const json_fields fields(path, in);
  run_part part;
  for (const char* key : {"part", "item", "of", "sha256", "state"}) fields.require(key);
  fields.read("part", part.part);
  fields.read("item", part.item);
  fields.read("of", part.of);
  fields.read("sha256", part.sha256);
  fields.read_word("state", part.state, words);
  fields.read("detail", part.detail);
  fields.read("seconds", part.seconds);
  return part;
}

}  // namespace msabench
