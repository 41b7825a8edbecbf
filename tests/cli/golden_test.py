# SPDX-License-Identifier: Apache-2.0
"""`golden check` on the files of the tree, on files written in plain Python with other parameters, and on files that are
not what they seem; `golden make` and what it refuses."""

import json
import math
import resource
import struct
import unittest

import plain_golden
from program import SOURCE, ProgramTest, run

GOLDEN = SOURCE / "tests/golden"
KL = "kl/h6x3.d16.di24.b16.k5.l2.i1/q37.n201/fp32.contig/random/s0"
MSA = "msa/h8x2.d32.b16.k4.l1.i0/q50.n50/fp32.contig/random/s0"
VIT = "vit3d/h2x2.d80.b16.k4.l1.i0/g10x4x6_1x2x4/bf16/random/s3"

ATTENTION = dict(q_len=9, kv_len=21, hq=4, hkv=2, d=5, didx=4, block=4, topk=3, local=1, init=0)
TEXT = dict(seq=19, hidden=6, hq=4, hkv=2, d=6, didx=6, block=4, topk=3, local=1, rot=4)
VISION = dict(grids=[(5, 2, 4), (1, 2, 2)], heads=2, d=8)

ATTENTION_VARIANTS = {
    "plain": {}, "one_query": dict(q_len=1), "one_query_one_key": dict(q_len=1, kv_len=1),
    "whole_prompt": dict(q_len=21), "whole_blocks": dict(kv_len=24), "length_of_one_block_and_one": dict(kv_len=5, q_len=5),
    "more_topk_than_blocks": dict(topk=9), "one_block": dict(topk=1), "one_block_none_forced": dict(topk=1, local=0),
    "no_local": dict(local=0), "local_3": dict(local=3), "init_2": dict(init=2), "all_forced": dict(local=2, init=1),
    "no_local_init_2": dict(local=0, init=2), "a_head_each": dict(hkv=4), "one_group": dict(hkv=1),
    "single_head": dict(hq=1, hkv=1), "wide_index": dict(didx=11), "dim_1": dict(d=1, didx=1), "odd_dim": dict(d=7, didx=3),
    "large_q": dict(scale_q=6.0), "small_q": dict(scale_q=0.01), "blocks_of_one": dict(block=1, topk=6),
    "block_beyond_the_end": dict(block=64), "padding_rows": dict(q_len=5, kv_len=3), "no_keys": dict(q_len=2, kv_len=0),
}
TEXT_VARIANTS = {
    "plain": {}, "fewer_tokens_than_a_block": dict(seq=3), "one_token": dict(seq=1), "no_rotation": dict(rot=0),
    "all_rotated": dict(rot=6), "wide_index": dict(didx=9), "narrow_index": dict(didx=4), "a_head_each": dict(hkv=4),
    "more_topk_than_blocks": dict(topk=8), "no_local": dict(local=0), "local_2": dict(local=2), "one_block": dict(topk=1),
    "odd_dim": dict(d=7, didx=5), "other_theta": dict(theta=100.0, eps=0.01), "wide_hidden": dict(hidden=140, seq=6),
    "whole_theta": dict(theta=10000),
}
VISION_VARIANTS = {
    "plain": {}, "window_0": dict(window=0), "window_1": dict(window=1), "window_3": dict(window=3),
    "window_beyond": dict(window=100), "merge_1": dict(merge=1, grids=[(3, 3, 5), (1, 1, 1)]),
    "merge_3": dict(merge=3, grids=[(2, 3, 6)]), "merge_4": dict(merge=4, grids=[(5, 4, 8)]),
    "one_image": dict(grids=[(1, 4, 4)]), "contract": dict(grids=[(1, 4, 4), (5, 2, 2)]), "head_80": dict(d=80),
    "remainder_1": dict(d=7), "remainder_5": dict(d=11), "no_rotation": dict(d=5), "dim_1": dict(d=1),
    "one_head": dict(heads=1), "other_theta": dict(theta=100.0), "several": dict(grids=[(4, 2, 2), (8, 2, 2), (2, 4, 2)]),
}
KINDS = {"attention": (plain_golden.attention, ATTENTION, ATTENTION_VARIANTS),
         "text_layer": (plain_golden.text_layer, TEXT, TEXT_VARIANTS),
         "vit3d": (plain_golden.vit3d, VISION, VISION_VARIANTS)}


class GoldenTest(ProgramTest):
    def check(self, *files, code=0):
        """Runs golden check; results by file and tensor."""
        path = self.folder / "result.json"
        result = run("golden", "check", *files, "--json", path)
        self.assertEqual(result.code, code, result.out + result.err)
        return [{t["tensor"]: t for t in f["tensors"]} for f in json.loads(path.read_text())["files"]]

    def make(self, name, *arguments, kind, code=0, out="made.safetensors"):
        path = self.folder / out
        result = run("golden", "make", "--kind", kind, name, "-o", path, *arguments)
        self.assertEqual(result.code, code, result.out + result.err)
        return path


def header_of(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8:8 + size]), data, 8 + size


class FilesOfTheTree(GoldenTest):
    def test_every_file_agrees_with_nothing_left_uncompared(self):
        files = sorted(GOLDEN.glob("*.safetensors"))
        self.assertEqual(len(files), 6)
        for path, tensors in zip(files, self.check(*files)):
            inputs = {"q", "k", "v", "q_idx", "k_idx", "d_out", "hidden", "wq", "wk", "wv", "wo", "wiq", "wik", "q_norm",
                      "k_norm", "iq_norm", "ik_norm"}
            self.assertEqual(set(tensors), set(header_of(path)[0]) - inputs - {"__metadata__"})
            for tensor in tensors.values():
                self.assertTrue(tensor["compared"] and tensor["passed"], (path.name, tensor))

    def test_a_changed_element_is_named(self):
        header, data, start = header_of(GOLDEN / "attn_unselected.safetensors")
        at = start + header["out"]["data_offsets"][0] + 8 * 5
        changed = bytearray(data)
        struct.pack_into("<d", changed, at, struct.unpack_from("<d", data, at)[0] + 1e-6)
        path = self.folder / "changed.safetensors"
        path.write_bytes(changed)
        result = run("golden", "check", path)
        self.assertEqual(result.code, 1, result.out + result.err)
        self.assertIn("out[0,0,5]: got", result.out)

    def test_one_bad_file_among_good_ones_fails(self):
        parameters, tensors = plain_golden.vit3d(1, **VISION)
        tensors["positions"].values[7] += 1
        plain_golden.write(self.folder / "bad.safetensors", parameters, tensors)
        good, bad = self.check(GOLDEN / "vit_video.safetensors", self.folder / "bad.safetensors", code=1)
        self.assertTrue(all(t["passed"] for t in good.values()))
        self.assertEqual([name for name, t in bad.items() if not t["passed"]], ["positions"])


class PlainFiles(GoldenTest):
    """The reference against formulas in plain Python, over parameters that the files of the tree do not have."""

    def each(self, kind):
        make, base, variants = KINDS[kind]
        files = []
        for seed, (name, changes) in enumerate(variants.items()):
            files.append(self.folder / f"{name}.safetensors")
            plain_golden.write(files[-1], *make(seed, **{**base, **changes}))
        for path, tensors in zip(files, self.check(*files)):
            for tensor in tensors.values():
                with self.subTest(file=path.name, tensor=tensor["tensor"]):
                    self.assertTrue(tensor["passed"] or tensor["note"] == "holds no element", tensor)

    def test_attention(self):
        self.each("attention")

    def test_text_layer(self):
        self.each("text_layer")

    def test_vit3d(self):
        self.each("vit3d")

    def test_any_element_of_any_result_changed_by_a_millionth_of_the_largest_fails_by_name(self):
        inputs = {"attention": 6, "text_layer": 11, "vit3d": 3}
        for kind, (make, base, _) in KINDS.items():
            parameters, tensors = make(5, **base)
            for name in list(tensors)[inputs[kind]:]:
                values = tensors[name].values
                finite = [i for i, x in enumerate(values) if math.isfinite(x)]
                smallest, largest = (f(finite, key=lambda i: abs(values[i])) for f in (min, max))
                for at in {finite[-1], smallest, largest}:
                    kept = values[at]
                    step = 1 if tensors[name].integer else 1e-6 * abs(values[largest])
                    for bad in [kept - step] if tensors[name].integer else [kept + step, math.nan, -math.inf]:
                        values[at] = bad
                        plain_golden.write(self.folder / "x.safetensors", parameters, tensors)
                        result = self.check(self.folder / "x.safetensors", code=1)[0]
                        with self.subTest(kind=kind, tensor=name, at=at, value=bad):
                            self.assertFalse(result[name]["passed"])
                    values[at] = kept

    def test_a_minus_infinity_that_moved_fails(self):
        parameters, tensors = plain_golden.attention(5, **ATTENTION)
        scores = tensors["block_scores"].values
        hidden = scores.index(-math.inf)
        scores[hidden], scores[hidden - 1] = scores[hidden - 1], scores[hidden]
        plain_golden.write(self.folder / "x.safetensors", parameters, tensors)
        self.assertFalse(self.check(self.folder / "x.safetensors", code=1)[0]["block_scores"]["passed"])

    def test_nan_in_any_input_fails(self):
        inputs = {"attention": 6, "text_layer": 11, "vit3d": 3}
        for kind, (make, base, _) in KINDS.items():
            for name in list(make(5, **base)[1])[:inputs[kind]]:
                parameters, tensors = make(5, **base)
                tensors[name].values[-1] = math.nan
                plain_golden.write(self.folder / "x.safetensors", parameters, tensors)
                with self.subTest(kind=kind, tensor=name):
                    self.check(self.folder / "x.safetensors", code=1)

    def test_a_tensor_that_the_kind_does_not_have_is_listed(self):
        parameters, tensors = plain_golden.vit3d(1, **VISION)
        tensors["extra"] = plain_golden.Tensor([2], [1.0, 2.0])
        plain_golden.write(self.folder / "x.safetensors", parameters, tensors)
        result = self.check(self.folder / "x.safetensors")[0]
        self.assertFalse(result["extra"]["compared"])
        self.assertIn("no such tensor", result["extra"]["note"])


class HostileFiles(GoldenTest):
    def refused(self, path, *words):
        self.assert_refused(run("golden", "check", path, timeout=20), "FILE", path.name, *words)

    def test_bytes(self):
        good = (GOLDEN / "attn_unselected.safetensors").read_bytes()
        bad = {
            "empty": b"",
            "short": good[:7],
            "header_only": good[:8 + int.from_bytes(good[:8], "little")],
            "truncated": good[:len(good) // 2],
            "trailing": good + b"\0",
            "lying": (2 ** 60).to_bytes(8, "little") + good[8:],
            "noise": bytes(range(256)) * 20,
            "text": b"just a text file that is longer than eight bytes\n",
        }
        for name, data in bad.items():
            path = self.folder / f"{name}.safetensors"
            path.write_bytes(data)
            with self.subTest(name=name):
                self.refused(path)

    def with_header(self, change, data=b""):
        """A file whose header is the text that `change` makes of a good one."""
        header, bytes_, start = header_of(GOLDEN / "attn_unselected.safetensors")
        text = change(header)
        text = (text if isinstance(text, str) else json.dumps(text)).encode()
        path = self.folder / "x.safetensors"
        path.write_bytes(len(text).to_bytes(8, "little") + text + (data or bytes_[start:]))
        return path

    def test_tensor_named_twice(self):
        path = self.with_header(lambda h: json.dumps(h)[:-1] + ', "q": ' + json.dumps(h["q"]) + "}")
        self.refused(path, "q")

    def test_metadata_of_the_wrong_kinds(self):
        for metadata in (3, [], {"case": 3}, {"case": {}}, {"case": None}, {}, {"case": ""}, {"case": "3"}, {"case": "[]"},
                         {"case": '{"kind": "attention"}'}, {"case": '{"kind": ["attention"]}'}, {"case": "{" * 10000},
                         {"case": '{"kind": "attention", "kind": "vit3d"}'}, {"other": "x"}):
            with self.subTest(metadata=str(metadata)[:40]):
                self.refused(self.with_header(lambda h: {**h, "__metadata__": metadata}))

    def parameters(self, kind, **changes):
        make, base, _ = KINDS[kind]
        parameters, tensors = make(1, **base)
        path = self.folder / "x.safetensors"
        plain_golden.write(path, {**parameters, **changes}, tensors)
        return path

    def test_parameters_of_the_wrong_kinds(self):
        for kind, (make, base, _) in KINDS.items():
            for name in set(make(1, **base)[0]) - {"kind"}:
                for bad in ("16", None, [1], {}, True, -1, 1e300, -math.inf, math.nan, 2 ** 63, 2 ** 70):
                    if (name, bad) in (("theta", 1e300), ("eps", 1e300), ("scale_q", 1e300)) or (
                            name in ("theta", "eps", "scale_q") and bad in (2 ** 63, 2 ** 70)):
                        continue  # a number like any other there
                    with self.subTest(kind=kind, parameter=name, value=bad):
                        self.refused(self.parameters(kind, **{name: bad}))

    def test_huge_parameters_cost_nothing(self):
        huge = 16 << 20
        for name in ("q_len", "kv_len", "hq", "hkv", "d", "didx", "topk"):
            self.refused(self.parameters("attention", **{name: huge}))
        for name in ("hidden", "hq", "hkv", "d", "hidx", "didx", "topk", "seq"):
            self.refused(self.parameters("text_layer", **{name: huge}))
        for grids in ([[65536, 65536, 65536]], [[65536, 256, 256]], [[65536, 2, 2]] * 1000, [[1, 46000, 46000]]):
            self.refused(self.parameters("vit3d", grids=grids))
        self.refused(self.parameters("vit3d", heads=huge))
        self.refused(self.parameters("vit3d", merge=huge))

    def test_large_tensors_that_would_take_hours_are_refused(self):
        length, vector = 1 << 18, plain_golden.Tensor
        tensors = {name: vector([length, 1, 1], [0.0] * length) for name in
                   ("q", "k", "v", "q_idx", "d_out", "out", "dq", "dk", "dv", "dense_out", "kl_sparse_dq_idx",
                    "kl_warmup_dq_idx")}
        tensors |= {name: vector([length, 1], [0.0] * length)
                    for name in ("k_idx", "lse", "dense_lse", "kl_sparse_dk_idx", "kl_warmup_dk_idx")}
        tensors |= {"block_scores": vector([1, length, 1], [0.0] * length), "kl_sparse": vector([1], [0.0]),
                    "kl_warmup": vector([1], [0.0]), "block_ids": vector([length, 1, 1], [0] * length, integer=True)}
        path = self.folder / "x.safetensors"
        plain_golden.write(path, {"kind": "attention", "q_len": length, "kv_len": length, "hq": 1, "hkv": 1, "d": 1,
                                  "didx": 1, "block": length, "topk": 1, "local": 1, "init": 0, "scale_q": 1.0}, tensors)
        self.refused(path, "multiplications")

    def test_contradicting_parameters(self):
        for kind, changes, words in (
                ("attention", dict(hkv=3), ["hq"]), ("attention", dict(local=4), ["local"]),
                ("attention", dict(init=3), ["init"]), ("attention", dict(block=5), ["block_scores"]),
                ("text_layer", dict(hidx=4), ["hidx"]), ("text_layer", dict(rot=3), ["rot"]),
                ("text_layer", dict(rot=8), ["rot"]), ("text_layer", dict(theta=0), ["theta"]),
                ("text_layer", dict(local=9), ["local"]), ("text_layer", dict(init=3), ["init"]),
                ("vit3d", dict(merge=3), ["merge"]), ("vit3d", dict(window=1), ["cu_seqlens"]),
                ("vit3d", dict(grids=[]), ["tensor"]), ("vit3d", dict(grids=[[1, 2]]), ["grids"]),
                ("vit3d", dict(grids=[[1, 2, 2.5]]), ["grids"]), ("vit3d", dict(grids=[[0, 2, 2]]), ["grids"]),
                ("vit3d", dict(grids="x"), ["grids"]), ("vit3d", dict(theta=0), ["theta"])):
            with self.subTest(kind=kind, changes=changes):
                self.refused(self.parameters(kind, **changes), *words)

    def test_ids_that_are_none_fail_without_harm(self):
        for bad in ([-7] * 3, [2 ** 31 - 1] * 3, [-2 ** 31] * 3, [2, 1, 0], [1, 1, 1], [-1, -1, 0], [5, 6, 7]):
            parameters, tensors = plain_golden.attention(5, **ATTENTION)
            ids = tensors["block_ids"].values
            ids[:] = (bad * len(ids))[:len(ids)]
            plain_golden.write(self.folder / "x.safetensors", parameters, tensors)
            with self.subTest(ids=bad):
                result = self.check(self.folder / "x.safetensors", code=1)[0]
                self.assertFalse(result["block_ids"]["passed"])
                self.assertTrue(result["dense_out"]["passed"])
        parameters, tensors = plain_golden.text_layer(5, **TEXT)
        tensors["block_ids"].values[-1] = 99
        plain_golden.write(self.folder / "x.safetensors", parameters, tensors)
        result = self.check(self.folder / "x.safetensors", code=1)[0]
        self.assertFalse(result["block_ids"]["passed"])
        self.assertTrue(result["output"]["passed"])


class Make(GoldenTest):
    def test_what_make_wrote_passes(self):
        for kind, name, arguments in (
                ("attention", KL, []), ("attention", "attend_backward/h4x4.d7.di5.b8.k3.l0.i2/q1.n43/bf16.contig/random/s9", []),
                ("attention", "dense/h2x1.d8.b128.k4.l1.i0/q3.n100/fp16.contig/random.sharp/s1", []),
                ("text_layer", MSA, []), ("text_layer", MSA, ["--hidden", "7"]),
                ("text_layer", "attend/h2x2.d6.di10.b16.k1.l1.i0/q5.n5/fp32.contig/random/s1", []),
                ("vit3d", VIT, []), ("vit3d", VIT, ["--window", "0"]), ("vit3d", VIT, ["--window", "1"]),
                ("vit3d", "vit3d/m3/g5x2x2/fp32/random.flat/s0", [])):
            with self.subTest(kind=kind, name=name, arguments=arguments):
                path = self.make(name, *arguments, kind=kind)
                result = self.check(path)[0]
                self.assertTrue(all(t["compared"] and t["passed"] for t in result.values()), result)

    def test_the_case_is_told_in_the_parameters(self):
        parameters = json.loads(header_of(self.make(KL, kind="attention"))[0]["__metadata__"]["case"])
        self.assertEqual(parameters, {
            "kind": "attention", "case": KL, "source": "msabench reference", "q_len": 37, "kv_len": 201, "hq": 6, "hkv": 3,
            "d": 16, "didx": 24, "block": 16, "topk": 5, "local": 2, "init": 1, "scale_q": 1.0})
        header = header_of(self.make(MSA, "--hidden", "96", kind="text_layer"))[0]
        parameters = json.loads(header["__metadata__"]["case"])
        self.assertEqual((parameters["hidden"], parameters["seq"], parameters["rot"]), (96, 50, 16))
        self.assertEqual(header["wo"]["shape"], [96, 256])
        header = header_of(self.make("vit3d/m3/g10x4x6/bf16/random/s0", "--window", "3", kind="vit3d"))[0]
        parameters = json.loads(header["__metadata__"]["case"])
        self.assertEqual((parameters["grids"], parameters["heads"], parameters["d"], parameters["window"]),
                         ([[10, 4, 6]], 16, 80, 3))

    def test_inputs_are_those_of_the_generator(self):
        """The stream of core's check value: words 8a001bdc e2bd6f3d 3dd68690 7b805108 of `...|k`, seed 0."""
        name = "attend/h1x1.d4.b4.k1.l1.i0/q1.n2/bf16.contig/random/s0"
        header, data, start = header_of(self.make(name, kind="attention"))
        begin = start + header["k"]["data_offsets"][0]
        values = struct.unpack_from("<8d", data, begin)
        self.assertTrue(all(x == int(x * 128) / 128 and abs(x) < 4 for x in values), values)
        self.assertEqual(values[:2], stream(name.rpartition("/")[0] + "|k", 0, 2))

    def test_the_same_command_writes_the_same_bytes(self):
        self.assertEqual(self.make(KL, kind="attention", out="a").read_bytes(),
                         self.make(KL, kind="attention", out="b").read_bytes())
        other = KL.replace("/s0", "/s1")
        self.assertNotEqual(self.make(KL, kind="attention").read_bytes(), self.make(other, kind="attention").read_bytes())

    def test_several_cases_go_into_a_folder(self):
        out = self.folder / "many"
        other = KL.replace("/s0", "/s1")
        result = run("golden", "make", "--kind", "attention", KL, other, "-o", out)
        self.assertEqual(result.code, 0, result.err)
        files = sorted(out.iterdir())
        self.assertEqual([f.name for f in files], [name.replace("/", "_") + ".safetensors" for name in (KL, other)])
        self.check(*files)

    def test_refusals(self):
        out = self.folder / "x.safetensors"
        for kind, names, words, arguments in (
                ("attentio", [KL], ["--kind", "attentio", "attention"], []),
                ("attention", ["nonsense"], ["case", "nonsense"], []),
                ("attention", [KL, "nonsense"], ["nonsense"], []),
                ("attention", [KL, KL], ["twice"], []),
                ("attention", [VIT], ["vit3d"], []),
                ("vit3d", [KL], ["kl", "vit3d"], []),
                ("vit3d", ["vit3d/pilot/g2x2x2/bf16/random/s0"], ["vit3d/pilot"], []),
                ("vit3d", ["vit3d/h4x2.d8.b16.k1.l1.i0/g2x2x2/bf16/random/s0"], ["KV heads"], []),
                ("vit3d", ["vit3d/m3/g2x3x2/bf16/random/s0"], ["2x3x2"], []),
                ("vit3d", ["vit3d/m3/g512x64x64/bf16/random/s0"], ["multiplications"], []),
                ("vit3d", [VIT], ["--window"], ["--window", "-1"]),
                ("vit3d", [VIT], ["--window"], ["--window", "4294967296"]),
                ("text_layer", [KL], ["prompt"], []),
                ("text_layer", [MSA], ["--hidden"], ["--hidden", "0"]),
                ("text_layer", [MSA], ["--hidden"], ["--hidden", "x"]),
                ("text_layer", [MSA.replace("l1.i0", "l1.i1")], ["i0"], []),
                ("text_layer", [MSA.replace("random", "random.sharp")], ["variant"], []),
                ("attention", ["attend/m3/q1M.n1M/bf16.contig/random/s0"], ["multiplications"], []),
                ("attention", ["attend/m3/q1.n512K/bf16.contig/random/s0"], ["GiB"], []),
                ("attention", ["attend/m3/q1.n1K/bf16.paged/random/s0"], ["contig"], []),
                ("attention", ["attend/m3/q1.n1K.x2/bf16.contig/random/s0"], ["one sequence"], []),
                ("attention", ["attend/m3/rag.small/bf16.contig/random/s0"], ["one sequence"], []),
                ("attention", ["attend/m3/q1.n1K/bf16.contig/needle/s0"], ["random"], []),
                ("attention", ["attend/m3/q1.n1K/bf16.contig/random/scale0.5/s0"], ["options"], []),
                ("attention", ["attend/m3/q1.n1024/bf16.contig/random/s0"], ["write attend/m3/q1.n1K"], [])):
            with self.subTest(kind=kind, names=names, arguments=arguments):
                result = run("golden", "make", "--kind", kind, *names, "-o", out, *arguments, timeout=60)
                self.assert_refused(result, *words)
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_arguments_that_are_missing(self):
        for arguments in ([], ["--kind", "attention"], ["--kind", "attention", KL], [KL, "-o", "x"],
                          ["--kind", "attention", "-o", self.folder / "x"]):
            self.assert_refused(run("golden", "make", *arguments), "--help")

    def test_unwritable_paths_leave_nothing(self):
        (self.folder / "file").write_text("keep me")
        for path in (self.folder / "none" / "x", self.folder / "file" / "x", "/proc/nowhere", ""):
            with self.subTest(path=str(path)):
                self.assert_refused(run("golden", "make", "--kind", "attention", KL, "-o", path), "-o")
        self.assertEqual([p.name for p in self.folder.iterdir()], ["file"])
        self.assertEqual((self.folder / "file").read_text(), "keep me")

    def test_a_full_disk_leaves_nothing_and_the_old_file(self):
        """A limit of file sizes stands for a full device: files can be made there, but nothing fits."""
        path = self.folder / "x"
        path.write_text("old")
        result = run("golden", "make", "--kind", "attention", KL, "-o", path,
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
        self.assert_refused(result, "-o")
        self.assertEqual([p.name for p in self.folder.iterdir()], ["x"])
        self.assertEqual(path.read_text(), "old")

    def test_ties_that_would_decide_the_selection_are_refused(self):
        """With one index dim and 16-bit values equal scores are common, and most seeds are without all the same."""
        codes = []
        for seed in range(8):
            name = f"kl/h1x1.d4.di1.b1.k10.l1.i0/q6.n30/bf16.contig/random/s{seed}"
            result = run("golden", "make", "--kind", "attention", name, "-o", self.folder / "x")
            codes.append(result.code)
            if result.code != 0:
                self.assert_refused(result, "equal scores", "seed")
        self.assertEqual(set(codes), {0, 64})


def stream(name, seed, count):
    """The generator in plain Python: Philox4x32-10 keyed by FNV-1a-64, sums of four bytes."""
    key = 0xcbf29ce484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001b3 % 2 ** 64
    values = []
    for i in range(count):
        counter = [i // 4 % 2 ** 32, i // 4 >> 32, seed % 2 ** 32, seed >> 32]
        k = [key % 2 ** 32, key >> 32]
        for _ in range(10):
            a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
            counter = [b >> 32 ^ counter[1] ^ k[0], b % 2 ** 32, a >> 32 ^ counter[3] ^ k[1], a % 2 ** 32]
            k = [(k[0] + 0x9E3779B9) % 2 ** 32, (k[1] + 0xBB67AE85) % 2 ** 32]
        values.append((sum(counter[i % 4].to_bytes(4, "little")) - 510) / 128)
    return tuple(values)


if __name__ == "__main__":
    unittest.main()
