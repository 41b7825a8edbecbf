// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <optional>
#include <string>

namespace msabench::plugin_test {

/// A variable of the environment with another value, or without one, until the end of the scope.
class changed_environment {
 public:
  changed_environment(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* before = ::getenv(name)) before_ = before;
    set(value);
  }
  changed_environment(const changed_environment&) = delete;
  changed_environment& operator=(const changed_environment&) = delete;
  ~changed_environment() { set(before_); }

 private:
  void set(const std::optional<std::string>& value) const {
    if (value)
      ::setenv(name_, value->c_str(), 1);
    else
      ::unsetenv(name_);
  }

  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace msabench::plugin_test
