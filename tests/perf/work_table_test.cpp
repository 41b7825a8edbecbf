// SPDX-License-Identifier: Apache-2.0
#include "perf/work_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/units.h"
#include "tests/core/thrown.h"

namespace msabench {
namespace {

using nlohmann::json;

constexpr std::int64_t million = std::int64_t{1} << 20;

work_table table_of(const std::string& model, work_phase phase, std::vector<std::int64_t> contexts,
                    std::int64_t chunk = 0) {
  return make_work_table(
      {find_model("model", model), phase, std::move(contexts), chunk, find_device("device", "h200")});
}

double limit(const work_row& row, std::string_view ceilings, dtype index_type) {
  for (const auto& l : row.limits)
    if (l.ceilings == ceilings && l.index_type == index_type) return l.layer.value_or(-1);
  return -2;
}

// What the machine's physics allow at 1M tokens.
TEST(work_table, LimitsOfTheH200) {
  const work_row decode = table_of("m3", work_phase::decode, {million}).rows.at(0);
  EXPECT_NEAR(limit(decode, "datasheet", bf16), 7.88, 0.005);
  EXPECT_NEAR(limit(decode, "datasheet", e4m3), 15.5, 0.05);
  EXPECT_NEAR(limit(decode, "measured", bf16), 7.88, 0.005);
  EXPECT_EQ(limit(decode, "measured", e4m3), -1);  // no such ceiling was measured
  const work_row prefill = table_of("m3", work_phase::prefill, {million}).rows.at(0);
  EXPECT_NEAR(limit(prefill, "datasheet", bf16), 28.5, 0.06);
  EXPECT_NEAR(limit(prefill, "datasheet", e4m3), 51.5, 0.05);  // score at twice the rate
}

TEST(work_table, BranchesAddUp) {
  for (const auto phase : {work_phase::prefill, work_phase::decode, work_phase::training})
    for (const auto& row : table_of("m3", phase, {1, 1000, 8192, million}).rows) {
      const sparse_row& s = row.sparse.value();
      EXPECT_DOUBLE_EQ(s.index_flops + s.attention_flops + s.backward_flops + s.kl_flops, s.layer.flops);
      EXPECT_DOUBLE_EQ(3 * row.dense.flops + 57 * s.layer.flops, row.model_flops);
      EXPECT_EQ(60 * row.dense.flops, row.model_dense_flops);
      EXPECT_EQ(row.model_cache_bytes, static_cast<double>(row.context) * (60 * 2048 + 57 * 256));
      EXPECT_EQ(s.backward_flops > 0, phase == work_phase::training);
    }
}

TEST(work_table, PaperFormulasWhereTheyApply) {
  EXPECT_TRUE(table_of("m3", work_phase::prefill, {8192}).rows[0].sparse->paper_flops);
  EXPECT_TRUE(table_of("m3", work_phase::decode, {8192}).rows[0].sparse->paper_flops);
  EXPECT_FALSE(table_of("m3", work_phase::prefill, {8192}, 1024).rows[0].sparse->paper_flops);
  EXPECT_FALSE(table_of("m3", work_phase::training, {8192}).rows[0].sparse->paper_flops);
}

TEST(work_table, Crossovers) {
  const auto c = table_of("m3", work_phase::prefill, {8192}).crossover.value();
  EXPECT_EQ(c.paper, 4229);
  // Counted exactly, short rows read fewer keys than the formula says.
  EXPECT_GT(c.flops, 2048);
  EXPECT_LT(c.flops, c.paper);
  EXPECT_FALSE(table_of("previous", work_phase::prefill, {8192}).crossover);
}

TEST(work_table, ModelsWithoutSparseLayers) {
  const auto table = table_of("m3-dense-layer", work_phase::decode, {8192});
  EXPECT_FALSE(table.rows[0].sparse);
  EXPECT_TRUE(table.rows[0].limits.empty());
  EXPECT_EQ(table.rows[0].model_flops, table.rows[0].dense.flops);
  const json out = to_json(table);
  EXPECT_TRUE(out["rows"][0]["sparse_layer"].is_null());
  EXPECT_TRUE(out["crossover"].is_null());
}

TEST(published, EveryFigureHasASource) {
  ASSERT_GT(published_figures().size(), 50u);
  for (const auto& f : published_figures()) {
    EXPECT_FALSE(f.source.empty()) << f.id;
    EXPECT_FALSE(f.machine.empty()) << f.id;
    EXPECT_FALSE(f.against.empty()) << f.id;
    EXPECT_GT(f.value, 0) << f.id;
    EXPECT_EQ(f.unit == "x", f.baseline != "none" && f.id != "product.compute.1M") << f.id;
    if (f.context) {
      EXPECT_TRUE(*f.context >= 1 && *f.context <= max_size) << f.id;
    }
  }
}

// A gain that was measured at one and the same shape is the quotient of its times.
TEST(published, GainsAgreeWithTheirTimes) {
  std::map<std::string, double> values;
  for (const auto& f : published_figures()) values[f.id] = f.value;
  int compared = 0;
  for (const auto& [id, value] : values) {
    const auto at = id.rfind(".gain");
    const std::string stem = id.substr(0, at);
    if (at == std::string::npos || !values.contains(stem + ".dense")) continue;
    EXPECT_NEAR(values.at(stem + ".dense") / values.at(stem + ".triton"), value, 0.02 * value) << id;
    ++compared;
  }
  EXPECT_EQ(compared, 13);
}

TEST(published, BaselinesStayApart) {
  for (const auto& f : published_figures()) {
    if (f.baseline == "previous-model") {
      EXPECT_NE(f.against.find("48 query / 8 KV"), std::string::npos) << f.id;
    }
    if (f.id.starts_with("product.")) {
      EXPECT_EQ(f.baseline, "previous-model") << f.id;
    }
    if (f.id.starts_with("paper.wall")) {
      EXPECT_EQ(f.baseline, "same-model") << f.id;
    }
  }
}

TEST(published, FieldsAreRefusedByName) {
  const json good = to_json(published_figures().front());
  const auto line = [&](auto change) {
    json figures = {good};
    change(figures);
    return thrown_line([&] { parse_published("file", {{"figures", figures}}); });
  };
  EXPECT_EQ(line([](json&) {}), "nothing thrown");
  EXPECT_EQ(line([](json& f) { f[0].erase("source"); }), "file.figures[0].source: is missing");
  EXPECT_EQ(line([](json& f) { f[0]["source"] = ""; }), "file.figures[0].source \"\": is empty");
  EXPECT_EQ(line([](json& f) { f[0].erase("machine"); }), "file.figures[0].machine: is missing");
  EXPECT_EQ(
      line([](json& f) { f[0]["baseline"] = "any"; }),
      "file.figures[0].baseline \"any\": is not one of the words; use same-model, previous-model, other-kernel, none");
  EXPECT_EQ(line([](json& f) { f[0]["phase"] = "idle"; }),
            "file.figures[0].phase \"idle\": is not one of the words; use prefill, decode, training");
  EXPECT_EQ(line([](json& f) { f[0]["value"] = "fast"; }), "file.figures[0].value \"fast\": is no number");
  EXPECT_EQ(line([](json& f) { f[0]["value_high"] = 1; }), "file.figures[0].value_high 1.0: is below value");
  EXPECT_NE(line([](json& f) { f.push_back(f[0]); }).find("stands twice"), std::string::npos);
  EXPECT_NE(thrown_line([] { parse_published("file", {{"figures", 3}}); }).find("is no list"), std::string::npos);
}

TEST(published, BesideATableOfItsPhase) {
  for (const auto& f : published_beside(table_of("m3", work_phase::decode, {8192})))
    EXPECT_TRUE(!f.phase || *f.phase == "decode") << f.id;
}

}  // namespace
}  // namespace msabench
