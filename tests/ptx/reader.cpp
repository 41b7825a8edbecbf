// SPDX-License-Identifier: Apache-2.0
// Reads the text of a PTX module as nvcc writes it. Functions are put in the place of their calls.
#include <algorithm>
#include <cstring>
#include <optional>

#include "tests/ptx/program.h"
#include "tests/ptx/statements.h"

namespace msabench::ptx {
namespace {

/// A body, and what its head declares.
struct function {
  std::string name;
  std::vector<std::string> results, arguments;  ///< declarations of .param
  std::vector<statement> body;
};

std::int64_t aligned(std::int64_t at, std::int64_t to) { return (at + to - 1) / to * to; }

class kernel_reader {
 public:
  kernel_reader(module& m, const std::map<std::string, function>& functions,
                const std::map<std::string, variable>& shared)
      : module_(m), functions_(functions), shared_(shared) {}

  kernel read(const function& f) {
    k_.name = f.name;
    for (const std::string& text : f.arguments) {
      const variable v = declared(text);
      k_.parameter_bytes = aligned(k_.parameter_bytes, v.align);
      k_.parameters.push_back({v.name, k_.parameter_bytes, v.bytes});
      k_.parameter_bytes += v.bytes;
    }
    open();
    body(f.body);
    close();
    for (const auto& [at, where] : jumps_) {
      instruction& i = k_.code[at];
      for (const auto& [label, s] : where)
        if (const auto found = labels_.find(label); found == labels_.end())
          refuse(s, "no label " + label);
        else if (i.order == flow::branch)
          i.target = found->second;
        else
          i.targets.push_back(found->second);
    }
    // Dynamic shared memory lies behind what is declared.
    k_.dynamic_offset = aligned(k_.shared_bytes, dynamic_align_);
    for (const std::uint32_t constant : dynamic_)
      k_.constants[constant] = static_cast<std::uint64_t>(k_.dynamic_offset);
    instruction last;
    last.order = flow::leave;
    last.text = "ret";
    k_.code.push_back(last);
    return std::move(k_);
  }

 private:
  /// Names of a pair of braces; what inline assembly declares must not meet what surrounds it.
  struct scope {
    std::map<std::string, operand, std::less<>> names;
    std::map<std::string, std::string, std::less<>> labels;  ///< as written, as known
    std::map<std::string, std::vector<std::string>, std::less<>> target_lists;
  };

  void open() { scopes_.emplace_back(); }
  void close() { scopes_.pop_back(); }

  void body(const std::vector<statement>& all) {
    // Labels come before their scope's instructions are read, since jumps go forward.
    std::vector<std::size_t> opened;
    name_labels(all, 0);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const statement& s = all[i];
      if (s.text == "{") {
        open();
        name_labels(all, i + 1);
      } else if (s.text == "}") {
        close();
      } else if (s.text.ends_with(':')) {
        labels_[label_named(s.text.substr(0, s.text.size() - 1))] = static_cast<std::uint32_t>(k_.code.size());
        if (i + 1 < all.size() && all[i + 1].text.starts_with(".branchtargets")) {
          scopes_.back().target_lists[s.text.substr(0, s.text.size() - 1)] = split(all[i + 1].text.substr(14), ',');
          ++i;
        }
      } else if (s.text.front() == '.') {
        directive(s);
      } else {
        read_instruction(s, all, i);
      }
    }
  }

  /// Labels of the scope that begins at `from`, and lists of targets.
  void name_labels(const std::vector<statement>& all, std::size_t from) {
    int depth = 0;
    for (std::size_t i = from; i < all.size(); ++i) {
      if (all[i].text == "{") ++depth;
      if (all[i].text == "}" && --depth < 0) return;
      if (depth != 0 || !all[i].text.ends_with(':')) continue;
      const std::string name = all[i].text.substr(0, all[i].text.size() - 1);
      scopes_.back().labels[name] = name + "@" + std::to_string(label_count_++);
    }
  }

  std::string label_named(const std::string& name) const {
    for (auto s = scopes_.rbegin(); s != scopes_.rend(); ++s)
      if (const auto found = s->labels.find(name); found != s->labels.end()) return found->second;
    return name;
  }

  void directive(const statement& s) {
    const auto words = words_of(s.text);
    if (words[0] == ".reg") {
      for (const std::string& each : split(s.text.substr(s.text.find(words[1]) + words[1].size()), ',')) {
        const auto bracket = each.find('<');
        const std::string name = each.substr(0, bracket);
        const bool predicate = words[1] == ".pred";
        std::uint32_t& next = predicate ? k_.predicates : k_.registers;
        const auto kind = predicate ? operand_kind::predicate : operand_kind::reg;
        if (bracket == each.npos) {
          scopes_.back().names[name] = {kind, false, next++, 0};
          continue;
        }
        const auto count =
            static_cast<std::uint32_t>(number(each.substr(bracket + 1, each.find('>') - bracket - 1)).value_or(0));
        for (std::uint32_t i = 0; i < count; ++i)
          scopes_.back().names[name + std::to_string(i)] = {kind, false, next++, 0};
      }
    } else if (words[0] == ".shared") {
      const variable v = declared(s.text);
      k_.shared_bytes = aligned(k_.shared_bytes, v.align);
      scopes_.back().names[v.name] = constant(static_cast<std::uint64_t>(k_.shared_bytes));
      k_.shared_bytes += v.bytes;
    } else if (words[0] == ".local" || words[0] == ".param") {
      const variable v = declared(s.text);
      k_.local_bytes = aligned(k_.local_bytes, std::max<std::int64_t>(v.align, 8));
      scopes_.back().names[v.name] = {operand_kind::local, false, 0, k_.local_bytes};
      k_.local_bytes += v.bytes;
    } else if (words[0] != ".loc" && words[0] != ".pragma" && words[0] != ".file") {
      refuse(s, "a directive that the interpreter does not know");
    }
  }

  operand constant(std::uint64_t value) {
    const auto [at, is_new] = constants_.try_emplace(value, static_cast<std::uint32_t>(k_.constants.size()));
    if (is_new) k_.constants.push_back(value);
    return {operand_kind::constant, false, at->second, 0};
  }

  std::optional<operand> special(std::string_view name) const {
    using s = special_register;
    static const std::map<std::string_view, s> all = {{"%tid.x", s::tid_x},
                                                      {"%tid.y", s::tid_y},
                                                      {"%tid.z", s::tid_z},
                                                      {"%ntid.x", s::ntid_x},
                                                      {"%ntid.y", s::ntid_y},
                                                      {"%ntid.z", s::ntid_z},
                                                      {"%ctaid.x", s::ctaid_x},
                                                      {"%ctaid.y", s::ctaid_y},
                                                      {"%ctaid.z", s::ctaid_z},
                                                      {"%nctaid.x", s::nctaid_x},
                                                      {"%nctaid.y", s::nctaid_y},
                                                      {"%nctaid.z", s::nctaid_z},
                                                      {"%laneid", s::laneid},
                                                      {"%warpid", s::warpid},
                                                      {"%nwarpid", s::nwarpid},
                                                      {"%smid", s::smid},
                                                      {"%nsmid", s::nsmid},
                                                      {"%clock", s::clock},
                                                      {"%clock64", s::clock64},
                                                      {"%globaltimer", s::globaltimer},
                                                      {"%lanemask_lt", s::lanemask_lt},
                                                      {"%lanemask_le", s::lanemask_le},
                                                      {"%lanemask_gt", s::lanemask_gt},
                                                      {"%lanemask_ge", s::lanemask_ge},
                                                      {"%lanemask_eq", s::lanemask_eq},
                                                      {"%cluster_ctaid.x", s::cluster_ctaid_x},
                                                      {"%cluster_nctaid.x", s::cluster_nctaid_x},
                                                      {"%cluster_ctarank", s::cluster_ctarank},
                                                      {"%cluster_nctarank", s::cluster_nctarank},
                                                      {"%clusterid.x", s::clusterid_x},
                                                      {"%nclusterid.x", s::nclusterid_x},
                                                      {"%dynamic_smem_size", s::dynamic_smem_size}};
    const auto found = all.find(name);
    if (found == all.end()) return std::nullopt;
    return operand{operand_kind::special, false, static_cast<std::uint32_t>(found->second), 0};
  }

  operand named(const statement& s, std::string_view text) {
    if (text == "_") return {};
    bool negated = false;
    if (text.starts_with('!')) negated = true, text = trimmed(text.substr(1));
    if (const auto n = number(text)) return constant(*n);
    if (text == "WARP_SZ") return constant(lanes);
    // name+offset, as an address has it
    if (const auto plus = text.find('+'); plus != text.npos) {
      operand o = named(s, trimmed(text.substr(0, plus)));
      const auto offset = number(trimmed(text.substr(plus + 1)));
      if (!offset) refuse(s, "no number behind +");
      o.offset += static_cast<std::int64_t>(*offset);
      return o;
    }
    for (auto each = scopes_.rbegin(); each != scopes_.rend(); ++each)
      if (const auto found = each->names.find(text); found != each->names.end()) {
        operand o = found->second;
        o.negated = negated;
        return o;
      }
    if (const auto o = special(text)) return *o;
    for (const parameter& p : k_.parameters)
      if (p.name == text) {
        // Parameters lie where the launch puts them: an address is resolved by the warp.
        return {operand_kind::special, false, 1000, p.offset};
      }
    if (const auto found = module_.variables.find(std::string(text)); found != module_.variables.end())
      return constant(reinterpret_cast<std::uint64_t>(found->second.data()));
    if (const auto found = shared_.find(std::string(text)); found != shared_.end()) {
      if (found->second.bytes == 0) {
        // Known when all variables have been read; a constant of its own.
        k_.constants.push_back(0);
        const auto at = static_cast<std::uint32_t>(k_.constants.size() - 1);
        dynamic_.push_back(at);
        dynamic_align_ = std::max(dynamic_align_, found->second.align);
        return {operand_kind::constant, false, at, 0};
      }
      if (const auto placed = placed_shared_.find(std::string(text)); placed != placed_shared_.end())
        return constant(placed->second);
      k_.shared_bytes = aligned(k_.shared_bytes, found->second.align);
      placed_shared_[std::string(text)] = static_cast<std::uint64_t>(k_.shared_bytes);
      const operand o = constant(static_cast<std::uint64_t>(k_.shared_bytes));
      k_.shared_bytes += found->second.bytes;
      return o;
    }
    refuse(s, "nothing is named " + std::string(text));
  }

  void add_operand(const statement& s, instruction& i, std::string_view text) {
    text = trimmed(text);
    if (text.starts_with('{')) {
      const auto parts = split(text.substr(1, text.size() - 2), ',');
      for (const std::string& p : parts) i.args.push_back(named(s, p));
      i.widths.push_back(static_cast<std::uint32_t>(parts.size()));
      return;
    }
    if (text.starts_with('[')) {
      // [address], or [map, {x, y}] of a bulk tensor copy
      std::uint32_t width = 0;
      for (const std::string& p : split(text.substr(1, text.size() - 2), ',')) {
        if (p.starts_with('{')) {
          for (const std::string& each : split(p.substr(1, p.size() - 2), ','))
            i.args.push_back(named(s, each)), ++width;
        } else {
          i.args.push_back(named(s, p)), ++width;
        }
      }
      i.widths.push_back(width);
      return;
    }
    // %r1|%p2: a result and a predicate
    if (const auto bar = text.find('|'); bar != text.npos) {
      add_operand(s, i, text.substr(0, bar));
      add_operand(s, i, text.substr(bar + 1));
      return;
    }
    i.args.push_back(named(s, text));
    i.widths.push_back(1);
  }

  void read_instruction(const statement& s, const std::vector<statement>& all, std::size_t at) {
    instruction i;
    i.text = s.text;
    i.line = s.line;
    std::string_view rest = s.text;
    if (rest.starts_with('@')) {
      rest.remove_prefix(1);
      if (rest.starts_with('!')) i.guard_negated = true, rest.remove_prefix(1);
      const auto end = rest.find_first_of(" \t");
      i.guard = named(s, rest.substr(0, end)).index;
      i.guarded = true;
      rest = trimmed(rest.substr(end));
    }
    const auto space = rest.find_first_of(" \t");
    const std::string_view opcode = rest.substr(0, space);
    rest = space == rest.npos ? std::string_view() : trimmed(rest.substr(space));
    i.words = split_opcode(opcode);
    const std::string& base = i.words[0];
    if (base == "bra") {
      i.order = flow::branch;
      jumps_.push_back({k_.code.size(), {{label_named(std::string(rest)), s}}});
    } else if (base == "brx") {
      i.order = flow::indexed_branch;
      const auto parts = split(rest, ',');
      add_operand(s, i, parts.at(0));
      std::vector<std::pair<std::string, statement>> where;
      for (const std::string& label : list_named(s, parts.at(1), all, at)) where.emplace_back(label_named(label), s);
      jumps_.push_back({k_.code.size(), where});
    } else if (base == "ret" && !returns_.empty()) {
      i.order = flow::branch;
      jumps_.push_back({k_.code.size(), {{returns_.back(), s}}});
    } else if (base == "ret" || base == "exit") {
      i.order = flow::leave;
    } else if (base == "call") {
      call(s, rest);
      return;
    } else {
      for (const std::string& each : split(rest, ',')) add_operand(s, i, each);
      resolve(i);
    }
    k_.code.push_back(std::move(i));
  }

  /// cvt.rn.f32.s32, and words with a double colon such as shared::cluster
  static std::vector<std::string> split_opcode(std::string_view opcode) {
    std::vector<std::string> words;
    std::string word;
    for (const char c : opcode) {
      if (c == '.') {
        words.push_back(std::move(word));
        word.clear();
      } else {
        word += c;
      }
    }
    words.push_back(std::move(word));
    return words;
  }

  std::vector<std::string> list_named(const statement& s, const std::string& name, const std::vector<statement>& all,
                                      std::size_t) const {
    for (auto each = scopes_.rbegin(); each != scopes_.rend(); ++each)
      if (const auto found = each->target_lists.find(name); found != each->target_lists.end()) return found->second;
    for (std::size_t i = 0; i + 1 < all.size(); ++i)
      if (all[i].text == name + ":" && all[i + 1].text.starts_with(".branchtargets"))
        return split(all[i + 1].text.substr(14), ',');
    refuse(s, "no targets are named " + name);
  }

  /// (result), function, (arguments): the function's body, whose parameters are those of the call.
  void call(const statement& s, std::string_view rest) {
    const auto parts = split(rest, ',');
    std::vector<std::string> results, arguments;
    std::string name;
    for (const std::string& p : parts) {
      if (p.starts_with('('))
        (name.empty() ? results : arguments) = split(p.substr(1, p.size() - 2), ',');
      else if (name.empty())
        name = p;
    }
    const auto found = functions_.find(name);
    if (found == functions_.end()) {
      // Such as printf and assert: known only when it is called.
      instruction i;
      i.text = s.text;
      i.line = s.line;
      i.words = {"call"};
      resolve(i);
      k_.code.push_back(std::move(i));
      return;
    }
    const function& f = found->second;
    scope inner;
    const auto bind = [&](const std::vector<std::string>& declarations, const std::vector<std::string>& given) {
      for (std::size_t i = 0; i < declarations.size() && i < given.size(); ++i)
        inner.names[declared(declarations[i]).name] = named(s, given[i]);
    };
    bind(f.results, results);
    bind(f.arguments, arguments);
    scopes_.push_back(std::move(inner));
    returns_.push_back("return@" + std::to_string(label_count_++));
    body(f.body);
    labels_[returns_.back()] = static_cast<std::uint32_t>(k_.code.size());
    returns_.pop_back();
    close();
  }

  module& module_;
  const std::map<std::string, function>& functions_;
  const std::map<std::string, variable>& shared_;
  kernel k_;
  std::vector<scope> scopes_;
  std::map<std::uint64_t, std::uint32_t> constants_;
  std::map<std::string, std::uint32_t> labels_;
  std::map<std::string, std::uint64_t> placed_shared_;
  std::vector<std::uint32_t> dynamic_;
  std::int64_t dynamic_align_ = 16;
  struct jump {
    std::size_t at;
    std::vector<std::pair<std::string, statement>> where;
  };
  std::vector<jump> jumps_;
  std::vector<std::string> returns_;
  int label_count_ = 0;
};

/// .visible .entry name( .param ..., ...) .maxntid 512, 1, 1
function head_of(const statement& s, bool& is_entry, std::vector<std::uint32_t>& cluster) {
  function f;
  is_entry = s.text.find(".entry") != s.text.npos;
  std::string_view rest = s.text;
  rest = trimmed(rest.substr(rest.find(is_entry ? ".entry" : ".func") + (is_entry ? 6 : 5)));
  const auto list = [&rest] {
    const auto end = rest.find(')');
    auto parts = split(rest.substr(1, end - 1), ',');
    rest = trimmed(rest.substr(end + 1));
    return parts;
  };
  if (rest.starts_with('(')) f.results = list();
  const auto end = rest.find_first_of("( ");
  f.name = trimmed(rest.substr(0, end));
  rest = end == rest.npos ? std::string_view() : trimmed(rest.substr(end));
  if (rest.starts_with('(')) f.arguments = list();
  if (const auto at = rest.find(".reqnctapercluster"); at != rest.npos)
    for (const std::string& each : split(rest.substr(at + 18, rest.find('.', at + 18) - at - 18), ','))
      cluster.push_back(static_cast<std::uint32_t>(number(each).value_or(1)));
  return f;
}

std::vector<std::uint64_t> initial_value(const variable& v) {
  std::vector<std::uint64_t> memory(static_cast<std::size_t>((v.bytes + 7) / 8) + 2);
  std::string_view values = v.initial;
  if (values.starts_with('{')) values = values.substr(1, values.size() - 2);
  char* to = reinterpret_cast<char*>(memory.data());
  for (const std::string& each : split(values, ',')) {
    const std::uint64_t value = number(each).value_or(0);
    std::memcpy(to, &value, static_cast<std::size_t>(v.element_bytes));
    to += v.element_bytes;
  }
  return memory;
}

}  // namespace

std::unique_ptr<module> read_module(const std::string& text) {
  auto m = std::make_unique<module>();
  std::map<std::string, function> functions;
  std::map<std::string, variable> shared;
  std::vector<std::pair<function, std::vector<std::uint32_t>>> entries;
  const auto all = statements_of(text);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const statement& s = all[i];
    if (s.text.find(".entry ") != s.text.npos || s.text.find(".func ") != s.text.npos) {
      bool is_entry = false;
      std::vector<std::uint32_t> cluster;
      function f = head_of(s, is_entry, cluster);
      if (i + 1 >= all.size() || all[i + 1].text != "{") continue;  // declared alone
      int depth = 0;
      for (++i; i < all.size(); ++i) {
        if (all[i].text == "{" && depth++ == 0) continue;
        if (all[i].text == "}" && --depth == 0) break;
        f.body.push_back(all[i]);
      }
      if (is_entry)
        entries.emplace_back(std::move(f), cluster);
      else
        functions.emplace(f.name, f);
    } else if (s.text.find(".shared ") != s.text.npos) {
      const variable v = declared(s.text);
      shared.emplace(v.name, v);
    } else if (s.text.find(".global ") != s.text.npos || s.text.find(".const ") != s.text.npos) {
      const variable v = declared(s.text);
      m->variables.emplace(v.name, initial_value(v));
    }
  }
  for (const auto& [f, cluster] : entries) {
    kernel k = kernel_reader(*m, functions, shared).read(f);
    k.cluster = cluster;
    m->kernels.emplace(f.name, std::move(k));
  }
  return m;
}

}  // namespace msabench::ptx
