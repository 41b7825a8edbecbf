// SPDX-License-Identifier: Apache-2.0
#include "conformance/golden_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

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

constexpr std::string_view known_kinds = "known kinds are attention, text_layer, vit3d";
// Beyond this the reference computes for many minutes; golden data need a thousandth of it.
constexpr double most_work = 1e11;
// The reference's results come with gauges, several times the size of the tensors.
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 30;
constexpr std::int64_t most_tokens = std::numeric_limits<std::int32_t>::max();

class case_reader {
 public:
  case_reader(std::string_view role, std::string_view source) : field_(role), source_(source) {}

  golden_case read(const json& description) {
    if (!description.is_object()) refuse("metadata entry `case` is not a JSON object", "");
    if (!description.contains("kind") || !description["kind"].is_string())
      refuse("metadata entry `case` has no text `kind`", known_kinds);
    case_.kind = description["kind"].get<std::string>();
    case_.parameters = description;
    case_.parameters.erase("kind");
    if (case_.kind == "attention") {
      read_attention();
    } else if (case_.kind == "text_layer") {
      read_text_layer();
    } else if (case_.kind == "vit3d") {
      read_vit();
    } else {
      refuse(fmt::format("kind {} is unknown", one_line(case_.kind, 40)), known_kinds);
    }
    if (case_.work() > most_work)
      refuse(fmt::format("its parameters ask for {:.0e} multiplications, more than the {:.0e} accepted here",
                         case_.work(), most_work),
             "give a smaller problem");
    return case_;
  }

 private:
  [[noreturn]] void refuse(std::string_view what, std::string_view remedy) const {
    bad_input(field_, source_, what, remedy);
  }

  const json& parameter(std::string_view name) const {
    const auto found = case_.parameters.find(std::string(name));
    if (found == case_.parameters.end())
      refuse(fmt::format("parameter {} is missing", name), fmt::format("kind {} needs it", case_.kind));
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
    for (const auto name : names) case_.sizes[std::string(name)] = integer(name, parameter(name), least, max_size);
  }

  void require_number(std::string_view name, bool zero_allowed) const {
    const json& value = parameter(name);
    const double x = value.is_number() ? value.get<double>() : -1;
    if (!std::isfinite(x) || x < 0 || (x == 0 && !zero_allowed))
      refuse(fmt::format("parameter {} is {}, not a {} number", name, one_line(value.dump(), 30),
                         zero_allowed ? "finite, not negative" : "positive"),
             "");
  }

  std::int64_t size(std::string_view name) const { return case_.size(name); }

  void require_groups() const {
    if (size("hq") % size("hkv") != 0)
      refuse(fmt::format("parameter hq is {}, not a multiple of hkv {}", size("hq"), size("hkv")), "");
  }

  void require_room_for_forced() const {
    if (size("local") + size("init") > size("topk"))
      refuse(fmt::format("parameters local {} and init {} force more than the {} blocks of topk", size("local"),
                         size("init"), size("topk")),
             "");
  }

  void read_attention() {
    case_.tensors = attention_tensors;
    read_integers({"hq", "hkv", "d", "didx", "block", "topk"}, 1);
    read_integers({"q_len", "kv_len", "local", "init"}, 0);
    require_number("scale_q", true);
    require_groups();
    require_room_for_forced();
    case_.sizes["blocks"] = (size("kv_len") + size("block") - 1) / size("block");
  }

  void read_text_layer() {
    case_.tensors = text_layer_tensors;
    read_integers({"hidden", "hq", "hkv", "d", "hidx", "didx", "block", "topk"}, 1);
    read_integers({"local", "rot", "seq"}, 0);
    case_.sizes["init"] = case_.parameters.contains("init") ? integer("init", parameter("init"), 0, max_size) : 0;
    require_number("theta", false);
    require_number("eps", true);
    require_groups();
    require_room_for_forced();
    if (size("hidx") != size("hkv"))
      refuse(
          fmt::format("parameter hidx is {}, not hkv {}: every KV head has one index head", size("hidx"), size("hkv")),
          "");
    if (size("rot") % 2 != 0 || size("rot") > std::min(size("d"), size("didx")))
      refuse(fmt::format("parameter rot is {}, not an even number up to d {} and didx {}", size("rot"), size("d"),
                         size("didx")),
             "");
    case_.sizes["q_features"] = size("hq") * size("d");
    case_.sizes["kv_features"] = size("hkv") * size("d");
    case_.sizes["idx_features"] = size("hidx") * size("didx");
  }

  // Tokens and segments: an item of more temporal patches than the window is cut into segments of `window`; 0 cuts
  // none.
  void read_vit() {
    case_.tensors = vit_tensors;
    read_integers({"heads", "d", "merge"}, 1);
    read_integers({"window"}, 0);
    require_number("theta", false);
    const json& grids = parameter("grids");
    if (!grids.is_array()) refuse("parameter grids is not a list of [t,h,w]", "");
    constexpr std::int64_t longest_side = 65536;
    std::int64_t tokens = 0, segments = 0;
    double pairs = 0;
    for (const json& grid : grids) {
      if (!grid.is_array() || grid.size() != 3) refuse("parameter grids is not a list of [t,h,w]", "");
      std::int64_t sides[3];
      for (std::size_t axis = 0; axis < 3; ++axis) sides[axis] = integer("grids", grid[axis], 1, longest_side);
      for (const std::int64_t side : {sides[1], sides[2]})
        if (side % size("merge") != 0)
          refuse(fmt::format("parameter grids has a side of {}, not a multiple of merge {}", side, size("merge")), "");
      const std::int64_t t = sides[0], patch = sides[1] * sides[2];
      const std::int64_t window = size("window") == 0 ? t : std::min(size("window"), t);
      tokens += t * patch;
      if (tokens > most_tokens) refuse("parameter grids holds too many patches", "");
      segments += (t + window - 1) / window;
      pairs += static_cast<double>(t * patch) * static_cast<double>(window * patch);
    }
    case_.sizes["tokens"] = tokens;
    case_.sizes["boundaries"] = segments + 1;
    case_.sizes["pairs"] = static_cast<std::int64_t>(std::min(pairs, 0x1p60));
  }

  golden_case case_;
  std::string_view field_, source_;
};

void check_tensors(const golden_file& file, const std::string& path) {
  const auto refuse = [&](std::string_view what, std::string_view remedy) { bad_input(field, path, what, remedy); };
  for (const golden_tensor& rule : file.tensors) {
    const tensor_info* info = file.data.find(rule.name);
    if (info == nullptr)
      bad_input(field, path, fmt::format("tensor {} is missing", rule.name),
                fmt::format("a file of kind {} has it", file.kind));
    const std::string_view type = rule.integer ? "I32" : "F64";
    if (info->dtype != type) refuse(fmt::format("tensor {} is of type {}, not {}", rule.name, info->dtype, type), "");
    const auto want = file.shape_of(rule);
    if (info->shape != want)
      refuse(fmt::format("tensor {} is [{}], but its parameters say [{}]", rule.name, fmt::join(info->shape, ","),
                         fmt::join(want, ",")),
             "");
  }
}

}  // namespace

std::vector<std::int64_t> golden_case::shape_of(const golden_tensor& tensor) const {
  std::vector<std::int64_t> shape;
  for (std::string_view rest = tensor.shape; !rest.empty();) {
    const std::string_view symbol = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), symbol.size() + 1));
    const auto known = sizes.find(symbol);
    shape.push_back(known != sizes.end() ? known->second : symbol == "3" ? 3 : 1);
  }
  return shape;
}

double golden_case::work() const {
  const auto of = [&](std::string_view name) { return static_cast<double>(size(name)); };
  if (kind == "vit3d") return of("pairs") * of("heads") * of("d");
  if (kind == "attention")
    // Forward and backward, sparse and dense, and the two stages of the loss.
    return of("q_len") * of("kv_len") * 4 * (of("hq") * of("d") + of("hkv") * of("didx"));
  const double keys = std::min(of("seq"), of("topk") * of("block"));
  return of("seq") * (of("hidden") * (2 * of("q_features") + 2 * of("kv_features") + of("idx_features") + of("didx")) +
                      keys * of("q_features") + of("seq") * of("idx_features"));
}

golden_case read_golden_case(std::string_view role, std::string_view source, const nlohmann::json& description) {
  return case_reader(role, source).read(description);
}

golden_file read_golden_file(const std::string& path) {
  auto data = safetensors_file::open(field, path, most_bytes);
  const auto entry = data.metadata().find("case");
  if (entry == data.metadata().end())
    bad_input(field, path, "is no golden file: its metadata has no entry `case`",
              "give a file that tests/golden/README.md describes");
  golden_file file{read_golden_case(field, path, parse_json(field, path, entry->second)), std::move(data)};
  check_tensors(file, path);
  return file;
}

}  // namespace msabench
