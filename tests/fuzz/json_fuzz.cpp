// SPDX-License-Identifier: Apache-2.0
// JSON files of users: models, devices, published figures, descriptions of golden files. What is taken is written back the
// same.
#include <nlohmann/json.hpp>
#include <vector>

#include "conformance/golden_file.h"
#include "core/json.h"
#include "core/model.h"
#include "perf/device.h"
#include "perf/published.h"
#include "tests/fuzz/foreign_text.h"

using namespace msabench;
using namespace msabench::fuzz_test;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  nlohmann::json in;
  if (!taken([&] { in = parse_json("FILE", "text", text_of(data, size)); })) return 0;
  model_spec model;
  if (taken([&] { model = parse_model("--model", in); })) {
    const auto written = to_json(model);
    require(to_json(parse_model("--model", written)) == written);
  }
  device_spec device;
  if (taken([&] { device = parse_device("--device", in); })) {
    const auto written = to_json(device);
    require(to_json(parse_device("--device", written)) == written);
  }
  std::vector<published_figure> figures;
  taken([&] { figures = parse_published("FILE", in); });
  golden_case golden;
  if (taken([&] { golden = read_golden_case("FILE", "text", in); }))
    for (const auto& tensor : golden.tensors) require(golden.shape_of(tensor).size() <= 8);
  return 0;
}
