// SPDX-License-Identifier: Apache-2.0
// msabench flops: the work of attention by branch and context, counted; nothing runs.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/flops_text.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/files.h"
#include "core/model.h"
#include "core/units.h"
#include "perf/work_table.h"

namespace msabench {

namespace {

struct arguments {
  std::string model = "m3", context = "8K,32K,128K,512K,1M", phase = "prefill", chunk, device = "h200", csv;
  output out;
};

work_phase parse_phase(std::string_view text) {
  for (const auto phase : {work_phase::prefill, work_phase::decode, work_phase::training})
    if (name(phase) == text) return phase;
  bad_input("--phase", text, "is unknown", "prefill, decode or training");
}

work_request parse(const arguments& a) {
  work_request request;
  request.phase = parse_phase(a.phase);
  request.contexts = parse_sizes("--context", a.context);
  if (request.contexts.empty())
    bad_input("--context", a.context, "is empty", "give sizes separated by commas, like 8K,128K,1M");
  if (!a.chunk.empty()) {
    request.chunk = parse_size("--chunk", a.chunk);
    if (request.phase != work_phase::prefill)
      bad_input("--chunk", a.chunk, "is for prefill only", "leave one of both out");
  }
  request.model = find_model("--model", a.model);
  request.device = find_device("--device", a.device);
  return request;
}

void write_csv(const std::string& path, const std::string& csv) {
  if (path != "-") return write_file_atomically("--csv", path, csv);
  if (std::fwrite(csv.data(), 1, csv.size(), stdout) != csv.size() || std::fflush(stdout) != 0)
    bad_input("--csv", "-", "standard output could not be written", "give a file");
}

int flops(const arguments& a) {
  const work_request request = parse(a);
  if (!a.csv.empty() && a.csv == a.out.json_path())
    bad_input("--csv", a.csv, "names the same file as --json", "give each its own");
  a.out.open();
  if (!a.csv.empty() && a.csv != "-") require_writable("--csv", a.csv);
  const work_table table = make_work_table(request);
  if (a.csv == "-") {
    fmt::print(stderr, "{}", flops_text(table));
  } else {
    a.out.print(flops_text(table));
  }
  if (a.out.wants_json()) a.out.write(to_json(table));
  if (!a.csv.empty()) write_csv(a.csv, flops_csv(table));
  return 0;
}

}  // namespace

void add_flops(CLI::App& app, invocation& chosen) {
  auto a = std::make_shared<arguments>();
  CLI::App* verb =
      app.add_subcommand("flops", "Count the work of attention by branch and context, and what a device could gain");
  std::string models;
  for (const auto& m : named_models()) models += m.name + ", ";
  verb->add_option("--model", a->model, models + "or a JSON file")->capture_default_str();
  verb->add_option("--context", a->context, "Tokens of the sequence, 1 to 16M, a list with commas")
      ->capture_default_str();
  verb->add_option("--phase", a->phase, "prefill, decode or training")->capture_default_str();
  verb->add_option("--chunk", a->chunk, "Prefill: only the last tokens, this many of each context");
  verb->add_option("--device", a->device,
                   "Machine whose limits are shown: a known name, a device file or a report with ceilings")
      ->capture_default_str();
  verb->add_option("--csv", a->csv,
                   "Write the table as CSV to FILE; - is standard output (tables then go to standard error)")
      ->type_name("FILE")
      ->check(
          CLI::Validator([](const std::string& path) { return path.empty() ? "is empty; give a file name" : ""; }, ""));
  a->out.declare(*verb);
  verb->callback([a, &chosen] { chosen.run = [a] { return flops(*a); }; });
}

}  // namespace msabench
