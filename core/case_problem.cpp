// SPDX-License-Identifier: Apache-2.0
// What a case stands for: its sequences, the problem that is asked, its full definition and its cost.
#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/case.h"
#include "core/error.h"
#include "core/hashes.h"

namespace msabench {

namespace {

// Versions of what a name expands to: a change of either changes every definition hash.
constexpr const char* contract_version = "1.0";
constexpr int generator_version = 1;

std::int64_t blocks_seen(const case_spec& c, std::int64_t position) {
  return position < 0 ? 0 : position / c.shape.block + 1;
}

// Selected visible keys of one row. The block that the position is in counts as selected where L >= 1 forces it.
std::int64_t keys_selected(const case_spec& c, std::int64_t position) {
  const std::int64_t seen = blocks_seen(c, position);
  if (seen <= c.shape.topk) return position + 1;
  const std::int64_t block = c.shape.block;
  return c.shape.local_blocks >= 1 ? (c.shape.topk - 1) * block + position % block + 1 : c.shape.topk * block;
}

std::int64_t cost_of_row(const case_spec& c, std::int64_t position) {
  if (position < 0 && c.operation != op::combine) return 0;
  switch (c.operation) {
    case op::select:
      return c.shape.hi * blocks_seen(c, position);
    case op::score:
    case op::index:
      return c.shape.hi * (position + 1);
    case op::dense:
    case op::dense_backward:
      return c.shape.hq * (position + 1);
    case op::msa:
      return c.shape.hi * (position + 1) + c.shape.hq * keys_selected(c, position);
    case op::kl:
      return (c.shape.hq + c.shape.hi) * (c.options.warm ? position + 1 : keys_selected(c, position));
    case op::combine:
      return std::int64_t{c.shape.hq} * c.options.splits;
    case op::qk_norm_rope:
      return c.shape.hq + c.shape.hkv + c.shape.hi + 1;
    default:
      return c.shape.hq * keys_selected(c, position);
  }
}

// Items of more temporal patches than the window are cut into segments of as many, the last one of what is left.
std::vector<sequence> segments(const case_spec& c) {
  const std::int64_t window = c.options.window >= 0 ? c.options.window : usual_vit_window;
  std::vector<sequence> all;
  for (const auto& g : c.lengths.grids) {
    const std::int64_t longest = window == 0 ? g.t : window;
    for (std::int64_t first = 0; first < g.t; first += longest) {
      const std::int64_t tokens = std::min(longest, g.t - first) * g.h * g.w;
      all.push_back({tokens, tokens});
    }
  }
  return all;
}

// Every row of a segment sees all of it; heads of q and k are rotated.
std::int64_t cost_of_segments(const case_spec& c) {
  std::int64_t pairs = 0, tokens = 0;
  for (const auto& s : segments(c)) {
    pairs += s.q_len * s.kv_len;
    tokens += s.q_len;
  }
  const bool attends = c.operation != op::rope3d, rotates = c.operation != op::vit_attend;
  return c.shape.hq * ((attends ? pairs : 0) + (rotates ? 2 * tokens : 0));
}

// What a vision operator has beside the tokens of its segments.
void describe_vision(const case_spec& c, problem& p) {
  // Items, not segments, are counted where segments are made.
  if (c.operation != op::vit_attend) p.batch += std::ssize(c.lengths.grids) - std::ssize(segments(c));
  if (c.operation != op::vit_attend) p.rope_theta = 1e4;
  p.vit_window = c.options.window >= 0 ? c.options.window : usual_vit_window;
  // Queries are the keys, so that bounds of both are one.
  p.total_q = p.total_kv;
  p.max_q_len = p.max_kv_len;
}

// e4m3 operands of the operator's branches. Queries of the main branch stay what they are, and so does its output.
void scale_operands(const case_options& o, problem& p) {
  const bool indexes = p.operation == op::score || p.operation == op::index || p.operation == op::msa;
  const bool attends = p.operation != op::score && p.operation != op::index;
  if (attends && o.fp8 != scale_form::none) {
    p.kv = e4m3;
    p.kv_scale = static_cast<std::int32_t>(o.fp8);
  }
  const scale_form of_index = o.fp8 != scale_form::none ? o.fp8 : o.fp8_index;
  if (indexes && of_index != scale_form::none) {
    p.q_idx = p.k_idx = e4m3;
    p.idx_scale = static_cast<std::int32_t>(of_index);
  }
}

}  // namespace

bool is_vision(op o) { return o == op::vit3d || o == op::rope3d || o == op::vit_attend; }

std::vector<sequence> sequences(const case_spec& c) {
  switch (c.lengths.form) {
    case lengths_spec::kind::grids:
      return segments(c);
    case lengths_spec::kind::uniform:
      return std::vector<sequence>(static_cast<std::size_t>(c.lengths.batch), {c.lengths.q_len, c.lengths.kv_len});
    case lengths_spec::kind::ragged:
      if (c.lengths.ragged_name.empty()) return c.lengths.listed;
      for (const auto& batch : ragged_batches())
        if (batch.name == c.lengths.ragged_name) return batch.sequences;
  }
  throw suite_error("case " + name(c) + ": unknown ragged batch");
}

std::int32_t usual_rope_dims(const shape_spec& s) { return std::min(s.d, s.di) / 4 * 2; }

problem make_problem(const case_spec& c) {
  problem p;
  const shape_spec& s = c.shape;
  p.operation = c.operation;
  p.hq = s.hq;
  p.hkv = s.hkv;
  p.d = s.d;
  p.hi = s.hi;
  p.di = s.di;
  p.block = s.block;
  p.topk = s.topk;
  p.local_blocks = s.local_blocks;
  p.init_blocks = s.init_blocks;
  p.layout = c.layout;
  if (p.paged()) p.page_size = c.options.page_size != 0 ? c.options.page_size : s.block;

  std::int64_t pages = 0;
  for (const auto& q : sequences(c)) {
    ++p.batch;
    p.total_q += q.q_len;
    p.total_kv += q.kv_len;
    p.max_q_len = std::max(p.max_q_len, q.q_len);
    p.max_kv_len = std::max(p.max_kv_len, q.kv_len);
    if (p.paged()) pages += (q.kv_len + p.page_size - 1) / p.page_size;
  }
  // A pool is never exactly full: pages that belong to nobody stand between the others.
  if (p.paged()) p.pool_pages = pages + std::max<std::int64_t>(3, pages / 8);
  if (c.options.pool_pages != 0) p.pool_pages = c.options.pool_pages;
  if (c.options.slack) {
    // Bounds of the kind that an engine gives when it captures one graph for many batches.
    p.batch += 2;
    p.total_q += 9;
    p.max_q_len += 3;
    p.max_kv_len += 3 * s.block + 5;
    p.total_kv += 64;
    p.pool_pages += p.paged() ? 5 : 0;
  }
  if (is_vision(c.operation)) describe_vision(c, p);
  p.q = p.kv = p.q_idx = p.k_idx = p.out = c.type;
  scale_operands(c.options, p);
  p.partial = p.grad = fp32;
  if (c.options.grad16) p.grad = c.type;
  p.softmax_scale = c.options.softmax_scale != 0 ? c.options.softmax_scale : 1 / std::sqrt(static_cast<double>(s.d));
  p.index_scale = 1 / std::sqrt(static_cast<double>(s.di));
  // Option scale is that of the only product there is; kl has two, and no third one for which another scale would stand.
  if (c.options.softmax_scale != 0 && (c.operation == op::score || c.operation == op::index || c.operation == op::kl))
    p.index_scale = c.options.softmax_scale;
  p.splits = c.options.splits;
  if (c.operation == op::combine) {
    if (c.options.part16) p.partial = c.type;
    if (c.options.slack) p.splits += 3;
  }
  if (c.operation == op::qk_norm_rope) {
    p.rope_dims = c.options.rope_dims >= 0 ? c.options.rope_dims : usual_rope_dims(s);
    p.norm_eps = 1e-6;
  }
  p.kl_warm_up = c.options.warm ? 1 : 0;
  if (c.operation == op::kl) p.kl_coeff = c.options.kl_coeff;
  p.asked.in_id_form = c.options.lenient      ? id_form::lenient
                       : c.options.short_rows ? id_form::short_rows
                                              : id_form::exact;
  return p;
}

bool plants_selection(const case_spec& c) {
  return c.operation == op::msa && c.family != "random" && c.family != "recorded";
}

std::int64_t planted_directions(std::int64_t di) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(di)));
}

nlohmann::json definition(const case_spec& c) {
  nlohmann::json lengths = nlohmann::json::array();
  for (const auto& q : sequences(c)) lengths.push_back({q.q_len, q.kv_len});
  nlohmann::json grids = nlohmann::json::array();
  for (const auto& g : c.lengths.grids) grids.push_back({g.t, g.h, g.w});
  nlohmann::json out = {{"contract", contract_version},
                        {"generator", generator_version},
                        {"stream", name_without_seed(c)},
                        {"seed", std::to_string(c.seed)},
                        {"family", c.family},
                        {"variant", c.variant},
                        {"problem", make_problem(c)},
                        {"sequences", lengths},
                        {"stride", c.options.stride},
                        {"slack", c.options.slack},
                        {"rep", c.options.rep},
                        {"fp8", c.options.fp8 != scale_form::none || c.options.fp8_index != scale_form::none}};
  if (!grids.empty()) out["grids"] = grids;
  if (!c.recorded.sha256.empty()) out["recorded_sha256"] = c.recorded.sha256;
  return out;
}

std::string definition_sha256(const case_spec& c) { return hash_json(definition(c)); }

std::int64_t cost_triples(const case_spec& c) {
  if (is_vision(c.operation)) return cost_of_segments(c);
  std::int64_t total = 0;
  for (const auto& s : sequences(c))
    for (std::int64_t i = 0; i < s.q_len; ++i) total += cost_of_row(c, s.kv_len - s.q_len + i);
  return total;
}

}  // namespace msabench
