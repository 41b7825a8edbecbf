// SPDX-License-Identifier: Apache-2.0
// Prints the speed and size of the reference with all gauges as a Markdown table (docs/reference-speed.md): a process of
// its own for each row, so that its peak of memory is its own. usage: msabench_reference_speed [ROW...]
#include <fmt/format.h>
#include <omp.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "m3_problem.h"

namespace msabench::reference {
namespace {

using testing::m3_problem;
using testing::m3_shape;

enum class kind { attend, dense, msa };

struct measurement {
  const char* name;
  kind what;
  const char* shape;
  m3_shape size;
  bool products;  // with the gauge of rounded operands, which costs one more sum per score
};

constexpr std::int64_t million = 1 << 20;
constexpr measurement measurements[] = {
    {"dense_1m", kind::dense, "one token at 1 048 576 keys, 64/4 heads", {.q_len = 1, .kv_len = million}, true},
    {"msa_1m", kind::msa, "one token at 1 048 576 keys, 64/4 heads", {.q_len = 1, .kv_len = million}, true},
    {"attend_2048", kind::attend, "2 048 tokens, causal, 64/4 heads", {.q_len = 2048, .kv_len = 2048}, true},
    {"attend_group_16", kind::attend, "32 tokens at 8 192 keys, 64/4 heads", {.q_len = 32, .kv_len = 8192}, true},
    {"attend_no_products",
     kind::attend,
     "the same without the gauge of rounded operands",
     {.q_len = 32, .kv_len = 8192},
     false},
    {"attend_group_1",
     kind::attend,
     "32 tokens at 8 192 keys, 4/4 heads",
     {.q_len = 32, .kv_len = 8192, .hq = 4},
     true},
};

std::string_view name_of(kind what) {
  switch (what) {
    case kind::attend:
      return "attend";
    case kind::dense:
      return "dense";
    case kind::msa:
      break;
  }
  return "msa";
}

std::vector<attend_row> run(const measurement& m, const m3_problem& problem) {
  const score_error err{.per_magnitude = 1e-5, .var_products = m.products ? 1e-10 : 0};
  const auto rows = problem.all_rows();
  if (m.what == kind::dense) return dense(problem.for_dense(), rows, err);
  if (m.what == kind::attend) return attend(problem.for_attend(), rows, err);
  return msa(problem.for_msa(), rows, {.per_magnitude = 1e-5}, err, err).attend;
}

int measure(const measurement& m) {
  const m3_problem problem(m.size);
  const auto start = std::chrono::steady_clock::now();
  const auto results = run(m, problem);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;

  double triples = 0;
  for (const auto& row : results) triples += static_cast<double>(row.n);
  // The index branch multiplies every visible key with each index head.
  if (m.what == kind::msa)
    for (std::int64_t row = 0; row < m.size.q_len; ++row)
      triples += static_cast<double>(m.size.hkv * (m.size.kv_len - m.size.q_len + row + 1));
  fmt::print("| `{}` | {} | {} | {:.1f} M | {:.2f} | {:.1f} M | {:.2f} | {} |\n", name_of(m.what), m.shape,
             m.size.q_len, triples / 1e6, time.count(), triples / 1e6 / time.count(),
             static_cast<double>(testing::peak_bytes()) / 1e9, omp_get_max_threads());
  return 0;
}

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  return "unknown processor";
}

int in_own_process(const char* program, const char* name) {
  std::fflush(stdout);
  std::string row = "--measure", argument = name, path = program;
  char* const arguments[] = {path.data(), row.data(), argument.data(), nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0) return 70;
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 70;
  return WEXITSTATUS(status);
}

int run(const std::vector<std::string_view>& arguments, const char* program) {
  if (arguments.size() == 2 && arguments[0] == "--measure") {
    for (const auto& m : measurements)
      if (m.name == arguments[1]) return measure(m);
    return 64;
  }
  for (const auto& wanted : arguments)
    if (std::ranges::none_of(measurements, [&](const auto& m) { return m.name == wanted; })) {
      fmt::print(stderr, "ROW {}: unknown; one of", wanted);
      for (const auto& m : measurements) fmt::print(stderr, " {}", m.name);
      fmt::print(stderr, "\n");
      return 64;
    }
  fmt::print("{}, {} threads, head dim 128, block 128, topk 16, bf16, paged\n\n", processor(), omp_get_max_threads());
  fmt::print("| operator | shape | rows | triples | seconds | triples/s | peak memory, GB | threads |\n");
  fmt::print("|---|---|---|---|---|---|---|---|\n");
  for (const auto& m : measurements) {
    if (!arguments.empty() && std::ranges::find(arguments, m.name) == arguments.end()) continue;
    if (const int code = in_own_process(program, m.name); code != 0) {
      fmt::print(stderr, "{}: ended with code {}\n", m.name, code);
      return code;
    }
  }
  return 0;
}

}  // namespace
}  // namespace msabench::reference

int main(int count, char** values) { return msabench::reference::run({values + 1, values + count}, values[0]); }
