// SPDX-License-Identifier: Apache-2.0
#include "core/check_result.h"

#include "core/error.h"
#include "core/json.h"

namespace msabench {
namespace {

nlohmann::json worst_to_json(const worst_element& w) {
  nlohmann::json out = {{"slot", nullptr}, {"index", w.index}, {"axes", w.axes}};
  if (w.where) out["slot"] = std::string(name(*w.where));
  put_number(out, "got", w.got);
  put_number(out, "want", w.want);
  return out;
}

}  // namespace

void to_json(nlohmann::json& out, const check_result& c) {
  auto terms = nlohmann::json::object();
  for (const auto& [term, size] : c.terms) put_number(terms, term, size);
  out = {{"id", c.id},
         {"gate", c.gate},
         {"observed", c.observed},
         {"passed", c.passed},
         {"unit", c.unit},
         {"terms", terms},
         // Objects have no order, so the term that leads the list is named apart.
         {"largest_term", c.terms.empty() ? "" : c.terms.front().first},
         {"worst", worst_to_json(c.worst)},
         {"named", sentence(c.named)},
         {"cure", sentence(c.cure)},
         {"note", sentence(c.note)}};
  if (!c.promise.empty()) out["promise"] = sentence(c.promise);
  // Absent where it says nothing: a reader then can't mistake "" for a kind.
  if (c.kind != fail_kind::none) out["kind"] = std::string(name(c.kind));
  put_number(out, "value", c.value);
  put_number(out, "limit", c.limit);
}

}  // namespace msabench
