# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a header with the commit that the tree is at; only when it changed, so that nothing else is rebuilt.
set(commit "unknown")
set(dirty "false")
find_program(git_program git)
if(git_program)
  execute_process(COMMAND "${git_program}" -C "${SOURCE}" rev-parse HEAD OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  execute_process(COMMAND "${git_program}" -C "${SOURCE}" rev-parse --show-toplevel OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH "${SOURCE}" source)
  # An unpacked archive inside somebody else's repository has no commit of its own.
  if(failed EQUAL 0 AND "${top}" STREQUAL "${source}")
    set(commit "${head}")
    execute_process(COMMAND "${git_program}" -C "${SOURCE}" status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
    if(NOT "${changes}" STREQUAL "")
      set(dirty "true")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "// Generated.
#pragma once
namespace msabench {
inline constexpr const char* suite_version = \"${VERSION}\";
inline constexpr const char* suite_commit = \"${commit}\";
inline constexpr bool suite_dirty = ${dirty};
}  // namespace msabench
")
