// SPDX-License-Identifier: Apache-2.0
#include "perf/device.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "tests/core/temporary_folder.h"
#include "tests/core/thrown.h"

namespace msabench {
namespace {

using nlohmann::json;

json good() {
  return {{"name", "card"},
          {"datasheet", {{"flops", {{"bf16", 1e14}}}, {"bytes_per_s", 1e12}, {"source", "its datasheet"}}}};
}

TEST(devices, NamedOnesAreWhole) {
  ASSERT_FALSE(named_devices().empty());
  for (const auto& d : named_devices()) {
    EXPECT_FALSE(d.what.empty()) << d.name;
    EXPECT_EQ(to_json(find_device("--device", d.name)), to_json(d));
    // What was measured can't be above what the maker promises.
    if (!d.datasheet || !d.measured) continue;
    EXPECT_LE(d.measured->bytes_per_s, d.datasheet->bytes_per_s) << d.name;
    for (const auto& [type, flops] : d.measured->flops) EXPECT_LE(flops, d.datasheet->flops.at(type)) << d.name << type;
  }
}

TEST(devices, FieldsAreRefusedByName) {
  const auto line = [](auto change) {
    json in = good();
    change(in);
    return thrown_line([&] { parse_device("--device", in); });
  };
  EXPECT_EQ(line([](json&) {}), "nothing thrown");
  EXPECT_EQ(line([](json& in) { in.erase("datasheet"); }),
            "--device card: has no ceilings; give datasheet or measured");
  EXPECT_EQ(line([](json& in) { in["datasheet"].erase("source"); }), "--device.datasheet.source: is missing");
  EXPECT_EQ(line([](json& in) { in["datasheet"]["source"] = ""; }),
            "--device.datasheet.source \"\": is empty; say where the numbers come from");
  EXPECT_EQ(line([](json& in) { in["datasheet"]["bytes_per_s"] = 0; }),
            "--device.datasheet.bytes_per_s 0: is not above 0; give a number per second, like 4.8e12");
  EXPECT_EQ(line([](json& in) { in["datasheet"]["bytes_per_s"] = "fast"; }),
            "--device.datasheet.bytes_per_s \"fast\": is no number");
  EXPECT_EQ(line([](json& in) { in["datasheet"]["flops"]["bf17"] = 1; }),
            "--device.datasheet.flops.bf17 1: is no known format; use bf16, fp16, fp32, e4m3 or tf32");
  EXPECT_EQ(line([](json& in) { in["datasheet"]["flops"]["bf16"] = -1; }),
            "--device.datasheet.flops.bf16 -1: is not above 0; give a number per second, like 4.8e12");
  EXPECT_EQ(line([](json& in) { in["datasheet"]["flops"] = json::object(); }),
            "--device.datasheet.flops {}: is empty; give the peak of one format");
  EXPECT_EQ(line([](json& in) { in["datasheet"]["flops"] = 3; }), "--device.datasheet.flops 3: is no JSON object");
  EXPECT_EQ(line([](json& in) { in["memory"] = 3; }),
            "--device.memory 3: is no field of a device; use schema, name, what, datasheet, measured");
  EXPECT_EQ(line([](json& in) { in["schema"] = "other/1"; }),
            "--device.schema \"other/1\": is another format; use msabench.device/1 or leave it out");
}

TEST(devices, CeilingsOfAReport) {
  const json report = {
      {"schema", "msabench.report/1"},
      {"cases", json::array()},
      {"ceilings", {{"flops", {{"fp32", 2e11}}}, {"bytes_per_s", 2e10}, {"source", "this run"}, {"samples", 3}}}};
  const device_spec d = parse_device("--device", report);
  EXPECT_FALSE(d.datasheet);
  EXPECT_EQ(d.measured->flops_of(fp32), 2e11);
  EXPECT_EQ(d.measured->flops_of(bf16), std::nullopt);
  json without = report;
  without.erase("ceilings");
  EXPECT_EQ(thrown_line([&] { parse_device("--device", without); }),
            "--device: is a report without ceilings; give one of a speed run, or a device file");
}

TEST(devices, Files) {
  const temporary_folder folder;
  const auto path = (folder.path() / "card.json").string();
  write_file_atomically("x", path, good().dump());
  EXPECT_EQ(find_device("--device", path).name, "card");
  EXPECT_NE(thrown_line([] { find_device("--device", "h300"); }).find("use h200, or a JSON file"), std::string::npos);
}

TEST(roofline, LargerOfArithmeticAndTraffic) {
  const ceilings c{{{"bf16", 100}, {"e4m3", 200}}, 10, "test"};
  operator_call call;
  call.amount.useful_flops = 1000;
  call.amount.compulsory_bytes = {50, 500};
  call.index_flops = 400;
  EXPECT_EQ(roofline_s(c, {call}, bf16, bf16), 10.0);
  EXPECT_EQ(roofline_s(c, {call}, bf16, e4m3), 8.0);
  EXPECT_EQ(roofline_s(c, {call}, bf16, fp16), std::nullopt);
  EXPECT_EQ(roofline_s(c, {call}, fp16, bf16), std::nullopt);
  call.amount.compulsory_bytes = {200, 500};
  EXPECT_EQ(roofline_s(c, {call, call}, bf16, bf16), 40.0);
  // No peak is asked for where there is nothing to do with it.
  call.index_flops = 0;
  EXPECT_EQ(roofline_s(c, {call}, bf16, fp16), 20.0);
}

}  // namespace
}  // namespace msabench
