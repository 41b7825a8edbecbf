// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace msabench::plugin_test {

/// While it lives the loader does not find files with this in their name, whoever asks: a machine without them.
class hidden_libraries {
 public:
  explicit hidden_libraries(std::string name);
  hidden_libraries(const hidden_libraries&) = delete;
  hidden_libraries& operator=(const hidden_libraries&) = delete;
  ~hidden_libraries();
};

}  // namespace msabench::plugin_test
