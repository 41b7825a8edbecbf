# SPDX-License-Identifier: Apache-2.0
"""check --fuzz: random cases until time is up."""

import json
import signal
import subprocess
import time
import unittest

from fuzz_run import FuzzTest
from program import MSABENCH, plugin, run


class Fuzz(FuzzTest):
    def test_naive_survives_and_the_report_says_what_was_run(self):
        report = self.report("check", "--impl", "naive", "--fuzz", "4", "--seed", "2", code=0)
        self.assertEqual(report["run"]["fuzz"], {"seed": "2", "seconds": 4.0, "failures": []})
        self.assertEqual(report["run"]["seed"], "2")
        self.assertEqual(report["run"]["level"], "")
        self.assertFalse(report["run"]["partial"])
        self.assertGreater(report["summary"]["passed"], 10)
        self.assertGreater(len({c["name"].split("/")[0] for c in report["cases"]}), 5)

    def test_the_seed_decides_what_is_drawn(self):
        def names(seed, *arguments):
            report = self.report("check", "--impl", "naive", "--fuzz", "1", "--seed", seed, *arguments)
            return [c["name"] for c in report["cases"]][:4]

        self.assertEqual(names("3"), names("3"))
        self.assertNotEqual(names("3"), names("4"))
        self.assertEqual({n.split("/")[0] for n in names("3", "--op", "select")}, {"select"})

    def test_bad_arguments_are_refused(self):
        for seconds in ("0", "-1", "x", "1e9", "nan"):
            self.assert_refused(run("check", "--impl", "naive", "--fuzz", seconds), "--fuzz", seconds)
        self.assert_refused(run("check", "--impl", "naive", "--fuzz", "1", "--op", "nothing"), "--op")
        for option in (["--level", "core"], ["--filter", "*"], ["--shard", "0/2"]):
            self.assert_refused(run("check", "--impl", "naive", "--fuzz", "1", *option), "--fuzz", option[0])

    def test_nothing_verified_is_no_pass(self):
        report = self.report("check", "--impl", plugin("refuse_all"), "--fuzz", "1", code=3)
        self.assertEqual(report["summary"]["verdicts"]["unsupported"], report["summary"]["total"])

    def test_ends_when_nearly_all_fails(self):
        report = self.report("check", "--impl", plugin("crash_get"), "--fuzz", "300", code=1)
        self.assertIn("ended early: 1000 cases have failed", str(report["cases"][-1]["remarks"]))
        self.assertLess(report["summary"]["total"], 1500)

    def test_ctrl_c_leaves_a_partial_report(self):
        path = self.folder / "r.json"
        process = subprocess.Popen([MSABENCH, "check", "--impl", "naive", "--fuzz", "100", "--json", path],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 2, out + err)
        report = json.loads(path.read_text())
        self.assertTrue(report["run"]["partial"])
        self.assertEqual(report["run"]["fuzz"]["seconds"], 100)
        self.assertGreater(report["summary"]["total"], 0)

    def test_finds_a_key_past_the_diagonal(self):
        # A row alone has another key past the diagonal, so it is not batch-invariant either.
        due = ["fail K1", "fail K2", "fail K3", "broken-promise K7b"]
        self.assert_found("mask_off_by_one", "attend", due, 5, "--op", "attend")

    def test_finds_exchanged_pages(self):
        for f in self.assert_found("swap_table_entries", "dense", ["fail K1", "fail K2", "fail K3", "fail K0"], 5, "--op", "dense"):
            self.assertRegex(f["smallest"], r"\.(paged|fused)/")

    def test_finds_a_lost_partial_result(self):
        self.assert_found("combine_forgets_part", "combine", ["fail K0", "fail K1", "fail K2"], 5, "--op", "combine")


if __name__ == "__main__":
    unittest.main()
