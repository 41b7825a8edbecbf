// SPDX-License-Identifier: Apache-2.0
#include "reports/junit.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/files.h"
#include "reports/outcome.h"

namespace msabench {
namespace {

enum class element { passed, failure, error, skipped };

// Of random cases some see nothing, and the run passes without them.
element element_of(verdict v, bool random) {
  switch (v) {
    case verdict::pass:
    case verdict::quality_warning:
      return element::passed;
    case verdict::fail:
    case verdict::broken_promise:
    case verdict::xpass:
      return element::failure;
    case verdict::unsupported:
    case verdict::waived:
      return element::skipped;
    case verdict::insensitive:
      return random ? element::skipped : element::error;
    case verdict::timeout:
    case verdict::crash:
    case verdict::device_lost:
    case verdict::suite_error:
      break;
  }
  return element::error;
}

struct totals {
  int tests = 0, failures = 0, errors = 0, skipped = 0;
  double seconds = 0;

  void add(element e, double elapsed_s) {
    ++tests;
    failures += e == element::failure;
    errors += e == element::error;
    skipped += e == element::skipped;
    seconds += elapsed_s;
  }
  std::string attributes() const {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"", tests, failures,
                       errors, skipped, seconds);
  }
};

// Line breaks in an attribute would be read as spaces.
std::string attribute(std::string_view text) { return xml_escaped(one_line(text, 2000)); }

std::string details(const case_record& c) {
  std::string text;
  for (const auto& check : c.checks) {
    if (check.passed && check.observed) continue;
    text += check.id + (check.observed ? ":\n" : ": not observed\n");
    if (!check.observed) continue;
    for (const auto& line : lines_of(check)) text += "  " + line + "\n";
  }
  if (c.decided == verdict::insensitive)
    text += fmt::format("weakest target fault: {} at {} x its limit by {}; {} x is needed\n", c.sees.weakest_fault,
                        format_number(c.sees.value), c.sees.by_check, format_number(detectability::floor));
  if (!c.repro.empty()) text += "reproduce: " + c.repro + "\n";
  return text;
}

std::string system_out(const case_record& c) {
  std::string text;
  if (c.decided == verdict::quality_warning) text += "quality-warning: " + c.reason + "\n" + details(c);
  for (const auto& what : unobserved_of(c)) text += "not observed: " + what + "\n";
  for (const auto& remark : c.remarks) text += "remark: " + remark + "\n";
  if (!c.captured_output.empty()) text += "output of the implementation:\n" + c.captured_output + "\n";
  return text;
}

void append_case(std::string& xml, const case_record& c, element e) {
  xml += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"", attribute(operator_and_shape_of(c)),
                     attribute(c.name), c.elapsed_s);
  std::string body;
  const std::string type = attribute(verdict_with_kind(c));
  const std::string message = attribute(c.reason.empty() ? meaning_of(c.decided) : std::string_view(c.reason));
  switch (e) {
    case element::passed:
      break;
    case element::skipped:
      body += fmt::format("      <skipped type=\"{}\" message=\"{}: {}\"/>\n", type, type, message);
      break;
    case element::failure:
      body += fmt::format("      <failure type=\"{}\" message=\"{}: {}\">{}</failure>\n", type, type, message,
                          xml_escaped(details(c)));
      break;
    case element::error:
      body += fmt::format("      <error type=\"{}\" message=\"{}: {}\">{}</error>\n", type, type, message,
                          xml_escaped(details(c)));
      break;
  }
  if (const auto out = system_out(c); !out.empty())
    body += fmt::format("      <system-out>{}</system-out>\n", xml_escaped(out));
  xml += body.empty() ? "/>\n" : ">\n" + body + "    </testcase>\n";
}

// The testsuite "run"; empty for a run that is complete and verified something.
std::string run_suite(const run_record& run, totals& all) {
  const int code = exit_code_of(run);
  const bool nothing = run.cases.empty() || code == exit_code::nothing_verified;
  if (!run.partial && !nothing) return {};
  totals own;
  own.add(element::error, 0);
  all.add(element::error, 0);
  return fmt::format(
      "  <testsuite name=\"run\" {}>\n    <testcase classname=\"run\" name=\"{}\" time=\"0.000\">\n"
      "      <error type=\"{}\" message=\"{}\"/>\n    </testcase>\n  </testsuite>\n",
      own.attributes(), run.partial ? "run is complete" : "something was verified",
      run.partial ? "interrupted" : "nothing verified", attribute(explanation_of(run)));
}

// The testsuite "parts"; empty without any. What was not run never shows as green.
std::string parts_suite(const run_record& run, totals& all) {
  if (run.parts.empty()) return {};
  totals own;
  std::string xml;
  for (const auto& p : run.parts) {
    const element e = p.state == part_state::passed   ? element::passed
                      : p.state == part_state::failed ? element::failure
                                                      : element::error;
    own.add(e, p.seconds);
    all.add(e, p.seconds);
    xml += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"", attribute(p.part),
                       attribute(title_of(p)), p.seconds);
    const char* tag = e == element::failure ? "failure" : "error";
    xml += e == element::passed ? "/>\n"
                                : fmt::format(">\n      <{} type=\"{}\" message=\"{}\"/>\n    </testcase>\n", tag,
                                              name(p.state), attribute(p.detail));
  }
  return fmt::format("  <testsuite name=\"parts\" {}>\n{}  </testsuite>\n", own.attributes(), xml);
}

void append_property(std::string& xml, std::string_view name, std::string_view value) {
  xml += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", name, attribute(value));
}

std::string properties(const run_record& run) {
  std::string xml = "    <properties>\n";
  append_property(xml, "implementation.version", run.implementation.version);
  append_property(xml, "implementation.sha256", run.implementation.sha256);
  append_property(xml, "suite.version", run.suite_version);
  append_property(xml, "suite.commit", run.suite_commit);
  append_property(xml, "level", run.level);
  append_property(xml, "seed", std::to_string(run.seed));
  for (const auto& c : run.withdrawn) append_property(xml, "withdrawn", c.name + ": " + c.reason);
  append_property(xml, "partial", run.partial ? "true" : "false");
  return xml + "    </properties>\n";
}

}  // namespace

std::string xml_escaped(std::string_view text) {
  std::string out;
  const std::string printable = printable_lines(text);
  for (std::size_t i = 0; i < printable.size(); ++i) {
    const char c = printable[i];
    // The two noncharacters of the first plane that XML 1.0 excludes.
    if (c == '\xef' && (printable.compare(i, 3, "\xef\xbf\xbe") == 0 || printable.compare(i, 3, "\xef\xbf\xbf") == 0)) {
      out += printable[i + 2] == '\xbe' ? "\\ufffe" : "\\uffff";
      i += 2;
      continue;
    }
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string junit_text(const run_record& run) {
  totals all;
  std::string suites;
  for (const auto& [operation, cases] : by_operator(run)) {
    totals own;
    std::string body;
    for (const auto* c : cases) {
      const element e = element_of(c->decided, run.fuzz.has_value());
      own.add(e, c->elapsed_s);
      all.add(e, c->elapsed_s);
      append_case(body, *c, e);
    }
    suites += fmt::format("  <testsuite name=\"{}\" {} timestamp=\"{}\">\n", attribute(operation), own.attributes(),
                          attribute(run.start_utc));
    suites += properties(run) + body + "  </testsuite>\n";
  }
  suites += parts_suite(run, all);
  suites += run_suite(run, all);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"msabench {}\" {}>\n{}</testsuites>\n",
      attribute(run.implementation.name), all.attributes(), suites);
}

void write_junit(const run_record& run, const std::filesystem::path& path, std::string_view field) {
  write_file_atomically(field, path, junit_text(run));
}

}  // namespace msabench
