// SPDX-License-Identifier: Apache-2.0
// Models as the work model sees them: how many layers attend in which way, and the shape that they share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "core/case.h"
#include "core/dtype.h"

namespace msabench {

struct model_spec {
  std::string name;
  std::string source;  // where the numbers come from
  std::int32_t dense_layers = 0, sparse_layers = 0;
  std::int32_t hidden = 0;  // width between the layers, 0: not said; attention's work does not depend on it
  shape_spec shape;         // without sparse layers hi, di, block, topk, local_blocks, init_blocks are 0
  dtype type = bf16;        // queries, keys, values, outputs
  dtype index_type = bf16;  // queries and keys of the index branch

  std::int32_t layers() const { return dense_layers + sparse_layers; }
};

// m3: MiniMax M3. m3-dense-layer: one of its layers with full attention. paper-pilot: a layer of the paper's pilot model (its number of
// layers does not matter to ratios). previous: the model before M3, 48 query / 8 KV heads, full attention: the baseline of the product
// figures, not of the paper's.
std::span<const model_spec> named_models();

// A name of named_models(), or else a JSON file. usage_error names field and, in a file, the JSON field.
model_spec find_model(std::string_view field, std::string_view name_or_file);

// {"name", "source", "dense_layers", "sparse_layers", "hidden", "hq", "hkv", "d", "hi", "di", "block", "topk", "local_blocks",
// "init_blocks", "type", "index_type"}. Needed: hq, hkv, d, a layer, and with sparse layers block and topk. Left out: hi = hkv, di = d,
// local_blocks = 1, init_blocks = 0, types bf16. An unknown key is refused, so that a misspelt one is not silently the default.
model_spec parse_model(std::string_view field, const nlohmann::json& in);
nlohmann::json to_json(const model_spec& m);

}  // namespace msabench
