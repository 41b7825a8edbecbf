// SPDX-License-Identifier: Apache-2.0
// msabench perf: how fast an implementation is, beside the machine's limits and beside another implementation.
#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <memory>

#include "cli/implementation.h"
#include "cli/output.h"
#include "cli/speed.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/files.h"
#include "core/units.h"
#include "host/interrupt.h"
#include "reports/perf.h"

namespace msabench {

namespace {

struct arguments {
  implementation_options impl;
  std::string against, suite = "decode", context, batch = "1", chunk, selection = "random", shape = "m3", type = "bf16",
                       layout, fp8 = "none", fp8_index = "none", grad = "fp32", budget_s = "120", cache = "cold",
                       busy = "refuse", seed = "0", folder;
  std::vector<std::string> operators;
  output out;
};

template <std::size_t N>
void require_word(std::string_view field, const std::string& text, const std::string_view (&words)[N]) {
  for (const auto w : words)
    if (w == text) return;
  bad_input(field, text, "is unknown", fmt::format("{}", fmt::join(words, " or ")));
}

suite_request parse_suite_request(const arguments& a) {
  suite_request r;
  r.suite = parse_suite(a.suite);
  r.contexts = parse_sizes("--context", a.context);
  r.batch = parse_size("--batch", a.batch);
  if (!a.chunk.empty()) {
    r.chunk = parse_size("--chunk", a.chunk);
    if (r.suite == perf_suite::decode) bad_input("--chunk", a.chunk, "is for prefill", "leave it out for suite decode");
  }
  r.selection = parse_selection(a.selection);
  r.shape = a.shape;
  constexpr std::string_view layouts[] = {"paged", "contig"}, types[] = {"bf16", "fp16", "fp32"};
  require_word("--type", a.type, types);
  if (!a.layout.empty()) {
    require_word("--layout", a.layout, layouts);
    if (r.suite == perf_suite::vision)
      bad_input("--layout", a.layout, "is for suites of text, vision has no cache", "leave it out");
    if (r.suite == perf_suite::training && a.layout != "contig")
      bad_input("--layout", a.layout, "is for suites without training", "batches of training are contig; leave it out");
    r.layout = a.layout;
  }
  r.types = a.type;
  constexpr std::string_view forms[] = {"none", "token", "tensor"};
  const auto form_of = [](const std::string& text) {
    return text == "none" ? scale_form::none : text == "token" ? scale_form::token : scale_form::tensor;
  };
  require_word("--fp8", a.fp8, forms);
  require_word("--fp8-index", a.fp8_index, forms);
  r.fp8 = form_of(a.fp8);
  r.fp8_index = form_of(a.fp8_index);
  if (r.fp8 != scale_form::none && r.fp8_index != scale_form::none)
    bad_input("--fp8-index", a.fp8_index, "is part of --fp8", "leave one of them out");
  constexpr std::string_view gradients[] = {"fp32", "storage"};
  require_word("--grad", a.grad, gradients);
  r.grad16 = a.grad == "storage";
  if (r.grad16 && r.suite != perf_suite::training)
    bad_input("--grad", a.grad, fmt::format("is for suite training, {} has no gradients", a.suite), "leave it out");
  if (r.grad16 && r.types == "fp32")
    bad_input("--grad", a.grad, "is the same as fp32 with --type fp32", "leave it out, or take another --type");
  r.seed = parse_uint64("--seed", a.seed);
  for (const auto& o : a.operators) {
    const auto known = op_from_name(o);
    if (!known) bad_input("--op", o, "unknown operator", "see `msabench perf --help`");
    r.operators.push_back(*known);
  }
  return r;
}

perf_setup parse_setup(const arguments& a) {
  perf_setup setup = setup_of_machine(a.impl.executor_settings());
  setup.what = parse_suite_request(a);
  setup.budget_s = parse_seconds("--budget-s", a.budget_s);
  constexpr std::string_view caches[] = {"cold", "hot"};
  require_word("--cache", a.cache, caches);
  setup.cold = a.cache == "cold";
  setup.tell_busy = tells_when_busy(a.busy);
  setup.timeout_s = a.impl.timeout_s();
  return setup;
}

// On the device of the first, unless its name fixes another.
implementation_ref resolve_other(const std::string& name_or_file, device where) {
  try {
    const bool is_file = name_or_file.find('/') != std::string::npos;
    return resolve_implementation(name_or_file, is_file ? std::optional(where) : std::nullopt);
  } catch (const usage_error& e) {
    const diagnostic& d = e.what_is_wrong();
    bad_input("--against", d.value, d.problem, d.remedy);
  }
}

struct paths {
  std::filesystem::path json, markdown;
};

paths open_folder(const std::string& folder) {
  if (folder.empty()) return {};
  ensure_folder("--out", folder);
  const paths p{std::filesystem::path(folder) / "perf.json", std::filesystem::path(folder) / "perf.md"};
  require_writable("--out", p.json);
  require_writable("--out", p.markdown);
  return p;
}

int perf(const arguments& a, const invocation& chosen) {
  const perf_setup setup = parse_setup(a);
  plan_suite(setup.what);  // so that a wrong shape is told before anything is loaded
  std::vector<implementation_ref> refs = {a.impl.reference()};
  if (!a.against.empty()) refs.push_back(resolve_other(a.against, refs.front().where));
  a.out.open();
  const paths where = open_folder(a.folder);

  install_interrupt_handler();
  const perf_session session(refs, a.impl.executor_settings(), setup);
  perf_run run = begin_speed_run(chosen.argv, setup, session);
  const std::exception_ptr gave_out = measure_and_print(setup, session, a.out, run);
  if (const std::string limits = perf_limits_text(run); !limits.empty()) a.out.print(one_line(limits, 1000) + "\n");
  a.out.print(perf_summary_text(run));
  // What can't be written keeps nothing else from being so.
  std::exception_ptr unwritten;
  try {
    a.out.write(to_report_json(run));
  } catch (const usage_error&) {
    unwritten = std::current_exception();
  }
  if (!a.folder.empty()) {
    write_perf_json(run, where.json, "--out");
    write_perf_markdown(run, where.markdown, "--out");
    a.out.print(fmt::format("reports: {} {}\n", where.json.string(), where.markdown.string()));
  }
  if (unwritten) std::rethrow_exception(unwritten);
  if (gave_out) std::rethrow_exception(gave_out);
  return exit_code_of(run);
}

}  // namespace

void add_perf(CLI::App& app, invocation& chosen) {
  auto a = std::make_shared<arguments>();
  CLI::App* verb = app.add_subcommand(
      "perf", "Measure speed: time, FLOP/s, bytes/s, share of the machine's limits, gain over dense attention");
  a->impl.declare(*verb);
  verb->add_option("--against", a->against, "Second implementation, timed in turn with the first in one process")
      ->type_name("NAME|FILE.so");
  verb->add_option("--suite", a->suite, "decode, prefill, prefill_whole, crossover, topk, layer, training or vision")
      ->capture_default_str();
  verb->add_option(
      "--context", a->context,
      "Tokens of each sequence, 1 to 16M, a list with commas; default of the suite; vision: patches of each "
      "video, multiples of 1K");
  verb->add_option("--batch", a->batch, "Sequences, or videos, of a call")->capture_default_str();
  verb->add_option(
      "--chunk", a->chunk,
      "Prefill: only the last tokens, this many of each context; prefill_whole, topk: tokens of a chunk, default 8K");
  verb->add_option("--selection", a->selection, "Which blocks are selected: random, realistic or shared64")
      ->capture_default_str();
  verb->add_option("--op", a->operators, "Only these operators")->type_name("OP[,OP...]")->delimiter(',');
  verb->add_option("--shape", a->shape, "Shape as in case names: m3, pilot, h8x2.d64.b32.k4.l1.i0")
      ->capture_default_str();
  verb->add_option("--type", a->type, "Storage type: bf16, fp16 or fp32")->capture_default_str();
  verb->add_option("--layout", a->layout, "Cache layout: paged or contig; default paged, of suite training contig")
      ->type_name("LAYOUT");
  verb->add_option(
          "--fp8", a->fp8,
          "Keys, values and index operands in e4m3, with a scale for each token and head, or for each tensor: none, "
          "token or tensor")
      ->capture_default_str();
  verb->add_option("--fp8-index", a->fp8_index, "The same of index operands alone: none, token or tensor")
      ->capture_default_str();
  verb->add_option("--grad", a->grad,
                   "Gradients of suite training in fp32, or in the storage type, as cuDNN has them: fp32 or storage")
      ->capture_default_str();
  verb->add_option("--cache", a->cache, "cold: inputs come from memory; hot: from a cache where they fit")
      ->capture_default_str();
  verb->add_option("--busy", a->busy, "refuse: no numbers from a busy machine; tell: numbers with a remark")
      ->capture_default_str();
  verb->add_option("--budget-s", a->budget_s, "Seconds that the whole run may take")
      ->type_name("S")
      ->capture_default_str();
  verb->add_option("--seed", a->seed, "Seed of all inputs")->type_name("N")->capture_default_str();
  verb->add_option("--out", a->folder, "Leave perf.json and perf.md in this folder")->type_name("DIR");
  a->out.declare(*verb);
  verb->callback([a, &chosen] {
    chosen.run = [a, &chosen] {
      a->impl.resolve();
      if (a->impl.in_process())
        bad_input("--in-process", "", "can't be timed: a speed run needs a worker", "leave it out");
      return perf(*a, chosen);
    };
  });
}

}  // namespace msabench
