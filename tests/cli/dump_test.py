# SPDX-License-Identifier: Apache-2.0
"""`repro --dump`: files that anyone can read, whole or not there."""

import json
import math
import pathlib
import struct
import subprocess
import unittest

from program import MSABENCH, QUICK, ProgramTest, plugin, run

NAMES = ["expected.safetensors", "inputs.safetensors", "limits.safetensors", "outputs.safetensors"]
CASES = {
    "attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.fused/random/stride/s0": {"out", "lse"},
    "dense/h8x2.d64.b32.k4.l1.i0/rag.small/fp32.contig/random/s0": {"out", "lse"},
    "msa/h8x2.d64.b32.k4.l1.i0/rag.small/fp32.paged/random/s0": {"out", "lse", "ids"},
    "select/h8x2.d64.b32.k4.l3.i1/rag.small/fp32/select.random/s0": {"ids"},
    "score/h8x2.d64.b32.k4.l1.i0/rag.small/fp16.paged/random/s0": {"scores"},
    "index/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/random/s0": {"ids", "lse_idx"},
    "combine/h8x2.d64.b32.k4.l1.i0/rag.small/fp32/partials.holes/split4/s0": {"out", "lse"},
    "qk_norm_rope/h8x2.d64.b32.k4.l1.i0/rag.small/fp32/tokens.random/s0": {"q_rope", "k_rope", "q_idx_rope", "k_idx_rope"},
}


def read(path):
    """Tensors of a safetensors file by name: (dtype, shape, numbers), bf16 as float, without numpy or torch."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    tensors, metadata = {}, header.pop("__metadata__")
    for name, info in header.items():
        begin, end = (8 + length + at for at in info["data_offsets"])
        raw = data[begin:end]
        if info["dtype"] == "BF16":
            numbers = [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]
        else:
            letter = {"F64": "d", "F32": "f", "F16": "e", "I32": "i"}[info["dtype"]]
            numbers = struct.unpack(f"<{len(raw) // struct.calcsize(letter)}{letter}", raw)
        tensors[name] = (info["dtype"], info["shape"], numbers)
    return tensors, metadata


class Dump(ProgramTest):
    def dump(self, case, impl="naive", code=0, folder="dump"):
        result = run("repro", case, "--impl", impl, "--dump", self.folder / folder)
        self.assertEqual(result.code, code, result.out + result.err)
        return self.folder / folder, result

    def test_outputs_are_within_limits_of_what_is_expected(self):
        for case, outputs in CASES.items():
            with self.subTest(case=case):
                folder, _ = self.dump(case)
                # Ids are right or wrong, at no distance.
                names = [n for n in NAMES if outputs != {"ids"} or n != "limits.safetensors"]
                self.assertEqual(sorted(p.name for p in folder.iterdir()), names)
                got, metadata = read(folder / "outputs.safetensors")
                want, _ = read(folder / "expected.safetensors")
                limits = read(folder / "limits.safetensors")[0] if outputs != {"ids"} else {}
                inputs, _ = read(folder / "inputs.safetensors")
                self.assertEqual(metadata["case"], case)
                self.assertIn("kv_lens" if "combine" not in case else "partial_out", inputs)
                self.assertTrue(outputs <= set(got), set(got))
                self.assertEqual(set(want), set(got))
                self.assertEqual(set(limits), set(got) - {"ids"})
                for name in outputs:
                    self.assertEqual(got[name][1], want[name][1])
                    compared = 0
                    for i, expected in enumerate(want[name][2]):
                        limit = 0 if name == "ids" else limits[name][2][i]
                        if math.isnan(expected) or math.isnan(limit):
                            continue
                        compared += 1
                        if got[name][2][i] != expected:
                            self.assertLessEqual(abs(got[name][2][i] - expected), limit, f"{name} at {i}")
                    self.assertGreater(compared, len(want[name][2]) // 8, name)

    def test_a_wrong_element_stands_out(self):
        folder, _ = self.dump(QUICK, plugin("drop_key"), code=1)
        got, want, limits = (read(folder / f"{n}.safetensors")[0]["out"][2] for n in ("outputs", "expected", "limits"))
        self.assertTrue(any(abs(g - w) > l for g, w, l in zip(got, want, limits)))

    def test_poison_stands_where_it_stood(self):
        folder, _ = self.dump("attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/random/s0")
        self.assertTrue(any(math.isnan(x) for x in read(folder / "inputs.safetensors")[0]["k"][2]))

    def test_a_crash_leaves_inputs_alone(self):
        self.dump(QUICK)
        folder, _ = self.dump(QUICK, plugin("crash_run"), code=1)
        self.assertEqual([p.name for p in folder.iterdir()], ["inputs.safetensors"])

    def test_what_is_too_large_is_refused_before_it_runs(self):
        result = run("repro", "attend/m3/q1.n8K/bf16.paged/needle/pool128K/s0", "--impl", "naive", "--dump", self.folder / "dump")
        self.assert_refused(result, "--dump", "GiB", "limit")
        self.assertEqual(result.out, "")
        self.assertFalse((self.folder / "dump").exists())

    def test_folders_that_take_nothing_are_refused_before_it_runs(self):
        (self.folder / "file").write_text("")
        for place in ("/proc/nothing", self.folder / "file", self.folder / "file" / "below"):
            with self.subTest(place=place):
                result = run("repro", QUICK, "--impl", "naive", "--dump", place)
                self.assert_refused(result, "--dump")
                self.assertEqual(result.out, "")

    def test_a_full_disk_leaves_what_was_there(self):
        folder = self.folder / "small"
        folder.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2560k", "none", str(folder)], capture_output=True).returncode != 0:
            self.skipTest("may not mount a small disk here")
        try:
            self.dump(QUICK, folder="small")
            before = {p.name: p.read_bytes() for p in folder.iterdir()}
            # The second one stands beside the first until it is whole.
            done = run("repro", QUICK, "--impl", "naive", "--dump", folder)
            self.assertEqual(done.code, 64, done.out + done.err)
            self.assertEqual(len(done.err.strip().splitlines()), 1, done.err)
            self.assertIn("--dump", done.err)
            self.assertIn("pass", done.out)  # the verdict is told nevertheless
            self.assertEqual({p.name: p.read_bytes() for p in folder.iterdir()}, before)
        finally:
            subprocess.run(["umount", str(folder)], check=True)


if __name__ == "__main__":
    unittest.main()
