# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels judged without a GPU: right ones pass, ones with a planted fault are rejected.

usage: interpreted_test.py BUILD [--all]   --all (ci/nightly): every case of core, and every fault instead of the few that are built with
everything else
"""

import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "tests" / "cli"), str(SOURCE / "tests" / "plugins" / "cuda")]
ALL = "--all" in sys.argv
if ALL:
    sys.argv.remove("--all")

import kernel_faults  # noqa: E402
import program  # noqa: E402
from program import BUILD, PLUGINS, ProgramTest, plugin  # noqa: E402
import unittest  # noqa: E402

# Small, and together every kernel: prefill and decode, paged and contiguous, ragged, both storage types.
CASES = {"cuda_interpreted": (
    "attend/m3/rag.holes/bf16.paged/random/s0",
    "attend/m3.tp4/rag.1to300/bf16.paged/random/s0",
    "attend_backward/m3.tp4/rag.chunks/fp16.contig/random/s0",
    "combine/m3.tp4/rag.three/fp16/partials.tiny/split4/part16/s0",
    "dense/m3.tp4/rag.draft/bf16.contig/key_code/s0",
    "dense/m3.tp4/q1.n8K.x4/bf16.paged/carry/s0",
    "dense_backward/m3.tp4/rag.holes/fp16.contig/random/s0",
    "index/m3/rag.draft/bf16.contig/index_code/s0",
    "index/m3.tp4/q120.n4K/bf16.paged/random/s0",
    "kl/m3.tp4/rag.chunks/bf16.contig/random/s0",
    "kl/m3.tp4/q8.n1K/bf16.contig/random/warm/s0",
    "msa/m3.tp4/rag.chunks/bf16.contig/random/s0",
    "qk_norm_rope/m3.tp4/rag.holes/bf16/tokens.random/s0",
    "rope3d/m3/g5x4x4_1x4x6/bf16/tokens.random/s0",
    "score/m3/rag.edges/bf16.paged/index_code/s0",
    "score/m3.tp2/rag.tiles/fp16.paged/random.flat/s0",
    "select/m3/rag.1to300/fp32/select.random/s0",
    "vit3d/m3/g5x4x4_1x4x6/bf16/random/s0",
    "vit_attend/m3/g5x4x4_1x4x6/bf16/random/s0",
), "cuda_sm90_interpreted": (
    "attend/m3.tp4/rag.1to300/bf16.paged/random/s0",
    "attend/m3.tp2/rag.tiles/bf16.paged/random/s0",
    "attend/m3.tp4/rag.draft/bf16.paged/random/s0",
    "attend/m3.tp4/q120.n4K/bf16.contig/random/s0",
    "attend/m3.tp4/rag.three/bf16.fused/random/fp8tensor/s0",
    "attend_backward/m3.tp4/rag.chunks/fp16.contig/random/s0",
    "dense/m3.tp4/rag.draft/bf16.contig/key_code/s0",
    "dense_backward/m3.tp4/rag.holes/fp16.contig/random/s0",
    "index/m3.tp4/q120.n4K/bf16.paged/random/s0",
    "index/m3.tp4/rag.three/bf16.paged/negative/fp8tensor/s0",
    "index/m3/q33.n4K/bf16.contig/negative/fp8/s0",
    "index/m3/q33.n4K/bf16.paged/random/fp8tensor/s0",
    "kl/m3.tp4/rag.chunks/bf16.contig/random/s0",
    "kl/m3.tp4/rag.pad16/bf16.contig/random/warm/s0",
    "msa/m3.tp4/rag.chunks/bf16.contig/random/s0",
    "msa/m3/rag.tails/bf16.contig/planted/s0",
    "vit_attend/m3/g5x4x4_1x4x6/bf16/random/s0",
)}
# Warps in another order, and copies that come late: races give other results.
SHUFFLED = {
    "cuda_interpreted": (
        "attend/m3.tp4/rag.1to300/*", "kl/m3.tp4/rag.chunks/*", "score/m3.tp2/rag.tiles/*", "vit_attend/m3/g5x4x4_1x4x6/bf16/random/s0"),
    "cuda_sm90_interpreted": (
        "attend/m3.tp4/q120.n4K/*", "attend_backward/m3.tp4/rag.chunks/*", "dense/m3.tp4/rag.draft/bf16.contig/key_code/s0", "index/m3.tp4/q120.n4K/*", "msa/m3.tp4/rag.chunks/*"),
}

# fault: the case that has to see it. Faults of replays need a device.
SEEN_BY = {
    "attend_missed_tail": "attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/random/slack/s0",
    "attend_page_32_bits": "attend/m3/q1.n8K/bf16.paged/needle/pool128K/s0",
    "attend_page_offset": "attend/m3/rag.holes/bf16.paged/random/s0",
    "attend_past_length": "attend/m3/rag.holes/bf16.paged/random/s0",
    "attend_race": "attend/m3/q1.n1M/bf16.paged/needle/s0",
    "attend_shared_ids": "attend/m3/q1.n128K.x4/bf16.paged/random/s0",
    "attend_unordered_blocks": "attend/m3.tp4/rag.1to300/bf16.paged/random/s0",
    "backward_lost_warp": "attend_backward/m3.tp4/rag.holes/bf16.contig/random/s0",
    "backward_missed_tail": "attend_backward/m3.tp4/rag.holes/bf16.contig/random/s0",
    "backward_race": "attend_backward/m3.tp4/rag.holes/bf16.contig/random/s0",
    "backward_shared_ids": "attend_backward/m3.tp4/rag.holes/bf16.contig/random/s0",
    "blocks_lost_piece": "attend_backward/h4x1.d128.b128.k2.l1.i1/q3000.n3000/bf16.contig/random/s0",
    "blocks_missed_tail": "attend_backward/m3.tp4/rag.holes/bf16.contig/random/s0",
    "blocks_past_diagonal": "attend_backward/m3.tp4/rag.holes/bf16.contig/random/s0",
    "blocks_race": "attend_backward/m3.tp4/rag.holes/bf16.contig/random/s0",
    "kl_blocks_lost_chunk": "kl/m3.tp4/rag.chunks/bf16.contig/random/s0",
    "kl_blocks_lost_part": "kl/m3.tp4/rag.holes/bf16.contig/random/s0",
    "kl_blocks_one_head": "kl/m3.tp2/rag.draft/bf16.contig/random/s0",
    "kl_blocks_past_diagonal": "kl/m3.tp4/rag.holes/bf16.contig/random/s0",
    "kl_blocks_race": "kl/m3.tp4/rag.chunks/bf16.contig/random/s0",
    "combine_grid_limit": "combine/h1x1.d16.b16.k1.l1.i0/q65537.n65537/bf16/partials.random/split2/s0",
    "combine_short_maximum": "combine/m3/q4.n8K.x3/bf16/partials.random/split8/s0",
    "decode_later_key": "attend/m3.tp4/rag.draft/bf16.paged/random/s0",
    "decode_lost_blocks": "attend/m3.tp4/rag.draft/bf16.paged/random/s0",
    "decode_other_scale": "index/m3/q4.n32K/bf16.paged/random/fp8/s0",
    "decode_unawaited_keys": "index/m3/rag.draft/bf16.contig/index_code/s0",
    "decode_unawaited_results": "attend/m3.tp4/rag.draft/bf16.paged/random/s0",
    "dense_later_keys": "dense/m3.tp4/rag.draft/bf16.paged/random/s0",
    "dense_lost_spans": "dense/m3.tp4/q1.n32K/bf16.contig/key_code/s0",
    "dense_race": "dense/m3.tp4/rag.draft/bf16.paged/random/s0",
    "index_lost_warp": "index/m3/q1.n64K.x2/bf16.paged/random/s0",
    "kl_dirty_workspace": "kl/m3.tp4/rag.holes/bf16.contig/random/s0",
    "kl_one_head": "kl/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.contig/random/warm/s0",
    "kl_past_diagonal": "kl/m3.tp4/rag.holes/bf16.contig/random/s0",
    "kl_unawaited_copy": "kl/m3.tp4/rag.holes/bf16.contig/random/s0",
    "norm_rope_position": "qk_norm_rope/m3.tp4/rag.holes/bf16/tokens.random/s0",
    "prefill_index_later_key": "index/h6x3.d64.b128.k4.l0.i1/q70.n3000_q33.n900/bf16.paged/random/s0",
    "prefill_index_low_bound": "index/h8x4.d128.b128.k4.l1.i0/q33.n9K/bf16.paged/random/fp8/s0",
    "prefill_index_lost_part": "index/m3.tp4/q120.n4K/bf16.paged/random/s0",
    "prefill_index_negative": "index/m3/q33.n4K/bf16.contig/negative/fp8/s0",
    "prefill_index_other_rows": "index/m3/q33.n4K/bf16.paged/random/fp8tensor/s0",
    "prefill_index_unawaited_copy": "index/m3.tp4/q120.n4K/bf16.paged/random/s0",
    "readers_dirty_workspace": "attend_backward/m3.tp4/rag.holes/bf16.contig/random/s0",
    "rope3d_segment": "rope3d/m3/g5x4x4_1x4x6/bf16/tokens.random/s0",
    "select_grid_limit": "select/h1x1.d16.b4096.k1.l0.i0/q65537.n65537/fp32/select.random/s0",
    "select_last_place": "select/m3/rag.holes/fp32/select.gap/s0",
    "select_shared_ids": "select/m3/rag.holes/fp32/select.gap/s0",
    "scattered_other_scale": "attend/m3.tp4/rag.draft/bf16.paged/random/fp8/s0",
    "scattered_lost_range": "attend/m3.tp4/q120.n4K/bf16.contig/random/s0",
    "scattered_stale_sums": "attend/m3.tp4/q120.n4K/bf16.contig/random/s0",
    "scattered_early_refill": "attend/m3.tp4/q120.n4K/bf16.contig/random/s0",
    "shared_unselected": "attend/m3.tp4/q65.n2177/bf16.paged/random.flat/s0",
    "stream_lost_tiles": "score/m3/rag.edges/bf16.paged/index_code/s0",
    "stream_page_offset": "score/m3/q1.n32K.x4/bf16.paged/index_code/s0",
    "stream_race": "score/m3/q1.n32K.x4/bf16.paged/index_code/s0",
    "sweep_lost_part": "index/m3.tp4/q120.n4K/bf16.paged/random/s0",
    "sweep_missed_tail": "score/m3.tp2/rag.tiles/fp16.paged/random.flat/s0",
    "sweep_page_offset": "score/h6x6.d64.b32.k4.l1.i0/rag.small/bf16.paged/random/s0",
    "sweep_race": "score/m3.tp2/rag.tiles/fp16.paged/random.flat/s0",
    "vit3d_dirty_segments": "vit3d/m3/g5x4x4_1x4x6/bf16/random/s0",
    "vit_causal": "vit_attend/m3/g5x4x4_1x4x6/bf16/random/s0",
    "wide_first_pages": "dense/m3.tp4/rag.draft/bf16.paged/random/s0",
    "wide_later_key": "dense/m3.tp4/rag.draft/bf16.contig/key_code/s0",
    "wide_past_length": "dense/m3.tp4/rag.draft/bf16.paged/random/s0",
    "wide_stale_sums": "dense/m3.tp2/rag.tiles/bf16.paged/random/s0",
    "wide_unawaited_copy": "dense/m3.tp4/rag.draft/bf16.contig/key_code/s0",
}
# Interpreted instructions take hundreds of times as long as compiled ones.
PATIENCE = ("--timeout-s", 600)


# Of what a fault may be seen by, and in which words. Not by the interpreter giving up on an instruction, nor by the time being over.
REJECTING = {
    "fail": "",
    "broken-promise": "",
    "crash": r"signal (7|11) ",  # an address that is nobody's
    "device-lost": "a race on shared memory|nobody can go on|past the end of shared memory|more arrivals than the barrier was made for",
}


def is_rejected(case):
    words = REJECTING.get(case["verdict"])
    return words is not None and re.search(words, case["reason"]) is not None


def is_of_replays(fault):
    return fault.endswith("stale_lengths")


class Interpreted(ProgramTest):
    def judge(self, name, cases, code, seed=0):
        report = self.report("check", "--impl", plugin(name), "--level", "core", "--filter", cases, *PATIENCE, code=code, timeout=7200,
                             env={"MSABENCH_PTX_SEED": str(seed)})
        return [case for case in report["cases"] if case["verdict"] != "unsupported"]

    def test_right_kernels_pass(self):
        for name, all_cases in CASES.items():
            for cases in ("*",) if ALL else all_cases:
                with self.subTest(name=name, cases=cases):
                    seen = self.judge(name, cases, 0)
                    self.assertGreater(len(seen), 0)
                    self.assertEqual({case["verdict"] for case in seen}, {"pass"})

    def test_right_kernels_pass_in_another_order(self):
        for name, all_cases in SHUFFLED.items():
            for seed, cases in enumerate(all_cases, start=1):
                with self.subTest(name=name, cases=cases):
                    self.assertGreater(len(self.judge(name, cases, 0, seed)), 0)

    def test_planted_faults_are_rejected(self):
        built = {path.stem.removeprefix("interpreted_") for path in PLUGINS.glob("interpreted_*.so")}
        wanted = {name for name in kernel_faults.FAULTS if not is_of_replays(name)}
        self.assertEqual(built - wanted, set(), "plugins of faults that there are no longer")
        if ALL:
            self.assertEqual(wanted - built, set(), "build the target interpreted_faults")
        self.assertGreaterEqual(len(built), 5)
        for fault in sorted(built):
            with self.subTest(fault):
                self.assertIn(fault, SEEN_BY, "name the case that sees it")
                seen = self.judge(f"interpreted_{fault}", SEEN_BY[fault], 1)
                self.assertEqual(len(seen), 1)
                self.assertTrue(is_rejected(seen[0]), (seen[0]["verdict"], seen[0]["reason"]))

    def test_what_rejects_a_fault(self):
        for verdict, reason, rejects in (
                ("fail", "K1 attend out at row 1", True),
                ("crash", "run: signal 11 (Segmentation fault)", True),
                ("crash", "run: signal 6 (Aborted)", False),
                ("device-lost", "run: PTX line 2: st.shared.f32 [%r1], %f1: a race on shared memory: line 3 reads the same bytes", True),
                ("device-lost", "run: PTX line 2: foo.bar: the interpreter does not know this instruction", False),
                ("pass", "", False), ("timeout", "a race on shared memory", False), ("suite-error", "", False), ("insensitive", "", False)):
            with self.subTest(verdict=verdict, reason=reason):
                self.assertEqual(is_rejected({"verdict": verdict, "reason": reason}), rejects)

    def test_faults_have_cases(self):
        self.assertEqual({name for name in kernel_faults.FAULTS if not is_of_replays(name)} ^ set(SEEN_BY), set())
        self.assertEqual(set(kernel_faults.hopper_faults.NEED_LITTLE_WORKSPACE) - set(SEEN_BY), set())


if __name__ == "__main__":
    unittest.main()
