// SPDX-License-Identifier: Apache-2.0
#include "core/operator_table.h"

#include <charconv>
#include <string>

#include "core/error.h"

namespace msabench {

namespace {

using enum slot;
using tc = type_class;
constexpr auto in = direction::in;
constexpr auto write = direction::out;

// Groups that many operators share. LEN: lengths; TAB, TABI: block tables of the KV and of the index cache.
constexpr slot_rule len_q{cu_seqlens_q, in, false, tc::int32, "B+1", ""};
constexpr slot_rule len_kv{kv_lens, in, false, tc::int32, "B", ""};
constexpr slot_rule len_cu_kv{cu_seqlens_kv, in, false, tc::int32, "B+1", "", presence::contiguous};
constexpr slot_rule tab{block_table, in, false, tc::int32, "B,max_pages", "", presence::paged};
constexpr slot_rule tab_idx{block_table_idx, in, false, tc::int32, "B,max_pages", "", presence::paged};

constexpr slot_rule in_q{q, in, false, tc::q, "T,Hq,d", ""};
constexpr slot_rule in_q_scale{q_scale, in, false, tc::float32, "T,Hq", "", presence::q_fp8};
constexpr slot_rule in_k{k, in, false, tc::kv, "N,Hkv,d", "pages,Hkv,page_size,d"};
constexpr slot_rule in_v{v, in, false, tc::kv, "N,Hkv,d", "pages,Hkv,page_size,d"};
// Shape "1" when the problem says one scale per tensor: shape_of resolves "kv_scale" and "idx_scale".
constexpr slot_rule in_k_scale{k_scale, in, false, tc::float32, "kv_scale", "", presence::kv_scale};
constexpr slot_rule in_v_scale{v_scale, in, false, tc::float32, "kv_scale", "", presence::kv_scale};
constexpr slot_rule in_q_idx{q_idx, in, false, tc::q_idx, "T,Hi,di", ""};
constexpr slot_rule in_k_idx{k_idx, in, false, tc::k_idx, "N,di", "idx_pages,page_size,di"};
constexpr slot_rule in_q_idx_scale{q_idx_scale, in, false, tc::float32, "T,Hi", "", presence::idx_scale};
constexpr slot_rule in_k_idx_scale{k_idx_scale, in, false, tc::float32, "idx_scale", "", presence::idx_scale};
constexpr slot_rule in_ids{ids, in, false, tc::int32, "T,Hkv,topk", ""};
constexpr slot_rule out_ids{ids, write, false, tc::int32, "T,Hkv,topk", ""};
constexpr slot_rule out_ids_opt{ids, write, true, tc::int32, "T,Hkv,topk", ""};
constexpr slot_rule in_scores{scores, in, false, tc::float32, "Hkv,T,max_blocks", ""};
constexpr slot_rule out_scores{scores, write, false, tc::float32, "Hkv,T,max_blocks", ""};
constexpr slot_rule out_scores_opt{scores, write, true, tc::float32, "Hkv,T,max_blocks", ""};
constexpr slot_rule out_out{out, write, false, tc::out, "T,Hq,d", ""};
constexpr slot_rule in_out{out, in, false, tc::out, "T,Hq,d", ""};
constexpr slot_rule out_lse{lse, write, true, tc::float32, "T,Hq", ""};
constexpr slot_rule out_lse_must{lse, write, false, tc::float32, "T,Hq", ""};
constexpr slot_rule in_lse{lse, in, false, tc::float32, "T,Hq", ""};
constexpr slot_rule in_d_out{d_out, in, false, tc::out, "T,Hq,d", ""};
constexpr slot_rule out_dq{dq, write, false, tc::grad, "T,Hq,d", ""};
constexpr slot_rule out_dk{dk, write, false, tc::grad, "N,Hkv,d", ""};
constexpr slot_rule out_dv{dv, write, false, tc::grad, "N,Hkv,d", ""};

constexpr slot_rule qk_norm_rope_slots[] = {
    in_q,
    {k, in, false, tc::kv, "T,Hkv,d", ""},
    in_q_idx,
    {k_idx, in, false, tc::k_idx, "T,di", ""},
    {q_norm, in, false, tc::q, "d", ""},
    {k_norm, in, false, tc::q, "d", ""},
    {q_idx_norm, in, false, tc::q, "di", ""},
    {k_idx_norm, in, false, tc::q, "di", ""},
    {cos_sin, in, false, tc::float32, "max_pos,rope_dims", ""},
    len_q,
    len_kv,
    {q_rope, write, false, tc::q, "T,Hq,d", ""},
    {k_rope, write, false, tc::kv, "T,Hkv,d", ""},
    {q_idx_rope, write, false, tc::q_idx, "T,Hi,di", ""},
    {k_idx_rope, write, false, tc::k_idx, "T,di", ""},
};
constexpr slot_rule score_slots[] = {in_q_idx, in_k_idx,  in_q_idx_scale, in_k_idx_scale, len_q,
                                     len_kv,   len_cu_kv, tab_idx,        out_scores};
constexpr slot_rule select_slots[] = {in_scores, len_q, len_kv, out_ids};
constexpr slot_rule index_slots[] = {
    in_q_idx, in_k_idx,  in_q_idx_scale, in_k_idx_scale, len_q,
    len_kv,   len_cu_kv, tab_idx,        out_ids,        {lse_idx, write, true, tc::float32, "T,Hkv", ""}};
constexpr slot_rule attend_slots[] = {in_q,  in_k,   in_v,      in_q_scale, in_k_scale, in_v_scale, in_ids,
                                      len_q, len_kv, len_cu_kv, tab,        out_out,    out_lse};
constexpr slot_rule dense_slots[] = {in_q,  in_k,   in_v,      in_q_scale, in_k_scale, in_v_scale,
                                     len_q, len_kv, len_cu_kv, tab,        out_out,    out_lse};
constexpr slot_rule msa_slots[] = {
    in_q,  in_k,   in_v,      in_q_scale, in_k_scale, in_v_scale, in_q_idx, in_k_idx,    in_q_idx_scale, in_k_idx_scale,
    len_q, len_kv, len_cu_kv, tab,        tab_idx,    out_out,    out_lse,  out_ids_opt, out_scores_opt};
constexpr slot_rule combine_slots[] = {{partial_out, in, false, tc::partial, "P,T,Hq,d", ""},
                                       {partial_lse, in, false, tc::float32, "P,T,Hq", ""},
                                       out_out,
                                       out_lse_must};
constexpr slot_rule attend_backward_slots[] = {in_q,  in_k,   in_v,      in_ids, in_out, in_lse, in_d_out,
                                               len_q, len_kv, len_cu_kv, out_dq, out_dk, out_dv};
constexpr slot_rule dense_backward_slots[] = {in_q,  in_k,   in_v,      in_out, in_lse, in_d_out,
                                              len_q, len_kv, len_cu_kv, out_dq, out_dk, out_dv};
constexpr slot_rule kl_slots[] = {in_q,
                                  in_k,
                                  in_q_idx,
                                  in_k_idx,
                                  {ids, in, false, tc::int32, "T,Hkv,topk", "", presence::not_warm_up},
                                  len_q,
                                  len_kv,
                                  len_cu_kv,
                                  {loss, write, false, tc::float64, "1", ""},
                                  {dq_idx, write, false, tc::grad, "T,Hi,di", ""},
                                  {dk_idx, write, false, tc::grad, "N,di", ""},
                                  {dq, write, true, tc::grad, "T,Hq,d", ""},
                                  {dk, write, true, tc::grad, "N,Hkv,d", ""}};
// Vision: T patches, heads = Hq = Hkv, items or segments instead of sequences.
constexpr slot_rule vit_q{q, in, false, tc::q, "T,Hq,d", ""};
constexpr slot_rule vit_k{k, in, false, tc::kv, "T,Hq,d", ""};
constexpr slot_rule vit_v{v, in, false, tc::kv, "T,Hq,d", ""};
constexpr slot_rule vit_out{out, write, false, tc::out, "T,Hq,d", ""};
constexpr slot_rule vit_lse{lse, write, true, tc::float32, "T,Hq", ""};
constexpr slot_rule vit_grids{grids, in, false, tc::int32, "items,3", ""};
constexpr slot_rule rope3d_slots[] = {vit_q,
                                      vit_k,
                                      vit_grids,
                                      {q_rope, write, false, tc::q, "T,Hq,d", ""},
                                      {k_rope, write, false, tc::kv, "T,Hq,d", ""},
                                      {positions, write, false, tc::int32, "T,3", ""},
                                      {cu_segments, write, false, tc::int32, "S+1", ""}};
constexpr slot_rule vit_attend_slots[] = {vit_q,   vit_k,  vit_v, {cu_segments, in, false, tc::int32, "S+1", ""},
                                          vit_out, vit_lse};
constexpr slot_rule vit3d_slots[] = {vit_q,
                                     vit_k,
                                     vit_v,
                                     vit_grids,
                                     vit_out,
                                     vit_lse,
                                     {positions, write, true, tc::int32, "T,3", ""},
                                     {cu_segments, write, true, tc::int32, "S+1", ""},
                                     {q_rope, write, true, tc::q, "T,Hq,d", ""},
                                     {k_rope, write, true, tc::kv, "T,Hq,d", ""}};

std::int64_t symbol(std::string_view text, const problem& p, const extents& e) {
  if (text.size() > 2 && text.substr(text.size() - 2) == "+1") return symbol(text.substr(0, text.size() - 2), p, e) + 1;
  struct entry {
    std::string_view name;
    std::int64_t value;
  };
  const entry table[] = {{"T", e.t},
                         {"B", e.b},
                         {"N", e.n},
                         {"P", e.p},
                         {"S", e.segments},
                         {"Hq", p.hq},
                         {"Hkv", p.hkv},
                         {"Hi", p.hi},
                         {"d", p.d},
                         {"di", p.di},
                         {"topk", p.topk},
                         {"max_blocks", p.max_blocks()},
                         {"max_pages", p.max_pages()},
                         {"pages", e.pages},
                         {"idx_pages", e.idx_pages},
                         {"page_size", p.page_size},
                         {"max_pos", e.max_pos},
                         {"rope_dims", p.rope_dims},
                         {"items", e.items},
                         {"1", 1},
                         {"3", 3}};
  for (const auto& t : table)
    if (t.name == text) return t.value;
  throw suite_error("operator table: unknown symbol " + std::string(text));
}

std::vector<std::int64_t> evaluate(std::string_view shape, const problem& p, const extents& e) {
  std::vector<std::int64_t> out;
  while (!shape.empty()) {
    const auto comma = shape.find(',');
    out.push_back(symbol(shape.substr(0, comma), p, e));
    if (comma == std::string_view::npos) break;
    shape.remove_prefix(comma + 1);
  }
  return out;
}

std::string_view shape_text(const slot_rule& rule, const problem& p) {
  if (rule.shape == "kv_scale") return p.kv_scale == 1 ? "1" : p.paged() ? "pages,Hkv,page_size" : "N,Hkv";
  if (rule.shape == "idx_scale") return p.idx_scale == 1 ? "1" : p.paged() ? "idx_pages,page_size" : "N";
  return p.paged() && !rule.paged_shape.empty() ? rule.paged_shape : rule.shape;
}

}  // namespace

std::span<const slot_rule> slots_of(op o) {
  switch (o) {
    case op::qk_norm_rope:
      return qk_norm_rope_slots;
    case op::score:
      return score_slots;
    case op::select:
      return select_slots;
    case op::index:
      return index_slots;
    case op::attend:
      return attend_slots;
    case op::dense:
      return dense_slots;
    case op::msa:
      return msa_slots;
    case op::combine:
      return combine_slots;
    case op::attend_backward:
      return attend_backward_slots;
    case op::dense_backward:
      return dense_backward_slots;
    case op::kl:
      return kl_slots;
    case op::rope3d:
      return rope3d_slots;
    case op::vit_attend:
      return vit_attend_slots;
    case op::vit3d:
      return vit3d_slots;
  }
  throw suite_error("operator table: unknown operator");
}

dtype type_of(const slot_rule& rule, const problem& p) {
  switch (rule.type) {
    case type_class::q:
      return p.q;
    case type_class::kv:
      return p.kv;
    case type_class::q_idx:
      return p.q_idx;
    case type_class::k_idx:
      return p.k_idx;
    case type_class::out:
      return p.out;
    case type_class::partial:
      return p.partial;
    case type_class::grad:
      return p.grad;
    case type_class::int32:
      return i32;
    case type_class::float32:
      return fp32;
    case type_class::float64:
      return fp64;
  }
  throw suite_error("operator table: unknown type class");
}

bool present(const slot_rule& rule, const problem& p) {
  switch (rule.when) {
    case presence::always:
      return true;
    case presence::contiguous:
      return !p.paged();
    case presence::paged:
      return p.paged();
    case presence::kv_scale:
      return p.kv_scale != 0;
    case presence::idx_scale:
      return p.idx_scale != 0;
    case presence::q_fp8:
      return p.q == e4m3;
    case presence::not_warm_up:
      return p.kl_warm_up == 0;
  }
  throw suite_error("operator table: unknown presence");
}

extents bounds_of(const problem& p) {
  extents e;
  e.t = p.total_q;
  e.b = p.batch;
  e.n = p.total_kv;
  e.pages = e.idx_pages = p.pool_pages;
  e.p = p.splits;
  e.max_pos = p.max_kv_len;
  e.items = e.segments = p.batch;
  return e;
}

std::vector<std::int64_t> shape_of(const slot_rule& rule, const problem& p, const extents& e) {
  return evaluate(shape_text(rule, p), p, e);
}

int axis_of(const slot_rule& rule, const problem& p, std::string_view symbol) {
  std::string_view rest = shape_text(rule, p);
  int axis = 0;
  for (;; ++axis) {
    const auto comma = rest.find(',');
    if (rest.substr(0, comma) == symbol) break;
    if (comma == std::string_view::npos) return -1;
    rest.remove_prefix(comma + 1);
  }
  if (rule.where != slot::ids || axis > 1) return axis;
  const id_layout layout = rule.dir == direction::in ? p.asked.in_id_layout : p.asked.out_id_layout;
  return layout == id_layout::htk ? 1 - axis : axis;
}

}  // namespace msabench
