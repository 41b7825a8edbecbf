// SPDX-License-Identifier: Apache-2.0
// msabench env: the machine as reports describe it.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "cli/verbs.h"
#include "host/executor.h"

namespace msabench {

void add_env(CLI::App& app, invocation& chosen) {
  auto out = std::make_shared<output>();
  CLI::App* verb = app.add_subcommand("env", "Show the machine as reports describe it");
  out->declare(*verb);
  verb->callback([out, &chosen] {
    chosen.run = [out] {
      out->open();
      const nlohmann::json all = environment();
      std::string text;
      for (const auto& [key, value] : all.items())
        text += fmt::format("{:<22} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
      out->print(text);
      out->write(all);
      return 0;
    };
  });
}

}  // namespace msabench
