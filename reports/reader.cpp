// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_fields.h"
#include "reports/report_json.h"

namespace msabench {
namespace {

using nlohmann::json;

constexpr std::uint64_t max_report_bytes = std::uint64_t{512} << 20;
constexpr std::string_view format_prefix = "msabench.report/";

// Reads a field that every report has.
template <class T>
void need(const json_fields& fields, std::string_view key, T& out) {
  fields.require(key);
  fields.read(key, out);
}

void need_seed(const json_fields& fields, std::uint64_t& out) {
  fields.require("seed");
  fields.read_uint64_string("seed", out);
}

json_fields object(const json_fields& parent, std::string_view key) {
  return {parent.path_of(key), parent.require(key)};
}

const json& list(const json_fields& parent, std::string_view key) {
  const auto& value = parent.require(key);
  if (!value.is_array()) parent.refuse(key, value, "is no list");
  return value;
}

// An object of numbers, as put_number wrote them; keys that only carry a tag are skipped.
std::vector<std::pair<std::string, double>> numbers(const json_fields& parent, std::string_view key) {
  const auto& value = parent.require(key);
  const json_fields fields(parent.path_of(key), value);
  std::vector<std::pair<std::string, double>> out;
  for (const auto& [name, number] : value.items()) {
    constexpr std::string_view suffix = "_tag";
    const bool tag = number.is_string() && name.ends_with(suffix) &&
                     fields.has(std::string_view(name).substr(0, name.size() - suffix.size()));
    if (tag) continue;
    double x = 0;
    fields.read(name, x);
    out.emplace_back(name, x);
  }
  return out;
}

fail_kind read_kind(const json_fields& fields) {
  const auto* value = fields.find("kind");
  if (!value) return fail_kind::none;
  const auto kind = value->is_string() ? fail_kind_from_name(value->get_ref<const std::string&>()) : std::nullopt;
  if (!kind) fields.refuse("kind", *value, "is no kind of failure");
  return *kind;
}

worst_element read_worst(const json_fields& fields) {
  worst_element w;
  const auto& where = fields.require("slot");
  if (!where.is_null()) {
    w.where = where.is_string() ? slot_from_name(where.get_ref<const std::string&>()) : std::nullopt;
    if (!w.where) fields.refuse("slot", where, "is no slot");
  }
  need(fields, "index", w.index);
  fields.read("axes", w.axes);
  need(fields, "got", w.got);
  need(fields, "want", w.want);
  return w;
}

check_result read_check(const json_fields& fields) {
  check_result c;
  need(fields, "id", c.id);
  need(fields, "gate", c.gate);
  need(fields, "observed", c.observed);
  need(fields, "passed", c.passed);
  need(fields, "value", c.value);
  need(fields, "limit", c.limit);
  need(fields, "unit", c.unit);
  c.kind = read_kind(fields);
  c.terms = numbers(fields, "terms");
  std::string largest;
  fields.read("largest_term", largest);
  const auto first =
      std::find_if(c.terms.begin(), c.terms.end(), [&](const auto& term) { return term.first == largest; });
  if (first != c.terms.end()) std::rotate(c.terms.begin(), first, first + 1);
  c.worst = read_worst(object(fields, "worst"));
  fields.read("named", c.named);
  fields.read("cure", c.cure);
  fields.read("promise", c.promise);
  fields.read("note", c.note);
  return c;
}

detectability read_detectability(const json_fields& fields) {
  detectability d;
  need(fields, "judged", d.judged);
  need(fields, "value", d.value);
  fields.read("weakest_fault", d.weakest_fault);
  fields.read("by_check", d.by_check);
  if (fields.has("by_fault")) d.by_fault = numbers(fields, "by_fault");
  return d;
}

case_record read_case(const json_fields& fields) {
  case_record c;
  need(fields, "name", c.name);
  need(fields, "definition_sha256", c.definition_sha256);
  need_seed(fields, c.seed);
  const auto& decided = fields.require("verdict");
  const auto known_verdict =
      decided.is_string() ? verdict_from_name(decided.get_ref<const std::string&>()) : std::nullopt;
  if (!known_verdict) fields.refuse("verdict", decided, "is no verdict");
  c.decided = *known_verdict;
  c.kind = read_kind(fields);
  fields.read("reason", c.reason);
  for (const auto& check : list(fields, "checks"))
    c.checks.push_back(read_check({fmt::format("{}[{}]", fields.path_of("checks"), c.checks.size()), check}));
  c.sees = read_detectability(object(fields, "detectability"));
  need(fields, "rows_checked", c.rows_checked);
  need(fields, "rows_total", c.rows_total);
  if (const auto* declared = fields.find("numerics")) c.declared = declared->get<numerics>();
  if (const auto* delivers = fields.find("profile")) c.delivers = delivers->get<profile>();
  fields.read("remarks", c.remarks);
  fields.read("unobserved", c.unobserved);
  fields.read("captured_output", c.captured_output);
  need(fields, "repro", c.repro);
  c.timing = fields.require("samples").get<samples>();
  fields.read("elapsed_s", c.elapsed_s);
  return c;
}

void require_format(const json_fields& fields) {
  const auto& schema = fields.require("schema");
  if (!schema.is_string() || !schema.get_ref<const std::string&>().starts_with(format_prefix))
    fields.refuse("schema", schema, "is no msabench report", "give a report.json that msabench wrote");
  const auto version = std::string_view(schema.get_ref<const std::string&>()).substr(format_prefix.size());
  int major = 0;
  const auto [rest, error] = std::from_chars(version.data(), version.data() + version.size(), major);
  if (error != std::errc{} || (rest != version.data() + version.size() && *rest != '.') || major != 1)
    fields.refuse("schema", schema, "is another major version of the format; this msabench reads 1",
                  "read it with the msabench that wrote it");
}

fuzz_record read_fuzz(const json_fields& fields) {
  fuzz_record fuzz;
  need(fields, "seconds", fuzz.seconds);
  for (const auto& each : list(fields, "failures")) {
    const json_fields fields_of(fmt::format("{}[{}]", fields.path_of("failures"), fuzz.failures.size()), each);
    auto& into = fuzz.failures.emplace_back();
    need(fields_of, "what", into.what);
    need(fields_of, "found", into.found);
    need(fields_of, "smallest", into.smallest);
    need(fields_of, "finished", into.finished);
  }
  return fuzz;
}

// One of so many parts, counted from 0.
void read_shard(const json_fields& shard, std::int64_t& index, std::int64_t& count) {
  need(shard, "index", index);
  need(shard, "count", count);
  if (count < 1 || index < 0 || index >= count)
    bad_input(shard.path_of("index"), std::to_string(index), fmt::format("is no shard of {}", count),
              "give one from 0 up to below the count");
}

merged_source read_source(const json_fields& fields) {
  merged_source source;
  need(fields, "file", source.file);
  need(fields, "start", source.start_utc);
  need(fields, "argv", source.argv);
  const auto shard = object(fields, "shard");
  read_shard(shard, source.shard_index, source.shard_count);
  need(fields, "cases", source.cases);
  need(fields, "partial", source.partial);
  return source;
}

void read_parts(const json_fields& execution, run_record& run) {
  if (execution.has("merged_from"))
    for (const auto& each : list(execution, "merged_from"))
      run.merged_from.push_back(
          read_source({fmt::format("{}[{}]", execution.path_of("merged_from"), run.merged_from.size()), each}));
  if (execution.has("parts"))
    for (const auto& each : list(execution, "parts"))
      run.parts.push_back(read_run_part(fmt::format("{}[{}]", execution.path_of("parts"), run.parts.size()), each));
}

void read_suite_and_run(const json_fields& fields, run_record& run) {
  const auto suite = object(fields, "suite");
  need(suite, "version", run.suite_version);
  need(suite, "commit", run.suite_commit);
  need(suite, "dirty", run.suite_dirty);
  need(suite, "selftest", run.selftest);
  const auto& lists = suite.require("lists");
  const json_fields list_hashes(suite.path_of("lists"), lists);
  for (const auto& [name, hash] : lists.items()) list_hashes.read(name, run.lists[name]);

  const auto execution = object(fields, "run");
  need(execution, "argv", run.argv);
  need(execution, "start", run.start_utc);
  need_seed(execution, run.seed);
  need(execution, "partial", run.partial);
  execution.read("level", run.level);
  if (execution.has("withdrawn"))
    for (const auto& each : list(execution, "withdrawn")) {
      const json_fields fields_of(fmt::format("{}[{}]", execution.path_of("withdrawn"), run.withdrawn.size()), each);
      auto& into = run.withdrawn.emplace_back();
      need(fields_of, "name", into.name);
      need(fields_of, "reason", into.reason);
    }
  if (execution.has("fuzz")) run.fuzz = read_fuzz(object(execution, "fuzz"));
  read_parts(execution, run);
  const auto shard = object(execution, "shard");
  read_shard(shard, run.shard_index, run.shard_count);
}

run_record read_run(const json& in) {
  const json_fields fields("report", in);
  require_format(fields);
  run_record run;
  read_suite_and_run(fields, run);
  run.environment = fields.require("environment");
  if (!run.environment.is_object()) fields.refuse("environment", run.environment, "is no object");
  const auto implementation = object(fields, "implementation");
  need(implementation, "name", run.implementation.name);
  need(implementation, "version", run.implementation.version);
  need(implementation, "sha256", run.implementation.sha256);
  implementation.read("description", run.implementation.description);
  implementation.read("path", run.implementation.path);
  for (const auto& record : list(fields, "cases"))
    run.cases.push_back(read_case({fmt::format("report.cases[{}]", run.cases.size()), record}));

  // Whoever cut the list of cases, or edited a verdict, rarely repaired the summary.
  const auto summary = object(fields, "summary");
  const auto written = to_report_json(run).at("summary");
  for (const auto* key : {"verdicts", "passed", "total", "partial", "exit_code"})
    if (summary.require(key) != written.at(key))
      summary.refuse(key, summary.require(key),
                     fmt::format("contradicts the cases, which give {}", written.at(key).dump()));
  return run;
}

}  // namespace

run_record read_report(const std::filesystem::path& path, std::string_view field) {
  return parse_report(field, path.string(), read_file(field, path, max_report_bytes));
}

run_record parse_report(std::string_view field, std::string_view source, std::string_view text) {
  const json in = parse_json(field, source, text, {max_report_bytes, 64});
  try {
    return read_run(in);
  } catch (const usage_error& e) {
    const auto& wrong = e.what_is_wrong();
    const diagnostic inner{wrong.field, wrong.value, wrong.problem, {}};
    bad_input(field, source, "is damaged or no report: " + inner.line(),
              wrong.remedy.empty() ? "give a report.json that msabench wrote" : wrong.remedy);
  }
}

}  // namespace msabench
