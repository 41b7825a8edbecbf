// SPDX-License-Identifier: Apache-2.0
#include "cli/recorded.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/files.h"
#include "core/shell.h"
#include "inputs/recorded.h"

namespace msabench {

void recorded_option::declare(CLI::App& verb) {
  verb.add_option("--recorded", folder_,
                  "Folder of NAME.safetensors for cases recorded.NAME; those in its cases.txt are added to the level")
      ->type_name("DIR")
      ->envname("MSABENCH_RECORDED");
}

void recorded_option::extend(case_list& list) const {
  if (folder_.empty()) return;
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder_, ignored))
    bad_input("--recorded", folder_, "is no folder", "the folder of NAME.safetensors");
  const auto path = std::filesystem::path(folder_) / "cases.txt";
  constexpr std::uint64_t most_bytes = 1 << 20;
  if (std::filesystem::exists(path, ignored)) add_cases(list, path.string(), read_file("--recorded", path, most_bytes));
}

void recorded_option::attach(std::vector<case_spec>& cases) const {
  for (case_spec& c : cases) attach_recording(c, folder_);
}

std::string recorded_option::repro_suffix(const std::vector<case_spec>& cases) const {
  const bool any = std::ranges::any_of(cases, [](const case_spec& c) { return !c.recorded.path.empty(); });
  return any ? " --recorded " + shell_word(folder_) : "";
}

}  // namespace msabench
