// SPDX-License-Identifier: Apache-2.0
#include "perf/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_fields.h"
#include "perf/data.h"

namespace msabench {

using nlohmann::json;

namespace {

constexpr std::string_view device_schema = "msabench.device/1";

void refuse_unknown(const json_fields& fields, const json& in, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : in.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fields.refuse(key, value, "is no field of a device", fmt::format("use {}", fmt::join(known, ", ")));
}

double positive(const json_fields& fields, std::string_view key) {
  const json& value = fields.require(key);
  double x = 0;
  fields.read(key, x);
  if (!(x > 0) || !std::isfinite(x))
    fields.refuse(key, value, "is not above 0", "give a number per second, like 4.8e12");
  return x;
}

ceilings read_ceilings(const std::string& path, const json& in, bool strict) {
  const json_fields fields(path, in);
  if (strict) refuse_unknown(fields, in, {"flops", "bytes_per_s", "source"});
  ceilings c;
  c.bytes_per_s = positive(fields, "bytes_per_s");
  fields.require("source");
  fields.read("source", c.source);
  if (c.source.empty()) fields.refuse("source", json(c.source), "is empty", "say where the numbers come from");
  const json& flops = fields.require("flops");
  const json_fields by_type(fields.path_of("flops"), flops);
  for (const auto& [key, value] : flops.items()) {
    if (!dtype_from_name(key)) by_type.refuse(key, value, "is no known format", "use bf16, fp16, fp32, e4m3 or tf32");
    c.flops[key] = positive(by_type, key);
  }
  if (c.flops.empty()) fields.refuse("flops", flops, "is empty", "give the peak of one format");
  return c;
}

device_spec read_report(std::string_view field, const json& in) {
  const json_fields fields(field, in);
  if (!fields.has("ceilings"))
    bad_input(field, {}, "is a report without ceilings", "give one of a speed run, or a device file");
  device_spec d;
  d.name = "report";
  d.measured = read_ceilings(fields.path_of("ceilings"), fields.require("ceilings"), false);
  return d;
}

json to_json(const ceilings& c) { return {{"flops", c.flops}, {"bytes_per_s", c.bytes_per_s}, {"source", c.source}}; }

}  // namespace

std::optional<double> ceilings::flops_of(dtype operands) const {
  const auto at = flops.find(std::string(name(operands)));
  return at == flops.end() ? std::nullopt : std::optional(at->second);
}

device_spec parse_device(std::string_view field, const json& in) {
  const json_fields fields(field, in);
  std::string schema(device_schema);
  fields.read("schema", schema);
  if (schema.starts_with("msabench.report/") || schema.starts_with("msabench.perf/")) return read_report(field, in);
  if (schema != device_schema)
    fields.refuse("schema", json(schema), "is another format", fmt::format("use {} or leave it out", device_schema));
  refuse_unknown(fields, in, {"schema", "name", "what", "datasheet", "measured"});
  device_spec d;
  d.name = "unnamed";
  fields.read("name", d.name);
  fields.read("what", d.what);
  if (fields.has("datasheet")) d.datasheet = read_ceilings(fields.path_of("datasheet"), in["datasheet"], true);
  if (fields.has("measured")) d.measured = read_ceilings(fields.path_of("measured"), in["measured"], true);
  if (!d.datasheet && !d.measured) bad_input(field, d.name, "has no ceilings", "give datasheet or measured");
  return d;
}

const std::vector<device_spec>& named_devices() {
  static const std::vector<device_spec> all = [] {
    std::vector<device_spec> read;
    for (const auto text : device_jsons())
      read.push_back(parse_device("perf/devices", parse_json("perf/devices", text)));
    return read;
  }();
  return all;
}

device_spec find_device(std::string_view field, std::string_view name_or_file) {
  std::string names;
  for (const auto& d : named_devices()) {
    if (d.name == name_or_file) return d;
    names += d.name + ", ";
  }
  const std::filesystem::path path(name_or_file);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    bad_input(field, name_or_file, "is neither a known device nor a file", "use " + names + "or a JSON file");
  return parse_device(field, parse_json(field, name_or_file, read_file(field, path, std::uint64_t{64} << 20)));
}

json to_json(const device_spec& d) {
  json out = {{"name", d.name}, {"what", d.what}};
  if (d.datasheet) out["datasheet"] = to_json(*d.datasheet);
  if (d.measured) out["measured"] = to_json(*d.measured);
  return out;
}

std::optional<double> roofline_s(const ceilings& c, const std::vector<operator_call>& calls, dtype type,
                                 dtype index_type) {
  double seconds = 0;
  for (const auto& one : calls) {
    const double main = one.amount.useful_flops - one.index_flops;
    const auto peak = c.flops_of(type), index_peak = c.flops_of(index_type);
    if ((main > 0 && !peak) || (one.index_flops > 0 && !index_peak)) return std::nullopt;
    const double arithmetic = (main > 0 ? main / *peak : 0) + (one.index_flops > 0 ? one.index_flops / *index_peak : 0);
    seconds += std::max(arithmetic, one.amount.compulsory_bytes.least / c.bytes_per_s);
  }
  return seconds;
}

}  // namespace msabench
