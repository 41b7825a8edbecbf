# SPDX-License-Identifier: Apache-2.0
"""The main jobs as a whole: the lists on naive, the examples, qualify."""

import json
import time
import unittest

from program import Busy, ProgramTest, plugin, run


class Whole(ProgramTest):
    def test_naive_passes_core(self):
        start = time.monotonic()
        report = self.report("check", "--impl", "naive", "--level", "core", code=0)
        self.assertLess(time.monotonic() - start, 240)
        self.assertGreaterEqual(len(report["cases"]), 60)
        self.assertEqual({c["verdict"] for c in report["cases"]}, {"pass"})
        self.assertEqual({c["name"].split("/")[0] for c in report["cases"]}, {"attend", "combine", "dense", "index", "msa", "qk_norm_rope", "score", "select",
                                                                              "attend_backward", "dense_backward", "kl", "rope3d", "vit_attend", "vit3d"})
        for case in report["cases"]:
            if case["rows_total"] and "idle" not in case["name"]:
                self.assertTrue(case["detectability"]["judged"], case["name"])
                self.assertGreaterEqual(case["detectability"]["value"], 4, case["name"])
                self.assertGreater(case["rows_checked"], 0, case["name"])

    def test_examples_pass_what_they_accept(self):
        for name in ("example_c", "example_cpp"):
            with self.subTest(name=name):
                report = self.report("check", "--impl", plugin(name), "--op", "attend", code=0)
                self.assertEqual({c["verdict"] for c in report["cases"]}, {"pass", "unsupported"})
                self.assertGreater(sum(c["verdict"] == "pass" for c in report["cases"]), 8)

    def test_other_seeds_pass_too(self):
        self.report("check", "--impl", "naive", "--seed", "18446744073709551615", code=0)

    def test_in_process_agrees(self):
        report = self.report("check", "--impl", "naive", "--in-process", code=0)
        self.assertEqual({c["verdict"] for c in report["cases"]}, {"pass"})

    def test_qualify_leaves_its_reports(self):
        result = run("qualify", "--without-speed", cwd=self.folder)
        self.assertEqual(result.code, 0, result.out + result.err)
        folder = self.folder / "out" / "qualify"
        page = (folder / "report.md").read_text()
        self.assertIn("**Right? PASSED**", page)
        self.assertIn("NOT MEASURED: left out by --without-speed", page)
        self.assertEqual(sorted(p.name for p in folder.iterdir()), ["junit.xml", "report.json", "report.md"])
        report = json.loads((folder / "report.json").read_text())
        self.assertEqual(report["schema"], "msabench.report/1")

    def test_qualify_refuses_paths_before_it_runs(self):
        for words, arguments in [(("--out", "empty"), ("--out", "")),
                                 (("--junit", "same file"), ("--json", self.folder / "x", "--junit", self.folder / "x")),
                                 (("--budget-s", "soon"), ("--budget-s", "soon")), (("--busy", "maybe", "tell"), ("--busy", "maybe"))]:
            with self.subTest(words=words):
                result = run("qualify", "--without-speed", *arguments, cwd=self.folder)
                self.assert_refused(result, *words)
                self.assertEqual(result.out, "")

    def test_qualify_on_a_busy_machine_says_so(self):
        """Right is told, fast is not, and no number slips into the page."""
        with Busy():
            result = run("qualify", "--impl", "naive", "--budget-s", "5", "--out", self.folder / "out")
        self.assertEqual(result.code, 4, result.out + result.err)
        page = (self.folder / "out" / "report.md").read_text()
        self.assertIn("**Right? PASSED**", page)
        self.assertIn("NOT MEASURED", page)
        self.assertIn("--busy tell", page)
        self.assertNotIn("GFLOP/s", page)

    def test_qualify_on_a_busy_machine_marks_numbers_where_asked(self):
        with Busy():
            run("qualify", "--impl", "naive", "--budget-s", "20", "--busy", "tell", "--out", self.folder / "out")
        page = (self.folder / "out" / "report.md").read_text()
        self.assertIn("GFLOP/s", page)
        self.assertIn("measured on a busy machine", page)

    def test_shards_make_the_whole(self):
        whole = self.report("check", "--impl", "naive", "--op", "select", code=0)
        parts = []
        for i in range(2):
            parts += [c["name"] for c in self.report("check", "--impl", "naive", "--op", "select", "--shard", f"{i}/2", code=0)["cases"]]
        self.assertEqual(set(parts), {c["name"] for c in whole["cases"]})
        # What every shard runs.
        self.assertEqual(len(parts), len(whole["cases"]) + 1)

    def test_outputs_decide_bit_by_bit(self):
        """Verdicts, limits and all numbers depend neither on the threads that the suite has nor on the split into shards."""
        def judged(*arguments, threads):
            report = self.report("check", "--impl", "naive", "--filter", "*/rag.*", *arguments, env={"OMP_NUM_THREADS": threads}, code=0)
            return {c["name"]: json.dumps([c["verdict"], c["checks"], c["detectability"], c["rows_checked"]], sort_keys=True)
                    for c in report["cases"]}
        whole = judged(threads="1")
        self.assertGreater(len({name.split("/")[0] for name in whole}), 6)
        self.assertEqual(whole, judged(threads="2"))
        self.assertEqual(whole, judged(threads="3"))
        for count in (2, 5):
            parts = {}
            for index in range(count):
                for name, numbers in judged("--shard", f"{index}/{count}", threads=str(1 + index % 3)).items():
                    self.assertEqual(parts.setdefault(name, numbers), numbers, name)
            self.assertEqual(whole, parts, count)


if __name__ == "__main__":
    unittest.main()
