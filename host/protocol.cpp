// SPDX-License-Identifier: Apache-2.0
#include "host/protocol.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <map>

#include "core/error.h"
#include "core/json_fields.h"

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
constexpr std::array<enum_word<kind>, 8> violation_kinds = {{{kind::out_of_bounds, "out_of_bounds"},
                                                             {kind::input_modified, "input_modified"},
                                                             {kind::wrote_on_error, "wrote_on_error"},
                                                             {kind::floating_point_mode, "floating_point_mode"},
                                                             {kind::signal_handler, "signal_handler"},
                                                             {kind::memory_limit, "memory_limit"},
                                                             {kind::struct_overrun, "struct_overrun"},
                                                             {kind::beyond_t, "beyond_t"}}};

constexpr std::array<enum_word<direction>, 2> directions = {{{direction::in, "in"}, {direction::out, "out"}}};

const json& list_of(const json_fields& fields, std::string_view key) {
  const json& list = fields.require(key);
  if (!list.is_array()) fields.refuse(key, list, "is no list");
  return list;
}

json encode_violations(const std::vector<violation>& violations) {
  json list = json::array();
  for (const violation& v : violations) {
    json one = {{"what", word_or_number(v.what, violation_kinds)}, {"entry", v.entry}, {"detail", v.detail}};
    if (v.where) one["slot"] = std::string(name(*v.where));
    list.push_back(std::move(one));
  }
  return list;
}

slot read_slot(const json_fields& fields) {
  std::string text;
  fields.read("slot", text);
  const auto found = slot_from_name(text);
  if (!found) fields.refuse("slot", text, "is no slot");
  return *found;
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

// Regions in order of first use; K and V may share one.
class region_list {
 public:
  int index_of(const buffer& b) {
    if (!b.region) return -1;
    const auto [at, is_new] = numbers_.try_emplace(b.region.get(), static_cast<int>(fds.size()));
    if (is_new) {
      fds.push_back(b.region->fd());
      json unmapped = json::array();
      for (const extent& e : b.contents)
        if (e.holds == extent::kind::unmapped) unmapped.push_back({e.begin, e.end});
      list.push_back(
          {{"bytes", b.region->bytes()}, {"guard_bytes", b.region->guard_bytes()}, {"unmapped", std::move(unmapped)}});
    }
    return at->second;
  }

  std::vector<int> fds;
  json list = json::array();

 private:
  std::map<const shared_region*, int> numbers_;
};

json encode_tensor(const buffer& b, int plan, region_list& regions) {
  return {{"slot", std::string(name(b.where))},
          {"direction", word_or_number(b.dir, directions)},
          {"dtype", dtype_to_json(b.desc.type)},
          {"shape", b.desc.shape},
          {"strides", b.desc.strides},
          {"region", regions.index_of(b)},
          {"offset", b.offset},
          {"plan", plan}};
}

void take_access(const execute_request::region& r) {
  for (const auto& [begin, end] : r.unmapped) ::mprotect(r.memory->data() + begin, end - begin, PROT_NONE);
}

execute_request::region map_region(const json& element, unique_fd& fd) {
  const json_fields fields("region", element);
  std::uint64_t bytes = 0, guard_bytes = 0;
  fields.require("bytes");
  fields.read("bytes", bytes);
  fields.read("guard_bytes", guard_bytes);
  execute_request::region r{std::make_unique<shared_region>(shared_region::attach(fd.release(), bytes, guard_bytes)),
                            {}};
  if (!fields.has("unmapped")) return r;
  for (const json& range : list_of(fields, "unmapped")) {
    if (!range.is_array() || range.size() != 2 || !range[0].is_number_unsigned() || !range[1].is_number_unsigned())
      fields.refuse("unmapped", range, "is no range [begin, end]");
    const auto begin = range[0].get<std::uint64_t>(), end = range[1].get<std::uint64_t>();
    if (begin > end || end > r.memory->bytes()) fields.refuse("unmapped", range, "is outside its region");
    r.unmapped.emplace_back(begin, end);
  }
  take_access(r);
  return r;
}

bound_tensor decode_tensor(const json& element, const std::vector<execute_request::region>& regions, int& plan) {
  const json_fields fields("tensor", element);
  bound_tensor t;
  t.where = read_slot(fields);
  fields.require("direction");
  fields.read_word("direction", t.dir, directions);
  fields.require("dtype");
  fields.read("dtype", t.desc.type);
  fields.read("shape", t.desc.shape);
  fields.read("strides", t.desc.strides);
  int region = -1;
  std::uint64_t offset = 0;
  fields.read("region", region);
  fields.read("offset", offset);
  fields.read("plan", plan);
  if (!is_stored(t.desc.type)) fields.refuse("dtype", element["dtype"], "can't lie in memory");
  if (t.desc.shape.size() != t.desc.strides.size()) fields.refuse("strides", element["strides"], "has another rank");
  if (std::ranges::any_of(t.desc.shape, [](auto n) { return n < 0; }))
    fields.refuse("shape", element["shape"], "has a negative size");
  if (std::ranges::any_of(t.desc.strides, [](auto n) { return n < 0; }))
    fields.refuse("strides", element["strides"], "has a negative stride");
  if (region < 0) {
    if (t.desc.span_elements() > 0) fields.refuse("region", region, "is missing for a tensor that is not empty");
    return t;
  }
  if (static_cast<std::size_t>(region) >= regions.size()) fields.refuse("region", region, "does not exist");
  const shared_region& memory = *regions[static_cast<std::size_t>(region)].memory;
  // In double, so that no product of foreign sizes overflows.
  double end = static_cast<double>(offset) + static_cast<double>(size_bytes(t.desc.type));
  for (std::size_t i = 0; i < t.desc.shape.size(); ++i)
    end += static_cast<double>(t.desc.shape[i] - 1) * static_cast<double>(t.desc.strides[i]) *
           static_cast<double>(size_bytes(t.desc.type));
  if (t.desc.span_elements() > 0 && end > static_cast<double>(memory.bytes()))
    fields.refuse("offset", offset, "lets the tensor end outside its region");
  t.data = memory.data() + offset;
  return t;
}

}  // namespace

bool is_entry(std::string_view text) { return std::ranges::find(entries, text) != entries.end(); }

json ready() { return {{"type", "ready"}, {"protocol", version}}; }

bool is_ready(const json& in) { return in.value("type", "") == "ready" && in.value("protocol", 0) == version; }

json encode(const load_request& r) {
  return {{"type", "load"}, {"protocol", version}, {"path", r.path}, {"device", r.where}, {"threads", r.threads}};
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
  return r;
}

json encode(const plugin_identity& id) {
  return {{"type", "loaded"},
          {"name", id.name},
          {"version", id.version},
          {"description", id.description},
          {"abi", {id.abi_major, id.abi_minor}}};
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

execute_message encode_execute(const input_set& set, const input_set* second, const run_spec& how) {
  region_list regions;
  json tensors = json::array();
  for (const buffer& b : set.inputs) tensors.push_back(encode_tensor(b, 0, regions));
  for (const buffer& b : set.outputs) tensors.push_back(encode_tensor(b, 0, regions));
  if (second)
    for (const buffer& b : second->outputs) tensors.push_back(encode_tensor(b, 1, regions));
  return {{{"type", "execute"},
           {"problem", set.agreed},
           {"run", how},
           {"regions", std::move(regions.list)},
           {"tensors", std::move(tensors)}},
          std::move(regions.fds)};
}

void execute_request::move_elsewhere() {
  for (region& r : regions) {
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
  for (std::size_t i = 0; i < regions.size(); ++i) r.regions.push_back(map_region(regions[i], in.fds[i]));
  for (const json& element : list_of(fields, "tensors")) {
    int plan = 0;
    bound_tensor t = decode_tensor(element, r.regions, plan);
    (plan == 1 ? r.bound.second_outputs : r.bound.tensors).push_back(std::move(t));
  }
  return r;
}

}  // namespace msabench::protocol
