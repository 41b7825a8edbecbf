// SPDX-License-Identifier: Apache-2.0
// The options that say which implementation is run and how, shared by check and repro.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "core/record.h"
#include "host/executor.h"

namespace msabench {

class implementation_options {
 public:
  void declare(CLI::App& verb);

  // Checks everything that can be checked without loading. Throws usage_error.
  void resolve();

  std::unique_ptr<executor> make() const;
  // After resolve().
  const implementation_ref& reference() const { return *where_; }
  const executor_options& executor_settings() const { return how_; }
  bool in_process() const { return in_process_; }
  // The built-in `naive`, which errors are compared with; null where it is what runs, or is not there.
  std::unique_ptr<executor> make_naive() const;
  std::optional<double> timeout_s() const { return timeout_s_; }
  std::string repro_suffix() const;  // the options that reproduce this choice, with a leading blank

  // For verbs that choose themselves.
  void choose(std::string impl) { impl_ = std::move(impl); }

 private:
  std::string impl_, device_text_, threads_text_, timeout_text_;
  bool in_process_ = false;
  std::optional<implementation_ref> where_;
  std::optional<double> timeout_s_;
  executor_options how_;
};

// Everything of a run record but its cases.
run_record begin_record(const std::vector<std::string>& argv, const implementation_record& implementation);

}  // namespace msabench
