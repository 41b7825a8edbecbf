// SPDX-License-Identifier: Apache-2.0
// Case lists: plain files of case names without a seed (conformance/lists/*.txt), built into the program. A line
// `include NAME` nests another list, `#` begins a comment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"

namespace msabench {

// Levels in ascending order of cost: smoke, core.
std::vector<std::string> levels();

struct case_list {
  std::string name;
  std::vector<std::string> names;  // without seed, in order, each once
  std::string sha256;              // of the expanded names
};

// Throws usage_error (field "--level") for an unknown level; suite_error for a broken list.
case_list load_list(std::string_view level);

// Expands a list text; `resolve` gives the text of an included list. Throws usage_error naming list and line.
case_list expand_list(std::string_view name, std::string_view text, std::string (*resolve)(std::string_view));

// What a run takes out of a list.
struct selection {
  std::vector<std::string> operators;  // empty: all
  std::string filter;                  // glob over the whole name, `*` also matches `/`; empty: all
  std::uint64_t seed = 0;
  std::int64_t shard_index = 0, shard_count = 1;  // every shard_count-th case, from shard_index on
};

std::vector<case_spec> choose(const case_list& list, const selection& wanted);

bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace msabench
