// SPDX-License-Identifier: Apache-2.0
// Runs to render: every verdict, every exit code, and text that tries to break each format.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/record.h"

namespace msabench {

// Bytes that foreign code may print: controls, an ANSI escape, bytes that are no UTF-8, markup of XML, Markdown and
// HTML.
extern const std::string hostile_text;

run_record clean_run();        // two passes
run_record mixed_run();        // one case of every verdict, hostile text, numbers that are not finite
run_record partial_run();      // interrupted after a pass
run_record insensitive_run();  // a pass and a blind case
run_record random_run();
run_record unsupported_run();  // nothing else
run_record empty_run();        // no case
run_record open_run();         // merged, with a part that was not run
run_record parts_run();        // and one that passed, and one that failed

// Each of the above under its name: "clean", "mixed", ...
std::vector<std::pair<std::string, run_record>> sample_runs();

}  // namespace msabench
