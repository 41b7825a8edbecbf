// SPDX-License-Identifier: Apache-2.0
// msa: the ids of index, and attention over these.
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/each_plugin.h"
#include "tests/kernels/small_attend.h"
#include "tests/kernels/small_index.h"

using namespace msabench::plugin_test;

namespace {

/// Both branches over the same sequences.
struct small_msa {
  explicit small_msa(const attend_shape& main, std::int32_t di = 16)
      : attend(main),
        index(MSABENCH_OP_INDEX, {.heads = main.hkv,
                                  .di = di,
                                  .block = main.block,
                                  .topk = main.topk,
                                  .page_size = main.page_size,
                                  .type = main.type,
                                  .sequences = main.sequences,
                                  .spare_rows = main.spare_rows}),
        problem(attend.problem) {
    problem.op = MSABENCH_OP_MSA;
    problem.hi = main.hkv;
    problem.di = di;
    problem.q_idx = problem.k_idx = main.type;
    problem.pool_pages = std::max(problem.pool_pages, index.problem.pool_pages);
  }

  arguments args() const {
    arguments given = attend.args();
    given.put(MSABENCH_Q_IDX, index.q_idx);
    given.put(MSABENCH_K_IDX, index.k_idx);
    given.put(MSABENCH_IDS, index.ids);
    if (attend.shape.page_layout != 0) given.put(MSABENCH_BLOCK_TABLE_IDX, index.block_table_idx);
    return given;
  }

  /// What attention is judged on.
  void take_ids() {
    for (std::int64_t row = 0; row < attend.tokens(); ++row)
      for (std::int64_t head = 0; head < attend.shape.hkv; ++head)
        for (std::int64_t i = 0; i < attend.shape.topk; ++i)
          attend.ids.set({row, head, i}, index.ids.get({row, head, i}));
  }

  small_attend attend;
  small_index index;
  msabench_problem problem;
};

class msa : public each_plugin {
 protected:
  void run(const small_msa& test, arguments args) {
    session plan(plugin(), test.problem);
    ASSERT_EQ(plan.status(), MSABENCH_OK) << plugin()->last_error();
    ASSERT_EQ(plan.run(args), MSABENCH_OK) << plugin()->last_error();
  }
};

MSABENCH_FOR_EACH_PLUGIN(msa);

}  // namespace

TEST_P(msa, attends_to_what_index_selects) {
  const attend_shape shapes[] = {
      {},
      {.page_layout = 1, .page_size = 8},
      {.page_layout = 2, .page_size = 16, .type = bf16_type},
      {.hq = 6, .hkv = 3, .d = 24, .block = 4, .topk = 5, .sequences = {{7, 90}, {1, 0}, {2, 3}}}};
  for (const auto& shape : shapes) {
    small_msa test(shape);
    {
      session plan(plugin(), test.index.problem);
      arguments args = test.index.args();
      ASSERT_EQ(plan.run(args), MSABENCH_OK) << plugin()->last_error();
    }
    EXPECT_EQ(test.index.fault().value_or("none"), "none");
    const auto selected = test.index.ids.bytes();
    test.index.ids.poison();
    run(test, test.args());
    EXPECT_EQ(test.index.ids.bytes(), selected);
    test.take_ids();
    EXPECT_EQ(test.attend.fault().value_or("none"), "none");
  }
}

TEST_P(msa, ids_and_lse_are_optional) {
  small_msa test({.sequences = {{3, 100}, {1, 40}}});
  run(test, test.args());
  const auto out = test.attend.out.bytes();
  for (auto* output : {&test.attend.out, &test.attend.lse, &test.index.ids}) output->poison();
  arguments args = test.args();
  args.remove(MSABENCH_IDS);
  args.remove(MSABENCH_LSE);
  run(test, args);
  EXPECT_EQ(test.attend.out.bytes(), out);
  EXPECT_TRUE(test.index.ids.untouched({0, 0, 0}));
  EXPECT_TRUE(test.attend.lse.untouched({0, 0}));
}

TEST_P(msa, writes_scores_where_they_are_wanted) {
  small_msa test({.sequences = {{3, 100}, {1, 40}}});
  arguments args = test.args();
  args.put(MSABENCH_SCORES, test.index.scores);
  run(test, args);
  // Row 0 sees 98 keys in 13 blocks of 8, row 3 sees 40 in 5.
  EXPECT_GT(test.index.scores.get({0, 0, 12}), -std::numeric_limits<double>::infinity());
  EXPECT_GT(test.index.scores.get({1, 3, 4}), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(test.index.scores.get({1, 3, 5}), -std::numeric_limits<double>::infinity());
}

TEST_P(msa, problems_and_tensors_of_both_branches_are_checked) {
  small_msa test({});
  for (const auto& [field, change] :
       {std::pair<const char*, void (*)(msabench_problem&)>{"hi 1", [](auto& p) { p.hi = 1; }},
        {"hq 5", [](auto& p) { p.hq = 5; }},
        {"topk 0", [](auto& p) { p.topk = 0; }}}) {
    msabench_problem problem = test.problem;
    change(problem);
    msabench_plan* plan = nullptr;
    EXPECT_EQ(plugin()->plan(&problem, &plan), MSABENCH_INVALID_PROBLEM) << field;
    EXPECT_EQ(std::string(plugin()->last_error()).rfind(field, 0), 0u) << plugin()->last_error();
  }
  session plan(plugin(), test.problem);
  for (const auto slot : {MSABENCH_Q_IDX, MSABENCH_K_IDX, MSABENCH_V, MSABENCH_OUT}) {
    arguments args = test.args();
    args.remove(slot);
    EXPECT_EQ(plan.run(args), MSABENCH_INVALID_PROBLEM) << slot;
  }
  EXPECT_TRUE(test.attend.out.untouched({0, 0, 0}));
}
