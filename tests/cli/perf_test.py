# SPDX-License-Identifier: Apache-2.0
"""msabench perf: reports, what is verified, what is refused. Numbers are not looked at: the machine of a test is never quiet."""

import json
import jsonschema
import os
import signal
import subprocess
import sys
import time
import unittest

from program import MSABENCH, SOURCE, ProgramTest, plugin, run

SCHEMAS = SOURCE / "reports" / "schema"
SCHEMA = json.loads((SCHEMAS / "perf-1.schema.json").read_text())
RESOLVER = jsonschema.RefResolver(f"{SCHEMAS.as_uri()}/perf-1.schema.json", SCHEMA)

# Milliseconds of work, on inputs that stay in the cache, on whatever machine.
SMALL = ("--shape", "h8x2.d64.b32.k4.l1.i0", "--type", "fp32", "--cache", "hot", "--busy", "tell", "--context", "1K", "--budget-s", "3")


def validate(report):
    jsonschema.Draft7Validator(SCHEMA, resolver=RESOLVER).validate(report)
    return report


class Perf(ProgramTest):
    def perf(self, *arguments, code=None, options=SMALL):
        result = run("perf", *options, *arguments, "--json", "-")
        if code is not None:
            self.assertEqual(result.code, code, result.out[-2000:] + result.err)
        report = validate(json.loads(result.out))
        self.assertEqual(report["summary"]["exit_code"], result.code)
        report["tables"] = result.err
        return report

    def items(self, report):
        return {(i["operator"], i["implementation"]): i for p in report["points"] for i in p["items"]}

    def test_times_verifies_and_reports(self):
        report = self.perf("--impl", "naive", "--op", "attend,select", "--out", self.folder / "out", code=0)
        items = self.items(report)
        self.assertEqual(set(items), {("attend", 0), ("select", 0)})
        for item in items.values():
            self.assertEqual(item["state"], "measured")
            self.assertEqual(item["verification"]["verdict"], "pass")
            self.assertGreaterEqual(item["time_us"]["count"], 10)
            self.assertEqual(len(item["samples"]["time_us"]), item["time_us"]["count"])
            self.assertEqual(len(item["samples"]["others"]), item["time_us"]["count"])
            self.assertGreater(item["figures"]["bytes_per_s"], 0)
        self.assertEqual(validate(json.loads((self.folder / "out/perf.json").read_text()))["points"], report["points"])
        page = (self.folder / "out/perf.md").read_text()
        for word in ("attend", "GFLOP/s", "of limit", "1 of 1 rows", "MEASURED", "msabench perf"):
            self.assertIn(word, page.replace(str(MSABENCH), "msabench"))
        self.assertIn("about", report["tables"].splitlines()[0])  # the estimate comes first

    def test_limits_are_read_by_flops(self):
        path = self.folder / "perf.json"
        self.assertEqual(run("perf", *SMALL, "--impl", "naive", "--op", "attend", "--json", path).code, 0)
        result = run("flops", "--phase", "decode", "--context", "8K", "--device", path, "--json", "-")
        self.assertEqual(result.code, 0, result.err)
        ceilings = json.loads(path.read_text())["ceilings"]
        told = json.loads(result.out)
        self.assertIn("measured between the samples", json.dumps(told))
        self.assertIn("measured", {limit["ceilings"] for limit in told["rows"][0]["limits"]})
        self.assertEqual(set(ceilings["flops"]), {"fp32", "bf16", "fp16", "e4m3"})

    def test_two_implementations_take_turns(self):
        report = self.perf("--impl", "naive", "--against", plugin("example_cpp"), "--op", "attend", code=0)
        items = self.items(report)
        first, second = (items["attend", i]["samples"]["at_s"] for i in (0, 1))
        self.assertEqual(len(first), len(second))
        for earlier, later in zip(first, second):
            self.assertLess(earlier, later)
        self.assertAlmostEqual(items["attend", 0]["figures"]["against"] * items["attend", 1]["figures"]["against"], 1, places=9)
        self.assertEqual([i["name"] for i in report["implementations"]][0], "naive")

    def test_whole_sequences_are_sums_over_all_chunks(self):
        report = self.perf("--impl", "naive", "--suite", "prefill_whole", "--chunk", "256", code=0,
                           options=("--shape", "h4x2.d16.b32.k4.l1.i0", "--type", "fp32", "--cache", "hot", "--busy", "tell", "--context", "600,256",
                                    "--budget-s", "60"))
        self.assertEqual([(p["query_tokens"], p["context"]) for p in report["points"]], [(256, 256), (256, 512), (88, 600)])
        wholes = {(w["context"], w["operator"]): w for w in report["wholes"]}
        self.assertEqual(set(wholes), {(n, o) for n in (256, 600) for o in ("msa", "dense")})
        for (context, operator), whole in wholes.items():
            self.assertEqual(whole["chunks"], 1 if context == 256 else 3)
            self.assertTrue(whole["verified"])
            times = [i["time_us"]["median"] for p in report["points"][:whole["chunks"]] for i in p["items"] if i["operator"] == operator]
            self.assertAlmostEqual(whole["time_us"], sum(times), places=6)
            self.assertAlmostEqual(whole["gain_over_dense"], wholes[context, "dense"]["time_us"] / whole["time_us"], places=9)
            self.assertIsNone(whole["back_to_back_us"])
        self.assertIn("3 of 3", report["tables"])

    def test_a_whole_without_time_for_all_chunks_is_partial(self):
        report = self.perf("--impl", "naive", "--suite", "prefill_whole", "--chunk", "256",
                           options=("--shape", "h4x2.d16.b32.k4.l1.i0", "--type", "fp32", "--cache", "hot", "--busy", "tell", "--context", "64K",
                                    "--budget-s", "3"))
        for whole in report["wholes"]:
            self.assertIn("common_chunks", whole)
            self.assertEqual(whole["chunks"], 256)
            self.assertLess(whole["measured"], 256)
            self.assertTrue(whole["partial"])
            self.assertIsNone(whole["time_us"])
        self.assertIn("partial", report["tables"])

    def test_scores_and_selection_stand_side_by_side(self):
        report = self.perf("--impl", "naive", "--suite", "topk", "--chunk", "32", code=0,
                           options=("--shape", "h4x2.d16.b32.k4.l1.i0", "--type", "fp32", "--cache", "hot", "--busy", "tell", "--context", "1200",
                                    "--budget-s", "60"))
        self.assertEqual([(r["phase"], r["topk"], r["query_tokens"]) for r in report["topk"]],
                         [(phase, k, rows) for phase, rows in (("decode", 1), ("prefill", 32)) for k in (8, 16, 32)])
        for row, point in zip(report["topk"], report["points"]):
            times = {i["operator"]: i["time_us"]["median"] for i in point["items"]}
            self.assertEqual((row["score_us"], row["select_us"], row["index_us"]), (times["score"], times["select"], times["index"]))
            self.assertTrue(row["verified"])
            self.assertIn(f".k{row['topk']}.", point["items"][0]["name"])
        self.assertIn("score + select / index", report["tables"])

    def test_index_operands_alone_in_8_bits(self):
        report = self.perf("--impl", "naive", "--op", "index,msa,attend", "--fp8-index", "tensor", code=0,
                           options=("--shape", "h8x2.d64.b32.k4.l1.i0", "--cache", "hot", "--busy", "tell", "--context", "1K", "--budget-s", "5"))
        names = {operator: item["name"] for (operator, _), item in self.items(report).items()}
        self.assertTrue(names["msa"].endswith("/fp8idxtensor/s0"), names)
        self.assertTrue(names["index"].endswith("/fp8tensor/s0"), names)
        self.assertTrue(names["attend"].endswith("/random/s0"), names)

    def test_operands_in_8_bits_have_a_limit_of_their_own(self):
        report = self.perf("--impl", "naive", "--op", "index,attend", "--fp8", "token", code=0,
                           options=("--shape", "h8x2.d64.b32.k4.l1.i0", "--cache", "hot", "--busy", "tell", "--context", "1K", "--budget-s", "5"))
        items = self.items(report)
        self.assertTrue(items["index", 0]["name"].endswith("/fp8/s0"))
        self.assertEqual(items["index", 0]["work"]["index_flops"], items["index", 0]["work"]["useful_flops"])
        self.assertEqual(items["attend", 0]["work"]["index_flops"], 0)
        for item in items.values():
            self.assertIsNotNone(item["figures"]["efficiency"])
            self.assertIsNone(item["back_to_back_us"])  # a CPU
            self.assertNotIn("back_to_back", item)

    def test_videos_are_timed(self):
        report = self.perf("--impl", "cpu", "--against", "naive", "--suite", "vision", "--shape", "h1x1.d64.b16.k1.l1.i0", "--context", "1K", "--batch", "2",
                           options=("--busy", "tell", "--budget-s", "20"))
        self.assertEqual([p["phase"] for p in report["points"]], ["vision"])
        self.assertIn("### vision, videos of 1K patches, batch 2", report["tables"])
        items = self.items(report)
        for operator in ("vit3d", "rope3d", "vit_attend"):
            self.assertEqual(items[operator, 0]["state"], "measured", items[operator, 0])
            self.assertIsNotNone(items[operator, 0]["figures"]["against"])

    def test_what_cannot_be_written_keeps_nothing_else_from_being_so(self):
        result = run("perf", *SMALL, "--impl", "naive", "--op", "attend", "--json", "/dev/full", "--out", self.folder / "out")
        self.assertEqual(result.code, 64, result.err)
        self.assertIn("--json", result.err.splitlines()[-1])
        self.assertEqual(validate(json.loads((self.folder / "out/perf.json").read_text()))["summary"]["exit_code"], 0)
        self.assertTrue((self.folder / "out/perf.md").is_file())

    def test_who_ends_the_process_is_named(self):
        report = self.perf("--impl", "cpu", "--against", plugin("crash_get"), "--op", "attend", code=1)
        items = self.items(report)
        self.assertEqual(items["attend", 0]["state"], "not-run")
        self.assertIn("crash_get", items["attend", 0]["reason"])
        self.assertEqual(items["attend", 1]["state"], "failed")
        report = self.perf("--impl", "cpu", "--against", plugin("crash_run"), "--op", "attend", code=1)
        self.assertIn("in attend by crash_run", self.items(report)["attend", 0]["reason"])
        self.assert_refused(run("perf", *SMALL, "--impl", "cpu", "--against", plugin("no_symbol")), "--against", "msabench_plugin_get")

    def test_a_tiny_budget_is_kept(self):
        for arguments in (("--suite", "training", "--op", "kl", "--context", "2K"), ("--suite", "training", "--context", "1K"),
                          ("--suite", "decode", "--context", "128K")):
            with self.subTest(arguments=arguments):
                start = time.monotonic()
                report = self.perf("--impl", "naive", *arguments, options=("--busy", "tell", "--budget-s", "1"))
                # Starting, the limits of the machine, and one launch that took longer than it was taken to.
                self.assertLess(time.monotonic() - start, 25)
                self.assertNotIn("failed", {i["state"] for p in report["points"] for i in p["items"]})

    def test_wrong_answers_have_no_number(self):
        for name in ("drop_key", "wrong_later", "unwritten", "write_behind", "change_input"):
            with self.subTest(plugin=name):
                report = self.perf("--impl", plugin(name), "--op", "attend", code=1)
                item = self.items(report)["attend", 0]
                self.assertEqual(item["state"], "failed")
                self.assertIsNone(item["figures"])
                self.assertNotIn("| attend", report["tables"])
                self.assertIn("FAILED", report["tables"])

    def test_crash_and_error_are_those_of_one_item(self):
        for name, verdict in (("crash_later", "crash"), ("fails_later", "fail"), ("throws", "crash")):
            with self.subTest(plugin=name):
                report = self.perf("--impl", "naive", "--against", plugin(name), "--op", "attend", code=1)
                items = self.items(report)
                self.assertEqual(items["attend", 1]["state"], "failed")
                self.assertEqual(items["attend", 1]["verification"]["verdict"], verdict)
                self.assertNotEqual(items["attend", 0]["state"], "failed")

    def test_hang_is_ended(self):
        report = self.perf("--impl", plugin("hang_run"), "--op", "attend", "--timeout-s", "3", code=1)
        self.assertEqual(self.items(report)["attend", 0]["verification"]["verdict"], "timeout")

    def test_unsupported_is_said(self):
        report = self.perf("--impl", plugin("refuse_all"), code=3)
        self.assertEqual({i["state"] for i in self.items(report).values()}, {"unsupported"})
        self.assertIn("NOTHING MEASURED", report["tables"])

    def test_budget_leaves_long_items_out(self):
        report = self.perf("--impl", "naive", "--op", "attend", options=("--busy", "tell", "--suite", "prefill", "--context", "1K,1M", "--chunk", "128",
                                                                         "--cache", "hot", "--budget-s", "4"))
        states = [[i["state"] for i in p["items"]] for p in report["points"]]
        self.assertEqual(len(states), 2)
        self.assertNotIn("failed", states[0] + states[1])

    def test_numbers_have_points_in_every_locale(self):
        result = run("perf", *SMALL, "--impl", "naive", "--op", "attend", "--json", "-", env=self.german())
        self.assertEqual(result.code, 0, result.err)
        validate(json.loads(result.out))

    def test_interrupt_leaves_a_valid_report(self):
        path = self.folder / "perf.json"
        process = subprocess.Popen([str(MSABENCH), "perf", "--impl", "naive", "--op", "attend", "--busy", "tell", "--cache", "hot", "--shape",
                                    "h8x2.d64.b32.k4.l1.i0", "--type", "fp32", "--context", "1K,2K,4K,8K,16K,32K", "--budget-s", "600", "--json", path],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            for line in process.stdout:  # until the first table is there
                if line.startswith("| attend"):
                    break
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 2, err)
        report = validate(json.loads(path.read_text()))
        self.assertTrue(report["run"]["partial"])
        self.assertEqual(report["points"][0]["items"][0]["state"], "measured")
        self.assertIn("INCOMPLETE", out)

    def test_busy_machine_is_refused(self):
        spin = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(len(os.sched_getaffinity(0)))]
        try:
            time.sleep(0.2)
            result = run("perf", "--impl", "naive", "--op", "attend", "--context", "1K", "--json", self.folder / "perf.json")
        finally:
            for process in spin:
                process.kill()
                process.wait()
        self.assert_refused(result, "machine", "too busy to measure", "other processes used", "--busy tell", code=4)
        self.assertFalse((self.folder / "perf.json").exists())
        self.assertEqual(result.out, "")

    def test_bad_input_is_one_line(self):
        for words, arguments in (
                (("--suite", "fast", "decode"), ("--suite", "fast")),
                (("--selection", "best", "shared64"), ("--selection", "best")),
                (("--context", "0"), ("--context", "0")),
                (("--context", "comma"), ("--context", "8K,")),
                (("--batch", "-1"), ("--batch", "-1")),
                (("--chunk", "decode"), ("--chunk", "1K")),
                (("--budget-s", "0"), ("--budget-s", "0")),
                (("--cache", "warm", "cold or hot"), ("--cache", "warm")),
                (("--busy", "maybe"), ("--busy", "maybe")),
                (("--fp8", "e5m2", "token or tensor"), ("--fp8", "e5m2")),
                (("--fp8-index", "e5m2", "token or tensor"), ("--fp8-index", "e5m2")),
                (("--fp8-index", "token", "--fp8"), ("--fp8", "token", "--fp8-index", "token")),
                (("--grad", "fp64", "fp32 or storage"), ("--grad", "fp64")),
                (("--grad", "storage", "is for suite training"), ("--grad", "storage")),
                (("--grad", "storage", "--type"), ("--suite", "training", "--type", "fp32", "--grad", "storage")),
                (("--type", "int8"), ("--type", "int8")),
                (("--layout", "fused"), ("--layout", "fused")),
                (("--op", "attent"), ("--op", "attent")),
                (("--op", "vit3d", "suite decode", "attend"), ("--op", "attend,vit3d")),
                (("--op", "msa", "suite training", "kl"), ("--suite", "training", "--op", "msa")),
                (("--layout", "paged", "contig"), ("--suite", "training", "--layout", "paged")),
                (("--context", "1500", "vision", "1K"), ("--suite", "vision", "--context", "1500")),
                (("--batch", "3K", "vision", "at most"), ("--suite", "vision", "--batch", "3K")),
                (("--op", "dense", "suite vision", "vit_attend"), ("--suite", "vision", "--op", "dense")),
                (("--chunk", "1K", "vision"), ("--suite", "vision", "--chunk", "1K")),
                (("--layout", "contig", "vision"), ("--suite", "vision", "--layout", "contig")),
                (("--selection", "shared64", "vision"), ("--suite", "vision", "--selection", "shared64")),
                (("--fp8", "token", "vision"), ("--suite", "vision", "--fp8", "token")),
                (("--fp8-index", "tensor", "vision"), ("--suite", "vision", "--fp8-index", "tensor")),
                (("--grad", "storage", "is for suite training"), ("--suite", "vision", "--grad", "storage")),
                (("unknown shape", "m4", "pilot"), ("--shape", "m4")),
                (("--seed", "x"), ("--seed", "x")),
                (("--against", "fastest", "no built-in"), ("--against", "fastest")),
                (("--in-process",), ("--in-process",)),
                (("--out",), ("--out", "/proc/nowhere")),
                (("--json",), ("--json", "/proc/nowhere/perf.json")),
        ):
            with self.subTest(arguments=arguments):
                self.assert_refused(run("perf", "--impl", "naive", *arguments), *words)
        self.assert_refused(run("perf", "--impl", "nobody"), "--impl", "nobody")
        self.assert_refused(run("perf", "--impl", "naive", "--against", plugin("get_null"), "--busy", "tell"), "get_null", "NULL")

    def test_memory_is_refused_before_it_starts(self):
        result = run("perf", "--impl", "naive", "--op", "score", "--batch", "100K", "--context", "1M", "--busy", "tell")
        self.assert_refused(result, "--context 1M", "of memory", "shorter contexts", code=4)


if __name__ == "__main__":
    unittest.main()
