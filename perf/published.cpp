// SPDX-License-Identifier: Apache-2.0
#include "perf/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "core/json.h"
#include "core/json_fields.h"
#include "perf/data.h"

namespace msabench {

using nlohmann::json;

namespace {

constexpr std::array<std::string_view, 4> baselines = {"same-model", "previous-model", "other-kernel", "none"};
constexpr std::array<std::string_view, 3> phases = {"prefill", "decode", "training"};

std::string text(const json_fields& in, std::string_view key) {
  std::string value;
  const json& there = in.require(key);
  in.read(key, value);
  if (value.empty()) in.refuse(key, there, "is empty");
  return value;
}

template <class T>
std::optional<T> maybe(const json_fields& in, std::string_view key) {
  const json* there = in.find(key);
  if (there == nullptr || there->is_null()) return std::nullopt;
  T value{};
  in.read(key, value);
  return value;
}

template <class Words>
void require_word(const json_fields& in, std::string_view key, const std::string& value, const Words& words) {
  if (std::find(words.begin(), words.end(), value) == words.end())
    in.refuse(key, json(value), "is not one of the words", fmt::format("use {}", fmt::join(words, ", ")));
}

published_figure read_figure(const json_fields& in) {
  published_figure f;
  f.id = text(in, "id");
  f.what = text(in, "what");
  f.phase = maybe<std::string>(in, "phase");
  if (f.phase) require_word(in, "phase", *f.phase, phases);
  f.context = maybe<std::int64_t>(in, "context");
  f.chunk = maybe<std::int64_t>(in, "chunk");
  f.batch = maybe<std::int64_t>(in, "batch");
  in.require("value");
  in.read("value", f.value);
  f.value_high = maybe<double>(in, "value_high");
  if (f.value_high && *f.value_high < f.value) in.refuse("value_high", json(*f.value_high), "is below value");
  f.unit = text(in, "unit");
  f.machine = text(in, "machine");
  f.baseline = text(in, "baseline");
  require_word(in, "baseline", f.baseline, baselines);
  f.against = text(in, "against");
  f.source = text(in, "source");
  in.read("note", f.note);
  return f;
}

}  // namespace

std::vector<published_figure> parse_published(std::string_view field, const json& in) {
  const json_fields file(field, in);
  const json& list = file.require("figures");
  if (!list.is_array()) file.refuse("figures", list, "is no list");
  std::vector<published_figure> figures;
  std::set<std::string> ids;
  for (const auto& one : list) {
    const json_fields fields(fmt::format("{}.figures[{}]", field, figures.size()), one);
    figures.push_back(read_figure(fields));
    if (!ids.insert(figures.back().id).second) fields.refuse("id", one["id"], "stands twice");
  }
  return figures;
}

const std::vector<published_figure>& published_figures() {
  static const std::vector<published_figure> all =
      parse_published("perf/published.json", parse_json("perf/published.json", published_json()));
  return all;
}

json to_json(const published_figure& f) {
  json out = {{"id", f.id},           {"what", f.what},         {"value", f.value},     {"unit", f.unit},
              {"machine", f.machine}, {"baseline", f.baseline}, {"against", f.against}, {"source", f.source}};
  if (f.phase) out["phase"] = *f.phase;
  if (f.context) out["context"] = *f.context;
  if (f.chunk) out["chunk"] = *f.chunk;
  if (f.batch) out["batch"] = *f.batch;
  if (f.value_high) out["value_high"] = *f.value_high;
  if (!f.note.empty()) out["note"] = f.note;
  return out;
}

}  // namespace msabench
