// SPDX-License-Identifier: Apache-2.0
// What `core` has to have for each operator that is judged: families, lengths, layouts, shapes and types at which kernels
// go wrong. A list that loses the last case of a kind fails here and says which.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "conformance/lists.h"

namespace msabench {
namespace {

using features = std::set<std::string>;

std::string number(std::string_view word, std::int64_t value) { return std::string(word) + std::to_string(value); }

bool attends(op o) { return o == op::attend || o == op::dense || o == op::msa; }
bool indexes(op o) { return o == op::score || o == op::index || o == op::msa; }
bool selects(op o) { return o == op::select || o == op::index || o == op::msa || o == op::attend; }
bool reads_cache(op o) { return attends(o) || indexes(o); }
bool has_tokens(op o) { return o != op::select; }

void add_lengths(features& has, const case_spec& c) {
  const auto all = sequences(c);
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& s = all[i];
    rows += s.q_len;
    has.insert(number("query length ", s.q_len));
    if (s.q_len == 0)
      has.insert(i == 0 ? "no rows in front" : i + 1 == all.size() ? "no rows at the end" : "no rows between");
    if (s.kv_len < s.q_len) has.insert("padding row");
    if (s.q_len == 0) continue;
    has.insert(number("length ", s.kv_len));
    if ((s.kv_len - s.q_len) % 128 != 0) has.insert("prefix beside a multiple of 128");
  }
  if (rows == c.shape.hi) has.insert("as many rows as index heads");
  if (rows == 0) has.insert("nothing to do");
  if (all.size() > 1) has.insert("ragged batch");
}

void add_shape(features& has, const case_spec& c) {
  const shape_spec& s = c.shape;
  has.insert(number("heads ", s.hkv));
  has.insert(number("group ", s.hq / s.hkv));
  has.insert(number("head dim ", attends(c.operation) || c.operation == op::combine ? s.d : s.di));
  has.insert(number("block ", s.block));
  if (s.local_blocks == 0) has.insert("no local block");
  if (s.local_blocks > 1) has.insert("several local blocks");
  if (s.init_blocks == 0) has.insert("no initial block");
  if (s.init_blocks > 0) has.insert("initial blocks");
  if (s.topk == 1) has.insert("top-k 1");
  const std::string name_of = name(c);
  for (const char* shape : {"/m3/", "/m3.tp2/", "/m3.tp4/", "/pilot/"})
    if (name_of.find(shape) != std::string::npos) has.insert(std::string("shape ") + shape);
}

features features_of(const case_spec& c) {
  features has = {"family " + c.family, "type " + std::string(name(c.type))};
  add_lengths(has, c);
  add_shape(has, c);
  if (reads_cache(c.operation)) has.insert(number("layout ", static_cast<int>(c.layout)));
  const case_options& o = c.options;
  if (o.page_size > c.shape.block) has.insert("page above block");
  if (o.page_size > 0 && o.page_size < c.shape.block) has.insert("page below block");
  if (c.layout != page_layout::contiguous && o.page_size == 0) has.insert("page as block");
  if (o.softmax_scale > 0) has.insert("another scale");
  if (o.stride) has.insert("stride");
  if (o.slack) has.insert("slack");
  if (o.rep) has.insert("rep");
  if (o.fp8 == scale_form::token) has.insert("fp8");
  if (o.fp8 == scale_form::tensor) has.insert("fp8tensor");
  if (o.fp8_index == scale_form::token) has.insert("fp8idx");
  if (o.fp8_index == scale_form::tensor) has.insert("fp8idxtensor");
  return has;
}

features required_of(op o) {
  features all = {"no rows in front",
                  "no rows between",
                  "no rows at the end",
                  "padding row",
                  "nothing to do",
                  "ragged batch",
                  "stride",
                  "slack",
                  "rep",
                  "shape /m3/",
                  "shape /m3.tp2/",
                  "shape /m3.tp4/",
                  "as many rows as index heads",
                  "no local block",
                  "no initial block",
                  "initial blocks",
                  "type fp32"};
  for (const std::int64_t q : {1, 2, 3, 4, 5, 6, 7, 8, 31, 32, 33, 64, 65, 128}) all.insert(number("query length ", q));
  for (const std::int64_t n : {127, 128, 129, 2047, 2048, 2049, 2175, 2176, 2177, 1 << 17, 1 << 19, 1 << 20})
    all.insert(number("length ", n));
  for (std::int64_t n = 1; n <= 300; ++n) all.insert(number("length ", n));
  for (const std::int64_t heads : {1, 2, 3, 4, 6, 8}) all.insert(number("heads ", heads));
  for (const std::int64_t dim : {64, 128}) all.insert(number("head dim ", dim));
  if (o != op::combine) all.insert("prefix beside a multiple of 128");
  if (has_tokens(o)) all.insert({"type bf16", "type fp16"});
  if (attends(o))
    for (const std::int64_t group : {1, 2, 3, 4, 8, 16}) all.insert(number("group ", group));
  if (selects(o)) {
    for (const std::int64_t block : {16, 32, 64, 128}) all.insert(number("block ", block));
    all.insert({"several local blocks", "top-k 1"});
  }
  if (reads_cache(o)) {
    all.insert({"page above block", "page below block", "page as block", "another scale", "fp8", "fp8tensor"});
    if (o == op::msa) all.insert({"fp8idx", "fp8idxtensor"});
    for (const auto layout : {page_layout::contiguous, page_layout::paged})
      all.insert(number("layout ", static_cast<int>(layout)));
    if (attends(o)) all.insert(number("layout ", static_cast<int>(page_layout::fused)));
  }
  // Without variants: from files.
  for (const auto& f : families())
    if (!f.variants.empty() && std::ranges::find(f.operators, o) != f.operators.end())
      all.insert("family " + std::string(f.name));
  return all;
}

features vision_features_of(const case_spec& c) {
  features has = {"family " + c.family, "type " + std::string(name(c.type)), number("head dim ", c.shape.d),
                  number("heads ", c.shape.hq)};
  const case_options& o = c.options;
  if (o.softmax_scale > 0) has.insert("another scale");
  if (o.stride) has.insert("stride");
  if (o.slack) has.insert("slack");
  if (o.rep) has.insert("rep");
  if (o.bare) has.insert("bare");
  if (o.window >= 0) has.insert(number("window ", o.window));
  const std::int32_t window = make_problem(c).vit_window;
  bool image = false, video = false;
  for (const grid& g : c.lengths.grids) {
    (g.t == 1 ? image : video) = true;
    has.insert(number("temporal patches ", g.t));
    if (window > 0 && g.t > window && g.t % window != 0) has.insert("a remainder");
    if (g.h < g.w) has.insert("wide frames");
    if (g.h > g.w) has.insert("high frames");
  }
  if (image && video) has.insert("image beside video");
  for (const auto& s : sequences(c)) {
    if (s.kv_len == 4) has.insert("a segment of four patches");
    if (s.kv_len > 128) has.insert("a segment past 128 patches");
    if (s.kv_len > 1024) has.insert("a segment past 1024 patches");
  }
  return has;
}

TEST(core_list, has_what_each_vision_operator_is_to_be_judged_on) {
  const auto core = load_list("core");
  for (const op o : {op::rope3d, op::vit_attend, op::vit3d}) {
    features due = {"type bf16",
                    "type fp16",
                    "type fp32",
                    "stride",
                    "slack",
                    "rep",
                    "window 0",
                    "window 1",
                    "temporal patches 5",
                    "temporal patches 10",
                    "a remainder",
                    "image beside video",
                    "wide frames",
                    "high frames",
                    "head dim 80",
                    "head dim 64",
                    "heads 16",
                    "a segment of four patches",
                    "a segment past 128 patches"};
    if (o != op::rope3d) due.insert({"another scale", "a segment past 1024 patches", "heads 1"});
    if (o == op::vit3d) due.insert("bare");
    for (const auto& f : families())
      if (std::ranges::find(f.operators, o) != f.operators.end()) due.insert("family " + std::string(f.name));
    case_selection wanted;
    wanted.operators = {std::string(name(o))};
    features has, missing;
    for (const auto& c : choose(core, wanted)) has.merge(vision_features_of(c));
    std::ranges::set_difference(due, has, std::inserter(missing, missing.end()));
    for (const auto& feature : missing) ADD_FAILURE() << name(o) << " lacks: " << feature;
  }
}

TEST(core_list, has_what_each_operator_is_to_be_judged_on) {
  const auto core = load_list("core");
  for (const op o : {op::qk_norm_rope, op::score, op::select, op::index, op::attend, op::dense, op::msa, op::combine}) {
    case_selection wanted;
    wanted.operators = {std::string(name(o))};
    features has;
    for (const auto& c : choose(core, wanted)) has.merge(features_of(c));
    features missing;
    std::ranges::set_difference(required_of(o), has, std::inserter(missing, missing.end()));
    for (const auto& feature : missing) ADD_FAILURE() << name(o) << " lacks: " << feature;
  }
}

}  // namespace
}  // namespace msabench
