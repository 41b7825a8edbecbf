// SPDX-License-Identifier: Apache-2.0
#include "host/timing_protocol.h"

#include "core/json.h"
#include "core/json_fields.h"

namespace msabench::protocol {
namespace {

using nlohmann::json;

json encode_usage(const cpu_usage& u) {
  return {{"others", u.others}, {"steal", u.steal}, {"load", u.load}, {"mhz", u.mhz}, {"cpu_seconds", u.cpu_seconds}};
}

cpu_usage decode_usage(const json_fields& fields) {
  cpu_usage u;
  fields.read("others", u.others);
  fields.read("steal", u.steal);
  fields.read("load", u.load);
  fields.read("mhz", u.mhz);
  fields.read("cpu_seconds", u.cpu_seconds);
  return u;
}

std::vector<double> numbers(const json_fields& fields, std::string_view key) {
  std::vector<double> read;
  for (const json& element : list_of(fields, key)) {
    if (!element.is_number()) fields.refuse(key, element, "is no number");
    read.push_back(element.get<double>());
  }
  return read;
}

}  // namespace

execute_message encode_timed(std::span<const timed_side> sides, const run_spec& how, std::uint64_t probe_bytes,
                             const shared_region& progress) {
  region_list regions;
  json list = json::array();
  for (const timed_side& s : sides) {
    json tensors = json::array();
    for (const auto* buffers : {&s.set->inputs, &s.set->outputs})
      for (const buffer& b : *buffers)
        tensors.push_back(encode_tensor(b, 0, regions.index_of(b, {.contents = true, .generated = true})));
    list.push_back({{"implementation", s.implementation},
                    {"group", s.group},
                    {"lead_in", s.lead_in},
                    {"back_to_back", s.back_to_back},
                    {"least_sets", s.least_sets},
                    {"problem", s.set->agreed},
                    {"tensors", std::move(tensors)}});
  }
  execute_message out{{{"type", "time"},
                       {"run", how},
                       {"probe_bytes", probe_bytes},
                       {"sides", std::move(list)},
                       {"regions", std::move(regions.list)},
                       {"progress_bytes", progress.bytes()}},
                      std::move(regions.fds)};
  out.fds.push_back(progress.fd());
  return out;
}

timed_request decode_timed(message& in) {
  const json_fields fields("time", in.body);
  timed_request r;
  r.how = fields.require("run").get<run_spec>();
  fields.read("probe_bytes", r.probe_bytes);
  const json& regions = list_of(fields, "regions");
  if (regions.size() + 1 != in.fds.size())
    fields.refuse("regions", regions.size(), "has another number of descriptors beside it");
  for (std::size_t i = 0; i < regions.size(); ++i) r.regions.push_back(map_region(regions[i], in.fds[i]));
  std::uint64_t progress_bytes = 0;
  fields.read("progress_bytes", progress_bytes);
  r.progress =
      std::make_unique<shared_region>(shared_region::attach(in.fds.back().release(), progress_bytes, progress_bytes));
  for (const json& element : list_of(fields, "sides")) {
    const json_fields of("side", element);
    timed_request::side s;
    of.read("implementation", s.implementation);
    of.read("group", s.group);
    of.read("lead_in", s.lead_in);
    of.read("back_to_back", s.back_to_back);
    of.read("least_sets", s.least_sets);
    s.agreed = of.require("problem").get<problem>();
    for (const json& tensor : list_of(of, "tensors")) s.tensors.push_back(decode_tensor(tensor, r.regions));
    r.sides.push_back(std::move(s));
  }
  return r;
}

json encode(const timed_observation& seen) {
  json sides = json::array();
  for (const side_observation& s : seen.sides) {
    json one = encode("side", s.seen);
    one["launches"] = s.launches;
    one["back_to_back"] = s.in_a_row;
    one["left_out"] = s.left_out;
    sides.push_back(std::move(one));
  }
  return {{"type", "timed"},
          {"sides", std::move(sides)},
          {"probes",
           {{"flops_per_s", seen.probes.flops_per_s},
            {"bytes_per_s", seen.probes.bytes_per_s},
            {"types", seen.probes.types},
            {"e4m3_flops_per_s", seen.probes.e4m3_flops_per_s},
            {"source", seen.probes.source},
            {"read_bytes", seen.probes.read_bytes}}},
          {"device",
           {{"name", seen.on.name},
            {"cache_bytes", seen.on.cache_bytes},
            {"free_bytes", seen.on.free_bytes},
            {"busy", seen.on.busy},
            {"unseen", seen.on.unseen}}},
          {"usage", encode_usage(seen.usage)},
          {"conditions_known", seen.conditions_known},
          {"seconds", seen.seconds},
          {"budget_ended", seen.budget_ended}};
}

timed_observation decode_timed_observation(const json& in) {
  const json_fields fields("timed", in);
  timed_observation seen;
  for (const json& element : list_of(fields, "sides")) {
    side_observation s;
    s.seen = decode_observation(element);
    const json_fields of("side", element);
    of.read("launches", s.launches);
    of.read("left_out", s.left_out);
    s.in_a_row = of.require("back_to_back").get<back_to_back>();
    seen.sides.push_back(std::move(s));
  }
  const json_fields probes("probes", fields.require("probes"));
  seen.probes.flops_per_s = numbers(probes, "flops_per_s");
  seen.probes.bytes_per_s = numbers(probes, "bytes_per_s");
  probes.read("types", seen.probes.types);
  seen.probes.e4m3_flops_per_s = numbers(probes, "e4m3_flops_per_s");
  probes.read("source", seen.probes.source);
  probes.read("read_bytes", seen.probes.read_bytes);
  const json_fields on("device", fields.require("device"));
  on.read("name", seen.on.name);
  on.read("cache_bytes", seen.on.cache_bytes);
  on.read("free_bytes", seen.on.free_bytes);
  on.read("busy", seen.on.busy);
  on.read("unseen", seen.on.unseen);
  seen.usage = decode_usage(json_fields("usage", fields.require("usage")));
  fields.read("conditions_known", seen.conditions_known);
  fields.read("seconds", seen.seconds);
  fields.read("budget_ended", seen.budget_ended);
  return seen;
}

}  // namespace msabench::protocol
