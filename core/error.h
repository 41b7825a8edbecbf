// SPDX-License-Identifier: Apache-2.0
// The two ways in which the suite itself gives up, each with one line that a person can act on.
//
// usage_error: the caller's input, files or environment are wrong (exit code 64).
// suite_error: the suite is at fault, an invariant of its own code is broken (exit code 70).
// Neither says anything about an implementation under test: those are verdicts, not exceptions.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace msabench {

// What is wrong with one input. `field` is the flag, key or file role as the user knows it, `value` what was given.
struct diagnostic {
  std::string field, value, problem, remedy;

  // "FIELD VALUE: problem; remedy" on one line of valid UTF-8. An empty value or remedy is left out with its separator.
  // Control characters, line separators and bytes that are not UTF-8 are escaped; the value is cut to 80 characters.
  std::string line() const;
};

// `text` on one line of valid UTF-8: controls as \n, \t, \xNN or \uNNNN, stray bytes as \xNN, cut to `max_chars`
// characters (of which the last three are "..." when something was cut).
std::string one_line(std::string_view text, std::size_t max_chars);
// `text` with its line breaks kept and each line escaped as by one_line: foreign output as it may be shown and stored.
std::string printable_lines(std::string_view text);

class usage_error : public std::runtime_error {
 public:
  explicit usage_error(diagnostic d);
  const diagnostic& what_is_wrong() const noexcept { return diagnostic_; }

 private:
  diagnostic diagnostic_;
};

class suite_error : public std::runtime_error {
 public:
  explicit suite_error(const std::string& message);
};

[[noreturn]] void bad_input(std::string_view field, std::string_view value, std::string_view problem,
                            std::string_view remedy);

}  // namespace msabench
