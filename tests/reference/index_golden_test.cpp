// SPDX-License-Identifier: Apache-2.0
// Scores and ids of independent implementations (tests/golden/README.md), by their rule of agreement.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "core/safetensors.h"
#include "reference/index.h"
#include "reference/qk_norm_rope.h"

namespace msabench::reference {
namespace {

// One sequence; tensors are float64, ids int32.
class golden_index : public ::testing::TestWithParam<const char*> {
 protected:
  golden_index()
      : file(safetensors_file::open(std::filesystem::path(MSABENCH_SOURCE_DIR) / "tests" / "golden" / GetParam())),
        spec(nlohmann::json::parse(file.metadata().at("case"))) {}

  std::int32_t number(const char* key) const { return spec.at(key).get<std::int32_t>(); }
  tensor_view tensor(const char* name) const {
    const auto& info = file.require(name);
    return {file.bytes(info).data(), packed(info.dtype == "I32" ? i32 : fp64, info.shape)};
  }
  void set_lengths(problem& p, std::int32_t q_len, std::int32_t kv_len) {
    cu_q = {0, q_len}, cu_kv = {0, kv_len}, kv_lens = {kv_len};
    p.batch = 1, p.total_q = q_len, p.max_kv_len = p.total_kv = kv_len;
    rows.resize(static_cast<std::size_t>(q_len));
    std::iota(rows.begin(), rows.end(), 0);
  }
  static tensor_view view(const std::vector<std::int32_t>& x) { return {x.data(), packed(i32, {std::ssize(x)})}; }
  static tensor_view view(const std::vector<double>& x, std::vector<std::int64_t> shape) {
    return {x.data(), packed(fp64, std::move(shape))};
  }

  void expect_ids(const std::vector<index_row>& got) const {
    const tensor_view want = tensor("block_ids");
    ASSERT_EQ(std::ssize(got), want.desc.shape[0] * want.desc.shape[1]);
    for (const auto& row : got)
      for (std::int64_t slot = 0; slot < want.desc.shape[2]; ++slot)
        EXPECT_EQ(row.ids.at(static_cast<std::size_t>(slot)), want.int_at(row.row, row.head, slot))
            << "row " << row.row << ", head " << row.head << ", slot " << slot;
  }

  safetensors_file file;
  nlohmann::json spec;
  std::vector<std::int32_t> cu_q, cu_kv, kv_lens;
  std::vector<std::int64_t> rows;
};

std::string name_of(const ::testing::TestParamInfo<const char*>& instance) {
  const std::string file = instance.param;
  return file.substr(0, file.find('.'));
}

class attention_golden : public golden_index {};

TEST_P(attention_golden, scores_and_ids) {
  index_inputs in;
  in.p.hi = number("hkv"), in.p.di = number("didx"), in.p.block = number("block"), in.p.topk = number("topk");
  in.p.local_blocks = number("local"), in.p.init_blocks = number("init");
  set_lengths(in.p, number("q_len"), number("kv_len"));
  in.q_idx = tensor("q_idx"), in.k_idx = tensor("k_idx");
  in.cu_seqlens_q = view(cu_q), in.cu_seqlens_kv = view(cu_kv), in.kv_lens = view(kv_lens);
  const auto got = index(in, rows, {}, {});
  expect_ids(got);

  const tensor_view want = tensor("block_scores");
  double off2 = 0, norm2 = 0, off = 0, largest = 0;
  for (const auto& row : got)
    for (std::int64_t b = 0; b < want.desc.shape[2]; ++b) {
      const double score = want.at(row.head, row.row, b);
      const bool visible = b < std::ssize(row.scores.value);
      EXPECT_EQ(std::isfinite(score), visible);
      if (!visible) continue;
      const double x = row.scores.value[static_cast<std::size_t>(b)] - score;
      off2 += x * x, norm2 += score * score;
      off = std::max(off, std::abs(x)), largest = std::max(largest, std::abs(score));
    }
  EXPECT_GT(largest, 0);
  EXPECT_LE(std::sqrt(off2), 1e-10 * std::sqrt(norm2));
  EXPECT_LE(off, 1e-9 * largest);
}

INSTANTIATE_TEST_SUITE_P(, attention_golden,
                         ::testing::Values("attn_chunk.safetensors", "attn_prefill.safetensors",
                                           "attn_unselected.safetensors"),
                         name_of);

// From the hidden state of a whole layer: projections, then the prologue and the index branch.
class layer_golden : public golden_index {
 protected:
  // y = x W^T
  std::vector<double> project(const char* weight) const {
    const tensor_view x = tensor("hidden"), w = tensor(weight);
    std::vector<double> y;
    for (std::int64_t row = 0; row < x.desc.shape[0]; ++row)
      for (std::int64_t c = 0; c < w.desc.shape[0]; ++c) {
        double sum = 0;
        for (std::int64_t i = 0; i < x.desc.shape[1]; ++i) sum += x.at(row, i) * w.at(c, i);
        y.push_back(sum);
      }
    return y;
  }
};

TEST_P(layer_golden, ids_by_way_of_the_prologue) {
  const std::int32_t seq = number("seq"), di = number("didx"), rot = number("rot"), heads = number("hidx");
  qk_norm_rope_inputs in;
  in.p.hq = in.p.hkv = 1, in.p.d = rot, in.p.hi = heads, in.p.di = di, in.p.rope_dims = rot;
  in.p.norm_eps = spec.at("eps").get<double>();
  set_lengths(in.p, seq, seq);
  const auto q_idx = project("wiq"), k_idx = project("wik");
  const std::vector<double> nothing(static_cast<std::size_t>(seq * rot), 1.0);  // the main branch has no say here
  std::vector<double> cos_sin(static_cast<std::size_t>(seq * rot));
  for (std::int64_t pos = 0; pos < seq; ++pos)
    for (std::int64_t i = 0; i < rot / 2; ++i) {
      const double angle =
          static_cast<double>(pos) * std::pow(spec.at("theta").get<double>(), -2.0 * static_cast<double>(i) / rot);
      cos_sin[static_cast<std::size_t>(pos * rot + i)] = std::cos(angle);
      cos_sin[static_cast<std::size_t>(pos * rot + rot / 2 + i)] = std::sin(angle);
    }
  in.q = in.k = view(nothing, {seq, 1, rot});
  in.q_norm = in.k_norm = view(nothing, {rot});
  in.q_idx = view(q_idx, {seq, heads, di}), in.k_idx = view(k_idx, {seq, di});
  in.q_idx_norm = tensor("iq_norm"), in.k_idx_norm = tensor("ik_norm");
  in.cos_sin = view(cos_sin, {seq, rot});
  in.cu_seqlens_q = view(cu_q), in.kv_lens = view(kv_lens);

  std::vector<double> q_rope, k_rope;
  for (const auto& row : qk_norm_rope(in, rows)) {
    if (row.output == slot::q_idx_rope) q_rope.insert(q_rope.end(), row.y.begin(), row.y.end());
    if (row.output == slot::k_idx_rope) k_rope.insert(k_rope.end(), row.y.begin(), row.y.end());
  }
  index_inputs branch;
  branch.p = in.p;
  branch.p.block = number("block"), branch.p.topk = number("topk"), branch.p.local_blocks = number("local");
  branch.q_idx = view(q_rope, {seq, heads, di}), branch.k_idx = view(k_rope, {seq, di});
  branch.cu_seqlens_q = in.cu_seqlens_q, branch.kv_lens = in.kv_lens, branch.cu_seqlens_kv = view(cu_kv);
  expect_ids(index(branch, rows, {}, {}));
}

INSTANTIATE_TEST_SUITE_P(, layer_golden, ::testing::Values("text_small.safetensors", "text_m3_heads.safetensors"),
                         name_of);

}  // namespace
}  // namespace msabench::reference
