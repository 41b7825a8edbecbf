// SPDX-License-Identifier: Apache-2.0
// The options that choose cases, shared by check and list.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "conformance/lists.h"

namespace msabench {

// --filter, which may stand several times.
void add_filter_option(CLI::App& verb, std::vector<std::string>& globs);

class selection_options {
 public:
  void declare(CLI::App& verb);
  case_selection resolve() const;  // throws usage_error
  const std::string& level() const { return level_; }

 private:
  std::string level_ = "smoke", seed_ = "0", shard_ = "0/1";
  std::vector<std::string> operators_, filters_;
};

}  // namespace msabench
