// SPDX-License-Identifier: Apache-2.0
// Reports that are read back: what is taken is written the same again.
#include "reports/report_json.h"
#include "tests/fuzz/foreign_text.h"

using namespace msabench;
using namespace msabench::fuzz_test;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run_record run;
  if (!taken([&] { run = parse_report("FILE", "text", text_of(data, size)); })) return 0;
  const std::string once = report_json_text(run);
  require(report_json_text(parse_report("FILE", "text", once)) == once);
  return 0;
}
