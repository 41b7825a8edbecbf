// SPDX-License-Identifier: Apache-2.0
// Text in commands that a person copies into a shell.
#pragma once

#include <string>

namespace msabench {

// `text` as one word of a POSIX shell: as it is where only plain characters stand in it, else in single quotes.
std::string shell_word(const std::string& text);

}  // namespace msabench
