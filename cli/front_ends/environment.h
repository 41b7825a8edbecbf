// SPDX-License-Identifier: Apache-2.0
// What the front ends that have their own command line take from the environment instead: the implementation and the
// cases. MSABENCH_IMPL, MSABENCH_DEVICE, MSABENCH_THREADS, MSABENCH_TIMEOUT_S, MSABENCH_LEVEL, MSABENCH_SEED mean what
// the options of `msabench check` mean.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/error.h"
#include "host/executor.h"

namespace msabench {

struct front_end_setup {
  implementation_ref impl;
  executor_options how;
  std::optional<double> timeout_s;
  std::string repro_suffix;  // options that reproduce the choice with `msabench repro`
};

// Throws usage_error, whose field is the variable.
front_end_setup setup_from_environment();
std::string level_from_environment();
std::uint64_t seed_from_environment();

// The value of a variable; nothing if it is unset or empty.
std::optional<std::string> variable(const char* name);

// What `f` returns; a usage_error that it throws names the variable instead of an option.
template <class F>
auto from_variable(const char* name, F&& f) {
  try {
    return f();
  } catch (const usage_error& e) {
    diagnostic d = e.what_is_wrong();
    d.field = name;
    throw usage_error(d);
  }
}

// Calls `main` and turns what it throws into one line on stderr and an exit code, as `msabench` does.
int guarded(const char* program, const std::function<int()>& main);

}  // namespace msabench
