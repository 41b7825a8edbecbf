// SPDX-License-Identifier: Apache-2.0
#include "cli/selection.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/units.h"

namespace msabench {

void add_filter_option(CLI::App& verb, std::vector<std::string>& globs) {
  verb.add_option(
          "--filter", globs,
          "Only cases whose name matches the glob, * also matches /; can be repeated: cases that match any of them")
      ->type_name("GLOB")
      ->allow_extra_args(false)
      ->check(CLI::Validator(
          [](const std::string& glob) { return glob.empty() ? "is empty; leave it out to take every case" : ""; }, ""));
}

void selection_options::declare(CLI::App& verb) {
  verb.add_option("--level", level_, fmt::format("List of cases: {}", fmt::join(levels(), ", ")))
      ->type_name("LEVEL")
      ->capture_default_str();
  verb.add_option("--op", operators_, "Only these operators")->type_name("OP[,OP...]")->delimiter(',');
  add_filter_option(verb, filters_);
  verb.add_option("--seed", seed_, "Seed of all inputs")->type_name("N")->capture_default_str();
  verb.add_option("--shard", shard_, "Part I of N of the list, I from 0; parts cost about the same")
      ->type_name("I/N")
      ->capture_default_str();
}

case_selection selection_options::resolve() const {
  case_selection wanted;
  const auto known = levels();
  if (std::find(known.begin(), known.end(), level_) == known.end())
    bad_input("--level", level_, "unknown level", fmt::format("one of {}", fmt::join(known, ", ")));
  for (const auto& o : operators_)
    if (!op_from_name(o)) {
      std::string all;
      for (const op each : all_ops) all += (all.empty() ? "" : ", ") + std::string(name(each));
      bad_input("--op", o, "unknown operator", "one of " + all);
    }
  wanted.operators = operators_;
  wanted.filters = filters_;
  wanted.seed = parse_uint64("--seed", seed_);
  const auto slash = shard_.find('/');
  if (slash == std::string::npos) bad_input("--shard", shard_, "is no shard", "I/N, e.g. 0/4");
  const auto index = parse_uint64("--shard", shard_.substr(0, slash)),
             count = parse_uint64("--shard", shard_.substr(slash + 1));
  if (count < 1 || count > most_shards || index >= count)
    bad_input("--shard", shard_, "is out of range", "I/N with I from 0 to N - 1");
  wanted.shard_index = static_cast<std::int64_t>(index);
  wanted.shard_count = static_cast<std::int64_t>(count);
  return wanted;
}

}  // namespace msabench
