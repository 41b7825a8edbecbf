// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"

namespace msabench {

void output::declare(CLI::App& verb) {
  verb.add_option("--json", json_path_,
                  "Write the result as JSON to FILE; - is standard output (tables then go to standard error)")
      ->type_name("FILE")
      ->check(
          CLI::Validator([](const std::string& path) { return path.empty() ? "is empty; give a file name" : ""; }, ""));
}

void output::open() const {
  if (wants_json() && json_path_ != "-") require_writable("--json", json_path_);
}

void output::print(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), people());
  std::fflush(people());
}

void output::write(const nlohmann::json& document) const {
  if (!wants_json()) return;
  const std::string text = document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (json_path_ != "-") return write_file_atomically("--json", json_path_, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    bad_input("--json", "-", "standard output could not be written", "give a file");
}

bool output::is_terminal() const { return isatty(fileno(people())) == 1; }

bool output::colour() const {
  const char* no_color = std::getenv("NO_COLOR");
  return is_terminal() && (no_color == nullptr || *no_color == '\0');
}

}  // namespace msabench
