// SPDX-License-Identifier: Apache-2.0
#include "core/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/json_fields.h"

namespace msabench {

using nlohmann::json;

namespace {

constexpr std::int32_t max_layers = 10'000, max_dim = 1 << 16, max_block = 1 << 20;

constexpr std::array known_keys = {
    "name", "source", "dense_layers", "sparse_layers", "hidden",       "hq",          "hkv",  "d",
    "hi",   "di",     "block",        "topk",          "local_blocks", "init_blocks", "type", "index_type"};

std::vector<model_spec> make_models() {
  const shape_spec m3{64, 4, 128, 4, 128, 128, 16, 1, 0};
  const shape_spec full{64, 4, 128, 0, 0, 0, 0, 0, 0};
  return {
      {"m3", "released configuration of MiniMax M3: layers 0-2 full, 3-59 sparse", 3, 57, 6144, m3, bf16, bf16},
      {"m3-dense-layer", "released configuration of MiniMax M3, one of layers 0-2", 1, 0, 6144, full, bf16, bf16},
      {"paper-pilot",
       "arXiv 2606.13392, one layer of the pilot model",
       0,
       1,
       0,
       {32, 4, 128, 4, 128, 128, 16, 1, 0},
       bf16,
       bf16},
      {"previous",
       "released configuration of MiniMax M2: full attention in every layer",
       62,
       0,
       3072,
       {48, 8, 128, 0, 0, 0, 0, 0, 0},
       bf16,
       bf16},
  };
}

// One object of a model file, refused field by field.
class model_reader {
 public:
  model_reader(std::string_view field, const json& in) : in_(in), fields_(field, in) {
    for (const auto& [key, value] : in.items())
      if (std::find(known_keys.begin(), known_keys.end(), key) == known_keys.end())
        fields_.refuse(key, value, "is no field of a model", fmt::format("use {}", fmt::join(known_keys, ", ")));
  }

  void text(const char* key, std::string& out) const { fields_.read(key, out); }

  void number(const char* key, std::int32_t low, std::int32_t high, std::int32_t& out) const {
    fields_.read(key, out);
    if (fields_.has(key) && (out < low || out > high))
      fields_.refuse(key, in_[key], fmt::format("is outside {} .. {}", low, high));
  }

  void needed(const char* key, std::int32_t low, std::int32_t high, std::int32_t& out) const {
    fields_.require(key);
    number(key, low, high, out);
  }

  void storage(const char* key, dtype& out) const {
    fields_.read(key, out);
    if (fields_.has(key) && out != bf16 && out != fp16 && out != fp32 && out != e4m3)
      fields_.refuse(key, in_[key], "is no storage format of attention", "use bf16, fp16, fp32 or e4m3");
  }

  [[noreturn]] void refuse(const char* key, std::string_view problem, std::string_view remedy) const {
    fields_.refuse(key, fields_.has(key) ? in_[key] : json(nullptr), problem, remedy);
  }

 private:
  const json& in_;
  json_fields fields_;
};

void read_sparse_shape(const model_reader& in, shape_spec& s) {
  s.hi = s.hkv;
  s.di = s.d;
  s.local_blocks = 1;
  in.number("hi", 1, max_dim, s.hi);
  in.number("di", 1, max_dim, s.di);
  in.needed("block", 1, max_block, s.block);
  in.needed("topk", 1, max_block, s.topk);
  in.number("local_blocks", 0, max_block, s.local_blocks);
  in.number("init_blocks", 0, max_block, s.init_blocks);
  if (s.hi != s.hkv) in.refuse("hi", fmt::format("differs from hkv {}", s.hkv), "give one index head per KV head");
  if (s.local_blocks + s.init_blocks > s.topk)
    in.refuse("topk",
              fmt::format("is less than the forced blocks, local {} + initial {}", s.local_blocks, s.init_blocks),
              "force fewer");
}

}  // namespace

std::span<const model_spec> named_models() {
  static const std::vector<model_spec> all = make_models();
  return all;
}

model_spec parse_model(std::string_view field, const json& object) {
  const model_reader in(field, object);
  model_spec m;
  m.name = "unnamed";
  in.text("name", m.name);
  in.text("source", m.source);
  in.number("dense_layers", 0, max_layers, m.dense_layers);
  in.number("sparse_layers", 0, max_layers, m.sparse_layers);
  in.number("hidden", 1, 1 << 24, m.hidden);
  if (m.layers() == 0)
    in.refuse("sparse_layers", "leaves the model without layers", "give dense_layers or sparse_layers");
  in.needed("hq", 1, max_dim, m.shape.hq);
  in.needed("hkv", 1, max_dim, m.shape.hkv);
  in.needed("d", 1, max_dim, m.shape.d);
  if (m.shape.hq % m.shape.hkv != 0)
    in.refuse("hq", fmt::format("is no multiple of hkv {}", m.shape.hkv),
              "every KV head serves equally many query heads");
  if (m.sparse_layers > 0) read_sparse_shape(in, m.shape);
  in.storage("type", m.type);
  in.storage("index_type", m.index_type);
  return m;
}

model_spec find_model(std::string_view field, std::string_view name_or_file) {
  std::string names;
  for (const auto& m : named_models()) {
    if (m.name == name_or_file) return m;
    names += m.name + ", ";
  }
  const std::filesystem::path path(name_or_file);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    bad_input(field, name_or_file, "is neither a known model nor a file", "use " + names + "or a JSON file");
  return parse_model(field, parse_json(field, name_or_file, read_file(field, path, 1 << 20)));
}

json to_json(const model_spec& m) {
  json out = {{"name", m.name},
              {"source", m.source},
              {"dense_layers", m.dense_layers},
              {"sparse_layers", m.sparse_layers},
              {"hq", m.shape.hq},
              {"hkv", m.shape.hkv},
              {"d", m.shape.d},
              {"type", name(m.type)},
              {"index_type", name(m.index_type)}};
  if (m.hidden > 0) out["hidden"] = m.hidden;
  if (m.sparse_layers == 0) return out;
  out.update({{"hi", m.shape.hi},
              {"di", m.shape.di},
              {"block", m.shape.block},
              {"topk", m.shape.topk},
              {"local_blocks", m.shape.local_blocks},
              {"init_blocks", m.shape.init_blocks}});
  return out;
}

}  // namespace msabench
