// SPDX-License-Identifier: Apache-2.0
// JUnit XML for CI servers: one testsuite per operator, one testcase per case (classname operator/shape, name the whole
// case name).
//
//   pass                                   passes
//   quality-warning                        passes, the warning in system-out
//   fail, broken-promise, xpass            <failure>
//   crash, timeout, device-lost            <error>
//   insensitive, suite-error               <error>: what is not verified never reads as passed
//   unsupported, waived                    <skipped>
//
// An interrupted run and one that verified nothing carry an <error> of their own in a testsuite "run", since servers
// would show them green otherwise.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/record.h"

namespace msabench {

std::string junit_text(const run_record& run);

// As write_report_json.
void write_junit(const run_record& run, const std::filesystem::path& path, std::string_view field = "--junit");

// `text` as XML character data, also fit for attributes in double quotes. Characters that XML 1.0 can't hold (controls,
// bytes that are no UTF-8, U+FFFE and U+FFFF) are shown as backslash escapes; line breaks stay.
std::string xml_escaped(std::string_view text);

}  // namespace msabench
