// SPDX-License-Identifier: Apache-2.0
// msabench list: what there is.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "cli/recorded.h"
#include "cli/selection.h"
#include "cli/verbs.h"
#include "conformance/cost.h"
#include "conformance/selftest_lists.h"
#include "core/error.h"
#include "core/units.h"
#include "host/executor.h"

namespace msabench {

namespace {

using nlohmann::json;

int list_cases(const selection_options& which, const recorded_option& recorded, const output& out) {
  case_list list = load_list(which.level());
  recorded.extend(list);
  const case_selection wanted = which.resolve();
  auto cases = choose(list, wanted);
  recorded.attach(cases);
  const auto line = [](std::string_view name, const auto& oracle, const auto& implementation, std::string_view rest) {
    return fmt::format("{:<72} {:>9} {:>14}{}\n", name, oracle, implementation, rest);
  };
  json rows = json::array(), withdrawn = json::array();
  std::string text = line("case", "oracle", "implementation", "");
  double oracle = 0, implementation = 0;
  for (const auto& c : cases) {
    const double once = static_cast<double>(cost_triples(c)), launches = static_cast<double>(implementation_triples(c));
    const bool everywhere = list.every_shard.contains(name_without_seed(c));
    oracle += once;
    implementation += launches;
    text += line(name(c), format_count(once), format_count(launches), everywhere ? "  every shard" : "");
    rows.push_back({{"name", name(c)},
                    {"definition_sha256", definition_sha256(c)},
                    {"cost_triples", cost_triples(c)},
                    {"implementation_triples", implementation_triples(c)},
                    {"every_shard", everywhere}});
  }
  text += line(fmt::format("{} cases", cases.size()), format_count(oracle), format_count(implementation), "");
  text += "cost in (row, head, visible key) triples: the oracle's, and the implementation's over all launches\n";
  for (const auto& c : withdrawn_of(list, wanted)) {
    text += fmt::format("withdrawn, not run: {}: {}\n", c.name, c.reason);
    withdrawn.push_back({{"name", c.name}, {"reason", c.reason}});
  }
  out.print(text);
  out.write({{"level", which.level()},
             {"cases", rows},
             {"cost_triples", oracle},
             {"implementation_triples", implementation},
             {"withdrawn", withdrawn}});
  return cases.empty() ? 3 : 0;
}

int list_implementations(const output& out) {
  json rows = json::array();
  std::string text;
  for (const auto& i : builtin_implementations()) {
    const char* where = i.where.type == device_type::cpu ? "cpu" : "cuda";
    text += fmt::format("{:<12} {:<5} {}{}\n", i.name, where, i.what, i.present ? "" : " (not built)");
    rows.push_back({{"name", i.name}, {"device", where}, {"description", i.what}, {"present", i.present}});
  }
  out.print(text);
  out.write({{"implementations", rows}});
  return 0;
}

// Of a plugin that is shipped with this program, and so can be loaded into it.
std::string explanation_of(const std::string& implementation) {
  return make_in_process_executor(resolve_implementation(implementation, std::nullopt), {})->info().description;
}

int list_mutants(const output& out) {
  json rows = json::array();
  std::string text;
  for (const mutant_entry& each : built_in_selftest_lists().mutants) {
    const std::string fault = explanation_of("mutants:" + each.id);
    text +=
        fmt::format("{:<10} {:<24} {}\n", each.id, each.cases.front().substr(0, each.cases.front().find('/')), fault);
    rows.push_back({{"id", each.id}, {"fault", fault}, {"checks", each.checks}, {"cases", each.cases}});
  }
  out.print(text);
  out.write({{"mutants", rows}});
  return 0;
}

int list_variants(const output& out) {
  json rows = json::array();
  std::string text;
  for (const variant_entry& each : built_in_selftest_lists().variants) {
    const std::string what = explanation_of("variants:" + each.name);
    text += fmt::format("{:<20} {}\n", each.name, what);
    rows.push_back({{"name", each.name}, {"what", what}, {"cases", each.cases}});
  }
  out.print(text);
  out.write({{"variants", rows}});
  return 0;
}

int list_vocabulary(const output& out) {
  json shapes = json::object(), batches = json::object(), kinds = json::object();
  std::string text = "shapes (also NAME.tpN, and hQxKV.dD[.hiH][.diD].bB.kK.lL.iI)\n";
  for (const auto& s : named_shapes()) {
    text += fmt::format("  {:<10} {} query / {} KV heads, d {}, block {}, top-k {}, local {}, initial {}\n", s.name,
                        s.shape.hq, s.shape.hkv, s.shape.d, s.shape.block, s.shape.topk, s.shape.local_blocks,
                        s.shape.init_blocks);
    shapes[std::string(s.name)] = {
        {"hq", s.shape.hq}, {"hkv", s.shape.hkv}, {"d", s.shape.d}, {"block", s.shape.block}, {"topk", s.shape.topk}};
  }
  text += "ragged batches (rag.NAME; any other is a list of its sequences, q1.n33_q4.n129)\n";
  for (const auto& b : ragged_batches()) {
    text += fmt::format("  {:<10} {}\n", b.name, b.what);
    batches[std::string(b.name)] = b.what;
  }
  text += "families\n";
  for (const auto& f : families()) {
    std::string variants;
    for (const auto v : f.variants)
      if (!v.empty()) variants += (variants.empty() ? "" : ", ") + std::string(v);
    if (f.variants.empty()) variants = "NAME";
    text += fmt::format("  {:<10} {}{}\n", f.name, f.what, variants.empty() ? "" : " [" + variants + "]");
    kinds[std::string(f.name)] = f.what;
  }
  out.print(text);
  out.write({{"shapes", shapes}, {"ragged_batches", batches}, {"families", kinds}});
  return 0;
}

}  // namespace

void add_list(CLI::App& app, invocation& chosen) {
  constexpr const char* all_lists = "cases, implementations, mutants, variants or vocabulary";
  struct arguments {
    std::string what = "cases";
    selection_options which;
    recorded_option recorded;
    output out;
  };
  auto a = std::make_shared<arguments>();
  CLI::App* verb = app.add_subcommand("list",
                                      "List cases with their cost, implementations, mutants and variants that try the "
                                      "suite, or the words of case names");
  verb->add_option("WHAT", a->what, all_lists)->capture_default_str();
  a->which.declare(*verb);
  a->recorded.declare(*verb);
  a->out.declare(*verb);
  verb->callback([a, &chosen] {
    chosen.run = [a] {
      a->out.open();
      if (a->what == "cases") return list_cases(a->which, a->recorded, a->out);
      if (a->what == "implementations") return list_implementations(a->out);
      if (a->what == "vocabulary") return list_vocabulary(a->out);
      if (a->what == "mutants") return list_mutants(a->out);
      if (a->what == "variants") return list_variants(a->out);
      bad_input("WHAT", a->what, "nothing of that name to list", all_lists);
    };
  });
}

}  // namespace msabench
