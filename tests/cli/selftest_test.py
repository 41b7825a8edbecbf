# SPDX-License-Identifier: Apache-2.0
"""The suite's test of itself, on a few mutants and variants: what is rejected, what is accepted, and what is said of it."""

import json
import unittest

from program import BUILD, QUICK, ProgramTest, plugin, run

SELECT = "select/h8x2.d64.b32.k4.l3.i1/rag.small/fp32/select.random"
ATTEND = QUICK.removesuffix("/s0")


class Selftest(ProgramTest):
    def selftest(self, *arguments, code):
        path = self.folder / "selftest.json"
        result = run("selftest", *arguments, "--json", path)
        self.assertEqual(result.code, code, result.out + result.err)
        return json.loads(path.read_text()), result.out

    def test_mutants_die_and_variants_live(self):
        record, text = self.selftest("--quick", "--only", "ids-*", "--filter", "select/*", code=0)
        self.assertEqual([v["name"] for v in record["variants"]], ["variants:ids-any-order", "variants:ids-by-score"])
        record, text = self.selftest("--quick", "--only", "SEL-1.a", code=0)
        mutant, = record["mutants"]
        self.assertEqual((mutant["held"], mutant["by"], mutant["due"]), (True, "K5", ["K5"]))
        self.assertFalse(record["whole"])
        self.assertTrue(record["valid"])
        self.assertIn("HELD: 1 of 1 mutants rejected", text)
        # The commands that it gives reproduce what it says.
        repro = mutant["trials"][0]["repro"].split()
        self.assertEqual(run(*repro[1:]).code, 1)

    def test_without_a_check_nothing_is_valid(self):
        record, text = self.selftest("--quick", "--only", "SEL-1.a", "--without", "K5", code=2)
        self.assertFalse(record["valid"])
        self.assertFalse(record["mutants"][0]["held"])
        self.assertIn("INVALID", text)
        self.assertNotIn("HELD", text)
        self.assert_refused(run("selftest", "--without", "K77"), "--without", "K77")

    def test_plugins_from_elsewhere(self):
        few = ("--quick", "--only", "none", "--filter", ATTEND)
        record, _ = self.selftest(*few, "--mutant", plugin("drop_key"), "--variant", plugin("emits_base2_lse"), code=0)
        self.assertEqual(len(record["mutants"]), 1)
        record, text = self.selftest(*few, "--mutant", BUILD / "lib/msabench/naive.so", code=1)
        self.assertIn("lives", record["mutants"][0]["complaint"])
        self.assertIn("not held", text)
        record, _ = self.selftest(*few, "--variant", plugin("drop_key"), code=1)
        self.assertFalse(record["variants"][0]["held"])
        self.assert_refused(run("selftest", "--mutant", "nowhere.so"), "nowhere.so")

    def test_nothing_to_try_is_no_success(self):
        record, text = self.selftest("--only", "none", code=3)
        self.assertFalse(record["valid"])
        self.assertIn("NOTHING TRIED: no mutant or variant matches --only", text)
        self.assertNotIn("FAILED", text)

    def test_leaves_a_page(self):
        self.selftest("--quick", "--only", "SEL-1.?", "--out", self.folder / "out", code=0)
        page = (self.folder / "out/selftest.md").read_text()
        self.assertIn("| mutants:SEL-1.b |", page)
        self.assertEqual(json.loads((self.folder / "out/selftest.json").read_text())["schema"], "msabench.selftest/1")


class Chosen(ProgramTest):
    """One of several that a plugin is, chosen behind a colon."""

    def test_check_and_repro(self):
        report = self.report("repro", SELECT + "/s0", "--impl", "mutants:SEL-1.a", code=1)
        self.assertEqual(report["implementation"]["name"], "mutants:SEL-1.a")
        self.assertEqual(report["cases"][0]["verdict"], "fail")
        self.assertIn("--impl mutants:SEL-1.a", report["cases"][0]["repro"])
        self.report("check", "--impl", "variants:ids-any-order", "--filter", SELECT + "*", code=0)
        self.report("repro", QUICK, "--impl", str(BUILD / "lib/msabench/mutants.so") + ":CAUS-2.a", code=1)
        self.report("repro", QUICK, "--impl", "mutants:CAUS-2.a", "--in-process", code=1)

    def test_refused(self):
        self.assert_refused(run("repro", QUICK, "--impl", "mutants"), "--impl", "mutants:ID")
        self.assert_refused(run("repro", QUICK, "--impl", "mutants:"), "--impl", "mutants:ID")
        self.assert_refused(run("repro", QUICK, "--impl", "mutants:SEL-99.z"), "--impl", "SEL-99.z")
        self.assert_refused(run("repro", QUICK, "--impl", "naive:fast"), "--impl", "naive")

    def test_lists(self):
        for what, key, few in (("mutants", "id", 90), ("variants", "name", 20)):
            path = self.folder / "list.json"
            result = run("list", what, "--json", path)
            self.assertEqual(result.code, 0, result.err)
            rows = json.loads(path.read_text())[what]
            self.assertGreaterEqual(len(rows), few)
            self.assertEqual(len(rows), len(result.out.splitlines()))
            for row in rows:
                self.assertTrue(row[key] and row["cases"])


if __name__ == "__main__":
    unittest.main()
