// SPDX-License-Identifier: Apache-2.0
#include "reports/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_fields.h"
#include "reports/outcome.h"

namespace msabench {
namespace {

constexpr std::uint64_t most_part_bytes = 16 << 20;
constexpr std::string_view conform = "conform";  // parts that are shards of a level

// The GPU; of a run on CPUs the processor.
std::string device_of(const run_record& run) {
  for (const char* key : {"device", "cpu"})
    if (run.environment.contains(key) && run.environment.at(key).is_string())
      return run.environment.at(key).get<std::string>();
  return "unknown";
}

std::string commit_text(const std::string& commit, bool dirty) { return commit + (dirty ? " with local changes" : ""); }

[[noreturn]] void refuse(std::string_view field, const std::string& source, std::string_view what,
                         const std::string& here, const std::string& there) {
  bad_input(field, source,
            fmt::format("{} is {}, and that of the first report {}", what, one_line(here, 100), one_line(there, 100)),
            "merge reports of one suite, implementation, device, level and seed");
}

void require_alike(const named_run& first, const named_run& other) {
  const run_record &a = first.run, &b = other.run;
  const auto same = [&](std::string_view what, const std::string& x, const std::string& y) {
    if (x != y) refuse("REPORT", other.source, what, y.empty() ? "none" : y, x.empty() ? "none" : x);
  };
  same("the suite's version", a.suite_version, b.suite_version);
  same("the suite's commit", commit_text(a.suite_commit, a.suite_dirty), commit_text(b.suite_commit, b.suite_dirty));
  for (const auto& [list, hash] : a.lists) same("list " + list, hash, b.lists.contains(list) ? b.lists.at(list) : "");
  same("the implementation", a.implementation.name, b.implementation.name);
  // Of a library that the file opens, its own hash says nothing.
  same("the implementation's version", a.implementation.version, b.implementation.version);
  same("the SHA-256 of the implementation's file", a.implementation.sha256, b.implementation.sha256);
  same("the device", device_of(a), device_of(b));
  same("the level", a.level, b.level);
  same("the seed", std::to_string(a.seed), std::to_string(b.seed));
}

// Greater is worse. What was seen goes before what was not.
int badness(const case_record& c) {
  if (c.decided == verdict::suite_error) return 6;
  if (is_failure(c)) return 5;
  switch (c.decided) {
    case verdict::insensitive:
      return 4;
    case verdict::unsupported:
      return 3;
    case verdict::waived:
      return 2;
    case verdict::quality_warning:
      return 1;
    default:
      return 0;
  }
}

// What of its level, or beside it, a run was asked for: "--filter attend/*". Empty: all of the level.
std::string selection_of(const std::vector<std::string>& argv) {
  // repro has no level, but a case.
  if (argv.size() > 2 && argv[1] == "repro") return argv[1] + " " + argv[2];
  std::set<std::string> chosen;
  for (std::size_t i = 0; i < argv.size(); ++i)
    for (const std::string option : {"--filter", "--op", "--recorded"}) {
      for (std::size_t value = i + 1; argv[i] == option && value < argv.size() && !argv[value].starts_with("-");
           ++value)
        chosen.insert(option + " " + argv[value]);
      if (argv[i].starts_with(option + "=")) chosen.insert(option + " " + argv[i].substr(option.size() + 1));
    }
  return fmt::format("{}", fmt::join(chosen, " "));
}

class merger {
 public:
  explicit merger(const named_run& first) : first_(first) {
    out_.run = first.run;
    out_.run.cases.clear();
    out_.run.withdrawn.clear();
    out_.run.merged_from.clear();
    out_.run.partial = false;
    out_.run.shard_index = 0;
    out_.run.shard_count = 1;
  }

  void add(const named_run& from) {
    if (from.run.fuzz)
      bad_input("REPORT", from.source, "is of random cases, which make no whole", "merge reports of a level");
    require_alike(first_, from);
    const run_record& run = from.run;
    out_.run.start_utc = std::min(out_.run.start_utc, run.start_utc);
    for (const auto& each : run.withdrawn)
      if (std::ranges::find(out_.run.withdrawn, each) == out_.run.withdrawn.end()) out_.run.withdrawn.push_back(each);
    for (const auto& c : run.cases) add(from.source, c);
    if (run.merged_from.empty()) {
      add(merged_source{from.source, run.start_utc, run.argv, run.shard_index, run.shard_count,
                        static_cast<std::int64_t>(run.cases.size()), run.partial});
    } else {
      for (const auto& source : run.merged_from) add(source);
    }
    if (&from != &first_) out_.run.parts.insert(out_.run.parts.end(), run.parts.begin(), run.parts.end());
  }

  merged_run take() {
    // Shards that an earlier merge has missed may be here now.
    std::erase_if(out_.run.parts, [](const run_part& p) { return p.part == conform && p.of.empty(); });
    add_missing_shards();
    return std::move(out_);
  }

 private:
  void add(const std::string& source, const case_record& c) {
    const auto [at, is_new] = where_.try_emplace(c.name, out_.run.cases.size());
    if (is_new) {
      out_.run.cases.push_back(c);
      sources_.push_back(source);
      return;
    }
    case_record& kept = out_.run.cases[at->second];
    if (kept.definition_sha256 != c.definition_sha256)
      bad_input("REPORT", source, c.name + " is another problem there than in " + sources_[at->second],
                "merge reports of one suite");
    if (kept.decided == c.decided && kept.kind == c.kind) return;
    const std::string said = fmt::format("{} in {}, {} in {}; the worse one stands", verdict_with_kind(kept),
                                         sources_[at->second], verdict_with_kind(c), source);
    out_.disagreements.push_back(c.name + ": " + said);
    std::vector<std::string> remarks = kept.remarks;
    if (badness(c) > badness(kept)) {
      kept = c;
      sources_[at->second] = source;
    }
    remarks.insert(remarks.end(), kept.remarks.begin(), kept.remarks.end());
    kept.remarks.clear();
    for (auto& remark : remarks)
      if (std::ranges::find(kept.remarks, remark) == kept.remarks.end()) kept.remarks.push_back(std::move(remark));
    kept.remarks.push_back("reports disagree: " + said);
  }

  void add(const merged_source& source) {
    out_.run.merged_from.push_back(source);
    auto& state = shards_[selection_of(source.argv)][source.shard_count];
    if (!source.partial) state.insert(source.shard_index);
  }

  using whole_shards = std::map<std::int64_t, std::set<std::int64_t>>;  // by their count

  // Complete if all shards of one way to cut it are; otherwise the count of which fewest are open.
  static std::pair<std::int64_t, bool> nearest_cut(const whole_shards& cuts) {
    std::int64_t best = 0, missing = 0;
    for (const auto& [count, whole] : cuts) {
      const std::int64_t open = count - static_cast<std::int64_t>(whole.size());
      if (best == 0 || open < missing) best = count, missing = open;
    }
    return {best, missing == 0};
  }

  // What was asked for has to be complete, each selection for itself; the whole level has every selection in it.
  void add_missing_shards() {
    if (const auto all = shards_.find(""); all != shards_.end() && nearest_cut(all->second).second) return;
    for (const auto& [selection, cuts] : shards_) {
      const auto [count, complete] = nearest_cut(cuts);
      for (std::int64_t i = 0; i < count && !complete; ++i) {
        if (cuts.at(count).contains(i)) continue;
        std::vector<std::string> words;
        if (!out_.run.level.empty()) words.push_back(out_.run.level);
        if (!selection.empty()) words.push_back(selection);
        words.push_back(fmt::format("shard {} of {}", i, count));
        run_part open;
        open.part = conform;
        open.item = fmt::format("{}", fmt::join(words, ", "));
        open.detail = "no report has run it to its end";
        out_.run.parts.push_back(open);
      }
    }
  }

  const named_run& first_;
  merged_run out_;
  std::map<std::string, std::size_t> where_;    // of a case in out_
  std::vector<std::string> sources_;            // of each case
  std::map<std::string, whole_shards> shards_;  // by selection
};

}  // namespace

merged_run merge_runs(const std::vector<named_run>& runs) {
  merger all(runs.at(0));
  for (const auto& each : runs) all.add(each);
  return all.take();
}

std::vector<part_line> read_part_lines(const std::filesystem::path& path, std::string_view field) {
  const std::string text = read_file(field, path, most_part_bytes);
  std::vector<part_line> lines;
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    const auto end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty()) continue;
    part_line read;
    read.source = fmt::format("{}:{}", path.string(), number);
    const auto in = parse_json(field, read.source, line, {1 << 16, 8});
    try {
      read.part = read_run_part("part", in);
      const json_fields fields("part", in);
      fields.require("commit");
      fields.read("commit", read.commit);
      fields.read("dirty", read.dirty);
      fields.read("device", read.device);
    } catch (const usage_error& e) {
      const auto& wrong = e.what_is_wrong();
      const diagnostic inner{wrong.field, wrong.value, wrong.problem, {}};
      bad_input(field, read.source, "is no line of parts: " + inner.line(), "give a parts.jsonl that ci/gpu wrote");
    }
    lines.push_back(std::move(read));
  }
  return lines;
}

void add_parts(merged_run& into, const std::vector<part_line>& lines) {
  run_record& run = into.run;
  const std::string commit = commit_text(run.suite_commit, run.suite_dirty), device = device_of(run);
  for (const auto& line : lines) {
    const run_part& part = line.part;
    if (const std::string here = commit_text(line.commit, line.dirty); here != commit)
      refuse("--parts", line.source, "the suite's commit", here, commit);
    if (!line.device.empty() && line.device != device)
      refuse("--parts", line.source, "the device", line.device, device);
    if (part.of != "suite" && part.sha256 != run.implementation.sha256) continue;
    if (part.part == conform) continue;  // the reports themselves say what became of their shards
    const auto kept = std::ranges::find_if(run.parts, [&](const run_part& p) {
      return p.part == part.part && p.item == part.item && p.of == part.of && p.sha256 == part.sha256;
    });
    if (kept == run.parts.end()) {
      run.parts.push_back(part);
      continue;
    }
    const auto rank = [](part_state s) {
      constexpr part_state from_least[] = {part_state::not_run, part_state::incomplete, part_state::passed,
                                           part_state::failed};
      return std::ranges::find(from_least, s) - from_least;
    };
    if (std::minmax(kept->state, part.state) == std::minmax(part_state::passed, part_state::failed))
      into.disagreements.push_back(fmt::format("{}: once {} and once {}; the worse one stands", title_of(part),
                                               name(kept->state), name(part.state)));
    if (rank(part.state) >= rank(kept->state)) *kept = part;
  }
}

}  // namespace msabench
