// SPDX-License-Identifier: Apache-2.0
#include "perf/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/operator_table.h"
#include "core/units.h"
#include "perf/whole.h"

namespace msabench {
namespace {

constexpr perf_suite suites[] = {perf_suite::decode,    perf_suite::prefill, perf_suite::prefill_whole,
                                 perf_suite::crossover, perf_suite::topk,    perf_suite::layer,
                                 perf_suite::training,  perf_suite::vision};
constexpr perf_selection selections[] = {perf_selection::random, perf_selection::realistic, perf_selection::shared64};

constexpr op forward_ops[] = {op::msa,    op::dense,  op::index,        op::score,
                              op::select, op::attend, op::qk_norm_rope, op::combine};

// What a layer does one after the other, and what it would do instead.
constexpr op layer_ops[] = {op::qk_norm_rope, op::index, op::attend, op::combine, op::msa, op::dense};
// What training adds, beside the forward operators that it is compared with.
constexpr op training_ops[] = {op::attend, op::dense, op::attend_backward, op::dense_backward, op::kl};
constexpr op crossover_ops[] = {op::msa, op::dense};
// Whole, and its two parts.
constexpr op vision_ops[] = {op::vit3d, op::rope3d, op::vit_attend};
// A temporal patch has so many patches; four are a segment.
constexpr std::int64_t patch_rows = 32, patch_columns = 32, temporal_patch = patch_rows * patch_columns;
// Scores and selection apart, and in one.
constexpr op topk_ops[] = {op::score, op::select, op::index};
constexpr std::int32_t topk_sizes[] = {8, 16, 32};
constexpr std::int64_t usual_chunk = 8192;

std::span<const op> operators_of(perf_suite s) {
  switch (s) {
    case perf_suite::crossover:
    case perf_suite::prefill_whole:
      return crossover_ops;
    case perf_suite::topk:
      return topk_ops;
    case perf_suite::layer:
      return layer_ops;
    case perf_suite::training:
      return training_ops;
    case perf_suite::vision:
      return vision_ops;
    default:
      return forward_ops;
  }
}

std::vector<std::int64_t> default_contexts(perf_suite s) {
  constexpr std::int64_t k = 1024;
  switch (s) {
    case perf_suite::decode:
    case perf_suite::topk:
      return {8 * k, 32 * k, 128 * k, 512 * k, 1024 * k};
    case perf_suite::prefill_whole:
      return {8 * k, 32 * k};
    case perf_suite::prefill:
      return {2 * k, 8 * k};
    case perf_suite::crossover:
      return {1 * k, 2 * k, 4 * k, 8 * k};
    case perf_suite::layer:
      return {8 * k};
    case perf_suite::training:
      return {2 * k};
    case perf_suite::vision:
      return {4 * k};
  }
  throw suite_error("unknown suite");
}

// As a case name has it: videos of the same size.
std::string grids_of(std::int64_t patches, std::int64_t videos) {
  if (patches % temporal_patch != 0)
    bad_input(
        "--context", format_size(patches), "is not whole temporal patches, in suite vision",
        fmt::format("a multiple of {}, the patches of {} rows and columns", format_size(temporal_patch), patch_rows));
  const std::string one = fmt::format("{}x{}x{}", patches / temporal_patch, patch_rows, patch_columns);
  std::string text = "g" + one;
  constexpr std::size_t longest = 120;  // which leaves room for the rest of a case name
  for (std::int64_t i = 1; i < videos; ++i) {
    text += "_" + one;
    if (text.size() > longest)
      bad_input("--batch", format_size(videos), "is more videos than a case name can have, in suite vision",
                fmt::format("at most {} of {} patches, or fewer of more patches", i, format_size(patches)));
  }
  return text;
}

// The family whose inputs are what a speed run is about; empty: the operator has no inputs yet.
std::string family_of(op o, perf_selection selection) {
  const auto full_name = [](const family_info& f, std::string_view variant) {
    return fmt::format("{}{}{}", f.name, variant.empty() ? "" : ".", variant);
  };
  const family_info* first = nullptr;
  for (const auto& f : families()) {
    if (std::ranges::find(f.operators, o) == f.operators.end()) continue;
    if (!first) first = &f;
    if (f.name != "random") continue;
    return full_name(f, selection == perf_selection::random ? "" : name(selection));
  }
  return first ? full_name(*first, first->variants.front()) : "";
}

bool has_scales(op o) { return o == op::score || o == op::index || o == op::attend || o == op::dense || o == op::msa; }

bool has_cache(op o) {
  return std::ranges::any_of(slots_of(o), [](const slot_rule& rule) { return !rule.paged_shape.empty(); });
}

// Options of a case for e4m3 operands.
std::string scale_options(const suite_request& r, op o) {
  if (!has_scales(o)) return "";
  const bool indexes_alone = o == op::score || o == op::index;
  const scale_form all = r.fp8 == scale_form::none && indexes_alone ? r.fp8_index : r.fp8;
  if (all != scale_form::none) return all == scale_form::token ? "/fp8" : "/fp8tensor";
  if (o != op::msa || r.fp8_index == scale_form::none) return "";
  return r.fp8_index == scale_form::token ? "/fp8idx" : "/fp8idxtensor";
}

case_spec make_case(const suite_request& r, op o, const suite_point& p, const std::string& family) {
  std::string lengths;
  if (is_vision(o)) {
    lengths = grids_of(p.context, p.batch);
  } else {
    lengths = fmt::format("q{}.n{}", format_size(p.query_tokens), format_size(p.context));
    if (p.batch > 1) lengths += fmt::format(".x{}", format_size(p.batch));
  }
  // Partial results have no cache, and as many of them as a decode kernel would split a long context into.
  std::string options = o == op::combine ? "/split8" : "";
  options += scale_options(r, o);
  if (trains(o) && r.grad16) options += "/grad16";
  // Training has contiguous batches, and what is compared with it reads the same.
  const std::string layout = has_cache(o) ? "." + (r.suite == perf_suite::training ? "contig" : r.layout) : "";
  const std::string text =
      fmt::format("{}/{}/{}/{}{}/{}{}/s{}", name(o), r.shape, lengths, r.types, layout, family, options, r.seed);
  case_spec c = parse_case(text);
  if (!p.topk || *p.topk == c.shape.topk) return c;
  c.shape.topk = *p.topk;
  return parse_case(name(c));  // which refuses a top-k that the shape can't have
}

// What patches have none of: chunks, selections and scales; layouts are the command line's to refuse.
void refuse_text_options(const suite_request& r) {
  const auto refuse = [](const char* field, std::string_view given) {
    bad_input(field, given, "is for suites of text, vision has none", "leave it out");
  };
  if (r.chunk > 0) refuse("--chunk", format_size(r.chunk));
  if (r.selection != perf_selection::random) refuse("--selection", name(r.selection));
  const auto form = [](scale_form f) { return f == scale_form::token ? "token" : "tensor"; };
  if (r.fp8 != scale_form::none) refuse("--fp8", form(r.fp8));
  if (r.fp8_index != scale_form::none) refuse("--fp8-index", form(r.fp8_index));
}

std::vector<suite_point> points_of(const suite_request& r) {
  std::vector<suite_point> points;
  const auto add = [&](const char* phase, std::int64_t query_tokens, std::int64_t context,
                       std::optional<std::int32_t> topk = {}) {
    points.push_back({phase, query_tokens, context, r.batch, {}, topk});
  };
  if (r.suite == perf_suite::prefill_whole) {
    for (const auto& c : chunks_of(contexts_of(r), chunk_of(r))) add("prefill", c.query_tokens, c.context);
    return points;
  }
  for (const std::int64_t n : contexts_of(r)) {
    if (r.suite == perf_suite::topk) {
      for (const std::int32_t k : topk_sizes) add("decode", 1, n, k);
      for (const std::int32_t k : topk_sizes) add("prefill", std::min(chunk_of(r), n), n, k);
      continue;
    }
    const std::int64_t chunk = r.chunk > 0 ? std::min(r.chunk, n) : n;
    if (r.suite == perf_suite::decode || r.suite == perf_suite::layer) add("decode", 1, n);
    if (r.suite == perf_suite::training)
      add("training", chunk, n);
    else if (r.suite == perf_suite::vision)
      add("vision", n, n);
    else if (r.suite != perf_suite::decode)
      add("prefill", chunk, n);
  }
  return points;
}

template <class Enum>
std::string names_of(std::span<const Enum> all) {
  std::string text;
  for (const Enum e : all) text += fmt::format("{}{}", text.empty() ? "" : ", ", name(e));
  return text;
}

}  // namespace

std::string_view name(perf_suite s) {
  switch (s) {
    case perf_suite::decode:
      return "decode";
    case perf_suite::prefill:
      return "prefill";
    case perf_suite::prefill_whole:
      return "prefill_whole";
    case perf_suite::topk:
      return "topk";
    case perf_suite::crossover:
      return "crossover";
    case perf_suite::layer:
      return "layer";
    case perf_suite::training:
      return "training";
    case perf_suite::vision:
      return "vision";
  }
  throw suite_error("unknown suite");
}

perf_suite parse_suite(std::string_view text) {
  for (const auto s : suites)
    if (name(s) == text) return s;
  bad_input("--suite", text, "is unknown", names_of<perf_suite>(suites));
}

std::string_view name(perf_selection s) {
  switch (s) {
    case perf_selection::random:
      return "random";
    case perf_selection::realistic:
      return "realistic";
    case perf_selection::shared64:
      return "shared64";
  }
  throw suite_error("unknown selection");
}

perf_selection parse_selection(std::string_view text) {
  for (const auto s : selections)
    if (name(s) == text) return s;
  bad_input("--selection", text, "is unknown", names_of<perf_selection>(selections));
}

std::vector<std::int64_t> contexts_of(const suite_request& request) {
  std::vector<std::int64_t> contexts = request.contexts.empty() ? default_contexts(request.suite) : request.contexts;
  std::sort(contexts.begin(), contexts.end());
  contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
  return contexts;
}

std::int64_t chunk_of(const suite_request& request) { return request.chunk > 0 ? request.chunk : usual_chunk; }

std::vector<suite_point> plan_suite(const suite_request& request) {
  if (request.suite == perf_suite::vision) refuse_text_options(request);
  const auto possible = operators_of(request.suite);
  for (const op o : request.operators)
    if (std::ranges::find(possible, o) == possible.end())
      bad_input("--op", name(o), fmt::format("is not timed by suite {}", name(request.suite)),
                "one of " + names_of(possible));
  std::vector<suite_point> points = points_of(request);
  for (auto& point : points)
    for (const op o : operators_of(request.suite)) {
      if (!request.operators.empty() && std::ranges::find(request.operators, o) == request.operators.end()) continue;
      if (const std::string family = family_of(o, request.selection); !family.empty())
        point.cases.push_back(make_case(request, o, point, family));
    }
  return points;
}

work work_of_case(const case_spec& c, const problem& p, std::optional<selection_counts> selection) {
  work_options options;
  options.selection = selection;
  if (is_vision(c.operation)) {
    // What is handed out beside the result, as inputs/input_set.cpp has it.
    if (!c.options.bare) options.outputs.insert(options.outputs.end(), {slot::q_rope, slot::k_rope, slot::positions});
    return work_of_vision(p, c.lengths.grids, options);
  }
  if (c.operation == op::combine) {
    problem split = p;
    split.splits = std::max(p.splits, 1);
    return work_of(split, sequences(c), options);
  }
  return work_of(p, sequences(c), options);
}

perf_work least_work(const case_spec& c, const problem& p, std::optional<selection_counts> selection) {
  const work w = work_of_case(c, p, std::move(selection));
  perf_work told{w.useful_flops, 0, {}, w.compulsory_bytes.least, w.algorithmic_bytes};
  if (c.operation == op::score || c.operation == op::index) told.index_flops = w.useful_flops;
  if (c.operation == op::msa) told.index_flops = 2.0 * p.di * p.hi * static_cast<double>(causal_pairs(sequences(c)));
  return told;
}

double set_bytes(const case_spec& c, const problem& p) {
  // Of the caches only what rows select is resident where ids are given.
  const bool chosen = std::ranges::any_of(
      slots_of(p.operation), [](const slot_rule& r) { return r.where == slot::ids && r.dir == direction::in; });
  double total = chosen ? work_of_case(c, p).compulsory_bytes.most : 0;
  for (const auto& rule : slots_of(p.operation)) {
    if (!present(rule, p) || (chosen && rule.where != slot::ids)) continue;
    double elements = 1;
    for (const auto side : shape_of(rule, p, bounds_of(p))) elements *= static_cast<double>(side);
    total += elements * static_cast<double>(size_bytes(type_of(rule, p)));
  }
  return total;
}

std::int64_t rounds_until_reuse(double round_bytes, double distance_bytes) {
  constexpr double most = 1e6;
  if (!(round_bytes > 0)) return static_cast<std::int64_t>(most);
  return static_cast<std::int64_t>(std::clamp(std::ceil(distance_bytes / round_bytes), 1.0, most));
}

}  // namespace msabench
