# SPDX-License-Identifier: Apache-2.0
"""msabench merge: shards and parts become one report, and what does not belong together is refused."""

import json
import unittest

import jsonschema

from program import SCHEMA, ProgramTest, run


class Merge(ProgramTest):
    def shard(self, index, impl="naive"):
        path = self.folder / f"{impl}-{index}.json"
        done = run("check", "--impl", impl, "--level", "sanitize", "--op", "select,combine,score", "--shard", f"{index}/2", "--json", path)
        self.assertEqual(done.code, 0, done.err)
        return path

    def part(self, report, **fields):
        whole = json.loads(report.read_text())
        line = {"part": "sanitize", "item": "memcheck", "of": "naive", "sha256": whole["implementation"]["sha256"],
                "commit": whole["suite"]["commit"], "dirty": whole["suite"]["dirty"], "device": "", "state": "passed", "seconds": 1, "detail": ""}
        path = self.folder / "parts.jsonl"
        path.write_text(json.dumps({**line, **fields}) + "\n")
        return path

    def test_shards_make_the_report_of_the_level(self):
        first, second = self.shard(0), self.shard(1)
        half = run("merge", first, "--out", self.folder / "half")
        self.assertEqual(half.code, 2, half.err)
        self.assertIn("not-run  conform sanitize, --op select,combine,score, shard 1 of 2", half.out)
        whole = run("merge", self.folder / "half" / "report.json", second, "--out", self.folder / "whole")
        self.assertEqual(whole.code, 0, whole.out + whole.err)
        report = json.loads((self.folder / "whole" / "report.json").read_text())
        jsonschema.validate(report, SCHEMA)
        names = [c["name"] for c in report["cases"]]
        self.assertEqual(len(names), 4)
        self.assertEqual(len(set(names)), 4)
        self.assertEqual([s["file"] for s in report["run"]["merged_from"]], [str(first), str(second)])
        self.assertIn("Merged from", (self.folder / "whole" / "report.md").read_text())
        self.assertTrue((self.folder / "whole" / "junit.xml").exists())

    def test_the_worse_verdict_stands(self):
        whole = self.shard(0)
        report = json.loads(whole.read_text())
        report["cases"][0].update(verdict="fail", kind="numeric", reason="planted")
        report["summary"]["verdicts"].update({"pass": report["summary"]["total"] - 1, "fail": 1})
        report["summary"].update(passed=report["summary"]["total"] - 1, exit_code=1)
        other = self.folder / "other.json"
        other.write_text(json.dumps(report))
        done = run("merge", whole, other, self.shard(1))
        self.assertEqual(done.code, 1, done.err)
        self.assertIn(f"disagreement: {report['cases'][0]['name']}: pass in {whole}, fail (numeric) in {other}", done.out)

    def test_parts_decide_too(self):
        first, second = self.shard(0), self.shard(1)
        for state, code in [("passed", 0), ("not-run", 2), ("failed", 1)]:
            done = run("merge", first, second, "--parts", self.part(first, state=state, detail="because"))
            self.assertEqual(done.code, code, done.out + done.err)
            self.assertIn("sanitize memcheck of naive: because", done.out)

    def test_what_does_not_belong_together_is_refused(self):
        first = self.shard(0)
        self.assert_refused(run("merge", first, self.shard(1, "cpu")), "REPORT", "the implementation is cpu")
        self.assert_refused(run("merge", first, "--parts", self.part(first, commit="0123")), "--parts", "the suite's commit is 0123")
        self.assert_refused(run("merge", first, "--parts", self.part(first, device="NVIDIA H200")), "--parts", "the device is NVIDIA H200")
        self.assert_refused(run("merge", first, "--parts", self.part(first, state="ok")), "parts.jsonl:1", "state")
        self.assert_refused(run("merge", self.folder / "nowhere.json"), "REPORT", "nowhere.json")
        self.assertEqual(run("merge").code, 64)


if __name__ == "__main__":
    unittest.main()
