// SPDX-License-Identifier: Apache-2.0
#include "core/back_to_back.h"

#include <algorithm>

#include "core/json.h"
#include "core/json_fields.h"
#include "core/statistics.h"

namespace msabench {
namespace {

using nlohmann::json;

constexpr std::pair<std::string_view, double back_to_back_run::*> numbers[] = {
    {"time_us", &back_to_back_run::time_us},  {"enqueue_us", &back_to_back_run::enqueue_us},
    {"sm_mhz", &back_to_back_run::sm_mhz},    {"nvml_mhz", &back_to_back_run::nvml_mhz},
    {"power_w", &back_to_back_run::power_w},  {"temperature_c", &back_to_back_run::temperature_c},
    {"throttle", &back_to_back_run::throttle}};

// A host that takes nine tenths of a launch's time for enqueueing it has nothing queued after a moment's delay.
constexpr double enqueueing_share = 0.9;

}  // namespace

std::optional<double> back_to_back::time_us() const {
  if (runs.empty()) return std::nullopt;
  std::vector<double> times;
  for (const auto& r : runs) times.push_back(r.time_us);
  std::ranges::sort(times);
  return quantile(times, 0.5);
}

bool back_to_back::by_enqueueing() const {
  return std::ranges::any_of(runs, [](const auto& r) { return r.enqueue_us > enqueueing_share * r.time_us; });
}

void to_json(json& out, const back_to_back& b) {
  auto runs = json::array();
  for (const auto& r : b.runs) {
    json one = {{"launches", r.launches}, {"lead", r.lead}};
    for (const auto& [key, member] : numbers) put_number(one, key, r.*member);
    runs.push_back(std::move(one));
  }
  out = {{"runs", runs}, {"reason", sentence(b.reason)}};
}

void from_json(const json& in, back_to_back& b) {
  const json_fields fields("back_to_back", in);
  back_to_back read;
  const json& list = fields.require("runs");
  if (!list.is_array()) fields.refuse("runs", list, "is no list");
  for (const json& element : list) {
    const json_fields of("run", element);
    back_to_back_run r;
    of.read("launches", r.launches);
    of.read("lead", r.lead);
    for (const auto& [key, member] : numbers) of.read(key, r.*member);
    read.runs.push_back(r);
  }
  fields.read("reason", read.reason);
  b = std::move(read);
}

}  // namespace msabench
