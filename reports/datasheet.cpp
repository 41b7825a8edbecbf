// SPDX-License-Identifier: Apache-2.0
#include "reports/datasheet.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/files.h"
#include "core/units.h"
#include "reports/bar_chart.h"
#include "reports/markdown.h"
#include "reports/outcome.h"
#include "reports/perf.h"

namespace msabench {
namespace {

constexpr double us = 1e-6;

bool has_number(const perf_item& i) { return i.state == item_state::measured && i.figures; }

std::string place(const perf_point& p) {
  if (p.phase == "vision") return fmt::format("vision, {} patches", format_size(p.context));
  return p.query_tokens > 1
             ? fmt::format("{} {}, {} tokens", p.phase, format_size(p.context), format_size(p.query_tokens))
             : fmt::format("{} {}", p.phase, format_size(p.context));
}

std::vector<const perf_point*> points_of(const datasheet& sheet) {
  std::vector<const perf_point*> all;
  for (const auto& run : sheet.speed)
    for (const auto& p : run.points) all.push_back(&p);
  return all;
}

const perf_item* find(const perf_point& p, std::string_view operation) {
  for (const auto& i : p.items)
    if (i.operation == operation && i.implementation == 0 && has_number(i)) return &i;
  return nullptr;
}

std::string in_code(const std::string& chart) { return "```text\n" + chart + "```\n\n"; }

// Dense attention and msa side by side; the mark is the shortest time that the machine's limits allow.
std::string times_chart(const perf_point& p, std::size_t label_width) {
  std::vector<bar> bars;
  double longest = 0;
  for (const char* operation : {"dense", "msa"})
    if (const perf_item* i = find(p, operation)) {
      const double s = i->time_us.median * us;
      longest = std::max(longest, s);
      std::string text = format_duration_s(s);
      if (i->figures->gain_over_dense && i->operation == "msa")
        text += fmt::format(", {:.3g}x faster (by the limits: {:.3g}x)", *i->figures->gain_over_dense,
                            i->figures->gain_limit.value_or(0));
      bars.push_back({fmt::format("{} {}", place(p), operation), s, text, i->figures->roofline_s});
    }
  return bar_chart(bars, longest, label_width);
}

// Charts of all points, one scale each.
std::string times_charts(const std::vector<const perf_point*>& points) {
  std::size_t widest = 0;
  for (const perf_point* p : points) widest = std::max(widest, (place(*p) + " dense").size());
  std::string charts;
  for (const perf_point* p : points) charts += times_chart(*p, widest);
  return charts;
}

std::string limits_chart(const std::vector<const perf_point*>& points) {
  std::vector<bar> bars;
  for (const perf_point* p : points)
    for (const auto& i : p->items)
      if (i.implementation == 0 && has_number(i) && i.figures->efficiency)
        bars.push_back({fmt::format("{} {}", place(*p), i.operation), *i.figures->efficiency,
                        fmt::format("{:.0f} % of {}", 100 * *i.figures->efficiency,
                                    i.figures->bound == "flops" ? "the arithmetic" : "the memory's speed")});
  return bar_chart(bars, 1);
}

std::string stages_chart(const std::vector<const perf_point*>& points) {
  std::vector<bar> bars;
  for (const perf_point* p : points)
    for (const auto& i : p->items)
      if (i.implementation == 0 && has_number(i) && i.figures->share_of_msa)
        bars.push_back(
            {fmt::format("{} {}", place(*p), i.operation), *i.figures->share_of_msa,
             fmt::format("{:.0f} %, {}", 100 * *i.figures->share_of_msa, format_duration_s(i.time_us.median * us))});
  return bar_chart(bars, 1);
}

std::string speed_headline(const datasheet& sheet) {
  if (sheet.speed.empty()) return "NOT MEASURED: " + sheet.why_no_speed;
  std::int64_t measured = 0, all = 0;
  for (const perf_point* p : points_of(sheet))
    for (const auto& i : p->items) {
      ++all;
      measured += has_number(i);
    }
  std::string text = fmt::format("{}: {} of {} figures, their outputs judged right",
                                 measured == all ? "MEASURED" : "MEASURED IN PART", measured, all);
  if (measured == 0) text = "NOT MEASURED: no figure was measured and judged right";
  return sheet.why_no_speed.empty() ? text : text + "; " + sheet.why_no_speed;
}

std::string distance_text(const std::vector<const perf_point*>& points) {
  std::string text;
  for (const perf_point* p : points)
    for (const char* operation : {"dense", "msa"})
      if (const perf_item* i = find(*p, operation))
        text += fmt::format("- {}, {}: {}, where {} takes {} at the least{}.\n", place(*p), operation,
                            format_duration_s(i->time_us.median * us),
                            i->figures->bound == "flops" ? "the arithmetic" : "reading its inputs",
                            format_duration_s(i->figures->roofline_s),
                            i->figures->efficiency ? fmt::format(" ({:.0f} %)", 100 * *i->figures->efficiency) : "");
  return text;
}

std::string speed_part(const datasheet& sheet) {
  const auto points = points_of(sheet);
  if (points.empty()) return fmt::format("## Speed\n\n{}\n\n", markdown_escaped(speed_headline(sheet)));
  std::string text =
      "## Dense attention and MSA\n\nTime of one layer's attention; `|`: the shortest that this machine's limits "
      "allow.\n\n";
  text += in_code(times_charts(points));
  text +=
      "## Share of the machine's limits\n\nThe nearer limit, arithmetic or memory, as measured between the samples of "
      "the same run.\n\n" +
      in_code(limits_chart(points)) + distance_text(points);
  if (const std::string stages = stages_chart(points); !stages.empty())
    text +=
        "\n## Where the time of msa goes\n\nStages timed apart, against the whole; apart they can take longer than "
        "together.\n\n" +
        in_code(stages);
  text += "\n## All figures\n";
  for (const auto& run : sheet.speed)
    for (const auto& p : run.points) text += perf_point_text(run, p);
  return text + "\n";
}

}  // namespace

std::string datasheet_text(const datasheet& sheet) {
  const run_record& run = sheet.conformance;
  std::string command;
  for (const auto& a : run.argv) command += (command.empty() ? "" : " ") + a;
  std::string text = fmt::format("# {}, qualified by msabench {}\n\n", markdown_escaped(run.implementation.name),
                                 markdown_escaped(run.suite_version));
  text += fmt::format("**Right? {}**: {}\n\n", headline_of(run), markdown_escaped(explanation_of(run)));
  text += fmt::format("**Fast? {}**\n\n", markdown_escaped(speed_headline(sheet)));
  text += fmt::format("- implementation: {} {}, {}\n- command: {}\n- date: {}\n\n",
                      markdown_escaped(run.implementation.name), markdown_escaped(run.implementation.version),
                      markdown_escaped(run.implementation.description), markdown_code(command), run.start_utc);
  text += speed_part(sheet);
  if (!sheet.work_model.empty())
    text +=
        "## What the work model says\n\nCounted, not measured: work of a prefill by context, and what MSA can gain on "
        "this machine.\n\n" +
        in_code(sheet.work_model);
  // The page of `msabench check`, one level down.
  std::string page = markdown_text(run);
  for (std::size_t at = 0; (at = page.find("\n#", at)) != std::string::npos; at += 3) page.insert(at + 1, "#");
  return text + (page.starts_with('#') ? "#" : "") + page;
}

std::string datasheet_summary(const datasheet& sheet) {
  std::string text = fmt::format("right?  {}: {}\nfast?   {}\n", headline_of(sheet.conformance),
                                 explanation_of(sheet.conformance), speed_headline(sheet));
  const std::string charts = times_charts(points_of(sheet));
  return charts.empty() ? text : text + "\n" + charts;
}

void write_datasheet(const datasheet& sheet, const std::filesystem::path& path, std::string_view field) {
  write_file_atomically(field, path, datasheet_text(sheet));
}

}  // namespace msabench
