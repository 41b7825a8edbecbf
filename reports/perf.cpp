// SPDX-License-Identifier: Apache-2.0
#include "reports/perf.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/operator.h"
#include "core/units.h"
#include "reports/markdown.h"
#include "reports/outcome.h"

namespace msabench {
namespace {

using row = std::vector<std::string>;

// Characters that a terminal shows; no cell holds any that is wider.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// First column to the left, the others to the right.
std::string table(const row& titles, const std::vector<row>& rows) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < titles.size(); ++c) {
    std::size_t widest = std::max<std::size_t>(3, width_of(titles[c]));
    for (const row& r : rows) widest = std::max(widest, width_of(r[c]));
    widths.push_back(widest);
  }
  std::string text;
  const auto line = [&](const row& cells) {
    text += "|";
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string pad(widths[c] - width_of(cells[c]), ' ');
      text += c == 0 ? fmt::format(" {}{} |", cells[c], pad) : fmt::format(" {}{} |", pad, cells[c]);
    }
    text += "\n";
  };
  line(titles);
  text += "|";
  for (std::size_t c = 0; c < titles.size(); ++c)
    text += (c == 0 ? ":" : "-") + std::string(widths[c], '-') + (c == 0 ? "-|" : ":|");
  text += "\n";
  for (const row& r : rows) line(r);
  return text;
}

std::string per_second(double rate, std::string_view unit) {
  constexpr double giga = 1e9, tera = 1e12;
  return rate >= tera ? fmt::format("{:.2f} T{}", rate / tera, unit) : fmt::format("{:.3g} G{}", rate / giga, unit);
}

std::string times(const std::optional<double>& x) { return x ? fmt::format("{:.3g}x", *x) : "-"; }
std::string percent(const std::optional<double>& x) { return x ? fmt::format("{:.1f} %", 100 * *x) : "-"; }

std::string label(const perf_run& run, int implementation) {
  return run.implementations[static_cast<std::size_t>(implementation)].name;
}

std::string verified(const perf_item& i) {
  if (i.state == item_state::unverified) return "NO";
  return fmt::format("{} of {} rows", i.rows_checked, i.rows_total);
}

// A gain that is refused is a word, and its reason stands below.
std::string gain(const std::optional<double>& x, const std::string& refused, const char* mark = "") {
  return !refused.empty() ? "clocks" : x ? times(x) + mark : "-";
}

std::string samples_of(const perf_item& i) {
  return i.low_clock.empty() ? fmt::format("{}", i.time_us.count)
                             : fmt::format("{} ({} low clock)", i.time_us.count, i.low_clock.size());
}

bool launched_in_a_row(const perf_item& i) { return !i.in_a_row.runs.empty() || !i.in_a_row.reason.empty(); }

// What stands beside a figure of launches back to back, or why there is none.
std::string in_a_row_text(const back_to_back& b) {
  if (b.runs.empty()) return "not measured back to back: " + b.reason;
  const back_to_back_run& r = b.runs.back();
  std::string text = fmt::format("back to back {} launches after {}", r.launches, r.lead);
  if (r.sm_mhz > 0) text += fmt::format(", near their end at {:.0f} MHz", r.sm_mhz);
  if (r.power_w > 0) text += fmt::format(", {:.0f} W, NVML says {:.0f} MHz", r.power_w, r.nvml_mhz);
  if (b.by_enqueueing())
    text += fmt::format("; the host takes {:.3g} us to enqueue one, which limits them", r.enqueue_us);
  return text;
}

// Numbers of items that have one; the others stand below the table with their reason.
row cells(const perf_run& run, const perf_item& i) {
  const perf_figures& f = *i.figures;
  return {i.operation, label(run, i.implementation), format_duration_s(i.time_us.median * 1e-6),
          i.in_a_row.time_us() ? format_duration_s(*i.in_a_row.time_us() * 1e-6) : "-",
          // One sample scatters by nothing that is known.
          (i.time_us.count > 1 ? fmt::format("{:.1f} %", 100 * i.time_us.relative_half_width) : "-") +
              (i.converged ? "" : " !"),
          samples_of(i), i.work.useful_flops > 0 ? fmt::format("{:.3g}", f.flops_per_s / 1e9) : "-",
          fmt::format("{:.3g}", f.bytes_per_s / 1e9),
          f.efficiency ? fmt::format("{:.2f} {}", *f.efficiency, f.bound) : "-",
          gain(f.gain_over_dense, f.gain_refused, f.gain_verified ? "" : " ?"), times(f.back_to_back_gain),
          times(f.gain_limit), percent(f.share_of_msa), gain(f.against, f.against_refused),
          times(f.back_to_back_against), verified(i)};
}

std::string point_title(const perf_point& p) {
  if (p.phase == "vision")
    return fmt::format("vision, videos of {} patches, batch {}", format_size(p.context), p.batch);
  return fmt::format("{}, context {}{}, batch {}, {} selection{}", p.phase, format_size(p.context),
                     p.query_tokens > 1 ? fmt::format(", last {} tokens", format_size(p.query_tokens)) : "", p.batch,
                     p.selection, p.topk ? fmt::format(", top {}", *p.topk) : "");
}

// Clock and power over the loop, as they were at half of the samples; empty where no GPU was looked at.
std::string gpu_of(const perf_point& p) {
  std::vector<double> counted, told, watts;
  for (const auto& i : p.items) {
    counted.insert(counted.end(), i.timing.sm_mhz.begin(), i.timing.sm_mhz.end());
    told.insert(told.end(), i.timing.nvml_mhz.begin(), i.timing.nvml_mhz.end());
    watts.insert(watts.end(), i.timing.power_w.begin(), i.timing.power_w.end());
  }
  const auto median = [](std::vector<double>& all) {
    std::ranges::sort(all);
    return all[all.size() / 2];
  };
  std::string text;
  if (!counted.empty()) text += fmt::format("; multiprocessors at {:.0f} MHz", median(counted));
  if (!told.empty()) text += fmt::format(", NVML says {:.0f} MHz, {:.0f} W", median(told), median(watts));
  return text;
}

// All other formats have one limit; that of e4m3 is told where it is another.
std::string limits_text(const perf_ceilings& c) {
  std::string text;
  const auto e4m3 = c.flops.find("e4m3");
  const auto other = std::ranges::find_if(c.flops, [](const auto& f) { return f.first != "e4m3"; });
  if (other != c.flops.end()) text += per_second(other->second, "FLOP/s") + ", ";
  if (e4m3 != c.flops.end() && (other == c.flops.end() || e4m3->second != other->second))
    text += per_second(e4m3->second, "FLOP/s") + " in e4m3, ";
  return text + per_second(c.bytes_per_s, "B/s");
}

std::string conditions_line(const perf_point& p) {
  const std::string ended = p.budget_ended ? "; the budget ended first\n" : "\n";
  std::string text =
      p.cold ? fmt::format("inputs from memory ({} touched between two uses)", format_bytes(p.reuse_distance_bytes))
             : "inputs hot, at least in part";
  if (p.ceilings.known())
    text += "; limits: " + limits_text(p.ceilings);
  else if (!p.ceilings.source.empty())
    text += "; limits: " + markdown_escaped(p.ceilings.source);
  if (const std::string gpu = gpu_of(p); !gpu.empty()) return text + gpu + ended;
  if (p.conditions_known)
    text +=
        fmt::format("; other processes {:.1f} %, stolen {:.1f} %, load {:g}", 100 * p.others, 100 * p.steal, p.load);
  if (p.mhz > 0) text += fmt::format(", {:.0f} MHz", p.mhz);
  return text + ended;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

std::string machine_of(const nlohmann::json& environment) {
  const auto text = [&](const char* key) {
    const auto at = environment.find(key);
    return at == environment.end() ? std::string() : at->is_string() ? at->get<std::string>() : at->dump();
  };
  return fmt::format("{}, {} cores, {}", text("cpu"), text("cores_available"), text("os"));
}

// Where there is no sum over all chunks of both sides, what those say that both have.
std::string common_text(const perf_run& run, const perf_whole& w) {
  if (!w.common) return {};
  const perf_common_chunks& c = *w.common;
  std::vector<std::string> ends;
  for (const std::int64_t n : c.contexts) ends.push_back(format_size(n));
  const auto one = [](double us, double dense_us) {
    return fmt::format("{} and {}, {}", format_duration_s(us * 1e-6), format_duration_s(dense_us * 1e-6),
                       times(dense_us / us));
  };
  std::string text = fmt::format(
      "- {} by {} at {}: no sum of a whole to compare; over {} of {} chunks alone, those that end at {}, it and dense "
      "by {} "
      "take {}",
      w.operation, label(run, w.implementation), format_size(w.context), ends.size(), w.chunks, fmt::join(ends, ", "),
      c.dense, one(c.time_us, c.dense_us));
  if (c.back_to_back_us) text += "; back to back " + one(*c.back_to_back_us, *c.dense_back_to_back_us);
  return text + "\n";
}

// What the whole would take, by how many of its chunks, beside dense.
std::string estimate_text(const perf_run& run, const perf_whole& w) {
  if (!w.estimate) return {};
  const perf_whole_estimate& e = *w.estimate;
  const auto seconds = [](double us) { return format_duration_s(us * 1e-6); };
  std::string text = fmt::format(
      "- {} by {} at {}: estimated {}{} by lines between {} of {} chunks, which lie within {:.1f} % of the line "
      "between their "
      "neighbours",
      w.operation, label(run, w.implementation), format_size(w.context), seconds(e.time_us),
      e.back_to_back_us ? ", back to back " + seconds(*e.back_to_back_us) : "", e.contexts.size(), w.chunks,
      100 * e.deviation);
  if (e.dense_us && w.operation != name(op::dense)) {
    text += fmt::format("; dense likewise by {} of {}, the fastest at each ({}): {}{}", e.dense_chunks, w.chunks,
                        e.dense, seconds(*e.dense_us),
                        e.dense_back_to_back_us ? ", back to back " + seconds(*e.dense_back_to_back_us) : "");
    text += fmt::format("; gain {}", e.gain_over_dense ? times(e.gain_over_dense) : "not told, at different clocks");
    if (e.back_to_back_gain) text += ", back to back " + times(e.back_to_back_gain);
  }
  return text + "\n";
}

std::string wholes_text(const perf_run& run) {
  if (run.wholes.empty()) return {};
  const bool in_a_row = std::ranges::any_of(run.wholes, [](const auto& w) { return w.back_to_back_us.has_value(); });
  row titles = {"context", "operator", "by", "chunks", "time", "GFLOP/s", "against dense", "verified"};
  if (in_a_row) titles.insert(titles.begin() + 5, "back to back");
  std::vector<row> rows;
  for (const auto& w : run.wholes) {
    const auto time = [](const std::optional<double>& us) { return us ? format_duration_s(*us * 1e-6) : "-"; };
    row r = {format_size(w.context),
             w.operation,
             label(run, w.implementation),
             fmt::format("{} of {}{}", w.measured, w.chunks, w.partial() ? " partial" : ""),
             time(w.time_us),
             w.time_us ? fmt::format("{:.3g}", w.useful_flops / *w.time_us / 1e3) : "-",
             times(w.gain_over_dense),
             w.measured == 0 ? "-"
             : w.verified    ? "yes"
                             : "NO"};
    if (in_a_row) r.insert(r.begin() + 5, time(w.back_to_back_us));
    rows.push_back(std::move(r));
  }
  std::string common;
  for (const auto& w : run.wholes) common += estimate_text(run, w);
  for (const auto& w : run.wholes) common += common_text(run, w);
  return fmt::format("\n### Whole sequences, by chunks of {} tokens\n\n{}{}", format_size(run.wholes.front().chunk),
                     table(titles, rows), common.empty() ? "" : "\n" + common);
}

std::string topk_text(const perf_run& run) {
  if (run.topk.empty()) return {};
  const auto time = [](const std::optional<double>& us) { return us ? format_duration_s(*us * 1e-6) : "-"; };
  std::vector<row> rows;
  for (const auto& t : run.topk)
    rows.push_back({t.phase, format_size(t.context), format_size(t.query_tokens), fmt::format("{}", t.topk),
                    label(run, t.implementation), time(t.score_us), time(t.select_us),
                    t.score_us && t.select_us ? time(*t.score_us + *t.select_us) : "-", time(t.index_us),
                    times(t.split_over_fused), t.verified ? "yes" : "NO"});
  return "\n### Scores and selection\n\n" + table({"phase", "context", "rows", "top", "by", "score", "select",
                                                   "score + select", "index", "score + select / index", "verified"},
                                                  rows);
}

}  // namespace

std::string perf_plan_text(const perf_run& run) {
  return fmt::format(
      "msabench perf: suite {}, {}, {} thread{}; about {} if a quarter of the machine's limits is reached, budget {}\n",
      run.suite, run.cache == "cold" ? "inputs from memory" : "inputs hot", run.threads, run.threads == 1 ? "" : "s",
      format_duration_s(run.estimated_s), format_duration_s(run.budget_s));
}

std::string perf_point_text(const perf_run& run, const perf_point& point) {
  const row titles = {"operator",
                      "by",
                      "time",
                      "back to back",
                      "+-",
                      "samples",
                      "GFLOP/s",
                      "GB/s",
                      "of limit",
                      "against dense",
                      "the same back to back",
                      "by limits",
                      "share of msa",
                      "against other",
                      "other back to back",
                      "verified"};
  std::vector<row> rows;
  std::string below;
  // What several items have in common is told once.
  std::vector<std::pair<std::string, std::string>> remarks;
  for (const auto& i : point.items) {
    const std::string who = fmt::format("{} by {}", i.operation, label(run, i.implementation));
    if (i.figures) rows.push_back(cells(run, i));
    if (!i.figures || i.state == item_state::unverified)
      below += fmt::format("- {}: **{}** {}\n", who, upper(name(i.state)), markdown_escaped(i.reason));
    std::vector<std::string> remarks_of = i.remarks;
    if (i.figures && launched_in_a_row(i)) remarks_of.push_back(in_a_row_text(i.in_a_row));
    if (i.figures)
      for (const auto& [what, why] : {std::pair{"gain over dense", i.figures->gain_refused},
                                      std::pair{"comparison with the other", i.figures->against_refused}})
        if (!why.empty()) remarks_of.push_back(fmt::format("no {}: {}", what, why));
    for (const auto& remark : remarks_of) {
      const auto told = std::ranges::find(remarks, remark, &std::pair<std::string, std::string>::first);
      if (told == remarks.end())
        remarks.emplace_back(remark, who);
      else
        told->second += ", " + who;
    }
  }
  for (const auto& [remark, who] : remarks) below += fmt::format("- {}: {}\n", who, markdown_escaped(remark));
  // Columns of the other implementation, and of launches back to back, are there only where these are.
  std::vector<row> shown = rows;
  row heads = titles;
  const bool other = run.implementations.size() > 1, in_a_row = std::ranges::any_of(point.items, launched_in_a_row);
  for (std::size_t c = titles.size(); c-- > 0;) {
    const bool of_other = titles[c].starts_with("against other") || titles[c].starts_with("other");
    if ((other || !of_other) && (in_a_row || titles[c].find("back to back") == std::string::npos)) continue;
    heads.erase(heads.begin() + static_cast<std::ptrdiff_t>(c));
    for (row& r : shown) r.erase(r.begin() + static_cast<std::ptrdiff_t>(c));
  }
  return fmt::format("\n### {}\n\n{}\n{}{}{}", point_title(point), conditions_line(point),
                     shown.empty() ? "" : table(heads, shown), shown.empty() || below.empty() ? "" : "\n", below);
}

std::string perf_summary_text(const perf_run& run) {
  std::string text = wholes_text(run) + topk_text(run) + "\n";
  for (const auto& c : run.crossovers)
    text += fmt::format(
        "msa by {} is no slower than dense {}\n", label(run, c.implementation),
        c.context ? fmt::format("from {:.0f} tokens on{}", *c.context, c.note.empty() ? "" : " (" + c.note + ")")
                  : "at no context measured: " + c.note);
  for (const item_state s : {item_state::measured, item_state::unverified, item_state::failed, item_state::busy,
                             item_state::unsupported, item_state::not_run})
    if (const auto n = count(run, s); n > 0) text += fmt::format("{} {}  ", n, name(s));
  const char* headline = "NOTHING MEASURED";
  switch (exit_code_of(run)) {
    case exit_code::ok:
      headline = "MEASURED";
      break;
    case exit_code::failed:
      headline = "FAILED: an item above has no number, for the reason given there";
      break;
    case exit_code::environment_refused:
      headline = "REFUSED: the machine was too busy to tell";
      break;
    case exit_code::partial:
      headline = run.partial ? "INCOMPLETE: interrupted"
                 : count(run, item_state::unverified) > 0
                     ? "UNVERIFIED: nobody could say whether some outputs are right"
                     : "INCOMPLETE: nothing of a point was measured, for the reasons that stand there";
      break;
    default:
      break;
  }
  return text + fmt::format("\n{}\n", headline);
}

std::string perf_limits_text(const perf_run& run) {
  const perf_ceilings& c = run.ceilings;
  if (c.known()) return fmt::format("limits: {}: {}", limits_text(c), c.source);
  return c.source.empty() ? "" : "limits: not known: " + c.source;
}

std::string perf_markdown_text(const perf_run& run) {
  std::string command;
  for (const auto& a : run.argv) command += (command.empty() ? "" : " ") + a;
  std::string text = fmt::format("# Speed, suite {}\n\n", run.suite);
  for (const auto& i : run.implementations)
    text += fmt::format("- {} {}: {} (sha256 {})\n", markdown_escaped(i.name), markdown_escaped(i.version),
                        markdown_escaped(i.description), i.sha256.empty() ? "none" : i.sha256.substr(0, 16));
  text += fmt::format("- machine: {}\n- command: {}\n- suite {} commit {}{}, {}\n",
                      markdown_escaped(machine_of(run.environment)), markdown_code(command), run.suite_version,
                      run.suite_commit, run.suite_dirty ? " with changes" : "", run.start_utc);
  if (const std::string limits = perf_limits_text(run); !limits.empty()) text += "- " + markdown_escaped(limits) + "\n";
  for (const auto& p : run.points) text += perf_point_text(run, p);
  return text + perf_summary_text(run);
}

void write_perf_markdown(const perf_run& run, const std::filesystem::path& path, std::string_view field) {
  write_file_atomically(field, path, perf_markdown_text(run));
}

std::string perf_json_text(const perf_run& run) {
  return to_report_json(run).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void write_perf_json(const perf_run& run, const std::filesystem::path& path, std::string_view field) {
  write_file_atomically(field, path, perf_json_text(run));
}

}  // namespace msabench
