// SPDX-License-Identifier: Apache-2.0
// That every faulty plugin has its fault, and no other: a test that expects a rejection must not pass because the
// plugin was broken in another way.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <csignal>

#include "tests/kernels/small_attend.h"
#include "tests/kernels/small_backward.h"
#include "tests/kernels/small_combine.h"
#include "tests/kernels/small_index.h"
#include "tests/kernels/small_kl.h"
#include "tests/kernels/small_norm_rope.h"
#include "tests/kernels/small_rope3d.h"
#include "tests/kernels/small_scaled.h"
#include "tests/kernels/small_select.h"

using namespace msabench::plugin_test;

namespace {

std::string path_of(const std::string& name) { return std::string(MSABENCH_TEST_PLUGIN_DIR) + "/" + name + ".so"; }

const msabench_plugin* faulty(const std::string& name) { return load_plugin(path_of(name)); }

/// Runs and returns the fault that double loops find; "none" for a right result.
template <class Test>
std::string verdict(const std::string& name, Test& test) {
  const msabench_plugin* plugin = faulty(name);
  session plan(plugin, test.problem);
  if (plan.status() != MSABENCH_OK) return std::string("refused: ") + plugin->last_error();
  arguments args = test.args();
  const msabench_status status = plan.run(args);
  if (status != MSABENCH_OK) return "status " + std::to_string(status) + ": " + plugin->last_error();
  return test.fault().value_or("none");
}

small_attend attend_case() { return small_attend({.topk = 4, .sequences = {{3, 61}, {2, 80}}}); }
small_attend dense_case(std::int32_t page_layout = 0, std::int32_t page_size = 0) {
  return small_attend(
      {.page_layout = page_layout, .page_size = page_size, .sequences = {{3, 300}, {2, 800}}, .dense = true});
}

}  // namespace

TEST(faults, attend_results_are_wrong) {
  for (const char* name : {"drop_key", "drop_heavy_key", "attend_swap_block", "mask_off_by_one", "double_block",
                           "wrong_kv_head", "accumulate_16bit"}) {
    small_attend test = attend_case();
    const std::string found = verdict(name, test);
    EXPECT_EQ(found.rfind("row ", 0), 0u) << name << ": " << found;
    small_select untouched({});
    EXPECT_EQ(verdict(name, untouched), "none") << name;
  }
}

TEST(faults, index_branch_results_are_wrong) {
  for (const char* name : {"drop_key", "mask_off_by_one", "mask_after_max", "wrong_index_head", "relu_scores",
                           "unscaled_scores", "short_scores", "swap_table_entries"}) {
    small_index score(MSABENCH_OP_SCORE, {.page_size = 8, .sequences = {{4, 75}, {2, 129}}});
    const std::string found = verdict(name, score);
    EXPECT_EQ(found.rfind("row ", 0), 0u) << name << ": " << found;
    small_select untouched({});
    EXPECT_EQ(verdict(name, untouched), "none") << name;
  }
  for (const char* name : {"swap_block", "wrong_index_head"}) {
    small_index index(MSABENCH_OP_INDEX, {});
    EXPECT_EQ(verdict(name, index).rfind("row ", 0), 0u) << name;
  }
}

TEST(faults, of_special_index_keys) {
  for (const char* name : {"nan_wins", "clamped_scores"}) {
    small_index score(MSABENCH_OP_SCORE, {.heads = 1, .sequences = {{1, 40}}});
    EXPECT_EQ(verdict(name, score), "none") << name;
    score.set_key(0, 20, 5, name[0] == 'n' ? std::nan("") : INFINITY);
    score.q_idx.set({0, 0, 5}, 1);
    EXPECT_NE(verdict(name, score), "none") << name;
  }
  small_index equal(MSABENCH_OP_INDEX, {.heads = 1, .sequences = {{1, 64}}});
  EXPECT_EQ(verdict("ties_high", equal), "none");
  for (std::int64_t j = 0; j < 64; ++j)
    for (std::int64_t c = 0; c < equal.shape.di; ++c) equal.set_key(0, j, c, 0.5);
  EXPECT_EQ(verdict("ties_high", equal), "row 0 head 0: other ids than expected");
}

TEST(faults, dense_results_are_wrong) {
  for (const char* name :
       {"drop_key", "drop_heavy_key", "mask_off_by_one", "double_block", "wrong_kv_head", "accumulate_16bit"}) {
    small_attend test = dense_case();
    const std::string found = verdict(name, test);
    EXPECT_EQ(found.rfind("row ", 0), 0u) << name << ": " << found;
  }
  small_attend untouched = dense_case();
  EXPECT_EQ(verdict("attend_swap_block", untouched), "none");
}

TEST(faults, scaled_results_are_wrong) {
  for (const char* name : {"forgets_scale", "next_heads_scale", "pages_scale", "others_scale", "rounds_again"}) {
    small_scaled test(2, true);
    const std::string found = verdict(name, test);
    EXPECT_EQ(found.rfind("row ", 0), 0u) << name << ": " << found;
  }
  // Values that have no scales have no such faults, but for the rounding.
  for (const char* name : {"forgets_scale", "next_heads_scale", "pages_scale", "others_scale"}) {
    small_attend untouched = attend_case();
    EXPECT_EQ(verdict(name, untouched), "none") << name;
  }
  small_scaled one(1, true);
  EXPECT_EQ(verdict("pages_scale", one), "none");
  EXPECT_NE(verdict("forgets_scale", one), "none");
}

TEST(faults, exchanged_pages_show_where_there_are_pages) {
  small_attend paged = dense_case(1, 16);
  EXPECT_EQ(verdict("swap_table_entries", paged).rfind("row ", 0), 0u);
  small_attend contiguous = dense_case();
  EXPECT_EQ(verdict("swap_table_entries", contiguous), "none");
}

TEST(faults, combined_results_are_wrong) {
  for (const char* name : {"combine_forgets_part", "combine_base2", "combine_no_maximum", "combine_nothing",
                           "combine_leaks", "combine_undivided"}) {
    small_combine test(6, 4, 2, 16, fp32_type, bf16_type);
    const std::string found = verdict(name, test);
    EXPECT_EQ(found.rfind("row ", 0), 0u) << name << ": " << found;
    small_select untouched({});
    EXPECT_EQ(verdict(name, untouched), "none") << name;
  }
}

TEST(faults, gradients_are_wrong) {
  for (const bool dense : {false, true}) {
    for (const char* name : {"backward_next_delta", "backward_no_delta", "backward_unscaled", "backward_wrong_scale",
                             "backward_next_group", "backward_short_dk", "backward_short_dv", "mask_off_by_one"}) {
      small_backward test({.sequences = {{7, 61}, {30, 80}}, .dense = dense});
      const std::string found = verdict(name, test);
      EXPECT_EQ(found.rfind("d", 0), 0u) << name << ": " << found;
      small_attend untouched({.topk = 4, .sequences = {{1, 61}}, .dense = dense});
      if (name != std::string("mask_off_by_one")) {
        EXPECT_EQ(verdict(name, untouched), "none") << name;
      }
    }
  }
}

TEST(faults, gradients_are_added_to_those_of_the_run_before) {
  small_backward test({});
  session plan(faulty("backward_accumulates"), test.problem);
  arguments args = test.args();
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  const double once = test.dk.get({0, 0, 0});  // what was there before is small beside any gradient
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  EXPECT_NEAR(test.dk.get({0, 0, 0}), 2 * once, 1e-12);
}

TEST(faults, the_loss_of_the_index_branch_is_wrong) {
  const auto found = [](const char* name, kl_stage stage) {
    small_kl test({.topk = 3, .sequences = {{7, 61}, {1, 0}, {30, 80}}}, stage);
    return verdict(name, test);
  };
  const auto is_wrong = [](const std::string& text) { return text.starts_with("loss") || text.starts_with("d"); };
  for (const bool warm_up : {false, true})
    for (const char* name : {"kl_mean_of_logits", "kl_forgets_head", "kl_leaks", "kl_leaks_sign", "kl_mean_of_one_less",
                             "kl_mean_of_full_rows", "kl_mean_without_heads", "kl_extra_factor", "kl_backwards",
                             "kl_epsilon", "kl_empty_rows", "kl_short_dk", "mask_off_by_one", "wrong_index_head"})
      EXPECT_TRUE(is_wrong(found(name, {.warm_up = warm_up}))) << name << ": " << found(name, {.warm_up = warm_up});
  for (const char* name : {"kl_teacher_over_all", "kl_student_over_all"}) {
    EXPECT_TRUE(is_wrong(found(name, {}))) << name;
    EXPECT_EQ(found(name, {.warm_up = true}), "none") << name;
  }
  for (const char* name : {"kl_warm_up_over_few", "kl_warm_up_sums_few"}) {
    EXPECT_TRUE(is_wrong(found(name, {.warm_up = true}))) << name;
    EXPECT_EQ(found(name, {}), "none") << name;
  }
  EXPECT_EQ(found("kl_log_of_weight", {}), "none");
  EXPECT_TRUE(is_wrong(found("kl_log_of_weight", {.index_size = 500})));
}

TEST(faults, rotated_heads_are_wrong) {
  for (const char* name :
       {"rope_without_one", "rope_without_eps", "rope_norm_across_heads", "rope_rounds_norm", "rope_position_after",
        "rope_position_in_chunk", "rope_main_norms", "rope_all_dims", "rope_interleaved", "rope_backwards"}) {
    small_norm_rope test({.d = 16, .type = fp32_type});
    const std::string found = verdict(name, test);
    EXPECT_EQ(found.rfind("row ", 0), 0u) << name << ": " << found;
    small_select untouched({});
    EXPECT_EQ(verdict(name, untouched), "none") << name;
  }
}

TEST(faults, rotated_patches_are_wrong) {
  for (const char* name : {"rope3d_ignores_window", "rope3d_frames_apart", "rope3d_ignores_merge", "rope3d_swaps_axes",
                           "rope3d_swaps_angles", "rope3d_keeps_counting", "rope3d_two_axes", "rope3d_text_base",
                           "rope3d_head_dims", "rope3d_turns_rest", "rope3d_interleaved", "rope3d_backwards"}) {
    small_rope3d test;
    const std::string found = verdict(name, test);
    // More segments than there are take more room than there is.
    const bool overruns = found == "guard bands written" && name == std::string_view("rope3d_frames_apart");
    EXPECT_TRUE(found.starts_with("row ") || found.starts_with("segment ") || overruns) << name << ": " << found;
    small_select untouched({});
    EXPECT_EQ(verdict(name, untouched), "none") << name;
  }
}

TEST(faults, attention_inside_segments_is_wrong) {
  for (const char* name : {"vit_joins_segments", "vit_causal", "vit_drops_remainder", "pads_tiles", "drop_key",
                           "drop_heavy_key", "double_block", "vit_other_head", "accumulate_16bit"}) {
    small_attend test({.hq = 2, .hkv = 2, .sequences = {{130, 130}, {9, 9}, {5, 5}}, .segments = true});
    const std::string found = verdict(name, test);
    EXPECT_EQ(found.rfind("row ", 0), 0u) << name << ": " << found;
  }
  for (const char* name : {"vit_joins_segments", "vit_causal", "vit_drops_remainder"}) {
    small_attend untouched = dense_case();
    EXPECT_EQ(verdict(name, untouched), "none") << name;
  }
}

TEST(faults, a_dropped_key_shows_in_rows_with_one_key) {
  small_attend test({.sequences = {{1, 1}}});
  EXPECT_NE(verdict("drop_key", test), "none");
  EXPECT_TRUE(std::isinf(test.lse.get({0, 0})));
}

TEST(faults, a_mask_off_by_one_reads_no_key_past_the_sequence) {
  small_attend test({.sequences = {{1, 13}}});
  EXPECT_EQ(verdict("mask_off_by_one", test), "none");
}

TEST(faults, a_swapped_block_is_the_next_best) {
  small_select test({.hkv = 1, .block = 1, .topk = 3, .local_blocks = 1, .sequences = {{1, 6}}});
  const double scores[] = {5, 9, 1, 7, 3, 0};
  for (std::int64_t b = 0; b < 6; ++b) test.scores.set({0, 0, b}, scores[b]);
  EXPECT_NE(verdict("swap_block", test), "none");
  EXPECT_EQ(test.got(0, 0), (std::vector<std::int32_t>{0, 1, 5}));  // 7 gave way to 5
  small_attend untouched({});
  EXPECT_EQ(verdict("swap_block", untouched), "none");
}

TEST(faults, guards_are_overrun) {
  for (const char* name : {"write_before", "write_behind"}) {
    small_attend attend = attend_case();
    EXPECT_EQ(verdict(name, attend), "guard bands written");
    small_select select({});
    EXPECT_EQ(verdict(name, select), "guard bands written");
  }
}

TEST(faults, strides_are_ignored) {
  small_attend padded({.topk = 4, .sequences = {{3, 61}, {2, 80}}, .padded_strides = true});
  EXPECT_EQ(verdict("ignores_strides", padded).rfind("row ", 0), 0u);
  small_attend packed = attend_case();
  EXPECT_EQ(verdict("ignores_strides", packed), "none");
}

TEST(faults, rows_past_t_are_written) {
  small_attend attend = attend_case();
  EXPECT_EQ(verdict("ignores_t", attend), "row 5 head 0: past T, but written");
  small_attend no_such_rows({.spare_rows = 0});
  EXPECT_EQ(verdict("ignores_t", no_such_rows), "none");
}

TEST(faults, the_last_row_stays_unwritten) {
  small_attend attend = attend_case();
  EXPECT_NE(verdict("unwritten", attend), "none");
  EXPECT_TRUE(attend.out.untouched({4, 3, 15}));
  EXPECT_FALSE(attend.out.untouched({3, 0, 0}));
}

// Results are right in either order of the blocks, and their bits tell which one it was.
TEST(faults, promises_are_broken_by_other_bits_alone) {
  const auto bits = [](const char* name, small_attend test, std::int32_t splits = 0) {
    test.problem.splits = splits;
    EXPECT_EQ(verdict(name, test), "none") << name;
    std::vector<double> all;
    for (std::int64_t row = 0; row < test.tokens(); ++row)
      for (std::int32_t head = 0; head < test.shape.hq; ++head)
        for (std::int64_t c = 0; c < test.shape.d; ++c) all.push_back(test.out.get({row, head, c}));
    return all;
  };
  const auto usual = bits("keeps_split_invariance", dense_case());
  EXPECT_EQ(bits("keeps_split_invariance", dense_case(), 3), usual);
  EXPECT_NE(bits("breaks_split_invariance", dense_case(), 3), usual);
  EXPECT_EQ(bits("breaks_split_invariance", dense_case(), 1), usual);
  EXPECT_NE(bits("breaks_batch_invariance", dense_case()), usual);
  const small_attend alone({.sequences = {{1, 800}}, .dense = true});
  EXPECT_EQ(bits("breaks_batch_invariance", alone), bits("keeps_split_invariance", alone));
  EXPECT_EQ(bits("breaks_repeatability", dense_case()), usual);
  EXPECT_NE(bits("breaks_repeatability", dense_case()), usual);
}

TEST(faults, weights_are_short) {
  small_attend test = attend_case();
  EXPECT_EQ(verdict("short_weights_undeclared", test).rfind("row ", 0), 0u);
  small_attend exact = attend_case();
  EXPECT_EQ(verdict("declares_too_coarse", exact), "none");
}

TEST(faults, inputs_change) {
  small_attend attend = attend_case();
  const auto before = attend.q.bytes();
  verdict("change_input", attend);
  EXPECT_NE(attend.q.bytes(), before);
}

TEST(faults, results_depend_on_the_workspace) {
  small_attend test = attend_case();
  const msabench_plugin* plugin = faulty("reads_workspace");
  session plan(plugin, test.problem);
  arguments args = test.args();
  ASSERT_EQ(plan.run(args, 0x00), MSABENCH_OK);
  EXPECT_EQ(test.fault().value_or("none"), "none");
  const auto first = test.out.bytes();
  ASSERT_EQ(plan.run(args, 0x80), MSABENCH_OK);
  EXPECT_NE(test.out.bytes(), first);
}

TEST(faults, the_workspace_is_overrun) {
  small_attend test = attend_case();
  const msabench_plugin* plugin = faulty("write_behind_workspace");
  session plan(plugin, test.problem);
  std::uint64_t bytes = 0;
  std::uint32_t alignment = 0;
  ASSERT_EQ(plugin->workspace(plan.plan(), &bytes, &alignment), MSABENCH_OK);
  std::vector<unsigned char> memory(bytes + 2 * alignment + 16, 0xEE);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  unsigned char* workspace = memory.data() + (alignment - address % alignment) % alignment;
  arguments args = test.args();
  ASSERT_EQ(plugin->run(plan.plan(), args.get(), workspace, nullptr), MSABENCH_OK);
  EXPECT_NE(workspace[bytes], 0xEE);
}

TEST(faults, lengths_are_stale_in_a_second_run) {
  small_attend test({.topk = 2, .sequences = {{1, 16}}});
  const msabench_plugin* plugin = faulty("stale_state");
  session plan(plugin, test.problem);
  arguments args = test.args();
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  EXPECT_EQ(test.fault().value_or("none"), "none");
  test.kv_lens.set({0}, 11);
  ASSERT_EQ(plan.run(args), MSABENCH_OK);
  EXPECT_NE(test.fault().value_or("none"), "none");
}

TEST(faults, answers) {
  small_attend test = attend_case();
  EXPECT_EQ(verdict("refuse_all", test).rfind("refused: op", 0), 0u);
  EXPECT_EQ(verdict("plan_refuses", test).rfind("refused: block", 0), 0u);
  EXPECT_EQ(verdict("error_no_text", test), "status 4: ");
  EXPECT_EQ(verdict("unsupported_in_run", test).rfind("status 1: ", 0), 0u);
  EXPECT_EQ(verdict("invalid_status", test), "status 77: ");
  EXPECT_TRUE(test.out.untouched({0, 0, 0}));
  EXPECT_EQ(verdict("writes_on_error", test).rfind("status 3: ", 0), 0u);
  EXPECT_FALSE(test.out.untouched({0, 0, 0}));
  EXPECT_EQ(faulty("error_null_text")->last_error(), nullptr);
  EXPECT_EQ(faulty("null_name")->name, nullptr);
  EXPECT_EQ(faulty("null_run")->run, nullptr);
  EXPECT_EQ(faulty("get_null"), nullptr);
  EXPECT_EQ(faulty("wrong_major")->abi_major, 2u);
  EXPECT_THROW(faulty("no_symbol"), std::runtime_error);
}

TEST(faults, declarations_are_nonsense) {
  const small_attend test = attend_case();
  const auto declared = [&](const char* name) {
    session plan(faulty(name), test.problem);
    return plan.capability();
  };
  EXPECT_TRUE(std::isnan(declared("nonsense_nan").numerics.exp_rel_error));
  EXPECT_EQ(declared("nonsense_cap").numerics.p_operand.code, 10);
  EXPECT_EQ(declared("nonsense_chain").numerics.chain_out, 0xffffffffu);
  EXPECT_EQ(declared("nonsense_profile").profile.out_id_order, 99);
}

TEST(faults, right_results_with_side_effects) {
  small_attend test = attend_case();
  for (const char* name : {"prints_stdout", "allocates_run"}) EXPECT_EQ(verdict(name, test), "none") << name;
  EXPECT_EQ(verdict("flips_fp", test), "none");
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
  faulty("flips_fp_load");
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(verdict("flips_fp_load", test), "none");
  EXPECT_EQ(verdict("signal_handler", test), "none");
  EXPECT_NE(std::signal(SIGSEGV, SIG_DFL), SIG_DFL);
}

#ifndef MSABENCH_SANITIZED  // the sanitizers catch signals themselves
namespace {

/// Everything that a host calls, in order; ends with status 9 if it survives.
void use(const char* name) {
  {
    small_attend test = attend_case();
    const msabench_plugin* plugin = faulty(name);
    session plan(plugin, test.problem);
    arguments args = test.args();
    plan.run(args);
  }
  std::_Exit(9);
}

}  // namespace

TEST(fault_deaths, crashes_and_exits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* name : {"crash_get", "crash_query", "crash_plan", "crash_workspace", "crash_run", "crash_destroy"}) {
    EXPECT_EXIT(use(name), testing::KilledBySignal(SIGSEGV), "") << name;
  }
  EXPECT_EXIT(use("abort_run"), testing::KilledBySignal(SIGABRT), "");
  EXPECT_EXIT(use("calls_exit"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(use("calls_exit_now"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(use("prints_stdout"), testing::ExitedWithCode(9), "");
}
#endif

TEST(faults, exceptions_leave_run) {
  small_attend test = attend_case();
  EXPECT_THROW(verdict("throws", test), std::runtime_error);
}
