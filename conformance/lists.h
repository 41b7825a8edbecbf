// SPDX-License-Identifier: Apache-2.0
// Case lists: plain files of case names without a seed (conformance/lists/*.txt), built into the program. A line
// `include NAME` nests another list, `#` begins a comment.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "core/record.h"

namespace msabench {

// Levels in ascending order of cost: sanitize (under memory and race checkers), smoke, core, full.
std::vector<std::string> levels();

struct case_list {
  std::string name;
  std::vector<std::string> names;         // without seed, in order, each once
  std::set<std::string> every_shard;      // those of `names` that each shard runs
  std::vector<withdrawn_case> withdrawn;  // no longer in `names`
  std::string sha256;                     // of the expanded names
};

// Throws usage_error (field "--level") for an unknown level; suite_error for a broken list.
case_list load_list(std::string_view level);

// Expands a list text: a case name without its seed, `every_shard NAME` or `include LIST` per line, `#` begins a comment.
// `resolve` gives the text of an included list. Throws usage_error naming list and line.
case_list expand_list(std::string_view name, std::string_view text, std::string (*resolve)(std::string_view));

// Adds the cases of another text in the same form, without includes, to a list. usage_error naming `source` and line.
void add_cases(case_list& list, std::string_view source, std::string_view text);

// Lines `NAME  REASON`: a case that turned out to be wrong, and what is wrong with it. Throws usage_error naming the line.
std::vector<withdrawn_case> read_withdrawn(std::string_view text);

// Those of this build, whether in a level or not.
const std::vector<withdrawn_case>& withdrawn_cases();

// Takes out of the list what it has of these, and keeps it in list.withdrawn.
void withdraw(case_list& list, const std::vector<withdrawn_case>& cases);

constexpr std::uint64_t most_shards = 1000000;

// What a run takes out of a list.
struct case_selection {
  std::vector<std::string> operators;  // empty: all
  std::vector<std::string> filters;    // globs over the whole name, of which one has to match; empty: all
  std::uint64_t seed = 0;
  std::int64_t shard_index = 0, shard_count = 1;
};

// In the order of the list. Shards are of about equal cost; each case is in one of them, but for those that every shard runs.
std::vector<case_spec> choose(const case_list& list, const case_selection& wanted);

// What the selection would have chosen, had it not been withdrawn: the same for every shard.
std::vector<withdrawn_case> withdrawn_of(const case_list& list, const case_selection& wanted);

bool glob_matches(std::string_view pattern, std::string_view text);
// One of them does, or there are none.
bool any_glob_matches(const std::vector<std::string>& patterns, std::string_view text);

}  // namespace msabench
