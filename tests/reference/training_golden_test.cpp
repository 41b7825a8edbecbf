// SPDX-License-Identifier: Apache-2.0
// Gradients and losses of an independent implementation (tests/golden/README.md), by its rule of agreement.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/safetensors.h"
#include "reference/attend_backward.h"
#include "reference/dense_backward.h"
#include "reference/kl.h"

namespace msabench::reference {
namespace {

class golden_case {
 public:
  explicit golden_case(const std::filesystem::path& path) : file_(safetensors_file::open(path)) {
    const auto spec = nlohmann::json::parse(file_.metadata().at("case"));
    const auto number = [&](const char* key) { return spec.at(key).get<std::int32_t>(); };
    p.hq = number("hq"), p.hkv = p.hi = number("hkv"), p.d = number("d"), p.di = number("didx");
    p.block = number("block"), p.topk = number("topk");
    p.local_blocks = number("local"), p.init_blocks = number("init");
    p.kl_coeff = 1;
    const std::int32_t q_len = number("q_len"), kv_len = number("kv_len");
    p.batch = 1, p.total_q = q_len, p.total_kv = p.max_kv_len = kv_len;
    cu_q_ = {0, q_len}, cu_kv_ = {0, kv_len}, kv_lens_ = {kv_len};
    cu_q = numbers(cu_q_), cu_kv = numbers(cu_kv_), kv_lens = numbers(kv_lens_);
  }

  tensor_view tensor(const char* name) const {
    const auto& info = file_.require(name);
    return {file_.bytes(info).data(), packed(info.dtype == "I32" ? i32 : fp64, info.shape)};
  }
  std::vector<double> values(const char* name) const { return file_.as_double(name); }

  attend_backward_inputs attend() const {
    return {p, tensor("q"), tensor("k"), tensor("v"), tensor("block_ids"), tensor("d_out"), cu_q, kv_lens, cu_kv};
  }
  kl_inputs kl() const {
    return {p, tensor("q"), tensor("k"), tensor("q_idx"), tensor("k_idx"), tensor("block_ids"), cu_q, kv_lens, cu_kv};
  }

  problem p;
  tensor_view cu_q, cu_kv, kv_lens;

 private:
  static tensor_view numbers(const std::vector<std::int32_t>& x) {
    return {x.data(), packed(i32, {static_cast<std::int64_t>(x.size())})};
  }
  safetensors_file file_;
  std::vector<std::int32_t> cu_q_, cu_kv_, kv_lens_;
};

void expect_golden(std::span<const double> got, std::span<const double> want, const char* name) {
  ASSERT_EQ(got.size(), want.size());
  double off2 = 0, norm2 = 0, off = 0, largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double x = got[i] - want[i];
    off2 += x * x, norm2 += want[i] * want[i];
    off = std::max(off, std::abs(x)), largest = std::max(largest, std::abs(want[i]));
  }
  EXPECT_GT(largest, 0) << name;
  EXPECT_LE(std::sqrt(off2), 1e-10 * std::sqrt(norm2)) << name;
  EXPECT_LE(off, 1e-9 * largest) << name;
}

class training_golden : public ::testing::TestWithParam<const char*> {
 protected:
  golden_case golden{std::filesystem::path(MSABENCH_SOURCE_DIR) / "tests" / "golden" / GetParam()};
};

TEST_P(training_golden, attend_backward) {
  const auto got = attend_backward(golden.attend(), {});
  expect_golden(got.dq.value, golden.values("dq"), "dq");
  expect_golden(got.dk.value, golden.values("dk"), "dk");
  expect_golden(got.dv.value, golden.values("dv"), "dv");
  expect_golden(got.lse, golden.values("lse"), "lse");
  // Exact zeros are at the same places.
  const auto dv = golden.values("dv");
  for (std::size_t i = 0; i < dv.size(); ++i)
    EXPECT_EQ(dv[i] == 0, got.dv.chain[i / static_cast<std::size_t>(golden.p.d)] == 0) << i;
}

TEST_P(training_golden, dense_backward_sees_what_dense_attention_sees) {
  auto in = golden.attend();
  const auto got = dense_backward({in.p, in.q, in.k, in.v, in.d_out, golden.cu_q, golden.kv_lens, golden.cu_kv}, {});
  expect_golden(got.lse, golden.values("dense_lse"), "dense_lse");
}

TEST_P(training_golden, kl_sparse) {
  const auto got = kl(golden.kl(), {});
  expect_golden(std::vector{got.loss}, golden.values("kl_sparse"), "kl_sparse");
  expect_golden(got.dq_idx.value, golden.values("kl_sparse_dq_idx"), "dq_idx");
  expect_golden(got.dk_idx.value, golden.values("kl_sparse_dk_idx"), "dk_idx");
}

TEST_P(training_golden, kl_warm_up) {
  golden.p.kl_warm_up = 1;
  const auto got = kl(golden.kl(), {});
  expect_golden(std::vector{got.loss}, golden.values("kl_warmup"), "kl_warmup");
  expect_golden(got.dq_idx.value, golden.values("kl_warmup_dq_idx"), "dq_idx");
  expect_golden(got.dk_idx.value, golden.values("kl_warmup_dk_idx"), "dk_idx");
}

INSTANTIATE_TEST_SUITE_P(, training_golden,
                         ::testing::Values("attn_chunk.safetensors", "attn_prefill.safetensors",
                                           "attn_unselected.safetensors"),
                         [](const auto& instance) {
                           const std::string file = instance.param;
                           return file.substr(0, file.find('.'));
                         });

}  // namespace
}  // namespace msabench::reference
