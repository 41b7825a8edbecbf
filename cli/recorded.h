// SPDX-License-Identifier: Apache-2.0
// The option that says where files of family recorded lie, and cases that are listed beside them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "conformance/lists.h"
#include "core/case.h"

namespace msabench {

class recorded_option {
 public:
  void declare(CLI::App& verb);  // --recorded, or MSABENCH_RECORDED

  // Adds the cases of FOLDER/cases.txt, if there is such a file, to a list. usage_error naming its line.
  void extend(case_list& list) const;

  // Finds and checks the files of all recorded cases; see attach_recording().
  void attach(std::vector<case_spec>& cases) const;

  std::string repro_suffix(
      const std::vector<case_spec>& cases) const;  // " --recorded DIR" where one of them is recorded

 private:
  std::string folder_;
};

}  // namespace msabench
