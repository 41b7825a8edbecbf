// SPDX-License-Identifier: Apache-2.0
// What verdicts mean to a reader, and the phrases that every rendering shares. Private to reports.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/record.h"

namespace msabench {

// passed: verified, good. failed: the implementation is at fault. unverified: nothing can be said. set_aside: declared
// unsupported, or waived by the user.
enum class outcome_group { passed, failed, unverified, set_aside };

outcome_group group_of(verdict v);
// One clause for people who have not read docs/verdicts.md.
std::string_view meaning_of(verdict v);

// How the run as a whole ended: "PASSED", "FAILED", "INCOMPLETE", "NOTHING VERIFIED" or "SUITE ERROR".
std::string_view headline_of(const run_record& run);
// Why, in one sentence: "3 of 60 cases failed."
std::string explanation_of(const run_record& run);

// Parts beside the cases that failed, or were not run: "1 of 9 other parts failed: sanitize racecheck of x. ". Empty if all
// passed, or there are none.
std::string explanation_of_parts(const run_record& run);

// "1 case", "3 cases".
std::string count_of_cases(std::size_t count);

// In the order of the enumerators; verdicts without a case are left out.
std::vector<std::pair<verdict, std::int64_t>> counts_of(const std::vector<case_record>& cases);

// The parts of a case name in front of its first and second slash. A name without slashes is its own operator.
std::string operator_of(const case_record& c);
std::string operator_and_shape_of(const case_record& c);
// Operators in the order of their first case, each with its cases in the order of the run.
std::vector<std::pair<std::string, std::vector<const case_record*>>> by_operator(const run_record& run);

// Texts with the number of cases that have them, in the order of their first case.
using counted_texts = std::vector<std::pair<std::string, std::int64_t>>;
void count_text(counted_texts& texts, std::string_view text);
// What could not be seen in a case, one line each: its `unobserved`, and checks marked unobserved that those don't
// name.
std::vector<std::string> unobserved_of(const case_record& c);

// Four significant digits: "0.01234", "1.234e-05", "nan".
std::string format_number(double x);
// value / limit as "0.43 x" or "> 1000 x"; empty where there is no ratio.
std::string times_limit(const check_result& c);
// "out[row 3, head 1, channel 5]"; empty if the check has no worst element.
std::string place_of(const worst_element& w);
// "0.0123 abs > limit 0.0012 (10.2 x)", or <= where the value keeps the limit.
std::string comparison_of(const check_result& c);
// What there is to say of a check, a line each: comparison and place, got and want, largest term, named key, cure,
// note.
std::vector<std::string> lines_of(const check_result& c);

// "fail (numeric)", "crash".
std::string verdict_with_kind(const case_record& c);

}  // namespace msabench
