// SPDX-License-Identifier: Apache-2.0
// What every fuzzer of a parser asks: foreign text is taken or refused in one line. Any other exception, a crash, a hang
// or undefined behaviour ends the fuzzer, which leaves the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"

namespace msabench::fuzz_test {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline void require(bool holds) {
  if (!holds) std::abort();
}

// False: refused.
template <class Parse>
bool taken(Parse parse) {
  try {
    parse();
    return true;
  } catch (const usage_error& e) {
    const std::string_view line = e.what();
    require(!line.empty() && line.find('\n') == std::string_view::npos);
    return false;
  }
}

}  // namespace msabench::fuzz_test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
