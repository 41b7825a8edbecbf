// SPDX-License-Identifier: Apache-2.0
// Names of cases: what is taken is spelt canonically, and stands for one problem.
#include <nlohmann/json.hpp>
#include <string>

#include "core/case.h"
#include "tests/fuzz/foreign_text.h"

using namespace msabench;
using namespace msabench::fuzz_test;

namespace {

// What a case expands to is as long as its batch.
constexpr std::int64_t longest_batch = 10'000;

void try_name(std::string_view text, accepted_families accepted) {
  case_spec c;
  if (!taken([&] { c = parse_case(text, accepted); })) return;
  require(name(c) == text);
  require(parse_case(name(c), accepted) == c);
  require(c.shape.hq % c.shape.hkv == 0 && c.shape.topk >= c.shape.local_blocks + c.shape.init_blocks);
  if (c.lengths.batch > longest_batch) return;
  require(!definition_sha256(c).empty());
  require(make_problem(c).total_q >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try_name(text_of(data, size), accepted_families::registered);
  try_name(text_of(data, size), accepted_families::random_for_all);
  return 0;
}
