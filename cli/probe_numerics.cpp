// SPDX-License-Identifier: Apache-2.0
// msabench probe-numerics: how an implementation computes, as far as exact probes tell, and a declaration to start from.
#include "conformance/probe_numerics.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/implementation.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/verdict.h"

namespace msabench {
namespace {

std::string table_of(const probed_numerics& seen) {
  std::string text =
      fmt::format("{:<20}{:<18}{:<18}{:<20}{}\n", "number", "seen", "declared", "the declaration is", "by");
  for (const auto& n : seen.numbers)
    text +=
        fmt::format("{:<20}{:<18}{:<18}{:<20}{}\n", n.field, n.seen.value_or("-"), n.declared, name(n.against), n.how);
  return text;
}

std::string advice_of(const probed_numerics& seen) {
  std::string text;
  for (const auto& n : seen.numbers) {
    if (n.against == comparison::finer)
      text += fmt::format("{}: {} is declared and {} was seen: it would fail\n", n.field, n.declared, *n.seen);
    if (n.against == comparison::coarser)
      text += fmt::format("{}: {} is declared and {} was seen: its limits are wider than need be\n", n.field,
                          n.declared, *n.seen);
  }
  return text;
}

nlohmann::json document(const probed_numerics& seen, const probe_session& session, const implementation_record& impl) {
  auto numbers = nlohmann::json::array();
  for (const auto& n : seen.numbers)
    numbers.push_back({{"field", n.field},
                       {"seen", n.seen ? nlohmann::json(*n.seen) : nlohmann::json(nullptr)},
                       {"declared", n.declared},
                       {"comparison", std::string(name(n.against))},
                       {"how", n.how}});
  return {{"implementation", impl.name},
          {"problem", session.asked()},
          {"numbers", numbers},
          {"proposed", seen.proposed},
          {"declared", session.declared()}};
}

int probe_and_print(const implementation_options& impl, const std::string& operation, const std::string& type,
                    const output& out) {
  const auto on = impl.make();
  probe_session session(*on, *op_from_name(operation), *dtype_from_name(type));
  const probed_numerics seen = probe_numerics(session);
  out.print(fmt::format("{}: {}\n\n{}\n", on->info().name, session.asked(), table_of(seen)));
  if (const auto advice = advice_of(seen); !advice.empty()) out.print(advice + "\n");
  out.print(fmt::format("A declaration to start from; what was not told apart is as declared:\n\n{}\n",
                        c_initialiser(seen.proposed)));
  out.write(document(seen, session, on->info()));
  const bool any_finer =
      std::ranges::any_of(seen.numbers, [](const auto& n) { return n.against == comparison::finer; });
  return any_finer ? exit_code::failed : exit_code::ok;
}

}  // namespace

void add_probe_numerics(CLI::App& app, invocation& chosen) {
  struct arguments {
    implementation_options impl;
    output out;
    std::string operation = "attend", type = "bf16";
  };
  auto a = std::make_shared<arguments>();
  CLI::App* verb = app.add_subcommand("probe-numerics", "See how an implementation rounds, and propose a declaration");
  a->impl.declare(*verb);
  verb->add_option("--op", a->operation, "Operator: attend or dense")->type_name("OP")->capture_default_str();
  verb->add_option("--type", a->type, "Storage type: bf16, fp16 or fp32")->type_name("TYPE")->capture_default_str();
  a->out.declare(*verb);
  verb->callback([a, &chosen] {
    chosen.run = [a] {
      a->impl.resolve();
      if (a->operation != "attend" && a->operation != "dense")
        bad_input("--op", a->operation, "has no probes", "attend or dense");
      if (a->type != "bf16" && a->type != "fp16" && a->type != "fp32")
        bad_input("--type", a->type, "has no probes", "bf16, fp16 or fp32");
      a->out.open();
      return probe_and_print(a->impl, a->operation, a->type, a->out);
    };
  });
}

}  // namespace msabench
