// SPDX-License-Identifier: Apache-2.0
#include "core/selftest_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/json.h"

namespace msabench {

namespace {

using nlohmann::json;

json to_json(const selftest_trial& t) {
  json out = {{"case", t.case_name}, {"verdict", name(t.decided)}, {"reason", sentence(t.reason)}, {"repro", t.repro}};
  if (t.kind != fail_kind::none) out["kind"] = name(t.kind);
  out["failed"] = json::array();
  for (const auto& f : t.failed) {
    json check = {{"id", f.id}};
    put_number(check, "margin", f.margin);
    out["failed"].push_back(std::move(check));
  }
  out["use"] = json::object();
  for (const auto& [id, use] : t.use) put_number(out["use"], id, use);
  return out;
}

json to_json(const selftest_subject& s) {
  json out = {{"name", s.name}, {"what", sentence(s.what)}, {"due", s.due}, {"held", s.held}};
  if (!s.complaint.empty()) out["complaint"] = sentence(s.complaint);
  if (!s.by.empty()) out["by"] = s.by, out["at"] = s.trials[s.at].case_name;
  out["trials"] = json::array();
  for (const auto& t : s.trials) out["trials"].push_back(to_json(t));
  return out;
}

std::ptrdiff_t held_of(const std::vector<selftest_subject>& all) {
  return std::ranges::count_if(all, [](const auto& s) { return s.held; });
}

}  // namespace

bound_use worst_use(const selftest_record& run) {
  bound_use worst;
  for (const auto& variant : run.variants)
    for (const auto& trial : variant.trials)
      for (const auto& [id, use] : trial.use) {
        double& of = id == "K6u" ? worst.beyond_store : worst.any;
        of = std::max(of, use);
      }
  return worst;
}

std::string score_of(const selftest_record& run) {
  const bound_use use = worst_use(run);
  return fmt::format(
      "{} of {} mutants rejected, {} of {} variants accepted, limits used to {:.3f}, beyond the store to {:.2f}{}",
      held_of(run.mutants), run.mutants.size(), held_of(run.variants), run.variants.size(), use.any, use.beyond_store,
      run.whole ? "" : ", not on every case");
}

int exit_code_of(const selftest_record& run) {
  const auto broken = [](const auto& all) { return held_of(all) != std::ssize(all); };
  if (run.mutants.empty() && run.variants.empty()) return exit_code::nothing_verified;
  if (!run.without.empty() || run.partial) return exit_code::partial;
  return broken(run.mutants) || broken(run.variants) ? exit_code::failed : exit_code::ok;
}

json to_json(const selftest_record& run) {
  json out = {{"schema", "msabench.selftest/1"},
              {"suite", {{"version", run.suite_version}, {"commit", run.suite_commit}}},
              {"lists", run.lists_sha256},
              {"whole", run.whole},
              {"partial", run.partial},
              {"valid", exit_code_of(run) == exit_code::ok || exit_code_of(run) == exit_code::failed},
              {"without", run.without},
              {"score", score_of(run)},
              {"oracle_s", run.oracle_s},
              {"total_s", run.total_s}};
  for (const auto& [key, subjects] : {std::pair{"mutants", &run.mutants}, std::pair{"variants", &run.variants}}) {
    out[key] = json::array();
    for (const auto& s : *subjects) out[key].push_back(to_json(s));
  }
  return out;
}

}  // namespace msabench
