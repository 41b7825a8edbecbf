// SPDX-License-Identifier: Apache-2.0
#include "core/profile.h"

#include "core/json.h"
#include "core/json_fields.h"

namespace msabench {
namespace {

template <class Enum, std::size_t N>
using words = std::array<enum_word<Enum>, N>;

constexpr words<id_order, 5> id_orders = {{{id_order::ascending, "ascending"},
                                           {id_order::score, "score"},
                                           {id_order::local_last, "local_last"},
                                           {id_order::any, "any"},
                                           {id_order::none, "none"}}};
constexpr words<id_layout, 2> id_layouts = {{{id_layout::thk, "thk"}, {id_layout::htk, "htk"}}};
constexpr words<id_form, 3> id_forms = {
    {{id_form::exact, "exact"}, {id_form::short_rows, "short"}, {id_form::lenient, "lenient"}}};
constexpr words<score_unit, 2> score_units = {{{score_unit::scaled, "scaled"}, {score_unit::raw, "raw"}}};
constexpr words<score_fill, 3> score_fills = {
    {{score_fill::value, "value"}, {score_fill::sentinel, "sentinel"}, {score_fill::unwritten, "unwritten"}}};
constexpr words<nan_policy, 2> nan_policies = {{{nan_policy::ignore, "ignore"}, {nan_policy::propagate, "propagate"}}};
constexpr words<lse_form, 3> lse_forms = {
    {{lse_form::natural, "natural"}, {lse_form::base2, "base2"}, {lse_form::none, "none"}}};
constexpr words<empty_form, 2> empty_forms = {{{empty_form::zero, "zero"}, {empty_form::undefined, "undefined"}}};

}  // namespace

void to_json(nlohmann::json& out, const profile& p) {
  out = {{"in_id_order", word_or_number(p.in_id_order, id_orders)},
         {"in_id_layout", word_or_number(p.in_id_layout, id_layouts)},
         {"in_id_form", word_or_number(p.in_id_form, id_forms)},
         {"out_id_order", word_or_number(p.out_id_order, id_orders)},
         {"out_id_layout", word_or_number(p.out_id_layout, id_layouts)},
         {"score_unit", word_or_number(p.unit, score_units)},
         {"score_own", word_or_number(p.score_own, score_fills)},
         {"score_tail", word_or_number(p.score_tail, score_fills)},
         {"nan_score", word_or_number(p.nan_score, nan_policies)},
         {"lse", word_or_number(p.lse, lse_forms)},
         {"empty_row", word_or_number(p.empty_row, empty_forms)},
         {"ties_low_id", p.ties_low_id},
         {"repeatable", p.repeatable},
         {"batch_invariant", p.batch_invariant},
         {"split_invariant", p.split_invariant},
         {"graph_safe", p.graph_safe},
         {"hardened", p.hardened},
         {"round_after_norm", p.round_after_norm},
         {"rotate_in_storage", p.rotate_in_storage}};
  put_number(out, "rank_step", p.rank_step);
}

void from_json(const nlohmann::json& in, profile& p) {
  const json_fields fields("profile", in);
  profile read;
  fields.read_word("in_id_order", read.in_id_order, id_orders);
  fields.read_word("in_id_layout", read.in_id_layout, id_layouts);
  fields.read_word("in_id_form", read.in_id_form, id_forms);
  fields.read_word("out_id_order", read.out_id_order, id_orders);
  fields.read_word("out_id_layout", read.out_id_layout, id_layouts);
  fields.read_word("score_unit", read.unit, score_units);
  fields.read_word("score_own", read.score_own, score_fills);
  fields.read_word("score_tail", read.score_tail, score_fills);
  fields.read_word("nan_score", read.nan_score, nan_policies);
  fields.read_word("lse", read.lse, lse_forms);
  fields.read_word("empty_row", read.empty_row, empty_forms);
  fields.read("rank_step", read.rank_step);
  fields.read("ties_low_id", read.ties_low_id);
  fields.read("repeatable", read.repeatable);
  fields.read("batch_invariant", read.batch_invariant);
  fields.read("split_invariant", read.split_invariant);
  fields.read("graph_safe", read.graph_safe);
  fields.read("hardened", read.hardened);
  fields.read("round_after_norm", read.round_after_norm);
  fields.read("rotate_in_storage", read.rotate_in_storage);
  p = read;
}

}  // namespace msabench
