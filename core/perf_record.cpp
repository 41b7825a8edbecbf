// SPDX-License-Identifier: Apache-2.0
#include "core/perf_record.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"

namespace msabench {
namespace {

using nlohmann::json;

void put_optional(json& out, std::string_view key, const std::optional<double>& x) {
  if (x)
    put_number(out, key, *x);
  else
    out[std::string(key)] = nullptr;
}

json numbers(const std::vector<double>& list) {
  auto out = json::array();
  for (const double x : list) out.push_back(finite_or_tag(x));
  return out;
}

json to_json_of(const sample_summary& s) {
  json out = {{"count", s.count}};
  put_number(out, "median", s.median);
  put_number(out, "first_quartile", s.first_quartile);
  put_number(out, "third_quartile", s.third_quartile);
  put_number(out, "fastest", s.fastest);
  put_number(out, "low", s.low);
  put_number(out, "high", s.high);
  put_number(out, "coverage", s.coverage);
  put_number(out, "relative_half_width", s.relative_half_width);
  return out;
}

json to_json_of(const perf_ceilings& c) {
  return {{"flops", c.flops},
          {"bytes_per_s", c.bytes_per_s},
          {"source", c.source},
          {"flops_samples", numbers(c.flops_samples)},
          {"e4m3_samples", numbers(c.e4m3_samples)},
          {"bytes_samples", numbers(c.bytes_samples)}};
}

json to_json_of(const perf_figures& f) {
  json out = {{"bound", f.bound}, {"dense", f.dense}, {"gain_verified", f.gain_verified}};
  put_number(out, "flops_per_s", f.flops_per_s);
  put_number(out, "bytes_per_s", f.bytes_per_s);
  put_number(out, "roofline_s", f.roofline_s);
  put_optional(out, "efficiency", f.efficiency);
  put_optional(out, "gain_over_dense", f.gain_over_dense);
  put_optional(out, "gain_limit", f.gain_limit);
  put_optional(out, "share_of_msa", f.share_of_msa);
  put_optional(out, "against", f.against);
  put_optional(out, "back_to_back_gain", f.back_to_back_gain);
  put_optional(out, "back_to_back_against", f.back_to_back_against);
  if (!f.gain_refused.empty()) out["gain_refused"] = sentence(f.gain_refused);
  if (!f.against_refused.empty()) out["against_refused"] = sentence(f.against_refused);
  return out;
}

json to_json_of(const perf_item& i) {
  json work;
  put_number(work, "useful_flops", i.work.useful_flops);
  put_number(work, "index_flops", i.work.index_flops);
  put_optional(work, "executed_flops", i.work.executed_flops);
  put_number(work, "compulsory_bytes", i.work.compulsory_bytes);
  put_number(work, "algorithmic_bytes", i.work.algorithmic_bytes);
  json verification = {{"verdict", i.decided ? json(std::string(name(*i.decided))) : json(nullptr)},
                       {"checks", i.checks},
                       {"rows_checked", i.rows_checked},
                       {"rows_total", i.rows_total},
                       {"outputs_seen", i.outputs_seen},
                       {"outputs_judged", i.outputs_judged},
                       {"outputs_different", i.outputs_different}};
  if (i.kind != fail_kind::none) verification["kind"] = std::string(name(i.kind));
  json out = {{"name", i.name},
              {"definition_sha256", i.definition_sha256},
              {"operator", i.operation},
              {"seed", std::to_string(i.seed)},
              {"implementation", i.implementation},
              {"state", std::string(name(i.state))},
              {"reason", sentence(i.reason)},
              {"samples", i.timing},
              {"time_us", to_json_of(i.time_us)},
              {"converged", i.converged},
              {"launches", i.launches},
              {"work", work},
              {"figures", i.figures ? to_json_of(*i.figures) : json(nullptr)},
              {"verification", verification},
              {"remarks", sentences(i.remarks)},
              {"captured_output", printable_lines(i.captured_output)}};
  put_optional(out, "back_to_back_us", i.figures ? i.in_a_row.time_us() : std::nullopt);
  // On a CPU a call returns when it is done: there is nothing to enqueue, and no such key.
  if (!i.in_a_row.runs.empty() || !i.in_a_row.reason.empty()) out["back_to_back"] = i.in_a_row;
  if (!i.timing.sm_mhz.empty()) out["low_clock_samples"] = i.low_clock;
  return out;
}

json to_json_of(const perf_common_chunks& c) {
  json out = {{"contexts", c.contexts}, {"dense", c.dense}};
  put_number(out, "time_us", c.time_us);
  put_number(out, "dense_us", c.dense_us);
  put_optional(out, "back_to_back_us", c.back_to_back_us);
  put_optional(out, "dense_back_to_back_us", c.dense_back_to_back_us);
  return out;
}

json to_json_of(const perf_whole_estimate& e) {
  json out = {{"contexts", e.contexts}, {"dense", e.dense}, {"dense_chunks", e.dense_chunks}};
  put_number(out, "time_us", e.time_us);
  put_number(out, "deviation", e.deviation);
  put_optional(out, "back_to_back_us", e.back_to_back_us);
  put_optional(out, "dense_us", e.dense_us);
  put_optional(out, "dense_back_to_back_us", e.dense_back_to_back_us);
  put_optional(out, "gain_over_dense", e.gain_over_dense);
  put_optional(out, "back_to_back_gain", e.back_to_back_gain);
  return out;
}

json to_json_of(const perf_whole& w) {
  json out = {{"context", w.context},
              {"chunk", w.chunk},
              {"batch", w.batch},
              {"operator", w.operation},
              {"implementation", w.implementation},
              {"chunks", w.chunks},
              {"measured", w.measured},
              {"partial", w.partial()},
              {"verified", w.verified},
              {"dense", w.dense}};
  put_number(out, "useful_flops", w.useful_flops);
  put_optional(out, "time_us", w.time_us);
  put_optional(out, "back_to_back_us", w.back_to_back_us);
  put_optional(out, "gain_over_dense", w.gain_over_dense);
  out["common_chunks"] = w.common ? to_json_of(*w.common) : json();
  out["estimate"] = w.estimate ? to_json_of(*w.estimate) : json();
  return out;
}

json to_json_of(const perf_topk& t) {
  json out = {{"phase", t.phase},
              {"context", t.context},
              {"query_tokens", t.query_tokens},
              {"topk", t.topk},
              {"implementation", t.implementation},
              {"verified", t.verified}};
  put_optional(out, "score_us", t.score_us);
  put_optional(out, "select_us", t.select_us);
  put_optional(out, "index_us", t.index_us);
  put_optional(out, "split_over_fused", t.split_over_fused);
  return out;
}

json to_json_of(const perf_point& p) {
  auto items = json::array();
  for (const auto& i : p.items) items.push_back(to_json_of(i));
  json out = {{"phase", p.phase},
              {"query_tokens", p.query_tokens},
              {"context", p.context},
              {"batch", p.batch},
              {"selection", p.selection},
              {"cold", p.cold},
              {"rounds_of_sets", p.rounds_of_sets},
              {"budget_ended", p.budget_ended},
              {"ceilings", p.ceilings.known() ? to_json_of(p.ceilings) : json(nullptr)},
              {"items", items}};
  if (p.topk) out["topk"] = *p.topk;
  put_number(out, "reuse_distance_bytes", p.reuse_distance_bytes);
  put_number(out, "estimated_s", p.estimated_s);
  put_number(out, "seconds", p.seconds);
  json conditions = {{"known", p.conditions_known}};
  put_number(conditions, "others", p.others);
  put_number(conditions, "steal", p.steal);
  put_number(conditions, "load", p.load);
  if (p.mhz > 0) put_number(conditions, "cpu_mhz", p.mhz);
  out["conditions"] = conditions;
  return out;
}

constexpr item_state all_states[] = {item_state::measured, item_state::unverified,  item_state::failed,
                                     item_state::busy,     item_state::unsupported, item_state::not_run};

// Something could have been measured, and nothing was: the run says nothing of that context.
bool left_out_whole(const perf_point& p) {
  const auto any = [&p](item_state s) {
    return std::ranges::any_of(p.items, [s](const perf_item& i) { return i.state == s; });
  };
  return any(item_state::not_run) && !any(item_state::measured) && !any(item_state::unverified);
}

}  // namespace

std::int64_t count(const perf_run& run, item_state s) {
  std::int64_t n = 0;
  for (const auto& p : run.points)
    n += std::count_if(p.items.begin(), p.items.end(), [s](const perf_item& i) { return i.state == s; });
  return n;
}

std::string_view name(item_state s) {
  switch (s) {
    case item_state::measured:
      return "measured";
    case item_state::unverified:
      return "unverified";
    case item_state::failed:
      return "failed";
    case item_state::busy:
      return "busy";
    case item_state::unsupported:
      return "unsupported";
    case item_state::not_run:
      return "not-run";
  }
  throw suite_error("unknown state of an item");
}

int exit_code_of(const perf_run& run) {
  if (count(run, item_state::failed) > 0) return exit_code::failed;
  if (count(run, item_state::busy) > 0) return exit_code::environment_refused;
  if (run.partial || count(run, item_state::unverified) > 0) return exit_code::partial;
  if (count(run, item_state::measured) == 0) return exit_code::nothing_verified;
  return std::ranges::any_of(run.points, left_out_whole) ? exit_code::partial : exit_code::ok;
}

json to_report_json(const perf_run& run) {
  auto points = json::array(), implementations = json::array(), crossovers = json::array();
  for (const auto& p : run.points) points.push_back(to_json_of(p));
  for (const auto& i : run.implementations) implementations.push_back(to_report_json(i));
  for (const auto& c : run.crossovers) {
    json one = {{"implementation", c.implementation}, {"note", c.note}};
    put_optional(one, "context", c.context);
    crossovers.push_back(std::move(one));
  }
  json states;
  for (const item_state s : all_states) states[std::string(name(s))] = count(run, s);
  json out = {
      {"schema", "msabench.perf/1"},
      {"suite", {{"version", run.suite_version}, {"commit", run.suite_commit}, {"dirty", run.suite_dirty}}},
      {"run",
       {{"argv", sentences(run.argv)},
        {"start", run.start_utc},
        {"suite", run.suite},
        {"seed", std::to_string(run.seed)},
        {"budget_s", run.budget_s},
        {"estimated_s", run.estimated_s},
        {"cache", run.cache},
        {"threads", run.threads},
        {"partial", run.partial}}},
      {"environment", printable_json(run.environment)},
      {"implementations", implementations},
      {"limits",
       {{"others", run.busy_limit},
        {"steal", run.steal_limit},
        {"last_level_cache_bytes", run.last_level_cache_bytes ? json(*run.last_level_cache_bytes) : json(nullptr)}}},
      {"points", points},
      {"crossovers", crossovers},
      {"summary", {{"states", states}, {"partial", run.partial}, {"exit_code", exit_code_of(run)}}}};
  for (const auto& w : run.wholes) out["wholes"].push_back(to_json_of(w));
  for (const auto& t : run.topk) out["topk"].push_back(to_json_of(t));
  if (run.ceilings.known())
    out["ceilings"] = to_json_of(run.ceilings);
  else if (!run.ceilings.source.empty())
    out["ceilings_missing"] = sentence(run.ceilings.source);
  return out;
}

}  // namespace msabench
