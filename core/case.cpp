// SPDX-License-Identifier: Apache-2.0
// Names of cases: writing, and strict reading.
#include "core/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/units.h"

namespace msabench {

namespace {

constexpr std::int32_t max_heads = 1024, max_dim = 1024, max_block = 4096, max_topk = 4096;
constexpr std::int64_t max_pool_pages = std::int64_t{1} << 20, most_pool_tokens = std::int64_t{1} << 30;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

[[noreturn]] void bad_case(std::string_view whole, std::string_view problem, std::string_view remedy) {
  bad_input("case", whole, problem, remedy);
}

std::string join_names(const auto& items) {
  std::string all;
  for (const auto& item : items) {
    if (!all.empty()) all += ", ";
    all += item.name;
  }
  return all;
}

// A plain decimal without sign or leading zero; -1 for anything else.
std::int64_t plain_number(std::string_view text, std::int64_t max) {
  if (text.empty() || text.size() > 8 || (text.size() > 1 && text[0] == '0')) return -1;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > max) return -1;
  return value;
}

std::string format_scale(double scale) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, scale, std::chars_format::fixed).ptr;
  return {text, end};
}

// M3's vision tower. It has no index branch and no blocks: those of the text model stand there.
constexpr shape_spec vision_tower{16, 16, 80, 16, 80, 128, 16, 1, 0};

std::string_view name(page_layout layout) {
  switch (layout) {
    case page_layout::contiguous:
      return "contig";
    case page_layout::paged:
      return "paged";
    case page_layout::fused:
      return "fused";
  }
  return "unknown";
}

// Reads one case name; every member function takes one part.
class reader {
 public:
  reader(std::string_view whole, accepted_families accepted) : whole_(whole), accepted_(accepted) {}

  case_spec read() {
    if (whole_.size() > 200) fail("is longer than 200 characters", "see `msabench list`");
    for (const char c : whole_)
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
            c == '/'))
        fail("has a character outside A-Z a-z 0-9 . _ /", "see `msabench list` for names");
    const auto parts = split(whole_, '/');
    if (parts.size() < 6)
      fail("is no case name",
           "operator/shape/lengths/types.layout/family/sSEED, e.g. attend/m3/q1.n1M/bf16.paged/needle/s0");
    read_operator(parts[0]);
    read_shape(parts[1]);
    read_lengths(parts[2]);
    read_types(parts[3]);
    read_family(parts[4]);
    for (std::size_t i = 5; i + 1 < parts.size(); ++i) read_option(parts[i]);
    read_seed(parts.back());
    check_options();
    if (plants_selection(case_)) check_directions();
    const std::string canonical = msabench::name(case_);
    if (canonical != whole_) fail("is not the canonical spelling", "write " + canonical);
    return case_;
  }

 private:
  [[noreturn]] void fail(std::string_view problem, std::string_view remedy) const { bad_case(whole_, problem, remedy); }

  void read_operator(std::string_view text) {
    const auto o = op_from_name(text);
    if (!o) {
      std::string known;
      for (const op each : all_ops) known += (known.empty() ? "" : ", ") + std::string(msabench::name(each));
      fail(fmt::format("unknown operator '{}'", text), "one of " + known);
    }
    case_.operation = *o;
  }

  void read_shape(std::string_view text) {
    const auto words = split(text, '.');
    if (is_vision(case_.operation)) return read_vision_shape(text, words);
    for (const auto& named : named_shapes()) {
      if (words[0] != named.name) continue;
      case_.shape = named.shape;
      if (words.size() == 1) return;
      const std::int64_t ways = words[1].starts_with("tp") ? plain_number(words[1].substr(2), 64) : -1;
      if (words.size() != 2 || ways < 2 || case_.shape.hkv % ways != 0)
        fail(fmt::format("shape '{}' is not known", text),
             fmt::format("{}.tpN with N > 1 that divides {} KV heads", named.name, named.shape.hkv));
      const auto n = static_cast<std::int32_t>(ways);
      case_.shape.hq /= n;
      case_.shape.hkv /= n;
      case_.shape.hi /= n;
      return;
    }
    read_custom_shape(text, words);
  }

  // Vision heads have no groups.
  void read_vision_shape(std::string_view text, const std::vector<std::string_view>& words) {
    if (text == "m3") {
      case_.shape = vision_tower;
      return;
    }
    if (text == "pilot")
      fail("shape 'pilot' has no vision tower", "m3, or heads of vision such as h16x16.d80.b128.k16.l1.i0");
    read_custom_shape(text, words);
    if (case_.shape.hq != case_.shape.hkv)
      fail(fmt::format("{} query heads and {} KV heads", case_.shape.hq, case_.shape.hkv),
           "vision has as many of both, e.g. h16x16");
  }

  // h8x2.d64[.hi4][.di24].b32.k4.l1.i0
  void read_custom_shape(std::string_view text, const std::vector<std::string_view>& words) {
    shape_spec& s = case_.shape;
    const std::string remedy = "a named shape (" + join_names(named_shapes()) +
                               ") or hQxKV.dD[.hiH][.diD].bB.kK.lL.iI, e.g. h8x2.d64.b32.k4.l1.i0";
    auto need = [&](std::string_view word, std::string_view key, std::int64_t min, std::int64_t max) {
      const std::int64_t value = word.starts_with(key) ? plain_number(word.substr(key.size()), max) : -1;
      if (value < min)
        fail(fmt::format("shape '{}': '{}' should be {} with a number of {} to {}", text, word, key, min, max), remedy);
      return static_cast<std::int32_t>(value);
    };
    const auto cross = words[0].find('x');
    if (words.size() < 6 || words.size() > 8 || cross == std::string_view::npos)
      fail(fmt::format("unknown shape '{}'", text), remedy);
    s.hq = need(words[0].substr(0, cross), "h", 1, max_heads);
    s.hkv = need(words[0].substr(cross), "x", 1, max_heads);
    s.d = need(words[1], "d", 1, max_dim);
    s.hi = s.hkv;
    s.di = s.d;
    std::size_t at = 2;
    if (words[at].starts_with("hi")) s.hi = need(words[at++], "hi", 1, max_heads);
    if (words[at].starts_with("di")) s.di = need(words[at++], "di", 1, max_dim);
    if (words.size() != at + 4) fail(fmt::format("shape '{}' has too few or too many parts", text), remedy);
    s.block = need(words[at], "b", 1, max_block);
    s.topk = need(words[at + 1], "k", 1, max_topk);
    s.local_blocks = need(words[at + 2], "l", 0, max_topk);
    s.init_blocks = need(words[at + 3], "i", 0, max_topk);
    if (s.hq % s.hkv != 0)
      fail(fmt::format("{} query heads are no multiple of {} KV heads", s.hq, s.hkv), "make hQ a multiple of xKV");
    if (s.hi != s.hkv) fail(fmt::format("{} index heads for {} KV heads", s.hi, s.hkv), "one index head per KV head");
    if (s.local_blocks + s.init_blocks > s.topk)
      fail("forces more blocks than it selects (l + i > k)", "raise k or lower l or i");
  }

  void read_lengths(std::string_view text) {
    if (text.starts_with("rag.")) {
      const auto wanted = text.substr(4);
      for (const auto& batch : ragged_batches())
        if (batch.name == wanted) {
          case_.lengths.form = lengths_spec::kind::ragged;
          case_.lengths.ragged_name = wanted;
          return;
        }
      fail(fmt::format("unknown ragged batch '{}'", wanted),
           "rag.NAME with NAME one of " + join_names(ragged_batches()));
    }
    if (is_vision(case_.operation)) return read_grids(text);
    if (text.find('_') != std::string_view::npos) return read_listed(text);
    const auto words = split(text, '.');
    if (words.size() < 2 || words.size() > 3 || !words[0].starts_with("q") || !words[1].starts_with("n"))
      bad_lengths(text);
    case_.lengths.q_len = parse_size("case lengths", words[0].substr(1));
    case_.lengths.kv_len = parse_size("case lengths", words[1].substr(1));
    if (words.size() == 3) {
      if (!words[2].starts_with("x")) bad_lengths(text);
      case_.lengths.batch = parse_size("case batch", words[2].substr(1));
    }
  }

  [[noreturn]] void bad_lengths(std::string_view text) const {
    fail(fmt::format("lengths '{}' are not understood", text),
         "qLEN.nLEN[.xBATCH], qLEN.nLEN_qLEN.nLEN... or rag.NAME, e.g. q1.n1M, q4.n128K.x16 or q1.n33_q4.n129");
  }

  // q1.n33_q4.n129_q0.n5
  void read_listed(std::string_view text) {
    const auto length = [](std::string_view digits) { return digits == "0" ? 0 : parse_size("case lengths", digits); };
    std::vector<sequence> listed;
    for (const auto item : split(text, '_')) {
      const auto words = split(item, '.');
      if (words.size() != 2 || !words[0].starts_with("q") || !words[1].starts_with("n")) bad_lengths(text);
      listed.push_back({length(words[0].substr(1)), length(words[1].substr(1))});
    }
    case_.lengths = lengths_of(listed);
  }

  // g10x4x6_1x2x4
  void read_grids(std::string_view text) {
    const std::string remedy = "gTxHxW[_TxHxW...] with even H and W, e.g. g10x4x6_1x2x4";
    if (!text.starts_with("g")) fail(fmt::format("lengths '{}' are not understood", text), remedy);
    case_.lengths.form = lengths_spec::kind::grids;
    case_.lengths.batch = 1;
    for (const auto item : split(text.substr(1), '_')) {
      const auto sides = split(item, 'x');
      if (sides.size() != 3) fail(fmt::format("grid '{}' is not understood", item), remedy);
      const grid g{plain_number(sides[0], 65536), plain_number(sides[1], 65536), plain_number(sides[2], 65536)};
      if (g.t < 1 || g.h < 2 || g.w < 2 || g.h % 2 != 0 || g.w % 2 != 0)
        fail(fmt::format("grid '{}' is not possible", item), remedy);
      case_.lengths.grids.push_back(g);
    }
  }

  void read_types(std::string_view text) {
    const auto words = split(text, '.');
    const auto type = dtype_from_name(words[0]);
    if (!type || !(*type == bf16 || *type == fp16 || *type == fp32))
      fail(fmt::format("unknown storage type '{}'", words[0]), "bf16, fp16 or fp32");
    case_.type = *type;
    if (!names_layout(case_.operation)) {
      if (words.size() != 1)
        fail(fmt::format("operator {} has no cache and so no layout", msabench::name(case_.operation)),
             "leave ." + std::string(words[1]) + " out");
      return;
    }
    for (const auto layout : {page_layout::contiguous, page_layout::paged, page_layout::fused})
      if (words.size() == 2 && words[1] == name(layout)) {
        case_.layout = layout;
        return;
      }
    fail(fmt::format("types and layout '{}' are not understood", text),
         "TYPE.LAYOUT with layout contig, paged or fused, e.g. bf16.paged");
  }

  void read_family(std::string_view text) {
    const auto dot = text.find('.');
    const auto wanted = text.substr(0, dot);
    const auto variant = dot == std::string_view::npos ? std::string_view() : text.substr(dot + 1);
    for (const auto& f : families()) {
      if (f.name != wanted) continue;
      const bool any = accepted_ == accepted_families::random_for_all && f.name == "random";
      if (!any && std::find(f.operators.begin(), f.operators.end(), case_.operation) == f.operators.end())
        fail(fmt::format("family {} is not for operator {}", wanted, msabench::name(case_.operation)),
             "see `msabench list`");
      if (f.variants.empty() && (variant.empty() || variant.find('.') != std::string_view::npos))
        fail(fmt::format("family {} has no file '{}'", wanted, variant),
             "recorded.NAME of letters, digits and _ for DIR/NAME.safetensors");
      if (!f.variants.empty() && std::find(f.variants.begin(), f.variants.end(), variant) == f.variants.end()) {
        std::string known;
        for (const auto v : f.variants) known += (known.empty() ? "" : ", ") + (v.empty() ? "(none)" : std::string(v));
        fail(fmt::format("family {} has no variant '{}'", wanted, variant), "one of " + known);
      }
      case_.family = wanted;
      case_.variant = variant;
      return;
    }
    fail(fmt::format("unknown family '{}'", wanted), "one of " + join_names(families()));
  }

  void read_option(std::string_view text) {
    case_options& o = case_.options;
    bool* const flags[] = {&o.stride,     &o.slack,  &o.rep,    &o.warm, &o.lenient,
                           &o.short_rows, &o.part16, &o.grad16, &o.bare};
    constexpr std::string_view names[] = {"stride", "slack",  "rep",    "warm", "lenient",
                                          "short",  "part16", "grad16", "bare"};
    for (std::size_t i = 0; i < std::size(names); ++i)
      if (text == names[i]) {
        *flags[i] = true;
        return;
      }
    if (text == "fp8" || text == "fp8tensor") {
      o.fp8 = text == "fp8" ? scale_form::token : scale_form::tensor;
      return;
    }
    if (text == "fp8idx" || text == "fp8idxtensor") {
      o.fp8_index = text == "fp8idx" ? scale_form::token : scale_form::tensor;
      return;
    }
    if (text.starts_with("page")) {
      o.page_size = static_cast<std::int32_t>(plain_number(text.substr(4), 65536));
      if (o.page_size >= 1) return;
    } else if (text.starts_with("pool")) {
      o.pool_pages = parse_size("case pool", text.substr(4));
      if (o.pool_pages <= max_pool_pages) return;
    } else if (text.starts_with("split")) {
      o.splits = static_cast<std::int32_t>(plain_number(text.substr(5), 4096));
      if (o.splits >= 1) return;
    } else if (text.starts_with("rope")) {
      o.rope_dims = static_cast<std::int32_t>(plain_number(text.substr(4), max_dim));
      if (o.rope_dims >= 0) return;
    } else if (text.starts_with("window")) {
      o.window = static_cast<std::int32_t>(plain_number(text.substr(6), 65536));
      if (o.window >= 0) return;
    } else if (text.starts_with("coeff")) {
      if (reads_number(text.substr(5), o.kl_coeff) && o.kl_coeff >= 0) {
        // It is handed over as fp32.
        if (o.kl_coeff <= static_cast<double>(std::numeric_limits<float>::max())) return;
        fail(fmt::format("coefficient '{}' is no finite fp32", text.substr(5)), "at most 3.4e38");
      }
    } else if (text.starts_with("scale")) {
      if (reads_number(text.substr(5), o.softmax_scale) && o.softmax_scale > 0) return;
    }
    fail(fmt::format("unknown option '{}'", text),
         "pageN, poolPAGES (to 1M), scaleX, splitN, ropeN, windowN, coeffX, stride, slack, rep, warm, fp8, fp8tensor, "
         "fp8idx, fp8idxtensor, lenient, short, part16, grad16 or bare");
  }

  // A finite number without exponent.
  static bool reads_number(std::string_view text, double& to) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to, std::chars_format::fixed);
    return error == std::errc() && end == text.data() + text.size() && std::isfinite(to);
  }

  void read_seed(std::string_view text) {
    if (!text.starts_with("s")) fail(fmt::format("the last part '{}' is no seed", text), "sSEED, e.g. s0");
    case_.seed = parse_uint64("case seed", text.substr(1));
  }

  void check_options() const {
    const case_options& o = case_.options;
    const op operation = case_.operation;
    const bool takes_ids =
        operation == op::attend || operation == op::attend_backward || (operation == op::kl && !o.warm);
    if (trains(operation) && case_.layout != page_layout::contiguous)
      fail(fmt::format("batches of {} are contiguous", msabench::name(operation)), "TYPE.contig");
    if (o.page_size != 0 && case_.layout == page_layout::contiguous)
      fail("option page needs a paged layout", "leave it out or use .paged");
    if (o.page_size == case_.shape.block && o.page_size != 0)
      fail("option page names the default, the block size", "leave it out");
    if ((o.lenient || o.short_rows) && !takes_ids)
      fail("options lenient and short are for operators that are handed ids", "leave them out");
    if (o.lenient && o.short_rows) fail("options lenient and short contradict each other", "keep one");
    if ((o.warm || o.kl_coeff != 1) && operation != op::kl)
      fail("options warm and coeff are for operator kl", "leave them out");
    if (o.part16 && (operation != op::combine || case_.type == fp32))
      fail("option part16 is for operator combine on 16-bit types", "leave it out");
    if (o.grad16 && (!trains(operation) || case_.type == fp32))
      fail("option grad16 is for gradients of 16-bit types", "leave it out");
    if (o.bare && operation != op::vit3d) fail("option bare is for operator vit3d", "leave it out");
    check_pool();
    check_fp8();
    check_rope();
    if (o.window >= 0 && !is_vision(operation)) fail("option window is for vision operators", "leave it out");
    if (o.window == usual_vit_window) fail("option window names the default", "leave it out");
    if (o.softmax_scale != 0 && operation == op::select) fail("option scale has no meaning for select", "leave it out");
  }

  void check_pool() const {
    if (case_.options.pool_pages == 0) return;
    if (case_.layout == page_layout::contiguous)
      fail("option pool needs a paged layout", "leave it out or use .paged or .fused");
    case_spec without = case_;
    without.options.pool_pages = 0;
    // Handed over as slots of one token each, a pool has that many pages.
    if (case_.options.pool_pages * make_problem(case_).page_size > most_pool_tokens)
      fail("a pool for more than 2^30 tokens", "a smaller one");
    // The sequences' pages lie in the upper half.
    if (const std::int64_t used = make_problem(without).pool_pages; case_.options.pool_pages / 2 < used)
      fail(fmt::format("a pool of {} pages is not twice the {} that the case needs", case_.options.pool_pages, used),
           fmt::format("a larger one, up to {}", format_size(max_pool_pages)));
  }

  void check_fp8() const {
    const op o = case_.operation;
    if (case_.options.fp8_index != scale_form::none) {
      if (o != op::msa)
        fail("options fp8idx and fp8idxtensor are for operator msa",
             o == op::score || o == op::index ? "fp8 or fp8tensor" : "leave them out");
      if (case_.options.fp8 != scale_form::none)
        fail("fp8 and fp8tensor are of the index branch too", "leave fp8idx and fp8idxtensor out");
      if (case_.family == "recorded") fail("a recording has no scales", "leave fp8idx out");
    }
    if (case_.options.fp8 == scale_form::none) return;
    if (o != op::score && o != op::index && o != op::attend && o != op::dense && o != op::msa)
      fail(fmt::format("operator {} has no scaled operands", msabench::name(o)), "leave fp8 out");
    if (case_.family == "recorded") fail("a recording has no scales", "leave fp8 out");
    if (case_.family == "special" && case_.variant == "inf")
      fail("e4m3 has no infinity", "variant nan, or leave fp8 out");
    if (case_.family == "hot_flat" && case_.variant == "n60000")
      fail("e4m3 ends at 448, far below 60000", "another variant, or leave fp8 out");
  }

  void check_rope() const {
    const std::int32_t dims = case_.options.rope_dims;
    if (dims < 0) return;
    if (case_.operation != op::qk_norm_rope) fail("option rope is for operator qk_norm_rope", "leave it out");
    if (dims % 2 != 0 || dims > std::min(case_.shape.d, case_.shape.di))
      fail(fmt::format("{} rotated dims are not possible", dims), "an even number of at most d and di");
    if (dims == usual_rope_dims(case_.shape)) fail("option rope names the default", "leave it out");
  }

  void check_directions() const {
    const std::int64_t directions = planted_directions(case_.shape.di);
    for (const auto& s : sequences(case_))
      if (s.q_len * case_.shape.hi > directions)
        fail(fmt::format("family {} of msa has one of {} directions for each row and index head of a sequence, and one "
                         "has {} of them",
                         case_.family, directions, s.q_len * case_.shape.hi),
             "fewer query tokens, or family random");
  }

  std::string_view whole_;
  accepted_families accepted_;
  case_spec case_;
};

std::string shape_name(const case_spec& c) {
  const shape_spec& s = c.shape;
  if (is_vision(c.operation) && s == vision_tower) return "m3";
  for (const auto& named : named_shapes()) {
    if (is_vision(c.operation)) break;
    if (s == named.shape) return std::string(named.name);
    for (std::int32_t ways = 2; ways <= named.shape.hkv; ++ways) {
      if (named.shape.hkv % ways != 0) continue;
      shape_spec shard = named.shape;
      shard.hq /= ways;
      shard.hkv /= ways;
      shard.hi /= ways;
      if (s == shard) return fmt::format("{}.tp{}", named.name, ways);
    }
  }
  std::string text = fmt::format("h{}x{}.d{}", s.hq, s.hkv, s.d);
  if (s.hi != s.hkv) text += fmt::format(".hi{}", s.hi);
  if (s.di != s.d) text += fmt::format(".di{}", s.di);
  return text + fmt::format(".b{}.k{}.l{}.i{}", s.block, s.topk, s.local_blocks, s.init_blocks);
}

std::string lengths_name(const lengths_spec& l) {
  switch (l.form) {
    case lengths_spec::kind::ragged: {
      if (!l.ragged_name.empty()) return "rag." + l.ragged_name;
      std::string text;
      for (const auto& s : l.listed)
        text += fmt::format("{}q{}.n{}", text.empty() ? "" : "_", format_size(s.q_len), format_size(s.kv_len));
      return text;
    }
    case lengths_spec::kind::grids: {
      std::string text;
      for (const auto& g : l.grids) text += fmt::format("{}{}x{}x{}", text.empty() ? "g" : "_", g.t, g.h, g.w);
      return text;
    }
    case lengths_spec::kind::uniform:
      break;
  }
  const std::string text = fmt::format("q{}.n{}", format_size(l.q_len), format_size(l.kv_len));
  return l.batch == 1 ? text : text + ".x" + format_size(l.batch);
}

std::string options_name(const case_options& o) {
  std::string text;
  if (o.page_size != 0) text += fmt::format("/page{}", o.page_size);
  if (o.pool_pages != 0) text += "/pool" + format_size(o.pool_pages);
  if (o.softmax_scale != 0) text += "/scale" + format_scale(o.softmax_scale);
  if (o.splits != 0) text += fmt::format("/split{}", o.splits);
  if (o.rope_dims >= 0) text += fmt::format("/rope{}", o.rope_dims);
  if (o.window >= 0) text += fmt::format("/window{}", o.window);
  if (o.kl_coeff != 1) text += "/coeff" + format_scale(o.kl_coeff);
  if (o.stride) text += "/stride";
  if (o.slack) text += "/slack";
  if (o.rep) text += "/rep";
  if (o.warm) text += "/warm";
  if (o.fp8 != scale_form::none) text += o.fp8 == scale_form::token ? "/fp8" : "/fp8tensor";
  if (o.fp8_index != scale_form::none) text += o.fp8_index == scale_form::token ? "/fp8idx" : "/fp8idxtensor";
  if (o.lenient) text += "/lenient";
  if (o.short_rows) text += "/short";
  if (o.part16) text += "/part16";
  if (o.grad16) text += "/grad16";
  if (o.bare) text += "/bare";
  return text;
}

}  // namespace

bool names_layout(op o) {
  switch (o) {
    case op::score:
    case op::index:
    case op::attend:
    case op::dense:
    case op::msa:
    case op::attend_backward:
    case op::dense_backward:
    case op::kl:
      return true;
    default:
      return false;
  }
}

bool trains(op o) { return o == op::attend_backward || o == op::dense_backward || o == op::kl; }

case_spec parse_case(std::string_view text, accepted_families accepted) { return reader(text, accepted).read(); }

std::string name_without_seed(const case_spec& c) {
  std::string types(msabench::name(c.type));
  if (names_layout(c.operation)) types += "." + std::string(name(c.layout));
  const std::string family = c.variant.empty() ? c.family : c.family + "." + c.variant;
  return fmt::format("{}/{}/{}/{}/{}{}", name(c.operation), shape_name(c), lengths_name(c.lengths), types, family,
                     options_name(c.options));
}

std::string name(const case_spec& c) { return fmt::format("{}/s{}", name_without_seed(c), c.seed); }

}  // namespace msabench
