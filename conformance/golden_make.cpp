// SPDX-License-Identifier: Apache-2.0
#include "conformance/golden_make.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "conformance/golden.h"
#include "conformance/golden_oracle.h"
#include "core/case.h"
#include "core/error.h"
#include "core/generator.h"
#include "core/units.h"
#include "reference/select.h"

namespace msabench {
namespace {

using nlohmann::json;

constexpr double most_bytes = 5e8;
constexpr double norm_scale = 0x1p-3;

[[noreturn]] void refuse(const golden_request& wanted, std::string_view what, std::string_view remedy) {
  bad_input("case", wanted.case_name, what, remedy);
}

void require_plain_options(const golden_request& wanted, const case_spec& c) {
  if (c.family != "random") refuse(wanted, "golden files are made of family random", "write random in its place");
  if (c.options != case_options{})
    refuse(wanted, "a golden file can't hold what its options ask for", "leave the options out");
  if (c.layout != page_layout::contiguous) refuse(wanted, "golden files have no pages", "write contig");
}

void require_one_sequence(const golden_request& wanted, const case_spec& c) {
  if (c.lengths.form != lengths_spec::kind::uniform || c.lengths.batch != 1)
    refuse(wanted, "a golden file holds one sequence", "write lengths qLEN.nLEN, e.g. q37.n201");
}

// Factor of q.
double query_scale(const case_spec& c) { return c.variant == "flat" ? 0x1p-3 : c.variant == "sharp" ? 0x1p2 : 1; }

json attention_parameters(const case_spec& c) {
  const shape_spec& s = c.shape;
  return {{"q_len", c.lengths.q_len},
          {"kv_len", c.lengths.kv_len},
          {"hq", s.hq},
          {"hkv", s.hkv},
          {"d", s.d},
          {"didx", s.di},
          {"block", s.block},
          {"topk", s.topk},
          {"local", s.local_blocks},
          {"init", s.init_blocks},
          {"scale_q", query_scale(c)}};
}

json text_layer_parameters(const golden_request& wanted, const case_spec& c) {
  const shape_spec& s = c.shape;
  if (c.lengths.q_len != c.lengths.kv_len)
    refuse(wanted, "a text layer runs over a whole prompt", "give q and n the same length");
  if (s.init_blocks != 0) refuse(wanted, "a text layer forces no initial blocks", "write i0");
  if (!c.variant.empty()) refuse(wanted, "the scores of a text layer have no variant", "write random without it");
  return {{"hidden", wanted.hidden},
          {"hq", s.hq},
          {"hkv", s.hkv},
          {"d", s.d},
          {"hidx", s.hi},
          {"didx", s.di},
          {"block", s.block},
          {"topk", s.topk},
          {"local", s.local_blocks},
          {"rot", std::min(s.d, s.di) / 4 * 2},
          {"theta", 5e6},
          {"eps", 1e-6},
          {"seq", c.lengths.q_len}};
}

json vit_parameters(const golden_request& wanted, const case_spec& c) {
  json grids = json::array();
  for (const grid& g : c.lengths.grids) grids.push_back({g.t, g.h, g.w});
  return {{"grids", grids}, {"heads", c.shape.hq}, {"d", c.shape.d},
          {"merge", 2},     {"theta", 1e4},        {"window", wanted.window}};
}

struct plan {
  case_spec name;
  json description;  // the metadata entry `case`
  golden_case contents;
};

plan plan_of(const golden_request& wanted) {
  if (std::ranges::find(golden_kinds, wanted.kind) == std::end(golden_kinds))
    bad_input("--kind", wanted.kind, "unknown kind", fmt::format("one of {}", fmt::join(golden_kinds, ", ")));
  const case_spec c = parse_case(wanted.case_name, accepted_families::random_for_all);
  require_plain_options(wanted, c);
  const bool vision = wanted.kind == "vit3d";
  if (vision != is_vision(c.operation))
    refuse(wanted, fmt::format("operator {} makes no file of kind {}", name(c.operation), wanted.kind),
           vision ? "name vit3d, with lengths such as g10x4x6" : "name an operator of text attention, e.g. kl");
  if (!vision) require_one_sequence(wanted, c);
  json description = vision                       ? vit_parameters(wanted, c)
                     : wanted.kind == "attention" ? attention_parameters(c)
                                                  : text_layer_parameters(wanted, c);
  description["kind"] = wanted.kind;
  description["case"] = wanted.case_name;
  description["source"] = "msabench reference";
  golden_case contents = read_golden_case("case", wanted.case_name, description);
  double bytes = 0;
  for (const golden_tensor& t : contents.tensors) {
    double elements = t.integer ? 0.5 : 1;
    for (const std::int64_t side : contents.shape_of(t)) elements *= static_cast<double>(side);
    bytes += 8 * elements;
  }
  if (bytes > most_bytes)
    refuse(wanted,
           fmt::format("its tensors are {}, more than the {} of a golden file", format_bytes(bytes),
                       format_bytes(most_bytes)),
           "name a smaller problem");
  return {c, std::move(description), std::move(contents)};
}

// Power of two on a tensor's values as drawn.
double scale_of(const plan& p, const golden_tensor& t) {
  const auto shape = p.contents.shape_of(t);
  if (t.name == "q") return query_scale(p.name);
  if (p.contents.kind != "text_layer" || t.name == "hidden") return 1;
  if (shape.size() == 1) return norm_scale;
  return std::exp2(-std::round(std::log2(static_cast<double>(shape[1])) / 2));
}

std::vector<double> draw(const plan& p, const golden_tensor& t) {
  std::int64_t elements = 1;
  for (const std::int64_t side : p.contents.shape_of(t)) elements *= side;
  const stream source(name_without_seed(p.name), t.name, p.name.seed);
  std::vector<std::byte> stored(static_cast<std::size_t>(elements * size_bytes(p.name.type)));
  source.fill_normal(stored.data(), p.name.type, 0, static_cast<std::uint64_t>(elements), scale_of(p, t));
  std::vector<double> values(static_cast<std::size_t>(elements));
  widen(stored.data(), p.name.type, 0, elements, values.data());
  return values;
}

// Generated scores are multiples of a power of two, so equal ones can happen; whoever reads the file may break ties
// otherwise.
void require_no_ties(const golden_request& wanted, const plan& p, const std::vector<golden_value>& results) {
  const auto scores = std::ranges::find(results, std::string_view("block_scores"), &golden_value::tensor);
  if (scores == results.end()) return;
  const std::int64_t blocks = p.contents.size("blocks"), topk = p.contents.size("topk");
  for (std::size_t at = 0; at < scores->numbers.size(); at += static_cast<std::size_t>(blocks)) {
    std::vector<double> free;
    const std::int64_t row = static_cast<std::int64_t>(at) / blocks % p.contents.size("q_len");
    const std::int64_t position = p.contents.size("kv_len") - p.contents.size("q_len") + row;
    const std::int64_t own = position < 0 ? -1 : position / p.contents.size("block");
    std::int64_t wanted_free = topk;
    for (std::int64_t b = 0; b <= own; ++b)
      if (reference::forced(b, own, p.contents.size("local"), p.contents.size("init")))
        --wanted_free;
      else
        free.push_back(scores->numbers[at + static_cast<std::size_t>(b)]);
    if (own < topk || wanted_free == 0) continue;
    std::ranges::sort(free, std::greater());
    const auto first_lost = static_cast<std::size_t>(wanted_free);
    if (free[first_lost - 1] == free[first_lost])
      refuse(wanted, fmt::format("row {} has equal scores where its last block is selected", row), "take another seed");
  }
}

std::span<const std::byte> bytes_of(const auto& values) { return std::as_bytes(std::span(values)); }

}  // namespace

void require_makeable(const golden_request& wanted) { plan_of(wanted); }

void make_golden(const golden_request& wanted, std::string_view field, const std::filesystem::path& path) {
  const plan p = plan_of(wanted);
  std::vector<std::pair<const golden_tensor*, std::vector<double>>> drawn;
  golden_inputs inputs;
  for (const golden_tensor& t : p.contents.tensors)
    if (!t.expected) {
      const auto& values = drawn.emplace_back(&t, draw(p, t)).second;
      inputs.emplace(t.name, tensor_view{values.data(), packed(fp64, p.contents.shape_of(t))});
    }
  const auto results = golden_results(p.contents, inputs);
  require_no_ties(wanted, p, results);

  std::vector<safetensors_entry> entries;
  for (const auto& [tensor, values] : drawn)
    entries.push_back({std::string(tensor->name), "F64", p.contents.shape_of(*tensor), bytes_of(values)});
  for (const golden_value& value : results) {
    const auto& tensor = *std::ranges::find(p.contents.tensors, value.tensor, &golden_tensor::name);
    entries.push_back({std::string(value.tensor), tensor.integer ? "I32" : "F64", p.contents.shape_of(tensor),
                       tensor.integer ? bytes_of(value.integers) : bytes_of(value.numbers)});
  }
  write_safetensors(field, path, {{"case", p.description.dump()}}, entries);
}

}  // namespace msabench
