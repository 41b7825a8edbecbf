// SPDX-License-Identifier: Apache-2.0
// Where a verb's words go: tables for people on stdout, or on stderr when `--json -` claims stdout for the JSON.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace msabench {

class output {
 public:
  // Declares --json FILE.
  void declare(CLI::App& verb);

  // Before any work: sees that the file can be written.
  void open() const;

  void print(std::string_view text) const;           // with its line breaks
  void write(const nlohmann::json& document) const;  // to --json, if given
  bool wants_json() const { return !json_path_.empty(); }
  const std::string& json_path() const { return json_path_; }
  std::FILE* people() const { return json_path_ == "-" ? stderr : stdout; }
  bool is_terminal() const;
  bool colour() const;  // a terminal, and NO_COLOR is not set

 private:
  std::string json_path_;
};

}  // namespace msabench
