// SPDX-License-Identifier: Apache-2.0
#include "perf/work_table.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/units.h"
#include "core/work_paper.h"

namespace msabench {

using nlohmann::json;

namespace {

layer_row sum_of(const std::vector<operator_call>& calls) {
  layer_row row;
  for (const auto& c : calls) {
    row.flops += c.amount.useful_flops;
    row.compulsory_bytes.least += c.amount.compulsory_bytes.least;
    row.compulsory_bytes.most += c.amount.compulsory_bytes.most;
    row.algorithmic_bytes += c.amount.algorithmic_bytes;
  }
  return row;
}

bool has_paper_formula(const work_request& r) {
  return r.phase == work_phase::decode || (r.phase == work_phase::prefill && r.chunk == 0);
}

sparse_row make_sparse(const work_request& r, const std::vector<operator_call>& calls, const sequence& s) {
  sparse_row row;
  row.layer = sum_of(calls);
  for (const auto& c : calls) {
    const double flops = c.amount.useful_flops;
    row.ranked_scores += c.amount.ranked_scores;
    if (c.operation == op::msa) {
      row.index_flops = c.index_flops;
      row.attention_flops = flops - c.index_flops;
    }
    if (c.operation == op::attend_backward) row.backward_flops = flops;
    if (c.operation == op::kl) row.kl_flops = flops;
  }
  row.selected_keys = row.attention_flops / (4.0 * r.model.shape.d * r.model.shape.hq) / static_cast<double>(s.q_len);
  if (!has_paper_formula(r)) return row;
  const auto n = static_cast<double>(s.kv_len);
  const double tokens = r.phase == work_phase::decode ? n : 1;
  row.paper_flops = paper_msa_flops(r.model.shape, n) / tokens;
  row.paper_dense_flops = paper_gqa_flops(r.model.shape, n) / tokens;
  row.paper_index_share = paper_index_flops(r.model.shape, n) / tokens / *row.paper_flops;
  return row;
}

std::vector<speed_limit> limits_of(const work_request& r, const std::vector<operator_call>& dense, const sequence& s) {
  std::vector<speed_limit> limits;
  const batch_lengths batch(&s, 1);
  for (const dtype index_type : {r.model.index_type, e4m3}) {
    if (index_type == e4m3 && r.model.index_type == e4m3 && !limits.empty()) break;
    model_spec m = r.model;
    m.index_type = index_type;
    const auto sparse = sparse_layer(m, r.phase, batch);
    const auto add = [&](const char* which, const std::optional<ceilings>& c) {
      if (!c) return;
      const auto full = roofline_s(*c, dense, m.type, index_type), msa = roofline_s(*c, sparse, m.type, index_type);
      speed_limit limit{which, index_type, {}, {}};
      if (full && msa) {
        limit.layer = *full / *msa;
        limit.model = m.layers() * *full / (m.dense_layers * *full + m.sparse_layers * *msa);
      }
      limits.push_back(limit);
    };
    add("datasheet", r.device.datasheet);
    add("measured", r.device.measured);
  }
  return limits;
}

work_row make_row(const work_request& r, std::int64_t context) {
  const model_spec& m = r.model;
  const sequence s = phase_sequence(r.phase, context, r.chunk);
  const batch_lengths batch(&s, 1);
  const auto n = static_cast<double>(context);
  work_row row;
  row.context = context;
  row.query_tokens = s.q_len;
  const auto dense = dense_layer(m, r.phase, batch);
  row.dense = sum_of(dense);
  row.model_dense_flops = m.layers() * row.dense.flops;
  row.model_flops = m.dense_layers * row.dense.flops;
  row.kv_cache_bytes = n * static_cast<double>(kv_bytes_per_token(m));
  row.index_cache_bytes = n * static_cast<double>(index_bytes_per_token(m));
  row.model_cache_bytes = m.layers() * row.kv_cache_bytes + m.sparse_layers * row.index_cache_bytes;
  const model_spec previous = find_model("model", "previous");
  row.previous_layer_flops = useful_flops(dense_layer(previous, r.phase, batch));
  row.previous_model_flops = previous.layers() * row.previous_layer_flops;
  if (m.sparse_layers > 0) {
    row.sparse = make_sparse(r, sparse_layer(m, r.phase, batch), s);
    row.model_flops += m.sparse_layers * row.sparse->layer.flops;
    row.limits = limits_of(r, dense, s);
  }
  return row;
}

work_crossover crossovers(const work_request& r) {
  const auto compare = [&](auto less) {
    return crossover(r.model.shape.block, [&](std::int64_t n) {
      const sequence s = phase_sequence(r.phase, n, r.chunk);
      const batch_lengths batch(&s, 1);
      return less(sum_of(sparse_layer(r.model, r.phase, batch)), sum_of(dense_layer(r.model, r.phase, batch)));
    });
  };
  work_crossover c;
  if (const double n = std::ceil(paper_equal_cost_length(r.model.shape)); n > 0 && n <= static_cast<double>(max_size))
    c.paper = static_cast<std::int64_t>(n);
  c.flops = compare([](const layer_row& msa, const layer_row& dense) { return msa.flops < dense.flops; });
  c.bytes = compare([](const layer_row& msa, const layer_row& dense) {
    return msa.compulsory_bytes.least < dense.compulsory_bytes.least;
  });
  return c;
}

json to_json(const layer_row& row) {
  return {{"flops", row.flops},
          {"compulsory_bytes", {{"least", row.compulsory_bytes.least}, {"most", row.compulsory_bytes.most}}},
          {"algorithmic_bytes", row.algorithmic_bytes}};
}

template <class T>
json or_null(const std::optional<T>& x) {
  return x ? json(*x) : json(nullptr);
}

json to_json(const sparse_row& row, const work_row& all) {
  json out = to_json(row.layer);
  out.update({{"index_flops", row.index_flops},
              {"attention_flops", row.attention_flops},
              {"backward_flops", row.backward_flops},
              {"kl_flops", row.kl_flops},
              {"ranked_scores", row.ranked_scores},
              {"selected_keys_per_token", row.selected_keys},
              {"index_share", row.index_flops / row.layer.flops},
              {"ratio", all.dense.flops / row.layer.flops},
              {"paper_flops", or_null(row.paper_flops)},
              {"paper_dense_flops", or_null(row.paper_dense_flops)},
              {"paper_index_share", or_null(row.paper_index_share)},
              {"paper_ratio", row.paper_flops ? json(*row.paper_dense_flops / *row.paper_flops) : json(nullptr)}});
  return out;
}

json to_json(const work_row& row) {
  json limits = json::array();
  for (const auto& l : row.limits)
    limits.push_back({{"ceilings", l.ceilings},
                      {"index_type", name(l.index_type)},
                      {"layer", or_null(l.layer)},
                      {"model", or_null(l.model)}});
  return {
      {"context", row.context},
      {"query_tokens", row.query_tokens},
      {"sparse_layer", row.sparse ? to_json(*row.sparse, row) : json(nullptr)},
      {"dense_layer", to_json(row.dense)},
      {"cache_bytes",
       {{"kv_layer", row.kv_cache_bytes}, {"index_layer", row.index_cache_bytes}, {"model", row.model_cache_bytes}}},
      {"model",
       {{"flops", row.model_flops},
        {"all_dense_flops", row.model_dense_flops},
        {"ratio", row.model_dense_flops / row.model_flops}}},
      {"previous_model",
       {{"layer_flops", row.previous_layer_flops},
        {"flops", row.previous_model_flops},
        {"layer_ratio", row.previous_layer_flops / (row.sparse ? row.sparse->layer.flops : row.dense.flops)},
        {"ratio", row.previous_model_flops / row.model_flops}}},
      {"limits", limits}};
}

}  // namespace

work_table make_work_table(const work_request& request) {
  work_table table{request, {}, {}};
  for (const auto context : request.contexts) table.rows.push_back(make_row(request, context));
  if (request.model.sparse_layers > 0) table.crossover = crossovers(request);
  return table;
}

std::vector<published_figure> published_beside(const work_table& table) {
  std::vector<published_figure> beside;
  for (const auto& f : published_figures())
    if (!f.phase || *f.phase == name(table.request.phase)) beside.push_back(f);
  return beside;
}

json to_json(const work_table& table) {
  json rows = json::array(), published = json::array();
  for (const auto& row : table.rows) rows.push_back(to_json(row));
  for (const auto& f : published_beside(table)) published.push_back(to_json(f));
  const work_request& r = table.request;
  json out = {{"schema", "msabench.flops/1"},
              {"model", to_json(r.model)},
              {"phase", name(r.phase)},
              {"device", to_json(r.device)},
              {"rows", rows},
              {"published", published}};
  out["chunk"] = r.chunk > 0 ? json(r.chunk) : json(nullptr);
  out["crossover"] = nullptr;
  if (table.crossover)
    out["crossover"] = {{"paper_flops", or_null(table.crossover->paper)},
                        {"flops", or_null(table.crossover->flops)},
                        {"compulsory_bytes", or_null(table.crossover->bytes)}};
  return out;
}

}  // namespace msabench
