// SPDX-License-Identifier: Apache-2.0
// msabench golden: check compares the reference with golden files of independent implementations, make makes files of
// the same format.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/output.h"
#include "cli/verbs.h"
#include "conformance/golden.h"
#include "conformance/golden_make.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/units.h"
#include "core/verdict.h"

namespace msabench {

namespace {

using nlohmann::json;

struct tally {
  int passed = 0, failed = 0, not_compared = 0;
  std::string left_out;
};

tally count(const golden_result& file) {
  tally t;
  for (const auto& each : file.tensors) {
    if (!each.compared) {
      ++t.not_compared;
      t.left_out += fmt::format("  {} is not compared: {}\n", each.tensor, each.note);
    } else {
      ++(each.passed ? t.passed : t.failed);
    }
  }
  return t;
}

std::string text_of(const golden_result& file) {
  const tally t = count(file);
  const char* word = t.failed != 0 ? "FAIL" : t.passed != 0 ? "pass" : "not verified";
  std::string text = fmt::format("{} ({}): {}, {} tensors agree, {} differ, {} not compared\n", file.file, file.kind,
                                 word, t.passed, t.failed, t.not_compared);
  for (const auto& each : file.tensors)
    if (each.compared && !each.passed)
      text += fmt::format("  {}[{}]: got {}, want {} (norm of the difference {:.3g}, largest {:.3g}, relative){}\n",
                          each.tensor, fmt::join(each.worst_index, ","), each.got, each.want, each.rel_norm,
                          each.max_rel, each.note.empty() ? "" : "; " + each.note);
  return text + t.left_out;
}

json json_of(const golden_result& file) {
  json tensors = json::array();
  for (const auto& each : file.tensors) {
    json row = {{"tensor", each.tensor},
                {"compared", each.compared},
                {"passed", each.compared && each.passed},
                {"note", each.note}};
    if (each.compared) {
      row["worst_index"] = each.worst_index;
      for (const auto& [key, value] :
           {std::pair{"rel_norm", each.rel_norm}, {"max_rel", each.max_rel}, {"got", each.got}, {"want", each.want}})
        put_number(row, key, value);
    }
    tensors.push_back(row);
  }
  return {{"file", file.file},
          {"kind", file.kind},
          {"parameters", file.parameters},
          {"passed", file.passed()},
          {"tensors", tensors}};
}

int check_files(const std::vector<std::string>& files, const output& out) {
  json rows = json::array();
  bool failed = false, unverified = false;
  for (const auto& path : files) {
    const golden_result result = check_golden(path);
    const tally t = count(result);
    failed |= t.failed != 0;
    unverified |= t.passed + t.failed == 0;
    out.print(text_of(result));
    rows.push_back(json_of(result));
  }
  out.write({{"files", rows}});
  return failed ? exit_code::failed : unverified ? exit_code::nothing_verified : exit_code::ok;
}

namespace fs = std::filesystem;

struct make_arguments {
  std::vector<std::string> cases;
  golden_request wanted;
  std::string path, hidden = "64", window = "4";
  output out;
};

struct golden_job {
  golden_request wanted;
  fs::path path;
};

// A file for one case; for several, or into a folder that is there, one file each, named after its case.
std::vector<golden_job> jobs_of(const make_arguments& a) {
  std::error_code ignored;
  const bool into_folder = a.cases.size() > 1 || fs::is_directory(a.path, ignored);
  std::vector<golden_job> jobs;
  std::set<std::string> seen;
  for (const std::string& name : a.cases) {
    golden_job job{a.wanted, a.path};
    job.wanted.case_name = name;
    job.wanted.hidden = parse_size("--hidden", a.hidden);
    const auto window = parse_uint64("--window", a.window);
    if (window > static_cast<std::uint64_t>(max_size))
      bad_input("--window", a.window, "is too long", "temporal patches of a segment, 0 = unlimited");
    job.wanted.window = static_cast<std::int64_t>(window);
    require_makeable(job.wanted);
    if (!seen.insert(name).second) bad_input("case", name, "is named twice", "name each case once");
    if (into_folder) {
      std::string file = name;
      std::ranges::replace(file, '/', '_');
      job.path /= file + ".safetensors";
    }
    jobs.push_back(std::move(job));
  }
  if (into_folder) ensure_folder("-o", a.path);
  for (const auto& job : jobs) require_writable("-o", job.path);
  return jobs;
}

int make_files(const make_arguments& a) {
  json rows = json::array();
  for (const auto& job : jobs_of(a)) {
    make_golden(job.wanted, "-o", job.path);
    a.out.print(fmt::format("{} ({}) written: {}\n", job.path.string(), job.wanted.kind, job.wanted.case_name));
    rows.push_back({{"file", job.path.string()}, {"kind", job.wanted.kind}, {"case", job.wanted.case_name}});
  }
  a.out.write({{"files", rows}});
  return exit_code::ok;
}

void add_make(CLI::App& golden, invocation& chosen) {
  auto a = std::make_shared<make_arguments>();
  CLI::App* make = golden.add_subcommand(
      "make", "Make golden files: inputs of the named cases from the generator, results from the reference");
  make->add_option("--kind", a->wanted.kind, fmt::format("Kind of the files: {}", fmt::join(golden_kinds, ", ")))
      ->type_name("KIND")
      ->required();
  make->add_option(
          "CASE", a->cases,
          "Names of cases of family random, e.g. kl/h6x3.d16.di24.b16.k5.l2.i1/q37.n201/fp32.contig/random/s0 or "
          "vit3d/m3/g10x4x6_1x2x4/fp32/random/s0")
      ->required();
  make->add_option("-o,--output", a->path, "The file; for several cases a folder, one file each")
      ->type_name("FILE")
      ->required();
  make->add_option("--hidden", a->hidden, "text_layer: width of the hidden states")
      ->type_name("N")
      ->capture_default_str();
  make->add_option("--window", a->window, "vit3d: temporal patches of a segment, 0 = unlimited")
      ->type_name("N")
      ->capture_default_str();
  a->out.declare(*make);
  make->callback([a, &chosen] {
    chosen.run = [a] {
      a->out.open();
      return make_files(*a);
    };
  });
}

}  // namespace

void add_golden(CLI::App& app, invocation& chosen) {
  struct arguments {
    std::vector<std::string> files;
    output out;
  };
  auto a = std::make_shared<arguments>();
  CLI::App* verb = app.add_subcommand(
      "golden", "Golden data: what independent implementations computed, and files of the same format");
  verb->require_subcommand(1);
  CLI::App* check = verb->add_subcommand(
      "check", "Compare the reference with golden files; exit 1 if one differs, 3 if one has nothing to compare");
  check->add_option("FILE", a->files, "safetensors files with a `case` in their metadata")->required();
  a->out.declare(*check);
  check->callback([a, &chosen] {
    chosen.run = [a] {
      a->out.open();
      return check_files(a->files, a->out);
    };
  });
  add_make(*verb, chosen);
}

}  // namespace msabench
