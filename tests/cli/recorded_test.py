# SPDX-License-Identifier: Apache-2.0
"""Family recorded: values of a file are judged like any others, and a file that does not fit the case is one line."""

import json
import struct
import unittest

import program
import recorded_file
from program import ProgramTest, plugin, run


def case(operation, layout="paged", shape=recorded_file.SHAPE, lengths=recorded_file.LENGTHS, dtype="bf16", options=""):
    return f"{operation}/{shape}/{lengths}/{dtype}.{layout}/recorded.small{options}/s0"


class Recorded(ProgramTest):
    def setUp(self):
        super().setUp()
        self.tensors = recorded_file.tensors()
        self.write()

    def write(self, name="small"):
        recorded_file.write(self.folder / f"{name}.safetensors", self.tensors)

    def refused(self, name, *words):
        result = run("repro", name, "--impl", "naive", "--recorded", self.folder)
        self.assertEqual(result.code, 64, result.out + result.err)
        lines = result.err.strip().splitlines()
        self.assertEqual(len(lines), 1, result.err)
        for word in words:
            self.assertIn(word, lines[0])

    def test_is_judged_in_every_layout(self):
        names = [case("attend"), case("attend", "contig", options="/stride"), case("attend", "fused"), case("dense"),
                 case("msa"), case("msa", "contig"), case("score"), case("index", "contig")]
        (self.folder / "cases.txt").write_text("# what was recorded\n" + "".join(n.removesuffix("/s0") + "\n" for n in names))
        report = self.report("check", "--impl", "naive", "--filter", "*recorded*", "--recorded", self.folder, code=0)
        self.assertEqual([c["name"] for c in report["cases"]], names)
        for c in report["cases"]:
            self.assertGreaterEqual(c["detectability"]["value"], 4, c["name"])
            self.assertIn(f"--recorded {self.folder}", c["repro"])

    def test_a_wrong_kernel_fails_on_it(self):
        report = self.report("repro", case("attend"), "--impl", plugin("double_block"), "--recorded", self.folder, code=1)
        self.assertEqual(report["cases"][0]["verdict"], "fail")

    def test_the_definition_covers_the_file(self):
        def definition():
            result = run("describe", case("attend"), "--recorded", self.folder, "--json", "-")
            self.assertEqual(result.code, 0, result.err)
            return json.loads(result.out)["definition_sha256"]
        before = definition()
        self.assertEqual(before, definition())
        self.tensors = recorded_file.tensors(seed=2)
        self.write()
        self.assertNotEqual(before, definition())

    def test_nothing_recorded(self):
        result = run("repro", case("attend"), "--impl", "naive")
        self.assertEqual(result.code, 64)
        self.assertIn("--recorded", result.err)
        self.refused(case("attend").replace("small", "large"), "large.safetensors")
        self.refused(case("attend", options="/fp8"), "fp8")
        self.assertEqual(run("repro", case("attend"), "--impl", "naive", "--recorded", self.folder / "no").code, 64)
        self.assertEqual(run("check", "--impl", "naive", "--recorded", self.folder / "no").code, 64)

    def test_a_bad_line_of_the_cases_is_named(self):
        (self.folder / "cases.txt").write_text("\nattend/m3\n")
        result = run("list", "--recorded", self.folder)
        self.assertEqual(result.code, 64)
        self.assertIn("cases.txt:2", result.err)

    def test_what_does_not_fit_is_one_line(self):
        self.refused(case("attend", lengths="q3.n201.x2"), "small.safetensors", "tensor k", "[400,2,32]", "[402,2,32]")
        self.refused(case("attend", dtype="fp16"), "tensor q", "BF16", "F16")
        self.refused(case("attend", shape="h2x2.d32.b16.k3.l1.i0"), "tensor q", "[6,4,32]", "[6,2,32]")
        del self.tensors["q_idx"]
        self.write()
        self.refused(case("msa"), "tensor q_idx", "missing")

    def test_values_and_ids_are_checked(self):
        good = dict(self.tensors)
        dtype, shape, content = good["v"]
        self.tensors["v"] = (dtype, shape, content[:6] + b"\xc0\x7f" + content[8:])
        self.write()
        self.refused(case("dense"), "tensor v", "element 3")
        for ids in ([3, 3, 12], [12, 3, 5], [1, 2, 13], [1, 12, -1], [-1, 1, 12]):
            self.tensors = dict(good)
            dtype, shape, content = good["ids"]
            self.tensors["ids"] = (dtype, shape, content[:12] + struct.pack("<3i", *ids) + content[24:])
            self.write()
            with self.subTest(ids=ids):
                self.refused(case("attend"), "tensor ids", "row 0, head 1")

    def test_a_damaged_file_is_one_line(self):
        (self.folder / "small.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
        self.refused(case("attend"), "small.safetensors")


if __name__ == "__main__":
    unittest.main()
