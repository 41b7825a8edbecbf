// SPDX-License-Identifier: Apache-2.0
#include "core/json_fields.h"

#include "core/json.h"
#include "core/units.h"

namespace msabench {

using nlohmann::json;

json dtype_to_json(dtype type) {
  if (known(type) || type.bits == 0) return std::string(name(type));
  return {{"code", type.code}, {"bits", type.bits}, {"lanes", type.lanes}};
}

json_fields::json_fields(std::string_view path, const json& in) : path_(path), in_(in) {
  if (!in.is_object())
    bad_input(path, in.dump(-1, ' ', false, json::error_handler_t::replace), "is no JSON object", {});
}

std::string json_fields::path_of(std::string_view key) const { return fmt::format("{}.{}", path_, key); }

const json* json_fields::find(std::string_view key) const {
  const auto at = in_.find(std::string(key));
  return at == in_.end() ? nullptr : &*at;
}

bool json_fields::has(std::string_view key) const { return find(key) != nullptr; }

const json& json_fields::require(std::string_view key) const {
  if (const auto* value = find(key)) return *value;
  bad_input(path_of(key), {}, "is missing", {});
}

void json_fields::refuse(std::string_view key, const json& value, std::string_view problem,
                         std::string_view remedy) const {
  bad_input(path_of(key), value.dump(-1, ' ', false, json::error_handler_t::replace), problem, remedy);
}

void json_fields::read(std::string_view key, bool& out) const {
  const auto* value = find(key);
  if (!value) return;
  if (!value->is_boolean()) refuse(key, *value, "is neither true nor false");
  out = value->get<bool>();
}

void json_fields::read(std::string_view key, std::string& out) const {
  const auto* value = find(key);
  if (!value) return;
  if (!value->is_string()) refuse(key, *value, "is no string");
  out = value->get<std::string>();
}

void json_fields::read(std::string_view key, double& out) const {
  const auto* value = find(key);
  if (!value) return;
  try {
    out = get_number(in_, key);
  } catch (const suite_error&) {
    refuse(key, *value, "is no number");
  }
}

void json_fields::read(std::string_view key, float& out) const {
  double wide = out;
  read(key, wide);
  const auto narrow = static_cast<float>(wide);
  if (std::isfinite(wide) && !std::isfinite(narrow)) refuse(key, require(key), "is beyond a 32-bit float");
  out = narrow;
}

void json_fields::read(std::string_view key, dtype& out) const {
  const auto* value = find(key);
  if (!value) return;
  if (value->is_object()) {
    const json_fields triple(path_of(key), *value);
    dtype type;
    triple.require("code");
    triple.require("bits");
    triple.read("code", type.code);
    triple.read("bits", type.bits);
    triple.read("lanes", type.lanes);
    out = type;
    return;
  }
  if (!value->is_string()) refuse(key, *value, "is no format name");
  const auto& text = value->get_ref<const std::string&>();
  if (text == "none") {
    out = dtype{};
    return;
  }
  const auto type = dtype_from_name(text);
  if (!type) refuse(key, *value, "is no known format", "use bf16, fp16, fp32, fp64, e4m3, i32, tf32, fp8acc or none");
  out = *type;
}

void json_fields::read(std::string_view key, std::vector<std::string>& out) const {
  const auto* value = find(key);
  if (!value) return;
  if (!value->is_array()) refuse(key, *value, "is no list");
  std::vector<std::string> read;
  for (const auto& element : *value) {
    if (!element.is_string()) refuse(key, element, "is no string");
    read.push_back(element.get<std::string>());
  }
  out = std::move(read);
}

void json_fields::read_uint64_string(std::string_view key, std::uint64_t& out) const {
  const auto* value = find(key);
  if (!value) return;
  if (!value->is_string()) refuse(key, *value, "is no string", "write the decimal digits in quotes");
  out = parse_uint64(path_of(key), value->get_ref<const std::string&>());
}

}  // namespace msabench
