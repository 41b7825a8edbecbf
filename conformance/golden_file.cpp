// SPDX-License-Identifier: Apache-2.0
#include "conformance/golden_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "core/error.h"
#include "core/json.h"
#include "core/units.h"

namespace msabench {
namespace {

using nlohmann::json;

constexpr std::string_view field = "FILE";

constexpr golden_tensor attention_tensors[] = {
    {"q", false, false, "q_len,hq,d"},
    {"k", false, false, "kv_len,hkv,d"},
    {"v", false, false, "kv_len,hkv,d"},
    {"q_idx", false, false, "q_len,hkv,didx"},
    {"k_idx", false, false, "kv_len,didx"},
    {"d_out", false, false, "q_len,hq,d"},
    {"block_scores", false, true, "hkv,q_len,blocks"},
    {"block_ids", true, true, "q_len,hkv,topk"},
    {"out", false, true, "q_len,hq,d"},
    {"lse", false, true, "q_len,hq"},
    {"dq", false, true, "q_len,hq,d"},
    {"dk", false, true, "kv_len,hkv,d"},
    {"dv", false, true, "kv_len,hkv,d"},
    {"dense_out", false, true, "q_len,hq,d"},
    {"dense_lse", false, true, "q_len,hq"},
    {"kl_sparse", false, true, "1"},
    {"kl_sparse_dq_idx", false, true, "q_len,hkv,didx"},
    {"kl_sparse_dk_idx", false, true, "kv_len,didx"},
    {"kl_warmup", false, true, "1"},
    {"kl_warmup_dq_idx", false, true, "q_len,hkv,didx"},
    {"kl_warmup_dk_idx", false, true, "kv_len,didx"},
};

constexpr golden_tensor text_layer_tensors[] = {
    {"hidden", false, false, "seq,hidden"},
    {"wq", false, false, "q_features,hidden"},
    {"wk", false, false, "kv_features,hidden"},
    {"wv", false, false, "kv_features,hidden"},
    {"wo", false, false, "hidden,q_features"},
    {"wiq", false, false, "idx_features,hidden"},
    {"wik", false, false, "didx,hidden"},
    {"q_norm", false, false, "d"},
    {"k_norm", false, false, "d"},
    {"iq_norm", false, false, "didx"},
    {"ik_norm", false, false, "didx"},
    {"block_ids", true, true, "seq,hidx,topk"},
    {"output", false, true, "seq,hidden"},
};

constexpr golden_tensor vit_tensors[] = {
    {"q", false, false, "tokens,heads,d"},     {"k", false, false, "tokens,heads,d"},
    {"v", false, false, "tokens,heads,d"},     {"cu_seqlens", true, true, "boundaries"},
    {"positions", true, true, "tokens,3"},     {"q_rope", false, true, "tokens,heads,d"},
    {"k_rope", false, true, "tokens,heads,d"}, {"out", false, true, "tokens,heads,d"},
    {"lse", false, true, "tokens,heads"},
};

class file_reader {
 public:
  file_reader(golden_file& file, std::string_view path) : file_(file), path_(path) {}

  [[noreturn]] void refuse(std::string_view what, std::string_view remedy) const {
    bad_input(field, path_, what, remedy);
  }

  void read_parameters() {
    const auto entry = file_.data.metadata().find("case");
    if (entry == file_.data.metadata().end())
      refuse("is no golden file: its metadata has no entry `case`",
             "give a file that tests/golden/README.md describes");
    const json all = parse_json(field, path_, entry->second);
    if (!all.is_object()) refuse("metadata entry `case` is not a JSON object", "");
    if (!all.contains("kind") || !all["kind"].is_string())
      refuse("metadata entry `case` has no text `kind`", "known kinds are attention, text_layer, vit3d");
    file_.kind = all["kind"].get<std::string>();
    file_.parameters = all;
    file_.parameters.erase("kind");
  }

  void read_kind() {
    if (file_.kind == "attention") {
      read_attention();
    } else if (file_.kind == "text_layer") {
      read_text_layer();
    } else if (file_.kind == "vit3d") {
      read_vit();
    } else {
      refuse(fmt::format("kind {} is unknown", one_line(file_.kind, 40)),
             "known kinds are attention, text_layer, vit3d");
    }
  }

  void check_tensors() const {
    for (const golden_tensor& rule : file_.tensors) {
      const tensor_info* info = file_.data.find(rule.name);
      if (info == nullptr)
        refuse(fmt::format("tensor {} is missing", rule.name), fmt::format("a file of kind {} has it", file_.kind));
      const std::string_view type = rule.integer ? "I32" : "F64";
      if (info->dtype != type) refuse(fmt::format("tensor {} is of type {}, not {}", rule.name, info->dtype, type), "");
      const auto want = shape_of(rule);
      if (info->shape != want)
        refuse(fmt::format("tensor {} is [{}], but its parameters say [{}]", rule.name, fmt::join(info->shape, ","),
                           fmt::join(want, ",")),
               "");
    }
  }

 private:
  const json& parameter(std::string_view name) const {
    const auto found = file_.parameters.find(std::string(name));
    if (found == file_.parameters.end())
      refuse(fmt::format("parameter {} is missing", name), fmt::format("kind {} needs it", file_.kind));
    return *found;
  }

  std::int64_t integer(std::string_view name, const json& value, std::int64_t least, std::int64_t most) const {
    const bool in_range = value.is_number_unsigned() ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                                                     : value.is_number_integer();
    if (!in_range || value.get<std::int64_t>() < least)
      refuse(fmt::format("parameter {} is {}, not an integer from {} to {}", name, one_line(value.dump(), 30), least,
                         most),
             "");
    return value.get<std::int64_t>();
  }

  void read_integers(std::initializer_list<std::string_view> names, std::int64_t least) {
    for (const auto name : names) file_.sizes[std::string(name)] = integer(name, parameter(name), least, max_size);
  }

  void require_positive(std::initializer_list<std::string_view> names) const {
    for (const auto name : names) {
      const json& value = parameter(name);
      if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0)
        refuse(fmt::format("parameter {} is {}, not a positive number", name, one_line(value.dump(), 30)), "");
    }
  }

  void require_groups() const {
    if (file_.size("hq") % file_.size("hkv") != 0)
      refuse(fmt::format("parameter hq is {}, not a multiple of hkv {}", file_.size("hq"), file_.size("hkv")), "");
  }

  void read_attention() {
    file_.tensors = attention_tensors;
    read_integers({"hq", "hkv", "d", "didx", "block", "topk"}, 1);
    read_integers({"q_len", "kv_len", "local", "init"}, 0);
    require_positive({"scale_q"});
    require_groups();
    if (file_.size("local") + file_.size("init") > file_.size("topk"))
      refuse(fmt::format("parameters local {} and init {} force more than the {} blocks of topk", file_.size("local"),
                         file_.size("init"), file_.size("topk")),
             "");
    file_.sizes["blocks"] = (file_.size("kv_len") + file_.size("block") - 1) / file_.size("block");
  }

  void read_text_layer() {
    file_.tensors = text_layer_tensors;
    read_integers({"hidden", "hq", "hkv", "d", "hidx", "didx", "block", "topk"}, 1);
    read_integers({"local", "rot", "seq"}, 0);
    require_positive({"theta", "eps"});
    require_groups();
    file_.sizes["q_features"] = file_.size("hq") * file_.size("d");
    file_.sizes["kv_features"] = file_.size("hkv") * file_.size("d");
    file_.sizes["idx_features"] = file_.size("hidx") * file_.size("didx");
  }

  // Tokens and segments: an item of more temporal patches than the window is cut into segments of `window`; 0 cuts
  // none.
  void read_vit() {
    file_.tensors = vit_tensors;
    read_integers({"heads", "d", "merge"}, 1);
    read_integers({"window"}, 0);
    require_positive({"theta"});
    const json& grids = parameter("grids");
    if (!grids.is_array()) refuse("parameter grids is not a list of [t,h,w]", "");
    constexpr std::int64_t longest_side = 65536;
    std::int64_t tokens = 0, segments = 0;
    for (const json& grid : grids) {
      if (!grid.is_array() || grid.size() != 3) refuse("parameter grids is not a list of [t,h,w]", "");
      std::int64_t product = 1;
      for (const json& side : grid) product *= integer("grids", side, 1, longest_side);
      tokens += product;
      if (tokens > std::int64_t{max_size} * 1024) refuse("parameter grids holds too many patches", "");
      const auto t = grid[0].get<std::int64_t>(), window = file_.size("window");
      segments += window == 0 ? 1 : (t + window - 1) / window;
    }
    file_.sizes["tokens"] = tokens;
    file_.sizes["boundaries"] = segments + 1;
  }

  std::vector<std::int64_t> shape_of(const golden_tensor& rule) const {
    std::vector<std::int64_t> shape;
    for (std::string_view rest = rule.shape; !rest.empty();) {
      const std::string_view symbol = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), symbol.size() + 1));
      const auto known = file_.sizes.find(symbol);
      shape.push_back(known != file_.sizes.end() ? known->second : symbol == "3" ? 3 : 1);
    }
    return shape;
  }

  golden_file& file_;
  std::string_view path_;
};

}  // namespace

golden_file read_golden_file(const std::string& path) {
  golden_file file{safetensors_file::open(field, path), {}, {}, {}, {}};
  file_reader reader(file, path);
  reader.read_parameters();
  reader.read_kind();
  reader.check_tensors();
  return file;
}

}  // namespace msabench
