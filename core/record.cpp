// SPDX-License-Identifier: Apache-2.0
#include "core/record.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"

namespace msabench {
namespace {

using nlohmann::json;

json fuzz_to_json(const fuzz_record& fuzz, std::uint64_t seed) {
  json failures = json::array();
  for (const auto& f : fuzz.failures)
    failures.push_back({{"what", sentence(f.what)},
                        {"found", sentence(f.found)},
                        {"smallest", sentence(f.smallest)},
                        {"finished", f.finished}});
  json out = {{"seed", std::to_string(seed)}, {"failures", failures}};
  put_number(out, "seconds", fuzz.seconds);
  return out;
}

json source_to_json(const merged_source& source) {
  return {{"file", sentence(source.file)},  {"start", source.start_utc},
          {"argv", sentences(source.argv)}, {"shard", {{"index", source.shard_index}, {"count", source.shard_count}}},
          {"cases", source.cases},          {"partial", source.partial}};
}

json detectability_to_json(const detectability& d) {
  auto by_fault = json::object();
  for (const auto& [fault, effect] : d.by_fault) put_number(by_fault, fault, effect);
  json out = {{"judged", d.judged},
              {"floor", detectability::floor},
              {"weakest_fault", d.weakest_fault},
              {"by_check", d.by_check},
              {"by_fault", by_fault}};
  put_number(out, "value", d.value);
  return out;
}

// The one declaration of the implementation, or null where its answers differ from case to case; those are in the
// cases.
template <class T>
json common(const std::vector<case_record>& cases, std::optional<T> case_record::* member) {
  const std::optional<T>* first = nullptr;
  for (const auto& c : cases) {
    if (!(c.*member)) continue;
    if (!first) first = &(c.*member);
    if (!(**first == *(c.*member))) return nullptr;
  }
  return first ? json(**first) : json(nullptr);
}

json summary_of(const run_record& run) {
  auto counts = json::object();
  for (int v = 0; v <= static_cast<int>(verdict::suite_error); ++v)
    counts[std::string(name(static_cast<verdict>(v)))] = 0;
  double seconds = 0;
  std::int64_t passed = 0;
  for (const auto& c : run.cases) {
    auto& count = counts[std::string(name(c.decided))];
    count = count.get<std::int64_t>() + 1;
    seconds += c.elapsed_s;
    passed += c.decided == verdict::pass || c.decided == verdict::quality_warning ? 1 : 0;
  }
  json out = {{"verdicts", counts},
              {"passed", passed},
              {"total", run.cases.size()},
              {"partial", run.partial},
              {"exit_code", exit_code_of(run)}};
  put_number(out, "seconds", seconds);
  return out;
}

}  // namespace

bool is_failure(const case_record& c) {
  switch (c.decided) {
    case verdict::fail:
    case verdict::broken_promise:
    case verdict::crash:
    case verdict::timeout:
    case verdict::device_lost:
    case verdict::xpass:
      return true;
    default:
      return c.kind == fail_kind::nondeterministic;
  }
}

json printable_json(const json& in) {
  if (in.is_string()) return printable_lines(in.get_ref<const std::string&>());
  if (!in.is_structured()) return in;
  json out = in.is_array() ? json::array() : json::object();
  for (const auto& [key, value] : in.items()) {
    if (in.is_array()) {
      out.push_back(printable_json(value));
    } else {
      out[sentence(key)] = printable_json(value);
    }
  }
  return out;
}

int exit_code_of(const run_record& run) {
  const auto any = [&](auto&& holds) { return std::any_of(run.cases.begin(), run.cases.end(), holds); };
  const auto all = [&](auto&& holds) { return std::all_of(run.cases.begin(), run.cases.end(), holds); };
  // A suite that broke its own invariants can't be believed about the other cases either.
  if (any([](const case_record& c) { return c.decided == verdict::suite_error; })) return exit_code::suite;
  const auto any_part = [&](part_state s) {
    return std::any_of(run.parts.begin(), run.parts.end(), [s](const run_part& p) { return p.state == s; });
  };
  if (any(is_failure) || any_part(part_state::failed)) return exit_code::failed;
  const bool random = run.fuzz.has_value();
  const auto counts_as_seen = [](const case_record& c) {
    return c.decided != verdict::insensitive && c.decided != verdict::unsupported;
  };
  if (run.partial || any_part(part_state::not_run) || any_part(part_state::incomplete)) return exit_code::partial;
  if (any([](const case_record& c) { return c.decided == verdict::insensitive; }) && !(random && any(counts_as_seen)))
    return exit_code::partial;
  // Also with no case at all.
  if (all([](const case_record& c) { return c.decided == verdict::unsupported; })) return exit_code::nothing_verified;
  return exit_code::ok;
}

json to_report_json(const case_record& record) {
  json out = {{"name", record.name},
              {"definition_sha256", record.definition_sha256},
              {"seed", std::to_string(record.seed)},
              {"verdict", std::string(name(record.decided))},
              {"reason", sentence(record.reason)},
              {"checks", record.checks},
              {"detectability", detectability_to_json(record.sees)},
              {"rows_checked", record.rows_checked},
              {"rows_total", record.rows_total},
              {"remarks", sentences(record.remarks)},
              {"unobserved", sentences(record.unobserved)},
              {"captured_output", printable_lines(record.captured_output)},
              {"repro", sentence(record.repro)},
              {"samples", record.timing}};
  if (record.kind != fail_kind::none) out["kind"] = std::string(name(record.kind));
  if (record.declared) out["numerics"] = *record.declared;
  if (record.delivers) out["profile"] = *record.delivers;
  put_number(out, "elapsed_s", record.elapsed_s);
  return out;
}

json to_report_json(const implementation_record& i) {
  return {{"name", sentence(i.name)},
          {"version", sentence(i.version)},
          {"description", sentence(i.description)},
          {"path", sentence(i.path)},
          {"sha256", i.sha256}};
}

json to_report_json(const run_record& run) {
  auto cases = json::array();
  for (const auto& c : run.cases) cases.push_back(to_report_json(c));
  json withdrawn = json::array();
  for (const auto& c : run.withdrawn) withdrawn.push_back({{"name", sentence(c.name)}, {"reason", sentence(c.reason)}});
  json implementation = to_report_json(run.implementation);
  implementation["numerics"] = common(run.cases, &case_record::declared);
  implementation["profile"] = common(run.cases, &case_record::delivers);
  json execution = {{"argv", sentences(run.argv)},
                    {"start", run.start_utc},
                    {"seed", std::to_string(run.seed)},
                    {"shard", {{"index", run.shard_index}, {"count", run.shard_count}}},
                    {"partial", run.partial},
                    {"level", run.level},
                    {"withdrawn", withdrawn}};
  if (run.fuzz) execution["fuzz"] = fuzz_to_json(*run.fuzz, run.seed);
  for (const auto& source : run.merged_from) execution["merged_from"].push_back(source_to_json(source));
  for (const auto& part : run.parts) execution["parts"].push_back(to_report_json(part));
  return {{"schema", "msabench.report/1"},
          {"suite",
           {{"version", run.suite_version},
            {"commit", run.suite_commit},
            {"dirty", run.suite_dirty},
            {"lists", run.lists},
            {"selftest", run.selftest}}},
          {"run", execution},
          {"environment", printable_json(run.environment)},
          {"implementation", implementation},
          {"cases", cases},
          {"summary", summary_of(run)}};
}

}  // namespace msabench
