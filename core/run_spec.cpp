// SPDX-License-Identifier: Apache-2.0
#include "core/run_spec.h"

#include "core/error.h"
#include "core/json.h"
#include "core/json_fields.h"
#include "core/units.h"

namespace msabench {
namespace {

constexpr std::array<enum_word<device_type>, 2> device_types = {
    {{device_type::cpu, "cpu"}, {device_type::cuda, "cuda"}}};

}  // namespace

device device_from_text(std::string_view field, std::string_view text) {
  if (text == "cpu") return {};
  if (text == "cuda") return {device_type::cuda, 0};
  if (text.starts_with("cuda:") && text.size() <= 8)
    return {device_type::cuda, static_cast<std::int32_t>(parse_uint64(field, text.substr(5)))};
  bad_input(field, text, "unknown device", "cpu, cuda or cuda:N");
}

void to_json(nlohmann::json& out, const device& d) {
  out = {{"type", word_or_number(d.type, device_types)}, {"id", d.id}};
}

void from_json(const nlohmann::json& in, device& d) {
  const json_fields fields("device", in);
  device read;
  fields.require("type");
  fields.read_word("type", read.type, device_types);
  fields.read("id", read.id);
  d = read;
}

void to_json(nlohmann::json& out, const timing_spec& t) {
  out = {{"enabled", t.enabled}, {"min_samples", t.min_samples},
         {"warmup", t.warmup},   {"cold_sets", t.cold_sets},
         {"graph", t.graph},     {"order", t.order},
         {"probes", t.probes},   {"min_long_samples", t.min_long_samples}};
  put_number(out, "budget_s", t.budget_s);
  put_number(out, "back_to_back_s", t.back_to_back_s);
  put_number(out, "back_to_back_budget_s", t.back_to_back_budget_s);
  put_number(out, "min_seconds", t.min_seconds);
  put_number(out, "relative_half_width", t.relative_half_width);
}

void from_json(const nlohmann::json& in, timing_spec& t) {
  const json_fields fields("timing", in);
  timing_spec read;
  fields.read("enabled", read.enabled);
  fields.read("min_samples", read.min_samples);
  fields.read("min_long_samples", read.min_long_samples);
  fields.read("budget_s", read.budget_s);
  fields.read("relative_half_width", read.relative_half_width);
  fields.read("warmup", read.warmup);
  fields.read("cold_sets", read.cold_sets);
  fields.read("graph", read.graph);
  fields.read("back_to_back_s", read.back_to_back_s);
  fields.read("back_to_back_budget_s", read.back_to_back_budget_s);
  fields.read("min_seconds", read.min_seconds);
  fields.read("probes", read.probes);
  fields.read("order", read.order);
  t = std::move(read);
}

void to_json(nlohmann::json& out, const run_spec& r) {
  out = {{"launches", r.launches},
         {"rehearse", r.rehearse},
         {"keep_every_launch", r.keep_every_launch},
         {"second_plan", r.second_plan},
         {"limit_memory", r.limit_memory},
         {"graph", r.graph},
         {"streams", r.streams},
         {"poison_seed", std::to_string(r.poison_seed)},
         {"timing", r.timing}};
  put_number(out, "timeout_s", r.timeout_s);
}

void from_json(const nlohmann::json& in, run_spec& r) {
  const json_fields fields("run_spec", in);
  run_spec read;
  fields.read("launches", read.launches);
  fields.read("rehearse", read.rehearse);
  fields.read("keep_every_launch", read.keep_every_launch);
  fields.read("second_plan", read.second_plan);
  fields.read("limit_memory", read.limit_memory);
  fields.read("graph", read.graph);
  fields.read("streams", read.streams);
  fields.read("timeout_s", read.timeout_s);
  fields.read_uint64_string("poison_seed", read.poison_seed);
  if (const auto* timing = fields.find("timing")) from_json(*timing, read.timing);
  r = std::move(read);
}

}  // namespace msabench
