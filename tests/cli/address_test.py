# SPDX-License-Identifier: Apache-2.0
"""Places far out: whoever computes one in too few bits is caught, and the machine needs little memory for it."""

import unittest

from program import ProgramTest, plugin

# Each with the faults that its pages are far enough out for.
PAGES = ("page_in_16_bits", "page_in_signed_16_bits")
ALL = PAGES + ("bytes_in_32_bits", "bytes_in_signed_32_bits", "elements_in_32_bits", "elements_in_signed_32_bits")
CASES = {
    "attend/m3/q1.n8K/bf16.paged/needle/pool128K/s0": ALL,
    "attend/m3.tp4/rag.draft/bf16.fused/random/pool256K/s0": ALL,
    "attend/m3.tp4/rag.draft/bf16.paged/random/pool512K/fp8/s0": ALL,
    "attend/h2x1.d64.b32.k4.l1.i0/rag.small/bf16.paged/random/pool128K/s0": PAGES,
    "dense/m3.tp4/rag.draft/bf16.paged/random/pool512K/s0": ALL,
    "dense/m3.tp4/rag.draft/bf16.fused/random/pool256K/s0": ALL,
    "msa/m3.tp4/rag.draft/bf16.fused/planted/pool512K/s0": ALL,
    "score/m3/q1.n8K.x2/bf16.paged/random/pool512K/s0": ALL,
    "score/m3.tp4/rag.draft/bf16.fused/random/pool512K/s0": ALL,
    "index/m3/q1.n8K.x2/bf16.paged/random/pool512K/s0": ALL,
    "index/m3.tp4/rag.draft/bf16.fused/random/pool512K/s0": ALL,
}
# The same where places are near: nothing there tells these faults from a right kernel.
NEAR = "attend/m3/q1.n8K/bf16.paged/needle/s0"
ROWS = ("attend/h2x1.d16.b16.k1.l1.i0/q65537.n65537/bf16.paged/random/s0",
        "dense/h1x1.d16.b16.k1.l1.i0/q1.n16.x65537/bf16.paged/random/s0",
        "select/h1x1.d16.b4096.k1.l0.i0/q65537.n65537/fp32/select.random/s0")


class Addresses(ProgramTest):
    def one(self, case, impl, code):
        return self.report("repro", case, "--impl", impl, code=code)["cases"][0]

    def test_what_is_right_passes(self):
        for case in [*CASES, *ROWS]:
            for impl in ("naive", "cpu"):
                if impl == "cpu" and "/fp8" in case:
                    continue  # which it has not
                with self.subTest(case=case, impl=impl):
                    self.assertEqual(self.one(case, impl, 0)["verdict"], "pass")

    def test_short_numbers_are_caught(self):
        for case, faults in CASES.items():
            for fault in faults:
                with self.subTest(case=case, fault=fault):
                    seen = self.one(case, plugin(fault), 1)
                    self.assertIn(seen["verdict"], ("fail", "crash"), seen["reason"])
                    if seen["verdict"] == "crash":
                        self.assertIn("signal 11", seen["reason"])
                        self.assertTrue(any("16 bits" in r for r in seen["remarks"]), seen["remarks"])

    def test_they_are_right_where_numbers_are_small(self):
        for fault in ALL:
            with self.subTest(fault=fault):
                self.assertEqual(self.one(NEAR, plugin(fault), 0)["verdict"], "pass")

    def test_rows_past_16_bits(self):
        for case in ROWS:
            with self.subTest(case=case):
                seen = self.one(case, plugin("rows_in_16_bits"), 1)
                self.assertEqual((seen["verdict"], seen["kind"]), ("fail", "contract"), seen["reason"])
                self.assertIn("row 65536", seen["reason"])


if __name__ == "__main__":
    unittest.main()
