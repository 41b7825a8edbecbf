// SPDX-License-Identifier: Apache-2.0
// msabench describe: everything that a case name stands for.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "cli/recorded.h"
#include "cli/verbs.h"
#include "conformance/runner.h"
#include "conformance/targets.h"
#include "core/case.h"
#include "core/operator_table.h"
#include "core/units.h"
#include "judge/rows.h"

namespace msabench {

namespace {

using nlohmann::json;

std::string slots_text(const problem& p, json& rows) {
  std::string text = "tensors (upper bounds of the problem)\n";
  for (const auto& rule : slots_of(p.operation)) {
    if (!present(rule, p)) continue;
    const auto shape = shape_of(rule, p, bounds_of(p));
    const char* direction = rule.dir == direction::in ? "in" : "out";
    const std::string formula(p.paged() && !rule.paged_shape.empty() ? rule.paged_shape : rule.shape);
    text += fmt::format("  {:<3} {:<14} {:<5} [{}] = [{}]{}\n", direction, name(rule.where), name(type_of(rule, p)),
                        formula, fmt::join(shape, ","), rule.optional ? ", optional" : "");
    rows.push_back({{"slot", name(rule.where)},
                    {"direction", direction},
                    {"dtype", name(type_of(rule, p))},
                    {"shape", shape},
                    {"optional", rule.optional}});
  }
  return text;
}

std::string lengths_text(const case_spec& c) {
  const auto all = sequences(c);
  std::string text = fmt::format("sequences (query tokens of this call / tokens in all): {}\n ", all.size());
  constexpr std::size_t shown = 16;
  for (std::size_t i = 0; i < std::min(all.size(), shown); ++i)
    text += fmt::format(" {}/{}", all[i].q_len, all[i].kv_len);
  return text + (all.size() > shown ? " ...\n" : "\n");
}

int describe(const case_spec& c, const output& out) {
  const problem p = make_problem(c);
  json slots = json::array();
  std::string text = fmt::format("{}\ndefinition {}\n", name(c), definition_sha256(c));
  text += fmt::format(
      "operator {}, {} query / {} KV / {} index heads, d {}, index d {}, block {}, top-k {}, local {}, initial {}\n",
      name(p.operation), p.hq, p.hkv, p.hi, p.d, p.di, p.block, p.topk, p.local_blocks, p.init_blocks);
  text += lengths_text(c) + slots_text(p, slots);
  json faults = json::array();
  for (const auto t : targets_of(c)) faults.push_back(name(t));
  text += "must see: ";
  for (const auto& f : faults) text += f.get<std::string>() + " ";
  text += fmt::format("\ncost {} triples a pass, {} rows, {} launches, time limit {}\n",
                      format_count(static_cast<double>(cost_triples(c))), total_rows(c), c.options.rep ? 20 : 2,
                      format_duration_s(time_limit_s(c)));
  out.print(text);
  out.write({{"name", name(c)},
             {"definition_sha256", definition_sha256(c)},
             {"definition", definition(c)},
             {"slots", slots},
             {"target_faults", faults},
             {"cost_triples", cost_triples(c)},
             {"time_limit_s", time_limit_s(c)}});
  return 0;
}

}  // namespace

void add_describe(CLI::App& app, invocation& chosen) {
  struct arguments {
    std::string case_name;
    recorded_option recorded;
    output out;
  };
  auto a = std::make_shared<arguments>();
  CLI::App* verb = app.add_subcommand("describe", "Show everything that a case name stands for");
  verb->add_option("CASE", a->case_name, "Name of the case")->required();
  a->recorded.declare(*verb);
  a->out.declare(*verb);
  verb->callback([a, &chosen] {
    chosen.run = [a] {
      std::vector<case_spec> cases = {parse_case(a->case_name)};
      a->out.open();
      a->recorded.attach(cases);
      return describe(cases[0], a->out);
    };
  });
}

}  // namespace msabench
