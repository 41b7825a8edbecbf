// SPDX-License-Identifier: Apache-2.0
#include "reports/report_json.h"

#include "core/files.h"

namespace msabench {

std::string report_json_text(const run_record& run) {
  // Foreign text is escaped already; a byte that slipped through is replaced instead of losing the whole report.
  return to_report_json(run).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void write_report_json(const run_record& run, const std::filesystem::path& path, std::string_view field) {
  write_file_atomically(field, path, report_json_text(run));
}

}  // namespace msabench
