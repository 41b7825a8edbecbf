// SPDX-License-Identifier: Apache-2.0
#include "cli/implementation.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "cli/suite_version.h"
#include "conformance/accuracy.h"
#include "conformance/lists.h"
#include "conformance/selftest_lists.h"
#include "core/error.h"
#include "core/shell.h"
#include "core/units.h"

namespace msabench {

void implementation_options::declare(CLI::App& verb) {
  verb.add_option("--impl", impl_,
                  "Implementation: a built-in name (see `msabench list implementations`) or a plugin file; what stands "
                  "behind a "
                  "colon says which of several it is")
      ->type_name("NAME|FILE.so[:ARGUMENT]")
      ->required();
  verb.add_option("--device", device_text_, "Where the plugin runs; default cpu for a file, fixed for built-in names")
      ->type_name("cpu|cuda[:N]");
  verb.add_option("--threads", threads_text_, "Threads that the implementation may use; default all cores")
      ->type_name("N");
  verb.add_option("--timeout-s", timeout_text_, "Seconds that one case may take; default from its cost")
      ->type_name("S");
  verb.add_flag("--in-process", in_process_,
                "Run the plugin inside this process, for debuggers: no time limit, no protection");
}

void implementation_options::resolve() {
  if (in_process_ && !timeout_text_.empty())
    bad_input("--timeout-s", timeout_text_, "cannot be kept with --in-process", "leave one of the two out");
  std::optional<device> asked;
  if (!device_text_.empty()) asked = device_from_text("--device", device_text_);
  if (!timeout_text_.empty()) how_.query_timeout_s = timeout_s_.emplace(parse_seconds("--timeout-s", timeout_text_));
  if (!threads_text_.empty()) {
    const auto threads = parse_uint64("--threads", threads_text_);
    if (threads < 1 || threads > most_threads)
      bad_input("--threads", threads_text_, "is out of range", fmt::format("1 to {}", most_threads));
    how_.threads = static_cast<int>(threads);
  }
  where_ = resolve_implementation(impl_, asked);
  if (in_process_ && where_->where.type != device_type::cpu)
    bad_input("--in-process", "", "is for plugins that run on the CPU", "leave it out for --device cuda");
}

std::unique_ptr<executor> implementation_options::make() const {
  return in_process_ ? make_in_process_executor(*where_, how_) : make_worker_executor(*where_, how_);
}

std::unique_ptr<executor> implementation_options::make_naive() const { return make_naive_beside(*where_, how_); }

std::string implementation_options::repro_suffix() const {
  std::string text = " --impl " + shell_word(impl_);
  if (!device_text_.empty()) text += " --device " + device_text_;
  if (!threads_text_.empty()) text += " --threads " + threads_text_;
  if (!timeout_text_.empty()) text += " --timeout-s " + timeout_text_;
  if (in_process_) text += " --in-process";
  return text;
}

run_record begin_record(const std::vector<std::string>& argv, const implementation_record& implementation) {
  run_record run;
  run.suite_version = suite_version;
  run.suite_commit = suite_commit;
  run.suite_dirty = suite_dirty;
  for (const auto& level : levels()) run.lists[level] = load_list(level).sha256;
  run.selftest = stored_selftest_score();
  run.argv = argv;
  run.start_utc = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  run.environment = environment();
  if (!implementation.device.empty()) run.environment["device"] = implementation.device;
  run.implementation = implementation;
  return run;
}

}  // namespace msabench
