// SPDX-License-Identifier: Apache-2.0
#include "host/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/json_fields.h"
#include "host/protocol_tensors.h"
#include "host/steady_inputs.h"

namespace msabench::protocol {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 6> entries = {"get", "query", "plan", "workspace", "run", "destroy"};

constexpr std::array<enum_word<outcome>, 7> outcomes = {{{outcome::completed, "completed"},
                                                         {outcome::unsupported, "unsupported"},
                                                         {outcome::error_status, "error_status"},
                                                         {outcome::crashed, "crashed"},
                                                         {outcome::timed_out, "timed_out"},
                                                         {outcome::device_lost, "device_lost"},
                                                         {outcome::nonsense, "nonsense"}}};

using kind = violation::kind;
constexpr std::array<enum_word<kind>, 9> violation_kinds = {{{kind::out_of_bounds, "out_of_bounds"},
                                                             {kind::input_modified, "input_modified"},
                                                             {kind::wrote_on_error, "wrote_on_error"},
                                                             {kind::floating_point_mode, "floating_point_mode"},
                                                             {kind::signal_handler, "signal_handler"},
                                                             {kind::current_device, "current_device"},
                                                             {kind::memory_limit, "memory_limit"},
                                                             {kind::struct_overrun, "struct_overrun"},
                                                             {kind::beyond_t, "beyond_t"}}};

json encode_violations(const std::vector<violation>& violations) {
  json list = json::array();
  for (const violation& v : violations) {
    json one = {{"what", word_or_number(v.what, violation_kinds)}, {"entry", v.entry}, {"detail", v.detail}};
    if (v.where) one["slot"] = std::string(name(*v.where));
    list.push_back(std::move(one));
  }
  return list;
}

std::vector<violation> decode_violations(const json_fields& from) {
  std::vector<violation> violations;
  if (!from.has("violations")) return violations;
  for (const json& element : list_of(from, "violations")) {
    const json_fields fields("violation", element);
    violation v{};
    fields.require("what");
    fields.read_word("what", v.what, violation_kinds);
    if (fields.has("slot")) v.where = read_slot(fields);
    fields.read("entry", v.entry);
    fields.read("detail", v.detail);
    violations.push_back(std::move(v));
  }
  return violations;
}

// Ascending, and as few as that makes.
byte_ranges joined(byte_ranges ranges, const byte_ranges& more) {
  ranges.insert(ranges.end(), more.begin(), more.end());
  std::ranges::sort(ranges);
  byte_ranges all;
  for (const auto& [begin, end] : ranges) {
    if (all.empty() || begin > all.back().second)
      all.emplace_back(begin, end);
    else
      all.back().second = std::max(all.back().second, end);
  }
  return all;
}

}  // namespace

bool is_entry(std::string_view text) { return std::ranges::find(entries, text) != entries.end(); }

json ready() { return {{"type", "ready"}, {"protocol", version}}; }

std::string type_of(const json& in) {
  const auto type = in.find("type");
  return type != in.end() && type->is_string() ? type->get<std::string>() : std::string();
}

bool is_ready(const json& in) {
  const auto spoken = in.find("protocol");
  return type_of(in) == "ready" && spoken != in.end() && *spoken == version;
}

json encode(const load_request& r) {
  return {{"type", "load"},        {"protocol", version},  {"path", r.path},
          {"device", r.where},     {"threads", r.threads}, {"implementation", r.implementation},
          {"argument", r.argument}};
}

load_request decode_load(const json& in) {
  const json_fields fields("load", in);
  int spoken = 0;
  fields.read("protocol", spoken);
  if (spoken != version)
    fields.refuse("protocol", spoken, fmt::format("is not spoken here, this worker speaks {}", version),
                  "use host and worker of one build");
  load_request r;
  fields.require("path");
  fields.read("path", r.path);
  r.where = fields.require("device").get<device>();
  fields.read("threads", r.threads);
  fields.read("implementation", r.implementation);
  fields.read("argument", r.argument);
  return r;
}

json encode(const plugin_identity& id) {
  return {{"type", "loaded"},
          {"name", id.name},
          {"version", id.version},
          {"description", id.description},
          {"abi", {id.abi_major, id.abi_minor}},
          {"device", id.device}};
}

plugin_identity decode_identity(const json& in) {
  const json_fields fields("loaded", in);
  plugin_identity id;
  fields.require("name");
  fields.read("name", id.name);
  fields.read("version", id.version);
  fields.read("description", id.description);
  std::vector<std::uint32_t> abi;
  fields.read("abi", abi);
  if (abi.size() != 2) fields.refuse("abi", fields.require("abi"), "is no pair of numbers");
  id.abi_major = abi[0];
  id.abi_minor = abi[1];
  fields.read("device", id.device);
  return id;
}

json encode(std::string_view type, const observation& seen) {
  json out = {{"type", std::string(type)}, {"result", word_or_number(seen.result, outcomes)},
              {"entry", seen.entry},       {"status", seen.status},
              {"message", seen.message},   {"violations", encode_violations(seen.violations)},
              {"remarks", seen.remarks},   {"workspace_bytes", seen.workspace_bytes}};
  if (seen.answered) out["capability"] = {{"numerics", seen.answered->declared}, {"profile", seen.answered->delivers}};
  if (!seen.timing.empty()) out["timing"] = seen.timing;
  return out;
}

observation decode_observation(const json& in) {
  const json_fields fields("observation", in);
  observation seen;
  fields.require("result");
  fields.read_word("result", seen.result, outcomes);
  fields.read("entry", seen.entry);
  fields.read("status", seen.status);
  fields.read("message", seen.message);
  seen.violations = decode_violations(fields);
  fields.read("remarks", seen.remarks);
  fields.read("workspace_bytes", seen.workspace_bytes);
  if (const json* answered = fields.find("capability")) {
    const json_fields parts("capability", *answered);
    seen.answered = {parts.require("numerics").get<numerics>(), parts.require("profile").get<profile>()};
  }
  if (fields.has("timing"))
    for (const json& element : list_of(fields, "timing")) seen.timing.push_back(element.get<samples>());
  return seen;
}

json encode(std::span<const launch_report> reports) {
  json list = json::array();
  for (const launch_report& r : reports)
    list.push_back(
        {{"launch", r.index}, {"plan", r.plan}, {"status", r.status}, {"violations", encode_violations(r.violations)}});
  return {{"type", "launched"}, {"launches", std::move(list)}};
}

std::vector<launch_report> decode_launched(const json& in) {
  std::vector<launch_report> reports;
  for (const json& element : list_of(json_fields("launched", in), "launches")) {
    const json_fields fields("launch", element);
    launch_report r;
    fields.require("launch");
    fields.read("launch", r.index);
    fields.read("plan", r.plan);
    fields.read("status", r.status);
    r.violations = decode_violations(fields);
    reports.push_back(std::move(r));
  }
  return reports;
}

execute_message encode_execute(const input_set& set, const input_set* second, const run_spec& how, bool contents) {
  region_list regions;
  json tensors = json::array();
  const auto add = [&](const buffer& b, int plan) {
    // What changes between launches is what the region holds then.
    const bool steady = is_steady(set, b, how);
    tensors.push_back(
        encode_tensor(b, plan, regions.index_of(b, {contents, steady || !set.before_launch, contents && steady})));
  };
  for (const buffer& b : set.inputs) add(b, 0);
  for (const buffer& b : set.outputs) add(b, 0);
  if (second)
    for (const buffer& b : second->outputs) add(b, 1);
  return {{{"type", "execute"},
           {"problem", set.agreed},
           {"run", how},
           {"regions", std::move(regions.list)},
           {"tensors", std::move(tensors)}},
          std::move(regions.fds)};
}

void execute_request::move_elsewhere() {
  for (std::size_t region = 0; region < regions.size(); ++region) {
    mapped_region& r = regions[region];
    const std::byte* const first = r.memory->data();
    const std::byte* const last = first + r.memory->bytes();
    std::vector<std::byte**> inside;
    for (auto* tensors : {&bound.tensors, &bound.second_outputs})
      for (bound_tensor& t : *tensors)
        if (t.data != nullptr && t.data >= first && t.data < last) inside.push_back(&t.data);
    std::vector<std::ptrdiff_t> offsets;
    for (const std::byte* const* data : inside) offsets.push_back(*data - first);
    r.memory->move_elsewhere();
    take_access(r);
    bound.regions[region].data = r.memory->data();
    for (std::size_t i = 0; i < inside.size(); ++i) *inside[i] = r.memory->data() + offsets[i];
  }
}

execute_request decode_execute(message& in) {
  const json_fields fields("execute", in.body);
  execute_request r;
  r.bound.agreed = fields.require("problem").get<problem>();
  r.how = fields.require("run").get<run_spec>();
  const json& regions = list_of(fields, "regions");
  if (regions.size() != in.fds.size())
    fields.refuse("regions", regions.size(), fmt::format("has {} descriptors beside it", in.fds.size()));
  for (std::size_t i = 0; i < regions.size(); ++i) {
    r.regions.push_back(map_region(regions[i], in.fds[i]));
    const mapped_region& mapped = r.regions.back();
    r.bound.regions.push_back({mapped.memory->data(), mapped.memory->bytes(), joined(mapped.filled, mapped.poisoned),
                               mapped.generated, mapped.steady});
  }
  for (const json& element : list_of(fields, "tensors")) {
    decoded_tensor t = decode_tensor(element, r.regions);
    (t.plan == 1 ? r.bound.second_outputs : r.bound.tensors).push_back(std::move(t.tensor));
  }
  return r;
}

}  // namespace msabench::protocol
