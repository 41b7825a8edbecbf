// SPDX-License-Identifier: Apache-2.0
// msabench list: what there is.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "cli/selection.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/units.h"
#include "host/executor.h"

namespace msabench {

namespace {

using nlohmann::json;

int list_cases(const selection_options& which, const output& out) {
  const auto cases = choose(load_list(which.level()), which.resolve());
  json rows = json::array();
  std::string text;
  double total = 0;
  for (const auto& c : cases) {
    const double cost = static_cast<double>(cost_triples(c));
    total += cost;
    text += fmt::format("{:<70} {:>9}\n", name(c), format_count(cost));
    rows.push_back({{"name", name(c)}, {"definition_sha256", definition_sha256(c)}, {"cost_triples", cost_triples(c)}});
  }
  text += fmt::format("{} cases, cost {} (row, head, visible key) triples\n", cases.size(), format_count(total));
  out.print(text);
  out.write({{"level", which.level()}, {"cases", rows}});
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
  text += "ragged batches (rag.NAME)\n";
  for (const auto& b : ragged_batches()) {
    text += fmt::format("  {:<10} {}\n", b.name, b.what);
    batches[std::string(b.name)] = b.what;
  }
  text += "families\n";
  for (const auto& f : families()) {
    std::string variants;
    for (const auto v : f.variants)
      if (!v.empty()) variants += (variants.empty() ? "" : ", ") + std::string(v);
    text += fmt::format("  {:<10} {}{}\n", f.name, f.what, variants.empty() ? "" : " [" + variants + "]");
    kinds[std::string(f.name)] = f.what;
  }
  out.print(text);
  out.write({{"shapes", shapes}, {"ragged_batches", batches}, {"families", kinds}});
  return 0;
}

}  // namespace

void add_list(CLI::App& app, invocation& chosen) {
  struct arguments {
    std::string what = "cases";
    selection_options which;
    output out;
  };
  auto a = std::make_shared<arguments>();
  CLI::App* verb =
      app.add_subcommand("list", "List cases with their cost, implementations, or the words of case names");
  verb->add_option("WHAT", a->what, "cases, implementations or vocabulary")->capture_default_str();
  a->which.declare(*verb);
  a->out.declare(*verb);
  verb->callback([a, &chosen] {
    chosen.run = [a] {
      a->out.open();
      if (a->what == "cases") return list_cases(a->which, a->out);
      if (a->what == "implementations") return list_implementations(a->out);
      if (a->what == "vocabulary") return list_vocabulary(a->out);
      bad_input("WHAT", a->what, "nothing of that name to list", "cases, implementations or vocabulary");
    };
  });
}

}  // namespace msabench
