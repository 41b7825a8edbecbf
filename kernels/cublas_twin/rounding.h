// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace msabench::cublas_twin {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) { return ceil_div(a, multiple) * multiple; }

}  // namespace msabench::cublas_twin
