// SPDX-License-Identifier: Apache-2.0
#include "core/generator.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/hashes.h"
#include "core/philox.h"

// One binary serves every CPU: these loops exist once more for wider vectors and the loader picks. Sanitizers run before the
// loader's choice is made, so they get the plain one.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && !defined(MSABENCH_SANITIZED)
#define MSABENCH_WIDE_CLONES __attribute__((target_clones("avx512f,avx512bw", "avx2", "default")))
#else
#define MSABENCH_WIDE_CLONES
#endif

namespace msabench {
namespace {

constexpr std::size_t lanes = 16;              // counters at a time
constexpr std::size_t chunk = 4 * lanes;       // words at a time

}
}
