// SPDX-License-Identifier: Apache-2.0
// What the suite tests itself with: mutants that it has to reject, variants that it has to accept, and the cases that they
// run (conformance/lists/mutants.txt, variants.txt and core.selftest.txt, built into the program).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace msabench {

struct mutant_entry {
  std::string id;                   // "IDX-3.a"
  std::vector<std::string> checks;  // of its own stage, of which one has to fail: ids of checks, "crash", "timeout"
  std::vector<std::string> cases;   // without seed; the first is meant for it
};

struct variant_entry {
  std::string name;
  std::vector<std::string> cases;  // without seed
};

struct selftest_lists {
  std::vector<mutant_entry> mutants;
  std::vector<variant_entry> variants;
  std::vector<std::string> cases;  // core.selftest, without seed
  std::string sha256;              // of all three texts without their comments
};

// Of this build. suite_error for a broken list.
const selftest_lists& built_in_selftest_lists();

// Lines `ID CHECK[,CHECK...] CASE CASE...` and `NAME CASE...`. usage_error naming the line.
std::vector<mutant_entry> read_mutants(std::string_view text);
std::vector<variant_entry> read_variants(std::string_view text);

// Lines `lists SHA256` and `score TEXT`: the text if it was obtained with lists of that hash; else "none".
std::string score_in(std::string_view text, std::string_view lists_sha256);

// What the self-test came to that is stored with this build, if it had these lists; else "none".
std::string stored_selftest_score();

}  // namespace msabench
