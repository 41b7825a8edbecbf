# SPDX-License-Identifier: Apache-2.0
"""Foreign plugins: every kind of fault gets its verdict and its exit code, and the rest of the run is unharmed."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import program
from program import MSABENCH, QUICK, ProgramTest, plugin, run

ATTEND = "attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/random/slack/s0"


class Load(ProgramTest):
    def test_no_msabench_plugin(self):
        for name, words in [("no_symbol", ["msabench_plugin_get"]), ("wrong_major", ["major"]), ("get_null", [])]:
            with self.subTest(name=name):
                self.assert_refused(run("repro", QUICK, "--impl", plugin(name)), "--impl", *words)


class Behaviour(ProgramTest):
    def verdict(self, name, code, case=QUICK, more=()):
        report = self.report("repro", case, "--impl", plugin(name), *more, code=code)
        self.assertEqual(len(report["cases"]), 1)
        return report["cases"][0]

    def test_verdicts(self):
        for name, code, verdict, kind, words in [
            ("error_no_text", 1, "fail", "contract", ["(no message)"]),
            ("nonsense_nan", 1, "broken-promise", "", ["exp_rel_error"]),
            ("nonsense_cap", 1, "broken-promise", "", ["p_operand"]),
            ("nonsense_chain", 1, "broken-promise", "", ["chain"]),
            ("refuse_all", 3, "unsupported", "", []),
            ("change_input", 1, "fail", "input-modified", ["q"]),
            ("unwritten", 1, "fail", "contract", ["out"]),
            ("crash_get", 1, "crash", "", ["get"]),
            ("crash_query", 1, "crash", "", ["query"]),
            ("crash_plan", 1, "crash", "", ["plan"]),
            ("crash_workspace", 1, "crash", "", ["workspace"]),
            ("crash_run", 1, "crash", "", ["run"]),
            ("crash_destroy", 1, "crash", "", ["destroy"]),
            ("calls_exit", 1, "crash", "", ["exit"]),
            ("throws", 1, "crash", "", ["exception"]),
            ("prints_stdout", 0, "pass", "", []),
            ("flips_fp", 1, "fail", "contract", ["floating-point"]),
            ("flips_fp_load", 0, "pass", "", []),
            ("signal_handler", 1, "fail", "contract", ["signal"]),
            ("unsupported_in_run", 1, "broken-promise", "", []),
            ("writes_on_error", 1, "fail", "contract", []),
        ]:
            with self.subTest(name=name):
                case = self.verdict(name, code)
                self.assertEqual((case["verdict"], case.get("kind") or ""), (verdict, kind), case["reason"])
                for word in words:
                    self.assertIn(word, case["reason"])

    def test_out_of_bounds(self):
        for name in ("write_before", "write_behind"):
            with self.subTest(name=name):
                case = self.verdict(name, 1)
                self.assertEqual((case["verdict"], case["kind"]), ("fail", "out-of-bounds"), case["reason"])
                self.assertIn("out", case["reason"])

    def test_output_on_stdout_is_captured(self):
        self.assertTrue(self.verdict("prints_stdout", 0)["captured_output"].strip())

    def test_mode_set_at_load_is_remarked(self):
        self.assertTrue(any("floating-point" in r for r in self.verdict("flips_fp_load", 0)["remarks"]))

    def test_memory_rules(self):
        case = self.verdict("allocates_run", 1)
        self.assertEqual((case["verdict"], case["kind"]), ("fail", "contract"), case["reason"])
        case = self.verdict("eats_memory", 1)
        self.assertIn(case["verdict"], ("crash", "fail"), case["reason"])

    def test_hangs_end(self):
        for name, entry in (("hang_run", "run"), ("hang_query", "query")):
            with self.subTest(name=name):
                start = time.monotonic()
                case = self.verdict(name, 1, more=("--timeout-s", "2"))
                self.assertEqual(case["verdict"], "timeout", case["reason"])
                self.assertIn(entry, case["reason"])
                self.assertLess(time.monotonic() - start, 30)

    def test_rows_past_t(self):
        case = self.verdict("ignores_t", 1, case=ATTEND)
        self.assertEqual(case["verdict"], "fail", case["reason"])

    def test_lengths_of_an_earlier_run_are_not_remembered(self):
        for case in (QUICK, "attend/m3.tp4/q4.n300/bf16.paged/random/s0"):
            self.assertEqual(self.verdict("stale_state", 1, case=case)["verdict"], "fail")

    def test_the_rest_of_a_run_is_unharmed(self):
        """A crash in every case that attends leaves the select cases judged."""
        report = self.report("check", "--impl", plugin("crash_attend"), "--filter", "*rag.small*", code=1)
        seen = {c["name"].split("/")[0]: c["verdict"] for c in report["cases"]}
        self.assertEqual(seen, {"attend": "crash", "combine": "crash", "dense": "crash", "msa": "crash", "attend_backward": "crash",
                                "dense_backward": "crash", "kl": "pass", "qk_norm_rope": "pass", "select": "pass"})
        self.assertFalse(report["run"]["partial"])


class Profiles(ProgramTest):
    """What an implementation says it does differently is converted, or reported as not observed; what is not so fails."""

    SMALL = "h8x2.d64.b32.k4.l1.i0/rag.small"
    SLACK = f"attend/{SMALL}/bf16.paged/random/slack/s0"
    DRAFT = "m3.tp4/rag.draft"
    LENIENT = f"attend/{DRAFT}/bf16.paged/random/lenient/s0"
    SHORT = f"attend/{DRAFT}/bf16.paged/random/short/s0"
    DENSE = f"dense/{DRAFT}/bf16.paged/random/s0"
    MSA = f"msa/{SMALL}/fp32.paged/random/s0"
    SCORE = f"score/{DRAFT}/bf16.contig/random/s0"
    NAN_SCORE = "score/m3.tp4/q4.n2K/bf16.paged/special.nan/s0"
    SELECT = "select/h4x4.d64.b16.k3.l1.i0/rag.small/fp32/select.random/s0"
    INDEX = f"index/{SMALL}/bf16.paged/random/rep/s0"
    COMBINE = "combine/m3/q8.n1K/bf16/partials.random/split8/s0"
    NORM_ROPE = "qk_norm_rope/m3/rag.draft/bf16/tokens.random/s0"

    # Profile field, plugins that have it so, the cases of every operator that it concerns.
    HONEST = [
        ("in_id_order, out_id_order any", ["ids_in_any_order"], [SLACK, LENIENT, SHORT, MSA, SELECT, INDEX]),
        ("in_id_order, out_id_order score", ["ids_by_score"], [SLACK, SHORT, MSA, SELECT, INDEX]),
        ("in_id_order, out_id_order local_last", ["own_block_last"], [SLACK, SHORT, MSA, SELECT, INDEX]),
        ("in_id_layout, out_id_layout htk", ["ids_by_head"], [SLACK, LENIENT, QUICK, MSA, SELECT, INDEX]),
        ("lse base2", ["emits_base2_lse"], [SLACK, QUICK, DENSE, MSA, INDEX, COMBINE]),
        ("empty_row undefined", ["leaves_empty_rows"], [SLACK, QUICK, DENSE, MSA, SCORE, SELECT, INDEX]),
        ("score_unit raw, score_own sentinel, score_tail unwritten", ["emits_raw_scores"],
         [SCORE, "score/m3.tp4/rag.holes/bf16.paged/index_code/s0"]),
        ("nan_score propagate", ["emits_nan_scores"], [NAN_SCORE, SCORE]),
        ("round_after_norm", ["declares_rounded_norm"], [NORM_ROPE]),
        ("rotate_in_storage", ["declares_rotation_in_storage"], [NORM_ROPE]),
        ("page_layout fused", ["takes_fused_pages"], [SLACK, DENSE, MSA]),
        ("page_size 1", ["takes_slots"], [SLACK, LENIENT, DENSE, MSA, INDEX]),
    ]

    # What a plugin claims and does not hold, the cases that show it, and the verdict and check that are due.
    CLAIMS = [
        ("claims_any_order", [SLACK, QUICK], "fail", "K1"),
        ("claims_ids_by_score", [MSA, SELECT, INDEX], "broken-promise", "K5"),
        ("claims_own_block_last", [MSA, SELECT, INDEX], "broken-promise", "K5"),
        ("claims_ids_by_head", [SLACK], "fail", "K1"),
        ("claims_ids_by_head", [SELECT, INDEX], "fail", "K5"),
        ("claims_base2_lse", [QUICK, DENSE, COMBINE], "fail", "K2"),
        ("claims_base2_lse", [INDEX], "fail", "K2"),
        ("claims_raw_scores", [SCORE], "fail", "K1"),
        ("claims_nan_scores", [NAN_SCORE], "fail", "K1"),
        ("claims_fine_ranks", [SELECT], "fail", "K5"),
        ("rotates_in_storage", [NORM_ROPE], "fail", "K1"),
        ("rope_rounds_norm", [NORM_ROPE], "fail", "K1"),
        ("misreads_fused_pages", [SLACK, DENSE, MSA], "fail", "K1"),
    ]

    def seen(self, name, case, code):
        return self.report("repro", case, "--impl", plugin(name), code=code)["cases"][0]

    def test_other_forms_pass(self):
        for field, names, cases in self.HONEST:
            for name in names:
                for case in cases:
                    with self.subTest(field=field, name=name, case=case):
                        seen = self.seen(name, case, 0)
                        self.assertEqual(seen["verdict"], "pass", seen["reason"])
                        self.assertTrue(all(k["passed"] for k in seen["checks"] if k["gate"] and k["observed"]))

    def test_claims_that_do_not_hold_are_rejected(self):
        for name, cases, verdict, check in self.CLAIMS:
            for case in cases:
                with self.subTest(name=name, case=case):
                    seen = self.seen(name, case, 1)
                    self.assertEqual(seen["verdict"], verdict, seen["reason"])
                    self.assertIn(check, [k["id"] for k in seen["checks"] if k["gate"] and not k["passed"]])

    def test_a_declared_order_is_a_promise(self):
        seen = self.seen("claims_own_block_last", self.SELECT, 1)
        self.assertIn("does not stand last", seen["reason"])
        self.assertEqual([k["promise"] for k in seen["checks"] if k["id"] == "K5"], ["out_id_order"])

    def test_ranking_in_steps_is_a_quality_warning(self):
        for case in (self.SELECT, self.INDEX):
            seen = self.seen("ranks_coarsely", case, 0)
            self.assertEqual(seen["verdict"], "quality-warning", seen["reason"])

    def test_how_caches_were_handed_over_is_said(self):
        for name, words in (("takes_fused_pages", "fused pages"), ("takes_slots", "page_size 1")):
            self.assertTrue(any(words in text for text in self.seen(name, self.DENSE, 0)["remarks"]))

    def test_without_lse_that_is_said(self):
        case = "attend/m3.tp4/q4.n300/bf16.paged/key_code/s0"
        seen = self.seen("emits_no_lse", case, 0)
        self.assertEqual(seen["verdict"], "pass", seen["reason"])
        self.assertTrue(any("K2" in text for text in seen["unobserved"]), seen["unobserved"])

    def test_msa_without_ids_is_not_verified(self):
        for case in (self.MSA, "msa/m3/q1.n8K.x2/bf16.paged/random/s0", "msa/m3.tp2/q8.n8K.x2/bf16.paged/key_code/s0"):
            with self.subTest(case=case):
                seen = self.seen("hides_ids", case, 2)
                self.assertEqual(seen["verdict"], "insensitive")
                self.assertIn("selection not observed", seen["reason"])
                self.assertTrue(any("selection not observed" in text for text in seen["unobserved"]))

    def test_an_output_that_is_asked_for_is_not_left_out(self):
        seen = self.seen("emits_no_lse", self.COMBINE, 3)
        self.assertEqual(seen["verdict"], "unsupported")
        self.assertIn("lse = none", seen["reason"])


class Promises(ProgramTest):
    """What the profile promises is tried: rows alone, other numbers of splits, launch after launch."""

    ATTENDS = ("attend/m3.tp4/rag.draft/bf16.paged/random/s0", "dense/m3.tp4/rag.draft/bf16.contig/random/s0",
               "msa/m3.tp4/rag.draft/bf16.paged/random/s0")

    def seen(self, name, case, code):
        return self.report("repro", case, "--impl", plugin(name), code=code)["cases"][0]

    def test_promises_that_do_not_hold(self):
        for name, promise, check in [("breaks_batch_invariance", "batch_invariant", "K7b"),
                                     ("breaks_split_invariance", "split_invariant", "K7s"),
                                     ("breaks_repeatability", "repeatable", "K7")]:
            for case in self.ATTENDS:
                with self.subTest(name=name, case=case):
                    seen = self.seen(name, case, 1)
                    self.assertEqual(seen["verdict"], "broken-promise", seen["reason"])
                    self.assertIn(promise, seen["reason"])
                    broken = [k["id"] for k in seen["checks"] if k["observed"] and k["gate"] and not k["passed"]]
                    self.assertIn(check, broken)
                    self.assertTrue(all(k.startswith("K7") for k in broken), broken)

    def test_promises_that_hold(self):
        for name, case in [("keeps_split_invariance", self.ATTENDS[0]), ("breaks_batch_invariance", "select/m3/rag.draft/fp32/select.random/s0"),
                           ("keeps_split_invariance", self.ATTENDS[2])]:
            with self.subTest(name=name, case=case):
                seen = self.seen(name, case, 0)
                self.assertEqual(seen["verdict"], "pass", seen["reason"])
                self.assertTrue(all(k["passed"] for k in seen["checks"] if k["gate"]), seen["checks"])
                self.assertTrue(any(k.get("promise") == "batch_invariant" for k in seen["checks"]))

    def test_one_plan_is_replayed_with_other_contents(self):
        gradients = ("attend_backward/m3.tp4/rag.draft/bf16.contig/random/s0", "dense_backward/m3.tp4/rag.draft/bf16.contig/random/s0")
        for case in (*self.ATTENDS, Profiles.SELECT, Profiles.INDEX, Profiles.NORM_ROPE,
                     "kl/m3.tp4/rag.chunks/bf16.contig/random/s0", *gradients):
            with self.subTest(case=case):
                seen = self.seen("replays_plans", case, 0)
                self.assertEqual(seen["verdict"], "pass", seen["reason"])
                self.assertEqual([k["passed"] for k in seen["checks"] if k.get("promise") == "graph_safe"], [True])
        # Tables and ids of the first launch: other keys are read, or pages that are none.
        # In a pool that takes far more address space than a launch may, the worker that follows on a crash maps it all again.
        for case in (self.ATTENDS[0], self.ATTENDS[2], "attend/m3/q1.n8K.x2/bf16.paged/random/s0",
                     "attend/m3.tp4/rag.draft/bf16.fused/random/pool256K/s0"):
            with self.subTest(case=case):
                seen = self.seen("keeps_tables", case, 1)
                self.assertEqual(seen["verdict"], "broken-promise", seen["reason"])
                self.assertIn("graph_safe", seen["reason"])

    def test_duties_of_the_caller_are_broken_where_that_may_do_no_harm(self):
        for case in (*self.ATTENDS, Profiles.SLACK, Profiles.SELECT, Profiles.INDEX, Profiles.NORM_ROPE):
            with self.subTest(case=case):
                seen = self.seen("looks_at_contents", case, 0)
                self.assertEqual(seen["verdict"], "pass", seen["reason"])
                self.assertEqual([k["passed"] for k in seen["checks"] if k.get("promise") == "hardened"], [True])
        for case in (self.ATTENDS[0], self.ATTENDS[2], Profiles.INDEX):
            with self.subTest(case=case):
                seen = self.seen("looks_at_nothing", case, 1)
                self.assertEqual(seen["verdict"], "broken-promise", seen["reason"])
                self.assertIn("page ids out of range", seen["reason"])

    def test_a_crash_over_broken_duties_leaves_the_rest_of_a_run_unharmed(self):
        report = self.report("check", "--impl", plugin("looks_at_nothing"), "--filter", "*rag.draft*", code=1)
        seen = {c["name"].split("/")[0]: c["verdict"] for c in report["cases"]}
        self.assertEqual({v for v in seen.values()} - {"pass"}, {"broken-promise"}, seen)
        self.assertIn("pass", seen.values())

    def test_contents_that_can_not_be_changed_are_said(self):
        for name, promise in (("replays_plans", "graph_safe"), ("looks_at_contents", "hardened")):
            seen = self.seen(name, Profiles.COMBINE, 0)
            self.assertTrue(any(t.startswith(f"promise {promise} not observed") for t in seen["unobserved"]))

    def test_what_could_not_be_tried_is_said(self):
        seen = self.seen("keeps_split_invariance", "attend/m3.tp4/q1.n8K/bf16.paged/key_code/s0", 0)
        self.assertEqual(sorted(t for t in seen["unobserved"] if t.startswith("promise")),
                         ["promise batch_invariant not observed: the call has one row",
                          "promise split_invariant not observed: sums of this family are exact in any order"])


class Precision(ProgramTest):
    """Arithmetic against its declaration."""

    CASE = "attend/m3/q1.n8K.x4/bf16.paged/random/s0"

    def seen(self, name, code):
        seen = self.report("repro", self.CASE, "--impl", plugin(name), code=code)["cases"][0]
        return seen, {k["id"]: k for k in seen["checks"]}

    def test_coarser_is_seen_by_the_size_of_errors_alone(self):
        seen, checks = self.seen("short_weights_undeclared", 1)
        self.assertEqual((seen["verdict"], seen["kind"]), ("fail", "numeric"), seen["reason"])
        self.assertEqual({i for i, k in checks.items() if k["gate"] and not k["passed"]} - {"K4a"}, {"K4b"}, seen["reason"])

    def test_as_declared_passes(self):
        seen, checks = self.seen("rounds_weights", 0)
        self.assertEqual(seen["verdict"], "pass", seen["reason"])
        self.assertTrue(checks["K4b"]["passed"])
        # Declared alike: naive rounds its output only, so its errors are about 0.7 of these.
        self.assertGreater(checks["K6n"]["value"], 1.15)
        self.assertLess(checks["K6n"]["value"], 1.8)
        self.assertFalse(any("is declared" in r for r in seen["remarks"]), seen["remarks"])

    def test_honest_variants_pass(self):
        for name in ("truncates_weights", "adds_rounded_weights", "stores_short_scores", "prescales_query",
                     "stores_short_partials"):
            with self.subTest(name=name):
                seen, _ = self.seen(name, 0)
                self.assertEqual(seen["verdict"], "pass", seen["reason"])
                self.assertFalse(any("is declared" in r for r in seen["remarks"]), seen["remarks"])

    def test_what_is_hidden_is_said_in_every_report(self):
        folder = self.folder / "hidden"
        result = run("repro", self.CASE, "--impl", plugin("emits_no_lse"), "--out", folder)
        self.assertEqual(result.code, 0, result.err)
        for text in (result.out, *((folder / f).read_text() for f in ("report.json", "report.md", "junit.xml"))):
            self.assertIn("K2 not observed", text)

    def test_finer_is_remarked(self):
        seen, _ = self.seen("declares_too_coarse", 0)
        self.assertEqual(seen["verdict"], "pass", seen["reason"])
        self.assertTrue(any("p_operand bf16 is declared" in r for r in seen["remarks"]), seen["remarks"])


class PlantedFaults(ProgramTest):
    """Plugins with one fault each, rejected with the stage, the row and, where a code names it, the key or block."""

    def failing(self, name, operator, place="row"):
        report = self.report("check", "--impl", plugin(name), "--op", operator, code=1)
        failed = [c for c in report["cases"] if c["verdict"] == "fail"]
        self.assertTrue(failed, name)
        for case in failed:
            self.assertRegex(case["reason"], place, case["name"])
            self.assertIn(f"repro {case['name']}", case["repro"])
        return failed

    def named(self, failed, family):
        checks = [k for c in failed if f"/{family}" in c["name"] for k in c["checks"] if not k["passed"] and k["id"] == "K3"]
        self.assertTrue(checks, family)
        return " ".join(k["named"] for k in checks)

    def test_dropped_key(self):
        self.assertIn("key", self.named(self.failing("drop_key", "attend"), "key_code"))

    def test_doubled_block(self):
        self.assertIn("block", self.named(self.failing("double_block", "attend"), "block_code"))

    def test_swapped_block(self):
        failed = self.failing("swap_block", "select")
        self.assertTrue(all("K5" in c["reason"] for c in failed))
        self.assertTrue(any("block" in c["reason"] for c in failed))

    def test_faults_of_the_index_branch(self):
        """Each by the check that is due; where a key explains the score, it is named."""
        for name, operator, cases, check, words in [
            ("drop_key", "score", "*rag.draft*", "K1", ["key", "left out"]),
            ("mask_off_by_one", "score", "*rag.draft*", "K1", ["past the row's position"]),
            ("mask_after_max", "score", "*rag.draft*", "K1", ["past the row's position"]),
            ("wrong_index_head", "score", "*rag.draft*", "K1", []),
            ("wrong_index_head", "index", "*rag.three/fp32*", "K5", ["chosen"]),
            ("relu_scores", "score", "*negative*", "K1", ["a negative score emitted as 0"]),
            ("relu_scores", "index", "*negative*", "K5", ["chosen"]),
            ("unscaled_scores", "score", "*rag.draft*", "K1", ["index_scale left out"]),
            ("short_scores", "score", "*rag.draft*", "K1", []),
            ("swap_table_entries", "score", "*rag.draft*", "K1", []),
            ("swap_table_entries", "index", "*rag.three*", "K5", ["chosen"]),
            ("nan_wins", "score", "*special.nan*", "K1", []),
            ("nan_wins", "index", "*special.nan*", "K5", ["chosen"]),
            ("clamped_scores", "score", "*special.inf*", "K1", []),
            ("swap_block", "index", "*rag.three*", "K5", ["chosen"]),
            ("ties_high", "index", "*index_code.ties*", "K5", ["lower id is promised"]),
        ]:
            with self.subTest(name=name, operator=operator):
                report = self.report("check", "--impl", plugin(name), "--op", operator, "--level", "core",
                                     "--filter", cases, code=1)
                due = "broken-promise" if name == "ties_high" else "fail"
                reasons = [c["reason"] for c in report["cases"] if c["verdict"] == due]
                self.assertTrue(any(r.startswith(check) for r in reasons), reasons)
                for word in words:
                    self.assertTrue(any(word in r for r in reasons), (word, reasons))

    def test_mask_off_by_one(self):
        self.failing("mask_off_by_one", "attend")

    def test_combine(self):
        for name in ("combine_forgets_part", "combine_base2", "combine_no_maximum", "combine_nothing", "combine_leaks",
                     "combine_undivided"):
            with self.subTest(name=name):
                self.failing(name, "combine")

    def test_qk_norm_rope(self):
        for name in ("rope_without_one", "rope_without_eps", "rope_norm_across_heads", "rope_rounds_norm",
                     "rope_position_after", "rope_position_in_chunk", "rope_main_norms", "rope_all_dims",
                     "rope_interleaved", "rope_backwards"):
            with self.subTest(name=name):
                self.failing(name, "qk_norm_rope")

    def test_gradients(self):
        for operator in ("attend_backward", "dense_backward"):
            for name in ("backward_next_delta", "backward_no_delta", "backward_unscaled", "backward_wrong_scale",
                         "backward_next_group", "backward_short_dk", "backward_accumulates", "mask_off_by_one"):
                # A line of a gradient is a row's or a key's; what shows in many of them only is told of the tensor.
                with self.subTest(operator=operator, name=name):
                    self.failing(name, operator, r"at (row|key) \d+, (KV )?head \d+, channel \d+: |errors of d[qkv] are [\d.]+ times")

    def test_gradients_summed_in_16_bits(self):
        """Lost in the bounds of random values, where it is lost at all; the probe asks for nothing else."""
        report = self.report("check", "--impl", plugin("backward_short_dv"), "--level", "core", "--filter", "*_backward/*/carry*",
                             code=1)
        self.assertEqual(len(report["cases"]), 6)
        for case in report["cases"]:
            self.assertEqual(case["verdict"], "fail", case["name"])
            self.assertRegex(case["reason"], r"K8a \w+ dv at key \d+", case["name"])

    def test_kl(self):
        for name in ("kl_mean_of_logits", "kl_forgets_head", "kl_leaks", "kl_leaks_sign", "kl_mean_of_one_less",
                     "kl_mean_of_full_rows", "kl_mean_without_heads", "kl_extra_factor", "kl_teacher_over_all",
                     "kl_student_over_all", "kl_warm_up_over_few", "kl_warm_up_sums_few", "kl_backwards", "kl_epsilon",
                     "kl_empty_rows", "kl_short_dk", "mask_off_by_one", "wrong_index_head", "backward_accumulates"):
            with self.subTest(name=name):
                self.failing(name, "kl", r"at (row|key|element) \d+|errors of d[qk]_idx are [\d.]+ times|d[qk]_idx is \S+ off as a whole")

    def test_kl_of_weights_below_the_range(self):
        report = self.report("check", "--impl", plugin("kl_log_of_weight"), "--op", "kl", "--level", "core", "--filter",
                             "*random.sharp/scale2*", code=1)
        self.assertTrue(any("loss" in c["reason"] for c in report["cases"]), report["cases"])

    def test_rope3d(self):
        for name in ("rope3d_ignores_window", "rope3d_frames_apart", "rope3d_ignores_merge", "rope3d_swaps_axes",
                     "rope3d_swaps_angles", "rope3d_keeps_counting", "rope3d_two_axes", "rope3d_text_base",
                     "rope3d_head_dims", "rope3d_turns_rest", "rope3d_interleaved", "rope3d_backwards"):
            with self.subTest(name=name):
                self.failing(name, "rope3d", "row|segment")

    def test_vit3d(self):
        for name in ("rope3d_keeps_counting", "rope3d_swaps_axes", "rope3d_two_axes", "vit_joins_segments", "vit_drops_remainder",
                     "vit3d_hides_positions", "vit_other_head"):
            with self.subTest(name=name):
                self.failing(name, "vit3d", "row|segment")
        report = self.report("check", "--impl", plugin("vit3d_needs_rotation"), "--op", "vit3d", "--filter", "*/bare/*", "--level", "core", code=1)
        self.assertEqual({c["verdict"] for c in report["cases"]}, {"crash"})

    def test_vit3d_without_rotation_is_judged_by_its_outputs(self):
        case = "vit3d/m3/g10x4x6_1x2x4/bf16/random/{}s0"
        seen = self.report("repro", case.format(""), "--impl", plugin("vit3d_hides_rotation"), code=2)["cases"][0]
        self.assertEqual(seen["verdict"], "insensitive")
        self.assertIn("K1r not observed", seen["reason"])
        seen = self.report("repro", case.format("bare/"), "--impl", plugin("vit3d_hides_rotation"), code=0)["cases"][0]
        self.assertEqual(seen["verdict"], "pass")
        self.assertTrue(any(u.startswith("K1r not observed") for u in seen["unobserved"]))

    def test_vit_attend(self):
        for name in ("vit_joins_segments", "vit_causal", "vit_drops_remainder", "vit_other_head", "pads_tiles", "drop_key"):
            with self.subTest(name=name):
                self.failing(name, "vit_attend")

    def test_wrong_kv_head(self):
        self.failing("wrong_kv_head", "attend")

    def test_dense(self):
        for name, family in [("drop_key", "key_code"), ("drop_heavy_key", "needle"), ("mask_off_by_one", "random"),
                             ("double_block", "random"), ("wrong_kv_head", "needle"), ("swap_table_entries", "random")]:
            with self.subTest(name=name):
                self.assertTrue(any(f"/{family}" in c["name"] for c in self.failing(name, "dense")))
        self.assertIn("key", self.named(self.failing("drop_heavy_key", "dense"), "key_code"))

    def test_msa(self):
        """A wrong selection fails K5 alone, since outputs are judged on the ids that came back; wrong numbers fail K1 to K3."""
        random = "msa/m3/q1.n8K.x2/bf16.paged/random"
        for name, case, failing, kept in [
            ("swap_block", random, {"K5"}, {"K0", "K1", "K2"}),
            ("wrong_index_head", random, {"K5"}, {"K0", "K1", "K2"}),
            ("attend_swap_block", random, {"K1"}, {"K0", "K5"}),
            ("double_block", "msa/m3.tp4/rag.draft/bf16.contig/key_code", {"K3"}, {"K0", "K5"}),
            ("mask_off_by_one", "msa/m3.tp4/rag.draft/bf16.contig/key_code", {"K3"}, {"K0"}),
        ]:
            with self.subTest(name=name):
                report = self.report("check", "--impl", plugin(name), "--op", "msa", "--filter", f"{case}*", code=1)
                checks = {k["id"]: k["passed"] for c in report["cases"] for k in c["checks"]}
                self.assertEqual({k for k in failing if not checks[k]}, failing, checks)
                self.assertEqual({k for k in kept if checks[k]}, kept, checks)

    def test_scales(self):
        """Faults of e4m3 operands, each on the core cases that name it as a target."""
        for name, operator, cases, check in [
            ("forgets_scale", "attend", "attend/m3/q1.n8K.x8/*/fp8/*", "K3"),
            ("forgets_scale", "dense", "*fp8tensor*", "K3"),
            ("forgets_scale", "msa", "msa/m3.tp2/*/fp8/*", "K3"),
            ("forgets_scale", "msa", "msa/*random*/fp8idx/*", "K5"),
            ("forgets_scale", "score", "*rag.draft*/fp8/*", "K1"),
            ("forgets_scale", "index", "index/m3/q4.n32K/*/fp8/*", "K5"),
            ("next_heads_scale", "attend", "*rag.small*/fp8/*", "K1"),
            ("pages_scale", "attend", "attend/m3.tp4/rag.draft/*/fp8/*", "K1"),
            ("pages_scale", "score", "*rag.draft*/fp8/*", "K1"),
            ("others_scale", "attend", "*rag.three*fp8tensor*", "K1"),
            ("rounds_again", "attend", "*needle/fp8/*", "K1"),
        ]:
            with self.subTest(name=name, operator=operator):
                report = self.report("check", "--impl", plugin(name), "--op", operator, "--level", "core",
                                     "--filter", cases, code=1)
                for case in report["cases"]:
                    failed = [k["id"] for k in case["checks"] if not k["passed"]]
                    self.assertEqual(case["verdict"], "fail", case["name"])
                    self.assertIn(check, failed, case["name"])

    def test_fp8_is_refused_by_name(self):
        report = self.report("check", "--impl", "cpu", "--level", "core", "--filter", "attend/*/fp8/*", code=3)
        self.assertTrue(all(c["verdict"] == "unsupported" and c["reason"].startswith("kv ") for c in report["cases"]))

    def test_short_accumulation(self):
        for operator in ("attend/m3", "dense/m3.tp4"):
            case = f"{operator}/q1.n8K.x4/bf16.paged/carry/s0"
            seen = self.report("repro", case, "--impl", plugin("accumulate_16bit"), code=1)["cases"][0]
            self.assertEqual((seen["verdict"], seen["kind"]), ("fail", "numeric"), seen["reason"])
            self.assertIn("K3", seen["reason"])


def children_of(pid):
    return [int(p.name) for p in pathlib.Path("/proc").iterdir()
            if p.name.isdigit() and f"\nPPid:\t{pid}\n" in text_of(p / "status")]


def text_of(path):
    try:
        return path.read_text(errors="replace")
    except OSError:  # the process has gone
        return ""


class Interrupted(ProgramTest):
    def until(self, condition, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.02)
        self.fail("did not come about")

    def hanging(self, *arguments, seen="hang_run"):
        """A run whose worker has the hanging plugin loaded, or another file mapped, and that worker."""
        process = subprocess.Popen([MSABENCH, "check", "--impl", plugin("hang_run"), "--timeout-s", "100", *arguments],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        worker = self.until(lambda: [c for c in children_of(process.pid) if seen in text_of(pathlib.Path(f"/proc/{c}/maps"))])
        return process, worker[0]

    def test_ctrl_c_leaves_a_partial_report(self):
        """As soon as there is a worker, while it loads the plugin, and in a case."""
        path = self.folder / "r.json"
        for seen, delay in (("", 0), ("hang_run", 0), ("hang_run", 1)):
            with self.subTest(seen=seen, delay=delay):
                path.unlink(missing_ok=True)
                process, _ = self.hanging("--json", path, seen=seen)
                time.sleep(delay)
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=30)
                self.assertEqual(process.returncode, 2, out + err)
                report = json.loads(path.read_text())
                self.assertTrue(report["run"]["partial"])

    def test_a_killed_parent_takes_its_worker_along(self):
        process, worker = self.hanging()
        process.kill()
        process.communicate()
        state = pathlib.Path(f"/proc/{worker}/stat")
        self.until(lambda: not state.exists() or text_of(state).split(")")[-1].split()[:1] in ([], ["Z"]))


if __name__ == "__main__":
    unittest.main()
