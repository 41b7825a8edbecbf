// SPDX-License-Identifier: Apache-2.0
// What cublas_twin says before it has a device: what it takes, what it declares, and where there is no cuBLAS. A stub
// stands in for the library.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "tests/kernels/changed_environment.h"
#include "tests/kernels/hidden_libraries.h"
#include "tests/kernels/plugin_session.h"
#include "tests/kernels/small_attend.h"
#include "tests/kernels/small_index.h"

namespace {

namespace fs = std::filesystem;
using namespace msabench::plugin_test;

constexpr msabench_device cuda{2, 0};

msabench_problem attend_problem() {
  attend_shape shape;
  shape.type = bf16_type;
  return small_attend(shape).problem;
}

/// The M3 shape.
msabench_problem long_problem(msabench_op op, std::int64_t queries, std::int64_t tokens, std::int64_t batch) {
  msabench_problem p = attend_problem();
  p.op = op;
  p.hq = 64, p.hkv = p.hi = 4, p.d = p.di = 128, p.block = 128, p.topk = 16, p.local_blocks = 1;
  p.q_idx = p.k_idx = bf16_type;
  p.batch = batch, p.total_q = batch * queries, p.max_q_len = queries;
  p.max_kv_len = tokens, p.total_kv = batch * tokens;
  return p;
}

/// A copy of the plugin, which looks for cuBLAS anew: each looks once.
class cublas_twin : public testing::Test {
 protected:
  cublas_twin()
      : copy_(fs::path(testing::TempDir()) / ("msabench-twin-" + std::to_string(::getpid()) + "-" +
                                              testing::UnitTest::GetInstance()->current_test_info()->name() + ".so")) {
    fs::copy_file(plugin_path("cublas_twin"), copy_, fs::copy_options::overwrite_existing);
    plugin_ = load_plugin(copy_.string(), 1, cuda);
  }
  ~cublas_twin() override { fs::remove(copy_); }

  const msabench_plugin* plugin() const { return plugin_; }
  std::string copy() const { return copy_.string(); }
  static std::string stub(const std::string& name) { return std::string(MSABENCH_STUBS) + "/" + name; }

  static int& stub_number(const char* name) {
    void* const library = ::dlopen((stub("whole") + "/libcublas.so.13").c_str(), RTLD_NOW | RTLD_LOCAL);
    return *static_cast<int*>(::dlsym(library, name));
  }

  msabench_capability capability(const msabench_problem& problem) const {
    msabench_capability answer{};
    answer.struct_size = sizeof answer;
    EXPECT_EQ(plugin()->query(&problem, &answer), MSABENCH_OK) << plugin()->last_error();
    return answer;
  }

  /// The text, which is that of query and of plan.
  std::string refusal(const msabench_problem& problem, msabench_status status) const {
    msabench_capability answer{};
    answer.struct_size = sizeof answer;
    EXPECT_EQ(plugin()->query(&problem, &answer), status);
    const std::string text = plugin()->last_error();
    msabench_plan* plan = nullptr;
    EXPECT_EQ(plugin()->plan(&problem, &plan), status) << "query and plan disagree";
    EXPECT_EQ(text, plugin()->last_error());
    EXPECT_EQ(plan, nullptr);
    return text;
  }

 private:
  fs::path copy_;
  const msabench_plugin* plugin_ = nullptr;
};

}  // namespace

TEST_F(cublas_twin, is_for_cuda_alone) {
  ASSERT_NE(plugin(), nullptr);
  EXPECT_STREQ(plugin()->name, "cublas_twin");
  EXPECT_EQ(load_plugin(copy(), 1, {1, 0}), nullptr);
}

TEST_F(cublas_twin, says_where_it_looked_for_cublas) {
  const changed_environment named("MSABENCH_CUDA_LIBS", "/nowhere/at/all");
  const hidden_libraries machine_without("libcublas");
  const std::string text = refusal(attend_problem(), MSABENCH_UNSUPPORTED);
  EXPECT_EQ(text.rfind("libcublas: not found in /nowhere/at/all, the loader's path, ", 0), 0u) << text;
  EXPECT_TRUE(text.ends_with("; name its folder in MSABENCH_CUDA_LIBS")) << text;
}

TEST_F(cublas_twin, refuses_a_cublas_without_its_functions) {
  const changed_environment named("MSABENCH_CUDA_LIBS", stub("incomplete"));
  const std::string text = refusal(attend_problem(), MSABENCH_UNSUPPORTED);
  EXPECT_EQ(text.rfind("libcublas " + stub("incomplete") + "/libcublas.so.13: has no cublasGemmStridedBatchedEx; ", 0),
            0u)
      << text;
}

TEST_F(cublas_twin, refuses_problems_before_it_looks_for_cublas) {
  const hidden_libraries machine_without("libcublas");
  const struct {
    const char* field;
    msabench_status status;
    std::function<void(msabench_problem&)> plant;
  } faults[] = {
      {"q {2,32,1}", MSABENCH_UNSUPPORTED, [](auto& p) { p.q = p.kv = p.out = fp32_type; }},
      {"kv {2,16,1}", MSABENCH_UNSUPPORTED, [](auto& p) { p.kv = fp16_type; }},
      {"kv {10,8,1}", MSABENCH_UNSUPPORTED, [](auto& p) { p.kv = {10, 8, 1}; }},
      {"op 6", MSABENCH_UNSUPPORTED, [](auto& p) { p.op = MSABENCH_OP_MSA; }},
      {"splits 4", MSABENCH_UNSUPPORTED, [](auto& p) { p.splits = 4; }},
      {"topk 0", MSABENCH_INVALID_PROBLEM, [](auto& p) { p.topk = 0; }},
  };
  for (const auto& fault : faults) {
    SCOPED_TRACE(fault.field);
    msabench_problem problem = attend_problem();
    fault.plant(problem);
    const std::string text = refusal(problem, fault.status);
    EXPECT_EQ(text.rfind(fault.field, 0), 0u) << text;
  }
}

TEST_F(cublas_twin, refuses_matrices_that_cublas_does_not_count_to) {
  const changed_environment named("MSABENCH_CUDA_LIBS", stub("whole"));
  msabench_problem problem = attend_problem();
  problem.max_kv_len = std::int64_t{1} << 40;
  problem.topk = 1 << 20;
  problem.block = 1 << 15;
  const std::string text = refusal(problem, MSABENCH_UNSUPPORTED);
  EXPECT_EQ(text.rfind("max_kv_len", 0), 0u) << text;
}

TEST_F(cublas_twin, declares_what_it_computes_with) {
  const changed_environment named("MSABENCH_CUDA_LIBS", stub("whole"));
  const msabench_capability answer = capability(attend_problem());
  const auto is = [](msabench_dtype a, msabench_dtype b) { return a.code == b.code && a.bits == b.bits; };
  EXPECT_TRUE(is(answer.numerics.operand, bf16_type));
  EXPECT_TRUE(is(answer.numerics.p_operand, bf16_type));
  EXPECT_TRUE(is(answer.numerics.score_acc, fp32_type));
  EXPECT_TRUE(is(answer.numerics.score_store, fp32_type));
  EXPECT_TRUE(is(answer.numerics.pv_acc, fp32_type));
  EXPECT_EQ(answer.numerics.lse_from_rounded_p, 0);
  EXPECT_EQ(answer.profile.graph_safe, 1);
  EXPECT_EQ(answer.profile.batch_invariant, 0);
  // 3 blocks of 8 keys, in one part.
  EXPECT_EQ(answer.numerics.chain_out, 24u + 1);
}

TEST_F(cublas_twin, has_a_handle_for_each_plan) {
  const changed_environment named("MSABENCH_CUDA_LIBS", stub("whole"));
  int& handles = stub_number("stub_handles");
  const int before = handles;
  const msabench_problem problem = attend_problem();
  msabench_plan *one = nullptr, *two = nullptr;
  ASSERT_EQ(plugin()->plan(&problem, &one), MSABENCH_OK) << plugin()->last_error();
  ASSERT_EQ(plugin()->plan(&problem, &two), MSABENCH_OK) << plugin()->last_error();
  EXPECT_EQ(handles, before + 2);
  constexpr int no_reduced_precision_reductions = 16;
  EXPECT_EQ(stub_number("stub_math_mode"), no_reduced_precision_reductions);
  plugin()->destroy(one);
  plugin()->destroy(nullptr);
  EXPECT_EQ(handles, before + 1);
  plugin()->destroy(two);
  EXPECT_EQ(handles, before);
}

TEST_F(cublas_twin, tells_why_there_is_no_handle) {
  const changed_environment named("MSABENCH_CUDA_LIBS", stub("whole"));
  stub_number("stub_create_status") = 1;
  const msabench_problem problem = attend_problem();
  msabench_plan* plan = nullptr;
  EXPECT_EQ(plugin()->plan(&problem, &plan), MSABENCH_NO_RESOURCES);
  EXPECT_EQ(plan, nullptr);
  EXPECT_EQ(std::string(plugin()->last_error()).rfind("cuBLAS: no handle: the stub's status; ", 0), 0u)
      << plugin()->last_error();
  stub_number("stub_create_status") = 0;
}

TEST_F(cublas_twin, workspace_stays_within_a_gibibyte) {
  const changed_environment named("MSABENCH_CUDA_LIBS", stub("whole"));
  constexpr std::int64_t million = 1 << 20;
  const struct {
    std::int64_t queries, tokens, batch;
  } sizes[] = {{8192, million, 1}, {1, million, 64}, {1, 16, 65537}, {300, 300, 40}};
  for (const msabench_op op : {MSABENCH_OP_SCORE, MSABENCH_OP_ATTEND, MSABENCH_OP_DENSE}) {
    for (const auto& [queries, tokens, batch] : sizes) {
      SCOPED_TRACE(testing::Message() << "operator " << op << ", " << queries << " of " << tokens << " x " << batch);
      const msabench_problem problem = long_problem(op, queries, tokens, batch);
      msabench_plan* plan = nullptr;
      ASSERT_EQ(plugin()->plan(&problem, &plan), MSABENCH_OK) << plugin()->last_error();
      std::uint64_t bytes = 0;
      std::uint32_t alignment = 0;
      EXPECT_EQ(plugin()->workspace(plan, &bytes, &alignment), MSABENCH_OK);
      EXPECT_LE(bytes, std::uint64_t{1} << 30);
      EXPECT_GE(bytes, std::uint64_t{32} << 20);
      plugin()->destroy(plan);
    }
  }
}
