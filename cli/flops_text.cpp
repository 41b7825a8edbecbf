// SPDX-License-Identifier: Apache-2.0
#include "cli/flops_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "core/error.h"
#include "core/units.h"

namespace msabench {

namespace {

struct column {
  std::string title;
  std::function<std::string(const work_row&)> cell;
};

std::string render(const std::string& title, const work_table& table, const std::vector<column>& columns) {
  std::vector<std::string> lines(table.rows.size() + 1);
  for (const auto& c : columns) {
    std::vector<std::string> cells{c.title};
    for (const auto& row : table.rows) cells.push_back(c.cell(row));
    std::size_t width = 0;
    for (const auto& cell : cells) width = std::max(width, cell.size());
    for (std::size_t i = 0; i < cells.size(); ++i) lines[i] += fmt::format("  {:>{}}", cells[i], width);
  }
  return fmt::format("\n{}\n{}\n", title, fmt::join(lines, "\n"));
}

std::string times(double x) { return x < 9.995 ? fmt::format("{:.3f}x", x) : fmt::format("{:.2f}x", x); }
std::string percent(double x) { return fmt::format("{:.1f} %", 100 * x); }

std::string bounded_bytes(const count_bounds& b) {
  const std::string least = format_bytes(b.least), most = format_bytes(b.most);
  return least == most ? least : least + " .. " + most;
}

const column context_column{"context", [](const work_row& r) { return format_size(r.context); }};

std::string model_line(const model_spec& m) {
  const shape_spec& s = m.shape;
  std::string text =
      fmt::format("{}: {} layers ({} dense, {} sparse), {} query / {} KV heads x {}, {}", one_line(m.name, 40),
                  m.layers(), m.dense_layers, m.sparse_layers, s.hq, s.hkv, s.d, name(m.type));
  if (m.sparse_layers > 0)
    text += fmt::format("; index {} x {}, {}, block {}, top-k {}", s.hi, s.di, name(m.index_type), s.block, s.topk);
  return text;
}

std::string phase_line(const work_request& r) {
  std::string what;
  switch (r.phase) {
    case work_phase::prefill:
      what = r.chunk > 0 ? fmt::format("prefill of the last {} tokens of a sequence", format_size(r.chunk))
                         : "prefill of a whole sequence";
      break;
    case work_phase::decode:
      what = "decode of one token";
      break;
    case work_phase::training:
      what = "training on a whole sequence, forward and backward";
      break;
  }
  return what + "; useful FLOPs of attention by exact pair counts, nothing measured";
}

std::string branches(const work_table& table) {
  using row = const work_row&;
  const auto part = [](double sparse_row::* which) {
    return [which](row r) { return format_count((*r.sparse).*which); };
  };
  std::vector<column> columns{
      context_column, {"index", part(&sparse_row::index_flops)}, {"attention", part(&sparse_row::attention_flops)}};
  if (table.request.phase == work_phase::training) {
    columns.push_back({"backward", part(&sparse_row::backward_flops)});
    columns.push_back({"kl", part(&sparse_row::kl_flops)});
  }
  columns.push_back({"MSA", [](row r) { return format_count(r.sparse->layer.flops); }});
  columns.push_back({"dense", [](row r) { return format_count(r.dense.flops); }});
  columns.push_back({"dense/MSA", [](row r) { return times(r.dense.flops / r.sparse->layer.flops); }});
  if (table.rows[0].sparse->paper_flops)
    columns.push_back({table.request.phase == work_phase::decode ? "paper's mean" : "paper's",
                       [](row r) { return times(*r.sparse->paper_dense_flops / *r.sparse->paper_flops); }});
  columns.push_back({"index share", [](row r) { return percent(r.sparse->index_flops / r.sparse->layer.flops); }});
  columns.push_back({"scores ranked", part(&sparse_row::ranked_scores)});
  columns.push_back({"keys/token", [](row r) { return fmt::format("{:.1f}", r.sparse->selected_keys); }});
  return render("one sparse layer against a dense one, FLOPs", table, columns);
}

std::string per_token(const work_table& table) {
  using row = const work_row&;
  const auto tokens = [](row r) { return static_cast<double>(r.query_tokens); };
  std::vector<column> columns{context_column};
  if (table.rows[0].sparse)
    columns.push_back({"sparse layer", [=](row r) { return format_count(r.sparse->layer.flops / tokens(r)); }});
  columns.push_back({"dense layer", [=](row r) { return format_count(r.dense.flops / tokens(r)); }});
  columns.push_back({"model", [=](row r) { return format_count(r.model_flops / tokens(r)); }});
  columns.push_back({"all dense", [=](row r) { return format_count(r.model_dense_flops / tokens(r)); }});
  columns.push_back({"ratio", [](row r) { return times(r.model_dense_flops / r.model_flops); }});
  columns.push_back({"previous model", [=](row r) { return format_count(r.previous_model_flops / tokens(r)); }});
  columns.push_back({"ratio", [](row r) { return times(r.previous_model_flops / r.model_flops); }});
  columns.push_back({"its layer", [](row r) {
                       return times(r.previous_layer_flops / (r.sparse ? r.sparse->layer.flops : r.dense.flops));
                     }});
  return render("one token on average, FLOPs; against full attention in every layer, and against the previous model",
                table, columns);
}

std::string memory(const work_table& table) {
  using row = const work_row&;
  std::vector<column> columns{context_column, {"KV", [](row r) { return format_bytes(r.kv_cache_bytes); }}};
  if (table.rows[0].sparse) columns.push_back({"index", [](row r) { return format_bytes(r.index_cache_bytes); }});
  columns.push_back({"model", [](row r) { return format_bytes(r.model_cache_bytes); }});
  std::string text = render("cache of one layer and of the model", table, columns);
  columns = {context_column};
  if (table.rows[0].sparse) {
    columns.push_back({"MSA", [](row r) { return bounded_bytes(r.sparse->layer.compulsory_bytes); }});
    columns.push_back({"token by token", [](row r) { return format_bytes(r.sparse->layer.algorithmic_bytes); }});
  }
  columns.push_back({"dense", [](row r) { return bounded_bytes(r.dense.compulsory_bytes); }});
  columns.push_back({"token by token", [](row r) { return format_bytes(r.dense.algorithmic_bytes); }});
  if (table.rows[0].sparse)
    columns.push_back({"dense/MSA", [](row r) {
                         return times(r.dense.compulsory_bytes.least / r.sparse->layer.compulsory_bytes.least);
                       }});
  return text + render("bytes that one layer must move (each once), and would move token by token", table, columns);
}

std::string limits(const work_table& table) {
  std::vector<column> columns{context_column};
  for (std::size_t i = 0; i < table.rows[0].limits.size(); ++i) {
    const auto& l = table.rows[0].limits[i];
    if (!l.layer) continue;  // the device has no peak for one of the formats
    columns.push_back({fmt::format("{}, {} index", l.ceilings, name(l.index_type)),
                       [i](const work_row& r) { return times(r.limits[i].layer.value()); }});
    columns.push_back({"model", [i](const work_row& r) { return times(r.limits[i].model.value()); }});
  }
  if (columns.size() == 1)
    return fmt::format("\nno limits: {} has no peak for these formats\n", one_line(table.request.device.name, 40));
  return render(fmt::format("limits of speed-up on {}, a layer and the model, both at their rooflines",
                            one_line(table.request.device.name, 40)),
                table, columns);
}

std::string crossovers(const work_table& table) {
  const auto from = [](const std::optional<std::int64_t>& n) {
    return n ? fmt::format("from {} tokens", *n) : std::string("nowhere up to 16M");
  };
  return fmt::format(
      "\na sparse layer is cheaper than a dense one\n  by FLOPs            {}\n  by compulsory bytes {}\n"
      "  by the paper's formulas, whole prefill: {}\n",
      from(table.crossover->flops), from(table.crossover->bytes), from(table.crossover->paper));
}

// Ratios only: absolute figures are in the JSON, with all the rest.
std::string published(const work_table& table) {
  std::string text;
  for (const auto* baseline : {"same-model", "previous-model", "other-kernel"}) {
    std::string lines, origin;
    for (const auto& f : published_beside(table)) {
      if (f.baseline != baseline) continue;
      const std::string from = fmt::format("  {}; {}; against {}\n", f.source, f.machine, f.against);
      if (from != origin) lines += from;
      origin = from;
      lines += fmt::format("    {:>6}{:<1}  {:>4}  {}\n", f.value, f.unit == "x" ? "x" : "",
                           f.context ? format_size(*f.context) : "", f.what);
    }
    if (!lines.empty()) text += fmt::format("\npublished, against {}\n{}", baseline, lines);
  }
  return text;
}

}  // namespace

std::string flops_text(const work_table& table) {
  std::string text = model_line(table.request.model) + "\n" + phase_line(table.request) + "\n";
  const bool sparse = table.request.model.sparse_layers > 0;
  if (sparse) text += branches(table);
  text += per_token(table) + memory(table);
  if (sparse) text += limits(table) + crossovers(table);
  return text + published(table);
}

std::string flops_csv(const work_table& table) {
  using row = const work_row&;
  const auto number = [](double x) { return fmt::format("{}", x); };
  const auto sparse = [number](auto get) {
    return [=](row r) { return r.sparse ? number(get(*r.sparse)) : std::string(); };
  };
  const auto maybe = [number](const std::optional<double>& x) { return x ? number(*x) : std::string(); };
  std::vector<column> columns{
      {"context", [](row r) { return fmt::format("{}", r.context); }},
      {"query_tokens", [](row r) { return fmt::format("{}", r.query_tokens); }},
      {"index_flops", sparse([](const sparse_row& s) { return s.index_flops; })},
      {"attention_flops", sparse([](const sparse_row& s) { return s.attention_flops; })},
      {"backward_flops", sparse([](const sparse_row& s) { return s.backward_flops; })},
      {"kl_flops", sparse([](const sparse_row& s) { return s.kl_flops; })},
      {"msa_flops", sparse([](const sparse_row& s) { return s.layer.flops; })},
      {"dense_flops", [=](row r) { return number(r.dense.flops); }},
      {"paper_msa_flops", [=](row r) { return r.sparse ? maybe(r.sparse->paper_flops) : ""; }},
      {"paper_dense_flops", [=](row r) { return r.sparse ? maybe(r.sparse->paper_dense_flops) : ""; }},
      {"ranked_scores", sparse([](const sparse_row& s) { return s.ranked_scores; })},
      {"msa_compulsory_bytes_least", sparse([](const sparse_row& s) { return s.layer.compulsory_bytes.least; })},
      {"msa_compulsory_bytes_most", sparse([](const sparse_row& s) { return s.layer.compulsory_bytes.most; })},
      {"msa_algorithmic_bytes", sparse([](const sparse_row& s) { return s.layer.algorithmic_bytes; })},
      {"dense_compulsory_bytes", [=](row r) { return number(r.dense.compulsory_bytes.least); }},
      {"dense_algorithmic_bytes", [=](row r) { return number(r.dense.algorithmic_bytes); }},
      {"kv_cache_layer_bytes", [=](row r) { return number(r.kv_cache_bytes); }},
      {"index_cache_layer_bytes", [=](row r) { return number(r.index_cache_bytes); }},
      {"model_cache_bytes", [=](row r) { return number(r.model_cache_bytes); }},
      {"model_flops", [=](row r) { return number(r.model_flops); }},
      {"model_all_dense_flops", [=](row r) { return number(r.model_dense_flops); }},
      {"previous_layer_flops", [=](row r) { return number(r.previous_layer_flops); }},
      {"previous_model_flops", [=](row r) { return number(r.previous_model_flops); }}};
  for (std::size_t i = 0; i < table.rows[0].limits.size(); ++i) {
    const auto& l = table.rows[0].limits[i];
    const std::string title = fmt::format("limit_{}_{}_index", l.ceilings, name(l.index_type));
    columns.push_back({title + "_layer", [=](row r) { return maybe(r.limits[i].layer); }});
    columns.push_back({title + "_model", [=](row r) { return maybe(r.limits[i].model); }});
  }
  std::vector<std::string> cells;
  for (const auto& c : columns) cells.push_back(c.title);
  std::string csv = fmt::format("{}\n", fmt::join(cells, ","));
  for (const auto& r : table.rows) {
    cells.clear();
    for (const auto& c : columns) cells.push_back(c.cell(r));
    csv += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return csv;
}

}  // namespace msabench
