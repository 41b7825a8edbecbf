// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>

namespace msabench::cuda {

struct refusal_rule {
  bool refused;
  const char* field;
  std::int64_t value;
  const char* reason;  ///< what is wrong; remedy
};

/// Text of the first rule that refuses, valid until this thread's next call; nullptr: none does.
inline const char* first_refusal(std::initializer_list<refusal_rule> rules) {
  static thread_local char text[192];
  for (const auto& rule : rules) {
    if (!rule.refused) continue;
    std::snprintf(text, sizeof text, "%s %lld: %s", rule.field, static_cast<long long>(rule.value), rule.reason);
    return text;
  }
  return nullptr;
}

}  // namespace msabench::cuda
