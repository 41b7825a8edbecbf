// SPDX-License-Identifier: Apache-2.0
#include "conformance/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "core/safetensors.h"

namespace msabench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::string golden(const std::string& name) { return std::string(MSABENCH_SOURCE_DIR) + "/tests/golden/" + name; }

// A golden file in memory, to be changed and written elsewhere.
struct editable {
  struct tensor {
    std::string type;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
  };
  json parameters;
  std::map<std::string, tensor> tensors;

  explicit editable(const std::string& name) {
    const auto file = safetensors_file::open(golden(name));
    parameters = json::parse(file.metadata().at("case"));
    for (const auto& info : file.tensors()) {
      const auto bytes = file.bytes(info);
      tensors[info.name] = {info.dtype, info.shape, {bytes.begin(), bytes.end()}};
    }
  }

  double get(const std::string& name, std::size_t i) const {
    double x;
    std::memcpy(&x, tensors.at(name).bytes.data() + i * sizeof(x), sizeof(x));
    return x;
  }
  void set(const std::string& name, std::size_t i, double x) {
    std::memcpy(tensors.at(name).bytes.data() + i * sizeof(x), &x, sizeof(x));
  }
  void set_int(const std::string& name, std::size_t i, std::int32_t x) {
    std::memcpy(tensors.at(name).bytes.data() + i * sizeof(x), &x, sizeof(x));
  }
};

class golden_files : public ::testing::Test {
 protected:
  golden_files() {
    std::string pattern = (fs::temp_directory_path() / "msabench_golden.XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = pattern;
  }
  ~golden_files() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  std::string path() const { return folder_ / "x.safetensors"; }
  std::string write(const editable& file) const {
    std::vector<safetensors_entry> entries;
    for (const auto& [name, t] : file.tensors) entries.push_back({name, t.type, t.shape, t.bytes});
    write_safetensors("FILE", path(), {{"case", file.parameters.dump()}}, entries);
    return path();
  }
  golden_result check(const editable& file) const { return check_golden(write(file)); }
  // The one line of the refusal.
  std::string refusal_of_path(const std::string& file) const {
    try {
      check_golden(file);
    } catch (const usage_error& e) {
      const std::string line = e.what();
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      EXPECT_EQ(line.rfind("FILE ", 0), 0u) << line;
      return line;
    }
    return "accepted";
  }
  std::string refusal(const std::string& name, const std::function<void(editable&)>& change) const {
    editable file(name);
    change(file);
    return refusal_of_path(write(file));
  }

 private:
  fs::path folder_;
};

const golden_tensor_result& result_of(const golden_result& r, const std::string& tensor) {
  const auto found = std::ranges::find(r.tensors, tensor, &golden_tensor_result::tensor);
  if (found == r.tensors.end()) throw std::runtime_error("no result for " + tensor);
  return *found;
}

void expect_contains(const std::string& line, const std::string& part) {
  EXPECT_NE(line.find(part), std::string::npos) << "`" << part << "` is not in: " << line;
}

constexpr const char* attention_results[] = {"block_scores",
                                             "block_ids",
                                             "out",
                                             "lse",
                                             "dq",
                                             "dk",
                                             "dv",
                                             "dense_out",
                                             "dense_lse",
                                             "kl_sparse",
                                             "kl_sparse_dq_idx",
                                             "kl_sparse_dk_idx",
                                             "kl_warmup",
                                             "kl_warmup_dq_idx",
                                             "kl_warmup_dk_idx"};
constexpr const char* text_layer_results[] = {"block_ids", "output"};
constexpr const char* vit_results[] = {"cu_seqlens", "positions", "q_rope", "k_rope", "out", "lse"};

struct known_file {
  const char *name, *kind;
  std::span<const char* const> results;
};
constexpr known_file known_files[] = {{"attn_chunk.safetensors", "attention", attention_results},
                                      {"attn_prefill.safetensors", "attention", attention_results},
                                      {"attn_unselected.safetensors", "attention", attention_results},
                                      {"text_m3_heads.safetensors", "text_layer", text_layer_results},
                                      {"text_small.safetensors", "text_layer", text_layer_results},
                                      {"vit_video.safetensors", "vit3d", vit_results}};

TEST_F(golden_files, every_file_passes_with_nothing_left_uncompared) {
  for (const auto& known : known_files) {
    const auto r = check_golden(golden(known.name));
    EXPECT_EQ(r.kind, known.kind);
    EXPECT_TRUE(r.passed()) << known.name;
    EXPECT_FALSE(r.parameters.contains("kind"));
    ASSERT_EQ(r.tensors.size(), known.results.size());
    for (std::size_t i = 0; i < r.tensors.size(); ++i) {
      EXPECT_EQ(r.tensors[i].tensor, known.results[i]);
      EXPECT_TRUE(r.tensors[i].compared && r.tensors[i].passed) << known.name << " " << known.results[i];
      EXPECT_LT(r.tensors[i].max_rel, 1e-12) << known.name << " " << known.results[i];
    }
  }
}

// Through the whole check, one tensor after the other; golden_rule below covers the places within a tensor.
TEST_F(golden_files, a_millionth_of_the_largest_fails_by_name) {
  for (const auto& known : known_files) {
    if (std::string(known.name) == "text_m3_heads.safetensors" || std::string(known.name) == "attn_prefill.safetensors")
      continue;  // seconds each, and nothing new
    for (const std::string tensor : known.results) {
      editable file(known.name);
      if (file.tensors.at(tensor).type == "I32") {
        file.set_int(tensor, 0, 77);
      } else {
        double largest = 0;
        const std::size_t elements = file.tensors.at(tensor).bytes.size() / sizeof(double);
        for (std::size_t i = 0; i < elements; ++i)
          if (std::isfinite(file.get(tensor, i))) largest = std::max(largest, std::abs(file.get(tensor, i)));
        std::size_t at = elements / 3;
        while (!std::isfinite(file.get(tensor, at))) ++at;
        file.set(tensor, at, file.get(tensor, at) + 1e-6 * largest);
      }
      EXPECT_FALSE(result_of(check(file), tensor).passed) << known.name << " " << tensor;
    }
  }
}

TEST_F(golden_files, an_unchanged_copy_passes) { EXPECT_TRUE(check(editable("attn_chunk.safetensors")).passed()); }

TEST_F(golden_files, a_changed_output_fails_and_is_named) {
  editable file("attn_chunk.safetensors");
  const std::size_t at = (17 * 6 + 5) * 16 + 3;
  const double want = file.get("out", at);
  file.set("out", at, want * (1 + 1e-6) + std::copysign(1e-9, want));
  const auto r = check(file);
  EXPECT_FALSE(r.passed());
  const auto& out = result_of(r, "out");
  EXPECT_FALSE(out.passed);
  EXPECT_EQ(out.worst_index, (std::vector<std::int64_t>{17, 5, 3}));
  EXPECT_NEAR(out.got, want, 1e-14);
  EXPECT_EQ(out.want, file.get("out", at));
  EXPECT_TRUE(result_of(r, "lse").passed);
}

TEST_F(golden_files, nan_in_an_input_fails) {
  const std::pair<const char*, const char*> read_by[] = {
      {"q", "out"}, {"k", "dense_out"}, {"q_idx", "block_scores"}, {"k_idx", "kl_warmup"}, {"d_out", "dq"}};
  for (const auto& [input, result] : read_by) {
    editable file("attn_unselected.safetensors");
    // A whole row, since a NaN score is ignored and a NaN of one key may be seen by no row.
    for (std::size_t i = 0; i < file.tensors.at(input).bytes.size() / sizeof(double); ++i) file.set(input, i, nan);
    EXPECT_FALSE(result_of(check(file), result).passed) << input;
  }
  editable file("attn_prefill.safetensors");
  file.set("v", 40, nan);
  EXPECT_FALSE(result_of(check(file), "out").passed);
}

TEST_F(golden_files, any_other_id_fails_and_is_named) {
  editable file("attn_prefill.safetensors");
  file.set_int("block_ids", (99 * 2 + 1) * 4 + 3, 5);  // row 99 of head 1: own block 6 must be last
  const auto r = check(file);
  const auto& ids = result_of(r, "block_ids");
  EXPECT_FALSE(ids.passed);
  EXPECT_EQ(ids.worst_index, (std::vector<std::int64_t>{99, 1, 3}));
  EXPECT_EQ(ids.got, 6);
  EXPECT_EQ(ids.want, 5);
  EXPECT_FALSE(result_of(r, "out").passed);
}

TEST_F(golden_files, nonsense_ids_fail_without_harm) {
  editable file("attn_chunk.safetensors");
  const std::array<std::int32_t, 5> nonsense{-7, 13, std::numeric_limits<std::int32_t>::max(), 3, 3};
  for (std::size_t i = 0; i < 37 * 3 * 5; ++i) file.set_int("block_ids", i, nonsense[i % 5]);
  EXPECT_FALSE(result_of(check(file), "block_ids").passed);
}

TEST_F(golden_files, files_without_rows_leave_only_the_losses) {
  editable file("attn_chunk.safetensors");
  file.parameters["q_len"] = 0;
  for (auto& [name, t] : file.tensors)
    for (auto& extent : t.shape)
      if (extent == 37) extent = 0, t.bytes.clear();
  for (const std::string tensor : attention_results)
    for (std::size_t i = 0; i < file.tensors.at(tensor).bytes.size() / sizeof(double); ++i) file.set(tensor, i, 0);
  const auto r = check(file);
  EXPECT_TRUE(r.passed());
  for (const auto& t : r.tensors) {
    const bool has_elements = t.tensor == "kl_sparse" || t.tensor == "kl_warmup" || t.tensor.ends_with("k_idx") ||
                              t.tensor == "dk" || t.tensor == "dv";
    EXPECT_EQ(t.compared, has_elements) << t.tensor;
    EXPECT_EQ(t.note, has_elements ? "" : "holds no element") << t.tensor;
  }
}

TEST_F(golden_files, files_without_tokens_verify_nothing) {
  editable file("text_small.safetensors");
  file.parameters["seq"] = 0;
  for (const char* tensor : {"hidden", "block_ids", "output"}) {
    file.tensors.at(tensor).shape[0] = 0;
    file.tensors.at(tensor).bytes.clear();
  }
  const auto r = check(file);
  EXPECT_TRUE(r.not_verified());
  EXPECT_FALSE(r.passed());
}

TEST_F(golden_files, padding_rows_are_empty) {
  editable file("attn_unselected.safetensors");
  // Of five tokens only the last three have a position: 0, 1, 2.
  file.parameters["kv_len"] = 3;
  for (auto& [name, t] : file.tensors) {
    for (auto& extent : t.shape) extent = extent == 260 ? 3 : extent == 17 ? 1 : extent;
    std::size_t elements = t.type == "I32" ? 4 : 8;
    for (const auto extent : t.shape) elements *= static_cast<std::size_t>(extent);
    t.bytes.resize(elements);
  }
  for (std::size_t row = 0; row < 5; ++row)
    for (std::size_t i = 0; i < 6; ++i) file.set_int("block_ids", row * 6 + i, row >= 2 && i % 3 == 0 ? 0 : -1);
  for (std::size_t i = 0; i < 2 * 4 * 16; ++i) file.set("out", i, 0);
  for (std::size_t i = 0; i < 2 * 4; ++i) file.set("lse", i, -inf);
  for (std::size_t h = 0; h < 4; ++h)  // position 0 sees one key
    for (std::size_t c = 0; c < 16; ++c) file.set("out", (2 * 4 + h) * 16 + c, file.get("v", h / 2 * 16 + c));
  auto r = check(file);
  EXPECT_TRUE(result_of(r, "block_ids").passed);
  EXPECT_EQ(result_of(r, "out").worst_index[0] >= 3, true);
  EXPECT_EQ(result_of(r, "lse").worst_index[0] >= 2, true);
  file.set("lse", 3, inf);
  r = check(file);
  EXPECT_EQ(result_of(r, "lse").worst_index, (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(result_of(r, "lse").got, -inf);
}

TEST(golden_rule, any_element_off_by_the_stated_amount_fails) {
  const auto file = safetensors_file::open(golden("attn_prefill.safetensors"));
  for (const char* tensor : attention_results) {
    if (std::string(tensor) == "block_ids") continue;
    const auto& shape = file.require(tensor).shape;
    const auto want = file.as_double(tensor);
    auto got = want;
    ASSERT_TRUE(compare_golden(tensor, shape, got, want).passed);
    double largest = 0;
    for (const double x : want)
      if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < got.size(); i += got.size() / 100 + 1) {
      const double x = want[i];
      if (!std::isfinite(x)) {
        got[i] = 0;
        EXPECT_FALSE(compare_golden(tensor, shape, got, want).passed) << tensor << " " << i;
        got[i] = x;
        continue;
      }
      for (const double sign : {1.0, -1.0})
        for (const double step : {1e-6 * std::abs(x) + 1e-9, 1e-6 * largest}) {
          got[i] = x + sign * step;
          EXPECT_FALSE(compare_golden(tensor, shape, got, want).passed) << tensor << " " << i;
        }
      for (const double bad : {nan, inf, -inf}) {
        got[i] = bad;
        EXPECT_FALSE(compare_golden(tensor, shape, got, want).passed) << tensor << " " << i;
        EXPECT_FALSE(compare_golden(tensor, shape, want, got).passed) << tensor << " " << i;
      }
      got[i] = x * (1 + 1e-13);
      EXPECT_TRUE(compare_golden(tensor, shape, got, want).passed) << tensor << " " << i;
      got[i] = x;
    }
  }
}

golden_tensor_result compare(std::vector<double> got, std::vector<double> want) {
  return compare_golden("t", {std::ssize(want)}, got, want);
}

TEST(golden_rule, infinities_agree_in_place_and_sign) {
  EXPECT_TRUE(compare({-inf, 1, inf}, {-inf, 1, inf}).passed);
  EXPECT_TRUE(compare({-inf, -inf}, {-inf, -inf}).passed);
  EXPECT_FALSE(compare({-inf, 1}, {inf, 1}).passed);
  EXPECT_FALSE(compare({1, -inf}, {-inf, 1}).passed);
  EXPECT_FALSE(compare({nan, 1}, {nan, 1}).passed);
  EXPECT_EQ(compare({-inf, 1, 2, nan, inf}, {-inf, 1, 9, 4, 5}).worst_index, (std::vector<std::int64_t>{3}));
}

TEST(golden_rule, all_zero_asks_for_zero) {
  EXPECT_TRUE(compare({0, -0.0, 1e-13}, {0, 0, 0}).passed);
  EXPECT_FALSE(compare({0, 0, 2e-12}, {0, 0, 0}).passed);
  EXPECT_TRUE(compare({-inf, 0}, {-inf, 0}).passed);
}

TEST(golden_rule, huge_and_tiny_values_do_not_hide_in_the_norm) {
  EXPECT_FALSE(compare({1e200, 1e200}, {1e200, 1.1e200}).passed);
  EXPECT_TRUE(compare({1e200, 1e200}, {1e200, 1e200}).passed);
  EXPECT_FALSE(compare({1e-200, 1e-200}, {1e-200, 1.1e-200}).passed);
  EXPECT_FALSE(compare({std::numeric_limits<double>::max()}, {-std::numeric_limits<double>::max()}).passed);
}

TEST(golden_rule, both_norm_and_maximum_are_held) {
  // 4000 elements off by 2e-10 of the largest: within the maximum, beyond the norm.
  std::vector<double> want(4000, 1.0), got(4000, 1.0 + 2e-10);
  EXPECT_LE(compare(got, want).max_rel, 1e-9);
  EXPECT_FALSE(compare(got, want).passed);
  // One of a million off by 5e-9: within the norm, beyond the maximum.
  want.assign(1000000, 1.0), got = want;
  got[123456] = 1 + 5e-9;
  EXPECT_LE(compare(got, want).rel_norm, 1e-10);
  EXPECT_FALSE(compare(got, want).passed);
  EXPECT_EQ(compare(got, want).worst_index, (std::vector<std::int64_t>{123456}));
}

TEST(golden_rule, integers_agree_exactly) {
  const std::vector<std::int32_t> want{1, 2, -1, 4}, other{1, 3, -1, 5};
  EXPECT_TRUE(compare_golden("ids", {2, 2}, want, want).passed);
  const auto r = compare_golden("ids", {2, 2}, other, want);
  EXPECT_FALSE(r.passed);
  EXPECT_EQ(r.worst_index, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(r.got, 3);
  EXPECT_EQ(r.want, 2);
  EXPECT_EQ(r.note, "2 of 4 integers differ");
}

TEST(golden_rule, nothing_to_compare_is_not_passed) {
  EXPECT_FALSE(compare({}, {}).compared);
  EXPECT_FALSE(compare({}, {}).passed);
}

TEST_F(golden_files, foreign_files_give_one_line) {
  expect_contains(refusal_of_path(path() + ".missing"), "x.safetensors.missing");
  expect_contains(refusal_of_path(golden("README.md")), "README.md");
  write_safetensors("FILE", path(), {{"format", "pt"}}, {});
  expect_contains(refusal_of_path(path()), "no golden file");
  for (const auto& [text, part] : std::map<std::string, std::string>{{"{", ""},
                                                                     {"[1]", "not a JSON object"},
                                                                     {"{}", "no text `kind`"},
                                                                     {R"({"kind": 3})", "no text `kind`"},
                                                                     {R"({"kind": "mamba\n"})", "kind mamba"}}) {
    write_safetensors("FILE", path(), {{"case", text}}, {});
    const auto line = refusal_of_path(path());
    EXPECT_NE(line, "accepted") << text;
    expect_contains(line, part);
  }
}

TEST_F(golden_files, damaged_files_give_one_line) {
  const std::string whole = read_file("FILE", golden("attn_unselected.safetensors"), 1 << 24);
  const auto with = [&](const std::string& bytes) {
    write_file_atomically("FILE", path(), bytes);
    return refusal_of_path(path());
  };
  EXPECT_NE(with(""), "accepted");
  EXPECT_NE(with(whole.substr(0, 7)), "accepted");
  EXPECT_NE(with(whole.substr(0, 200)), "accepted");
  EXPECT_NE(with(whole.substr(0, whole.size() - 1)), "accepted");
  EXPECT_NE(with(whole + "x"), "accepted");
  std::string lying = whole;
  lying[6] = '\x7f';  // a header of 2^54 bytes
  EXPECT_NE(with(lying), "accepted");
}

TEST_F(golden_files, missing_and_impossible_parameters_are_named) {
  const std::string name = "attn_unselected.safetensors";
  for (const char* key : {"q_len", "kv_len", "hq", "hkv", "d", "didx", "block", "topk", "local", "init", "scale_q"}) {
    const std::string missing = refusal(name, [&](editable& f) { f.parameters.erase(key); });
    expect_contains(missing, std::string("parameter ") + key + " is missing");
    for (const json& bad : {json(-1), json("16"), json(nullptr), json::array({1}), json(false)}) {
      const std::string line = refusal(name, [&](editable& f) { f.parameters[key] = bad; });
      expect_contains(line, std::string("parameter ") + key + " is ");
    }
    if (std::string(key) == "scale_q") continue;
    for (const json& bad : {json(1.5), json(1e30), json(std::uint64_t{1} << 63), json(std::int64_t{1} << 40)})
      expect_contains(refusal(name, [&](editable& f) { f.parameters[key] = bad; }),
                      std::string("parameter ") + key + " is ");
  }
  for (const char* key : {"hq", "hkv", "d", "didx", "block", "topk"})
    expect_contains(refusal(name, [&](editable& f) { f.parameters[key] = 0; }), std::string("parameter ") + key);
  expect_contains(refusal(name, [](editable& f) { f.parameters["hkv"] = 3; }), "not a multiple of hkv");
  expect_contains(refusal(name, [](editable& f) { f.parameters["local"] = 3; }), "topk");
}

TEST_F(golden_files, parameters_and_tensors_must_agree) {
  const std::string name = "attn_unselected.safetensors";
  expect_contains(refusal(name, [](editable& f) { f.parameters["kv_len"] = 1048576; }), "[260,2,16]");
  expect_contains(refusal(name, [](editable& f) { f.parameters["block"] = 1; }), "tensor block_scores is [2,5,17]");
  expect_contains(refusal(name, [](editable& f) { f.parameters["topk"] = 4; }), "tensor block_ids");
  for (const char* tensor : {"q", "v", "out", "lse", "block_ids", "block_scores", "dk", "kl_warmup"})
    expect_contains(refusal(name, [&](editable& f) { f.tensors.erase(tensor); }),
                    std::string("tensor ") + tensor + " is missing");
  expect_contains(refusal(name, [](editable& f) { f.tensors["lse"].type = "I64"; }), "type I64, not F64");
  expect_contains(refusal(name, [](editable& f) { f.tensors["block_ids"].type = "F32"; }), "type F32, not I32");
  expect_contains(refusal(name, [](editable& f) { f.tensors["out"].shape = {5, 64}; }), "tensor out is [5,64]");
}

TEST_F(golden_files, other_kinds_are_held_to_their_parameters_too) {
  expect_contains(refusal("vit_video.safetensors", [](editable& f) { f.parameters["grids"] = 3; }), "grids");
  expect_contains(refusal("vit_video.safetensors", [](editable& f) { f.parameters["grids"][0] = {1, 2}; }), "grids");
  expect_contains(refusal("vit_video.safetensors", [](editable& f) { f.parameters["grids"][0][0] = -1; }), "grids");
  expect_contains(
      refusal("vit_video.safetensors", [](editable& f) { f.parameters["grids"][0] = {65536, 65536, 65536}; }),
      "too many patches");
  expect_contains(refusal("vit_video.safetensors", [](editable& f) { f.parameters["window"] = 3; }),
                  "tensor cu_seqlens");
  expect_contains(refusal("text_small.safetensors", [](editable& f) { f.parameters["hq"] = 4; }), "tensor wq");
  expect_contains(refusal("text_small.safetensors", [](editable& f) { f.parameters["hidx"] = 1; }), "parameter hidx");
  expect_contains(refusal("text_small.safetensors", [](editable& f) { f.parameters["rot"] = 34; }), "parameter rot");
  expect_contains(refusal("text_small.safetensors", [](editable& f) { f.parameters["rot"] = 7; }), "parameter rot");
  expect_contains(refusal("vit_video.safetensors", [](editable& f) { f.parameters["merge"] = 4; }), "merge 4");
  expect_contains(refusal("text_small.safetensors", [](editable& f) { f.parameters.erase("theta"); }),
                  "parameter theta is missing");
  expect_contains(refusal("text_small.safetensors", [](editable& f) { f.tensors.erase("output"); }),
                  "output is missing");
}

}  // namespace
}  // namespace msabench
