// SPDX-License-Identifier: Apache-2.0
#include "core/samples.h"

#include <utility>

#include "core/json.h"
#include "core/json_fields.h"

namespace msabench {
namespace {

using nlohmann::json;

constexpr std::pair<std::string_view, std::vector<double> samples::*> optional_lists[] = {
    {"at_s", &samples::at_s},        {"others", &samples::others},
    {"steal", &samples::steal},      {"load", &samples::load},
    {"cpu_mhz", &samples::cpu_mhz},  {"nvml_mhz", &samples::nvml_mhz},
    {"power_w", &samples::power_w},  {"temperature_c", &samples::temperature_c},
    {"throttle", &samples::throttle}};

// obj[key] = the numbers; a number that is not finite is null there, and KEY_tags maps its index to what it was.
void put_numbers(json& obj, const std::string& key, const std::vector<double>& numbers) {
  auto list = json::array();
  json tags;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    list.push_back(finite_or_tag(numbers[i]));
    if (!std::isfinite(numbers[i])) tags[std::to_string(i)] = std::string(non_finite_tag(numbers[i]));
  }
  obj[key] = std::move(list);
  if (!tags.is_null()) obj[key + "_tags"] = std::move(tags);
}

void read_numbers(const json_fields& fields, const std::string& key, std::vector<double>& out) {
  const auto* list = fields.find(key);
  if (!list) return;
  if (!list->is_array()) fields.refuse(key, *list, "is no list");
  const auto* tags = fields.find(key + "_tags");
  std::vector<double> numbers;
  for (const auto& element : *list) {
    json number = {{"at", element}};
    const auto index = std::to_string(numbers.size());
    if (tags && tags->is_object() && tags->contains(index)) number["at_tag"] = tags->at(index);
    double x = 0;
    json_fields(fields.path_of(key), number).read("at", x);
    numbers.push_back(x);
  }
  out = std::move(numbers);
}

}  // namespace

void to_json(json& out, const samples& s) {
  out = {{"order", s.order}};
  put_numbers(out, "time_us", s.time_us);
  put_numbers(out, "sm_mhz", s.sm_mhz);
  for (const auto& [key, numbers] : optional_lists)
    if (!(s.*numbers).empty()) put_numbers(out, std::string(key), s.*numbers);
}

void from_json(const json& in, samples& s) {
  const json_fields fields("samples", in);
  samples read;
  read_numbers(fields, "time_us", read.time_us);
  fields.read("order", read.order);
  read_numbers(fields, "sm_mhz", read.sm_mhz);
  for (const auto& [key, numbers] : optional_lists) read_numbers(fields, std::string(key), read.*numbers);
  s = std::move(read);
}

}  // namespace msabench
