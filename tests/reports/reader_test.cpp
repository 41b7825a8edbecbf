// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "core/files.h"
#include "reports/report_json.h"
#include "tests/reports/sample_runs.h"

namespace msabench {
namespace {

class report_files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "msabench_reports_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string refusal(const std::string& content) {
    write_file_atomically("test", folder / "planted.json", content);
    try {
      (void)read_report(folder / "planted.json");
    } catch (const usage_error& e) {
      return e.what();
    }
    ADD_FAILURE() << "was read";
    return {};
  }

  std::filesystem::path folder;
};

TEST_F(report_files, what_is_written_is_read_back_whole) {
  for (const auto& [name, run] : sample_runs()) {
    write_report_json(run, folder / "report.json");
    const auto back = read_report(folder / "report.json");
    EXPECT_EQ(to_report_json(back), to_report_json(run)) << name;
    EXPECT_EQ(exit_code_of(back), exit_code_of(run)) << name;
  }
}

TEST_F(report_files, what_is_not_finite_comes_back) {
  write_report_json(mixed_run(), folder / "report.json");
  const auto back = read_report(folder / "report.json");
  const auto& check = back.cases.at(2).checks.at(3);
  EXPECT_TRUE(std::isnan(check.value));
  EXPECT_TRUE(std::isinf(check.limit));
  EXPECT_TRUE(std::isnan(check.worst.got));
  EXPECT_EQ(check.terms.at(0).first, "output store");
  EXPECT_TRUE(std::isinf(check.terms.at(0).second));
  EXPECT_TRUE(std::isnan(back.cases.at(2).timing.time_us.at(1)));
  EXPECT_EQ(back.seed, std::numeric_limits<std::uint64_t>::max());
}

TEST_F(report_files, refusals_name_the_file_and_the_place) {
  auto damaged = to_report_json(mixed_run());
  damaged["cases"][2]["checks"][1]["limit"] = "tight";
  const auto message = refusal(damaged.dump());
  EXPECT_NE(message.find("planted.json"), std::string::npos) << message;
  EXPECT_NE(message.find("report.cases[2].checks[1].limit"), std::string::npos) << message;
  EXPECT_NE(message.find("tight"), std::string::npos) << message;

  auto other = to_report_json(clean_run());
  other["schema"] = "msabench.report/2";
  EXPECT_NE(refusal(other.dump()).find("another major version"), std::string::npos);
  EXPECT_NE(refusal("{\"schema\": \"x\"}").find("no msabench report"), std::string::npos);
}

TEST_F(report_files, a_failed_write_leaves_the_old_report) {
  write_report_json(clean_run(), folder / "report.json");
  const auto before = read_file("test", folder / "report.json", 1 << 20);
  EXPECT_THROW(write_report_json(mixed_run(), folder / "report.json" / "below_a_file.json"), usage_error);
  EXPECT_THROW(write_report_json(mixed_run(), folder / "missing" / "report.json"), usage_error);
  EXPECT_EQ(read_file("test", folder / "report.json", 1 << 20), before);
}

TEST_F(report_files, a_missing_file_is_one_line) {
  try {
    (void)read_report(folder / "none.json", "REPORT");
    FAIL();
  } catch (const usage_error& e) {
    EXPECT_EQ(std::string(e.what()).find("REPORT "), 0u) << e.what();
    EXPECT_NE(std::string(e.what()).find("none.json"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace msabench
