# SPDX-License-Identifier: Apache-2.0
"""msabench flops: tables, JSON, CSV, its documented output, and what it refuses."""

import csv
import io
import json
import re
import shutil
import subprocess
import unittest

from program import MSABENCH, SOURCE, ProgramTest, run

PHASES = ("prefill", "decode", "training")


class Flops(ProgramTest):
    def flops(self, *arguments, code=0):
        result = run("flops", *arguments, "--json", "-")
        self.assertEqual(result.code, code, result.err)
        return json.loads(result.out)

    def test_published_check_values(self):
        row = self.flops("--context", "1M")["rows"][0]["sparse_layer"]
        self.assertAlmostEqual(row["paper_ratio"], 28.44, delta=0.005)
        self.assertAlmostEqual(row["ratio"], 28.55, delta=0.005)
        self.assertAlmostEqual(row["paper_index_share"], 0.89, delta=0.005)
        self.assertAlmostEqual(row["selected_keys_per_token"], 1982.6, delta=0.05)
        text = run("flops", "--context", "1M").out
        for figure in ("28.44x", "28.55x", "4229", "28.4x"):
            self.assertIn(figure, text)

    def test_limits_on_the_h200(self):
        for phase, bf16, fp8 in (("decode", 7.88, 15.5), ("prefill", 28.5, 51.5)):
            limits = {(l["ceilings"], l["index_type"]): l["layer"] for l in self.flops("--phase", phase, "--context", "1M")["rows"][0]["limits"]}
            self.assertAlmostEqual(limits["datasheet", "bf16"], bf16, delta=0.06)
            self.assertAlmostEqual(limits["datasheet", "e4m3"], fp8, delta=0.06)

    def test_every_model_and_phase(self):
        for model in ("m3", "m3-dense-layer", "paper-pilot", "previous"):
            for phase in PHASES:
                with self.subTest(model=model, phase=phase):
                    document = self.flops("--model", model, "--phase", phase, "--context", "1,2047,1M,16M")
                    self.assertEqual([r["context"] for r in document["rows"]], [1, 2047, 1 << 20, 1 << 24])
                    self.assertEqual(document["model"]["name"], model)
                    for row in document["rows"]:
                        self.assertGreater(row["model"]["flops"], 0)
                        self.assertEqual(row["sparse_layer"] is None, model in ("m3-dense-layer", "previous"))

    def test_baselines_stay_apart(self):
        row = self.flops("--context", "1M")["rows"][0]
        self.assertAlmostEqual(row["previous_model"]["layer_ratio"] / row["sparse_layer"]["ratio"], 48 / 64, delta=1e-9)
        text = run("flops").out
        same, previous = text.index("published, against same-model"), text.index("published, against previous-model")
        self.assertLess(text.index("14.2x"), previous)
        self.assertLess(same, text.index("14.2x"))
        self.assertLess(previous, text.index("9.7x"))

    def test_csv_is_a_table_of_numbers(self):
        for phase in PHASES:
            result = run("flops", "--phase", phase, "--csv", "-", "--context", "8K,1M")
            self.assertEqual(result.code, 0, result.err)
            self.assertIn("context", result.err)  # tables for people
            rows = list(csv.DictReader(io.StringIO(result.out)))
            document = self.flops("--phase", phase, "--context", "8K,1M")
            self.assertEqual(len(rows), 2)
            for line, row in zip(rows, document["rows"]):
                self.assertEqual(int(line["context"]), row["context"])
                self.assertEqual(float(line["msa_flops"]), row["sparse_layer"]["flops"])
                self.assertEqual(float(line["dense_compulsory_bytes"]), row["dense_layer"]["compulsory_bytes"]["least"])
                for key, value in line.items():
                    if value:
                        self.assertRegex(value, r"^[0-9.e+]+$", key)

    def test_files(self):
        as_json, as_csv = self.folder / "f.json", self.folder / "f.csv"
        result = run("flops", "--json", as_json, "--csv", as_csv)
        self.assertEqual(result.code, 0, result.err)
        self.assertIn("28.44x", result.out)
        self.assertEqual(json.loads(as_json.read_text())["schema"], "msabench.flops/1")
        self.assertEqual(len(as_csv.read_text().splitlines()), 6)

    def test_chunk(self):
        row = self.flops("--context", "1M", "--chunk", "8K")["rows"][0]
        self.assertEqual(row["query_tokens"], 8192)
        self.assertAlmostEqual(row["sparse_layer"]["attention_flops"], 0.533e12, delta=0.0005e12)
        self.assertIsNone(row["sparse_layer"]["paper_ratio"])

    def test_own_model_and_device(self):
        model, device = self.folder / "model.json", self.folder / "device.json"
        model.write_text(json.dumps({"name": "two\nlines", "hq": 8, "hkv": 2, "d": 64, "sparse_layers": 3, "block": 32, "topk": 4}))
        device.write_text(json.dumps({"name": "box", "measured": {"flops": {"bf16": 1e12}, "bytes_per_s": 1e11, "source": "me"}}))
        document = self.flops("--model", model, "--device", device, "--context", "4K")
        self.assertEqual(document["model"]["hi"], 2)
        self.assertEqual([l["index_type"] for l in document["rows"][0]["limits"] if l["layer"] is not None], ["bf16"])
        text = run("flops", "--model", model, "--device", device).out
        self.assertIn(r"two\nlines", text)
        self.assertIn("on box", text)

    def test_outputs_do_not_depend_on_the_locale(self):
        german = self.german()
        for arguments in (["--csv", "-"], ["--json", "-"], []):
            plain, other = run("flops", *arguments), run("flops", *arguments, env=german)
            self.assertEqual((plain.out, plain.err), (other.out, other.err))

    def test_refused(self):
        bad_json, bad_model, bad_device = (self.folder / name for name in ("a.json", "b.json", "c.json"))
        bad_json.write_text("{")
        bad_model.write_text(json.dumps({"hq": 7, "hkv": 2, "d": 64, "dense_layers": 3}))
        bad_device.write_text(json.dumps({"measured": {"flops": {"bf16": 0}, "bytes_per_s": 1e11, "source": "me"}}))
        for arguments, words in [
            (["--model", "m4"], ["--model m4", "m3-dense-layer"]),
            (["--model", ""], ["--model"]),
            (["--model", self.folder], ["--model"]),
            (["--model", bad_json], ["--model", "not valid JSON"]),
            (["--model", bad_model], ["--model.hq 7", "hkv 2"]),
            (["--device", "abacus"], ["--device abacus", "h200"]),
            (["--device", bad_device], ["--device.measured.flops.bf16 0"]),
            (["--device", bad_json], ["--device", "not valid JSON"]),
            (["--phase", "rest"], ["--phase rest", "prefill, decode or training"]),
            (["--context", ""], ["--context", "empty"]),
            (["--context", "8K,"], ["--context", "ends with a comma"]),
            (["--context", ",8K"], ["--context", "empty"]),
            (["--context", "0"], ["--context 0", "zero"]),
            (["--context", "-5"], ["--context"]),
            (["--context", "17M"], ["--context 17M", "too large"]),
            (["--context", "99999999999999999999"], ["--context", "too large"]),
            (["--context", "8K 1M"], ["--context"]),
            (["--context", ",".join(["1"] * 1001)], ["--context", "1000"]),
            (["--chunk", "0"], ["--chunk 0"]),
            (["--chunk", "8K", "--phase", "decode"], ["--chunk 8K", "prefill only"]),
            (["--csv", ""], ["--csv", "empty"]),
            (["--csv", "/no/such/folder/f.csv"], ["--csv"]),
            (["--json", "-", "--csv", "-"], ["--csv", "--json"]),
            (["--json", self.folder / "x", "--csv", self.folder / "x"], ["--csv", "--json"]),
            (["extra"], ["extra"]),
        ]:
            with self.subTest(arguments=arguments):
                result = run("flops", *arguments)
                self.assert_refused(result, *words)
                self.assertEqual(result.out, "")

    def test_documented_output(self):
        """The page shows what the command prints."""
        page = (SOURCE / "docs" / "work-model.md").read_text()
        shown = re.findall(r"^    \$ msabench (flops[^\n]*)\n\n```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(shown), 3)
        for arguments, text in shown:
            self.assertEqual(run(*arguments.split()).out, text, arguments)

    def test_installed_alone(self):
        """The data is in the program: it needs no file of the tree."""
        binary = self.folder / "msabench"
        shutil.copy(MSABENCH, binary)
        done = subprocess.run([binary, "flops", "--context", "1M"], cwd=self.folder, text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, run("flops", "--context", "1M").out)


if __name__ == "__main__":
    unittest.main()
