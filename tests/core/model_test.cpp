// SPDX-License-Identifier: Apache-2.0
// Models, and the published figures that the work model has to reproduce.
#include "core/model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/model_work.h"
#include "core/units.h"
#include "core/work_paper.h"
#include "tests/core/temporary_folder.h"
#include "tests/core/thrown.h"

namespace msabench {
namespace {

using nlohmann::json;

constexpr std::int64_t million = std::int64_t{1} << 20;

model_spec m3() { return find_model("model", "m3"); }

double sparse_flops(const model_spec& m, work_phase phase, const sequence& s) {
  return useful_flops(sparse_layer(m, phase, batch_lengths(&s, 1)));
}
double dense_flops(const model_spec& m, work_phase phase, const sequence& s) {
  return useful_flops(dense_layer(m, phase, batch_lengths(&s, 1)));
}

TEST(published, PaperFormulas) {
  const shape_spec s = m3().shape;
  EXPECT_NEAR(paper_gqa_flops(s, million) / paper_msa_flops(s, million), 28.44, 0.005);
  EXPECT_NEAR(paper_index_flops(s, million) / paper_msa_flops(s, million), 0.89, 0.005);
  EXPECT_NEAR(paper_equal_cost_length(s), 4228, 0.5);
}

TEST(published, ExactRatioOfAPrefill) {
  const sequence whole{million, million};
  const double ratio = dense_flops(m3(), work_phase::prefill, whole) / sparse_flops(m3(), work_phase::prefill, whole);
  EXPECT_NEAR(ratio, 28.55, 0.005);
  EXPECT_NEAR(selected_pairs(batch_lengths(&whole, 1), {128, 16, 1, 0}).least / million, 1982.6, 0.05);
}

TEST(published, DecodeBytes) {
  const sequence last{1, million};
  const batch_lengths batch(&last, 1);
  model_spec m = m3();
  const auto bytes = [](const std::vector<operator_call>& calls) { return calls.at(0).amount.compulsory_bytes; };
  const double dense = bytes(dense_layer(m, work_phase::decode, batch)).least;
  EXPECT_NEAR(dense, 2147e6, 1e6);
  const count_bounds sparse = bytes(sparse_layer(m, work_phase::decode, batch));
  EXPECT_TRUE(sparse.exact());
  EXPECT_NEAR(sparse.least, 272.6e6, 0.1e6);
  EXPECT_NEAR(dense / sparse.least, 7.88, 0.005);
  m.index_type = e4m3;
  const double fp8 = bytes(sparse_layer(m, work_phase::decode, batch)).least;
  EXPECT_NEAR(fp8, 138.4e6, 0.1e6);
  EXPECT_NEAR(dense / fp8, 15.5, 0.05);
}

TEST(published, AttendOfAChunk) {
  const sequence chunk{8192, million};
  problem p;
  p.operation = op::attend;
  p.hq = 64;
  p.hkv = 4;
  p.d = p.block = 128;
  p.topk = 16;
  p.local_blocks = 1;
  p.q = p.kv = p.out = bf16;
  const work w = work_of(p, batch_lengths(&chunk, 1), {{}, {}});
  EXPECT_NEAR(w.useful_flops, 0.533e12, 0.0005e12);
  const double queries = 2.0 * 8192 * 64 * 128 * 2 + 8192.0 * 4 * 16 * 4;
  EXPECT_NEAR(w.algorithmic_bytes - queries, 34e9, 1e9);             // every query gathers alone
  EXPECT_NEAR(w.compulsory_bytes.most - queries, 2.147e9, 0.001e9);  // each page once
}

TEST(published, PreviousModel) {
  const sequence whole{million, million};
  const double ratio = dense_flops(find_model("model", "previous"), work_phase::prefill, whole) /
                       sparse_flops(m3(), work_phase::prefill, whole);
  EXPECT_NEAR(ratio, 20, 2);  // "1/20 of the compute"
}

TEST(model_work, TrainingIsForwardAndBackward) {
  const sequence s{4096, 4096};
  const batch_lengths batch(&s, 1);
  const double pairs = causal_pairs(batch), selected = selected_pairs(batch, {128, 16, 1, 0}).least;
  EXPECT_EQ(dense_flops(m3(), work_phase::training, s), 14.0 * 128 * 64 * pairs);
  EXPECT_EQ(sparse_flops(m3(), work_phase::training, s),
            2.0 * 128 * 4 * pairs + (14.0 * 128 * 64 + 2.0 * (128 * 64 + 3 * 128 * 4)) * selected);
  double index = 0;
  for (const auto& c : sparse_layer(m3(), work_phase::training, batch)) index += c.index_flops;
  EXPECT_DOUBLE_EQ(index, 2.0 * 128 * 4 * pairs + 2.0 * 3 * 128 * 4 * selected);
}

TEST(model_work, CacheOfAToken) {
  EXPECT_EQ(kv_bytes_per_token(m3()), 2048);
  EXPECT_EQ(index_bytes_per_token(m3()), 256);
  EXPECT_EQ(index_bytes_per_token(find_model("model", "m3-dense-layer")), 0);
  EXPECT_EQ(kv_bytes_per_token(find_model("model", "previous")), 4096);
}

TEST(model_work, PhaseSequences) {
  EXPECT_EQ(phase_sequence(work_phase::prefill, 100), (sequence{100, 100}));
  EXPECT_EQ(phase_sequence(work_phase::prefill, 100, 8), (sequence{8, 100}));
  EXPECT_EQ(phase_sequence(work_phase::prefill, 4, 8), (sequence{4, 4}));
  EXPECT_EQ(phase_sequence(work_phase::decode, 100), (sequence{1, 100}));
  EXPECT_EQ(phase_sequence(work_phase::training, 100), (sequence{100, 100}));
}

TEST(model_work, CrossoverAsScanned) {
  for (const auto& name : {"m3", "paper-pilot"})
    for (const auto phase : {work_phase::prefill, work_phase::decode, work_phase::training}) {
      const model_spec m = find_model("model", name);
      const auto cheaper = [&](std::int64_t n) {
        const sequence s = phase_sequence(phase, n);
        return sparse_flops(m, phase, s) < dense_flops(m, phase, s);
      };
      std::int64_t last_no = 0;
      for (std::int64_t n = 1; n < 40'000; ++n)
        if (!cheaper(n)) last_no = n;
      ASSERT_GT(last_no, 0);
      EXPECT_EQ(crossover(m.shape.block, cheaper), last_no + 1) << name << " " << msabench::name(phase);
    }
}

TEST(model_work, CrossoverWithoutOne) {
  EXPECT_EQ(crossover(128, [](std::int64_t) { return false; }), std::nullopt);
  EXPECT_EQ(crossover(128, [](std::int64_t) { return true; }), 1);
  EXPECT_EQ(crossover(128, [](std::int64_t n) { return n == max_size; }), max_size);
  // Wavers around 1000.
  EXPECT_EQ(
      crossover(128, [](std::int64_t n) { return n >= 1000 ? n % 128 < 100 || n > 1200 : n > 950 && n % 7 == 0; }),
      1152);
}

TEST(models, NamedOnesAreWhole) {
  for (const auto& m : named_models()) {
    EXPECT_FALSE(m.source.empty()) << m.name;
    EXPECT_EQ(to_json(parse_model("model", to_json(m))), to_json(m)) << m.name;
  }
  EXPECT_EQ(m3().layers(), 60);
  EXPECT_EQ(m3().dense_layers, 3);
}

TEST(models, Defaults) {
  const model_spec m = parse_model(
      "--model", json::parse(R"({"hq": 32, "hkv": 8, "d": 64, "sparse_layers": 2, "block": 64, "topk": 8})"));
  EXPECT_EQ(m.shape, (shape_spec{32, 8, 64, 8, 64, 64, 8, 1, 0}));
  EXPECT_EQ(m.type, bf16);
  EXPECT_EQ(m.index_type, bf16);
}

TEST(models, FieldsAreRefusedByName) {
  const json good = {{"hq", 32}, {"hkv", 8}, {"d", 64}, {"sparse_layers", 2}, {"block", 64}, {"topk", 8}};
  const auto line = [&](const char* key, const json& value) {
    json in = good;
    if (value.is_discarded()) {
      in.erase(key);
    } else {
      in[key] = value;
    }
    return thrown_line([&] { parse_model("--model", in); });
  };
  const json missing(json::value_t::discarded);
  EXPECT_EQ(line("hq", missing), "--model.hq: is missing");
  EXPECT_EQ(line("topk", missing), "--model.topk: is missing");
  EXPECT_EQ(line("hq", "many"), "--model.hq \"many\": is no integer");
  EXPECT_EQ(line("hq", 0), "--model.hq 0: is outside 1 .. 65536");
  EXPECT_EQ(line("d", -1), "--model.d -1: is outside 1 .. 65536");
  EXPECT_EQ(line("d", 1e99), "--model.d 1e+99: is no integer");
  EXPECT_EQ(line("hq", 30), "--model.hq 30: is no multiple of hkv 8; every KV head serves equally many query heads");
  EXPECT_EQ(line("hi", 4), "--model.hi 4: differs from hkv 8; give one index head per KV head");
  EXPECT_EQ(line("local_blocks", 9),
            "--model.topk 8: is less than the forced blocks, local 9 + initial 0; force fewer");
  EXPECT_EQ(line("sparse_layers", 0),
            "--model.sparse_layers 0: leaves the model without layers; give dense_layers or sparse_layers");
  EXPECT_EQ(line("type", "int4"),
            "--model.type \"int4\": is no known format; use bf16, fp16, fp32, fp64, e4m3, i32, tf32, fp8acc or none");
  EXPECT_EQ(line("type", "i32"),
            "--model.type \"i32\": is no storage format of attention; use bf16, fp16, fp32 or e4m3");
  EXPECT_NE(line("heads", 3).find("--model.heads 3: is no field of a model; use name, "), std::string::npos);
  EXPECT_NE(thrown_line([] { parse_model("--model", json::array()); }).find("is no JSON object"), std::string::npos);
}

TEST(models, Files) {
  const temporary_folder folder;
  const auto path = folder.path() / "model.json";
  write_file_atomically("x", path, R"({"name": "mine", "hq": 2, "hkv": 1, "d": 8, "dense_layers": 4})");
  EXPECT_EQ(find_model("--model", path.string()).name, "mine");
  write_file_atomically("x", path, "{");
  EXPECT_NE(thrown_line([&] { find_model("--model", path.string()); }).find("is not valid JSON"), std::string::npos);
  EXPECT_EQ(
      thrown_line([] { find_model("--model", "m4"); }),
      "--model m4: is neither a known model nor a file; use m3, m3-dense-layer, paper-pilot, previous, or a JSON file");
}

}  // namespace
}  // namespace msabench
