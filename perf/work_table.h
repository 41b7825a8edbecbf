// SPDX-License-Identifier: Apache-2.0
// The work model laid out by context: branches, caches, ratios, crossovers, and what a device could gain at most. The content of
// `msabench flops`; all of it counted, nothing measured.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/model.h"
#include "core/model_work.h"
#include "perf/device.h"
#include "perf/published.h"

namespace msabench {

struct work_request {
  model_spec model;
  work_phase phase = work_phase::prefill;
  std::vector<std::int64_t> contexts;  // 1 .. max_size
  std::int64_t chunk = 0;              // prefill: the last `chunk` tokens only; 0: all
  device_spec device;
};

// Useful FLOPs and bytes of all calls of one layer.
struct layer_row {
  double flops = 0;
  count_bounds compulsory_bytes;
  double algorithmic_bytes = 0;
};

struct sparse_row {
  layer_row layer;
  // Parts of layer.flops; the last two in training only.
  double index_flops = 0, attention_flops = 0, backward_flops = 0, kl_flops = 0;
  double ranked_scores = 0;  // of the selection, which has no FLOPs
  double selected_keys = 0;  // E_sel / live rows: keys that a token attends to on average
  // The paper's formulas; for whole prefills and for decode (their average token) only.
  std::optional<double> paper_flops, paper_dense_flops, paper_index_share;
};

// How many times faster than full attention a sparse layer, or the model against itself with full attention in every layer, could at most
// be on the device if both ran at their rooflines. Nothing where the device has no peak for a format.
struct speed_limit {
  std::string ceilings;  // "datasheet" or "measured"
  dtype index_type;
  std::optional<double> layer, model;
};

struct work_row {
  std::int64_t context = 0, query_tokens = 0;
  std::optional<sparse_row> sparse;                  // absent for models without sparse layers
  layer_row dense;                                   // full attention with the model's heads
  double kv_cache_bytes = 0, index_cache_bytes = 0;  // of one layer, and of one sparse layer
  double model_cache_bytes = 0;
  double model_flops = 0, model_dense_flops = 0;  // all layers; the same with full attention in each
  // The model before, full attention with 48 query and 8 KV heads.
  double previous_layer_flops = 0, previous_model_flops = 0;
  std::vector<speed_limit> limits;
};

// Contexts from which on a sparse layer is cheaper than a dense one, up to 16M; empty where there is none.
struct work_crossover {
  std::optional<std::int64_t> paper;  // the paper's formulas, rounded up
  std::optional<std::int64_t> flops;  // useful FLOPs of the phase by exact counts
  std::optional<std::int64_t> bytes;  // compulsory bytes of the phase
};

struct work_table {
  work_request request;
  std::vector<work_row> rows;
  std::optional<work_crossover> crossover;  // models with sparse layers
};

work_table make_work_table(const work_request& request);

// Schema msabench.flops/1, published figures of the phase included.
nlohmann::json to_json(const work_table& table);
// Those of the phase and of no phase.
std::vector<published_figure> published_beside(const work_table& table);

}  // namespace msabench
