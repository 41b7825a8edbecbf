// SPDX-License-Identifier: Apache-2.0
// msabench golden check: compare the reference with golden files of independent implementations.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "cli/verbs.h"
#include "conformance/golden.h"
#include "core/json.h"
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
      t.left_out += (t.left_out.empty() ? "" : ", ") + each.tensor;
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
  if (!t.left_out.empty()) text += fmt::format("  no oracle in this version for: {}\n", t.left_out);
  return text;
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

}  // namespace

void add_golden(CLI::App& app, invocation& chosen) {
  struct arguments {
    std::vector<std::string> files;
    output out;
  };
  auto a = std::make_shared<arguments>();
  CLI::App* verb = app.add_subcommand("golden", "Golden data of independent implementations");
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
}

}  // namespace msabench
