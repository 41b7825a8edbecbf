// SPDX-License-Identifier: Apache-2.0
#include "core/problem.h"

#include "core/json.h"
#include "core/json_fields.h"

namespace msabench {
namespace {

constexpr std::array<enum_word<page_layout>, 3> page_layouts = {
    {{page_layout::contiguous, "contiguous"}, {page_layout::paged, "paged"}, {page_layout::fused, "fused"}}};

}  // namespace

void to_json(nlohmann::json& out, const problem& p) {
  out = {{"op", std::string(name(p.operation))},
         {"hq", p.hq},
         {"hkv", p.hkv},
         {"d", p.d},
         {"hi", p.hi},
         {"di", p.di},
         {"block", p.block},
         {"topk", p.topk},
         {"local_blocks", p.local_blocks},
         {"init_blocks", p.init_blocks},
         {"page_layout", word_or_number(p.layout, page_layouts)},
         {"page_size", p.page_size},
         {"rope_dims", p.rope_dims},
         {"batch", p.batch},
         {"total_q", p.total_q},
         {"max_q_len", p.max_q_len},
         {"max_kv_len", p.max_kv_len},
         {"total_kv", p.total_kv},
         {"pool_pages", p.pool_pages},
         {"q", dtype_to_json(p.q)},
         {"kv", dtype_to_json(p.kv)},
         {"q_idx", dtype_to_json(p.q_idx)},
         {"k_idx", dtype_to_json(p.k_idx)},
         {"out", dtype_to_json(p.out)},
         {"partial", dtype_to_json(p.partial)},
         {"grad", dtype_to_json(p.grad)},
         {"kl_warm_up", p.kl_warm_up},
         {"splits", p.splits},
         {"vit_window", p.vit_window},
         {"kv_scale", p.kv_scale},
         {"idx_scale", p.idx_scale},
         {"profile", p.asked}};
  put_number(out, "softmax_scale", p.softmax_scale);
  put_number(out, "index_scale", p.index_scale);
  put_number(out, "norm_eps", p.norm_eps);
  put_number(out, "rope_theta", p.rope_theta);
  put_number(out, "kl_coeff", p.kl_coeff);
}

void from_json(const nlohmann::json& in, problem& p) {
  const json_fields fields("problem", in);
  problem read;
  const auto& operation = fields.require("op");
  const auto known_op = operation.is_string() ? op_from_name(operation.get_ref<const std::string&>()) : std::nullopt;
  if (!known_op) fields.refuse("op", operation, "is no operator", "use a name such as attend");
  read.operation = *known_op;
  fields.read("hq", read.hq);
  fields.read("hkv", read.hkv);
  fields.read("d", read.d);
  fields.read("hi", read.hi);
  fields.read("di", read.di);
  fields.read("block", read.block);
  fields.read("topk", read.topk);
  fields.read("local_blocks", read.local_blocks);
  fields.read("init_blocks", read.init_blocks);
  fields.read_word("page_layout", read.layout, page_layouts);
  fields.read("page_size", read.page_size);
  fields.read("rope_dims", read.rope_dims);
  fields.read("batch", read.batch);
  fields.read("total_q", read.total_q);
  fields.read("max_q_len", read.max_q_len);
  fields.read("max_kv_len", read.max_kv_len);
  fields.read("total_kv", read.total_kv);
  fields.read("pool_pages", read.pool_pages);
  fields.read("q", read.q);
  fields.read("kv", read.kv);
  fields.read("q_idx", read.q_idx);
  fields.read("k_idx", read.k_idx);
  fields.read("out", read.out);
  fields.read("partial", read.partial);
  fields.read("grad", read.grad);
  fields.read("softmax_scale", read.softmax_scale);
  fields.read("index_scale", read.index_scale);
  fields.read("norm_eps", read.norm_eps);
  fields.read("rope_theta", read.rope_theta);
  fields.read("kl_coeff", read.kl_coeff);
  fields.read("kl_warm_up", read.kl_warm_up);
  fields.read("splits", read.splits);
  fields.read("vit_window", read.vit_window);
  fields.read("kv_scale", read.kv_scale);
  fields.read("idx_scale", read.idx_scale);
  if (const auto* asked = fields.find("profile")) from_json(*asked, read.asked);
  p = read;
}

}  // namespace msabench
