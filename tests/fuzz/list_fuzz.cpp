// SPDX-License-Identifier: Apache-2.0
// Lists of cases, lists of withdrawn ones, and globs.
#include "conformance/lists.h"
#include "core/case.h"
#include "tests/fuzz/foreign_text.h"

using namespace msabench;
using namespace msabench::fuzz_test;

namespace {

// `other` is a list, `round` includes itself.
std::string nested(std::string_view name) {
  if (name == "other") return "attend/m3/q1.n1M/bf16.paged/needle\n";
  if (name == "round") return "include round\n";
  bad_input("list", name, "unknown", "another");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  case_list list;
  if (taken([&] { list = expand_list("fuzzed", text, nested); })) {
    for (const auto& each : list.names) require(name_without_seed(parse_case(each + "/s0")) == each);
    for (const auto& each : list.every_shard) require(std::ranges::find(list.names, each) != list.names.end());
    require(list.sha256.size() == 64);
  }
  case_list extended;
  taken([&] { add_cases(extended, "fuzzed", text); });
  taken([&] { read_withdrawn(text); });
  const auto line = text.find('\n');
  if (size < 1000 && line != std::string_view::npos) glob_matches(text.substr(0, line), text.substr(line + 1));
  return 0;
}
