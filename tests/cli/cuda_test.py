# SPDX-License-Identifier: Apache-2.0
"""Plugins for CUDA devices, as far as a machine without a GPU can tell."""

import ctypes
import json
import jsonschema
import os
import shutil
import subprocess
import sys
import unittest

from program import BUILD, QUICK, SOURCE, ProgramTest, plugin, run

SCHEMAS = SOURCE / "reports" / "schema"
SCHEMA = json.loads((SCHEMAS / "perf-1.schema.json").read_text())
RESOLVER = jsonschema.RefResolver(f"{SCHEMAS.as_uri()}/perf-1.schema.json", SCHEMA)
PLANT = SOURCE / "tests" / "plugins" / "cuda" / "plant.py"
EXAMPLE = SOURCE / "examples" / "plugin" / "cuda" / "attend.cu"


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


class Device(ProgramTest):
    @unittest.skipIf(has_driver(), "this machine has an NVIDIA driver")
    def test_without_a_driver_the_environment_is_refused(self):
        done = run("repro", QUICK, "--impl", plugin("emits_no_lse"), "--device", "cuda:1")
        self.assertEqual(done.code, 4, done.err)
        self.assertIn("--device cuda:1: this machine has no NVIDIA driver", done.err)
        self.assertIn("choose --device cpu", done.err)

    @unittest.skipIf(has_driver(), "this machine has an NVIDIA driver")
    def test_nor_is_speed_measured_there(self):
        done = run("perf", "--impl", plugin("emits_no_lse"), "--device", "cuda")
        self.assertEqual(done.code, 4, done.err)
        self.assertIn("this machine has no NVIDIA driver", done.err)

    @unittest.skipIf(has_driver(), "this machine has an NVIDIA driver")
    def test_nor_by_google_benchmark(self):
        bench = BUILD / "bin" / "msabench_bench"
        if not bench.exists():
            self.skipTest("Google Benchmark is not here")
        done = subprocess.run([bench], env={**os.environ, "MSABENCH_IMPL": str(plugin("emits_no_lse")), "MSABENCH_DEVICE": "cuda"}, text=True,
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("this machine has no NVIDIA driver", done.stderr)

    def test_two_are_compared_on_one_device_only(self):
        done = run("perf", "--impl", plugin("emits_no_lse"), "--device", "cuda", "--against", "cpu")
        self.assertEqual(done.code, 64, done.err)
        self.assertIn("--against cpu: runs on another device", done.err)


@unittest.skipIf(has_driver(), "this machine has an NVIDIA driver")
class FakeDriver(ProgramTest):
    """Speed runs on a driver without a device (tests/plugins/fake_driver.cpp): a launch of decode takes 200 us, clocks are those it is told."""

    def perf(self, *arguments, mhz="1980", code=0, budget_s=6, suite="decode", op="attend", impl="runs_on_a_fake_gpu", env=None):
        fake = BUILD.resolve() / "test-plugins" / "fake-driver"
        result = run("perf", "--impl", plugin(impl), "--device", "cuda", "--op", op, "--shape", "h8x2.d64.b32.k4.l1.i0", "--type", "fp32",
                     "--suite", suite, "--budget-s", budget_s, *arguments, "--json", "-", env={"LD_LIBRARY_PATH": str(fake), "MSABENCH_FAKE_MHZ": mhz, **(env or {})})
        self.assertEqual(result.code, code, result.out[-2000:] + result.err)
        report = json.loads(result.out)
        jsonschema.Draft7Validator(SCHEMA, resolver=RESOLVER).validate(report)
        self.whole = report
        return report["points"][0]["items"], result.err

    def test_the_device_is_named_and_so_is_what_was_not_found(self):
        _, tables = self.perf("--context", "1K", budget_s=1)
        self.assertEqual(self.whole["environment"]["device"], "no GPU at all, CUDA driver 13.0")
        self.assertIn("limits: not known: ", tables)
        self.assertNotIn("compute-sanitizer", tables)

    def test_under_a_sanitizer_products_are_left_out_and_that_is_told(self):
        (item,), tables = self.perf("--context", "1K", budget_s=1, env={"NV_SANITIZER_INJECTION_PORT_BASE": "49152"})
        self.assertEqual(item["state"], "measured")
        self.assertIn("no products of matrices, since compute-sanitizer runs this process", self.whole["ceilings_missing"])
        self.assertIn("limits: not known: measured between the samples, medians: no products of matrices", tables)

    def test_launches_back_to_back_are_no_samples(self):
        (item,), tables = self.perf("--context", "1K")
        self.assertEqual(item["state"], "measured")
        runs = item["back_to_back"]["runs"]
        self.assertIn(len(runs), (1, 2))  # the second one only if nothing kept this machine busy
        for one in runs:
            self.assertGreater(one["launches"], 100)
            self.assertGreater(one["lead"], 50)
            self.assertEqual(one["sm_mhz"], 1980)
            self.assertGreater(one["time_us"], 150)
        self.assertAlmostEqual(item["back_to_back_us"], sum(r["time_us"] for r in runs) / len(runs), places=6)
        self.assertEqual(len(item["samples"]["time_us"]), item["time_us"]["count"])
        # Two to warm up, and what was launched in a row.
        self.assertEqual(item["launches"], item["time_us"]["count"] + 2 + sum(r["launches"] + r["lead"] for r in runs))
        self.assertIn("back to back", tables)
        self.assertIn("us to enqueue one, which limits them", tables)  # such a driver has no queue
        self.assertEqual(item["samples"]["sm_mhz"], [1980] * item["time_us"]["count"])
        self.assertEqual(item["low_clock_samples"], [])

    def test_input_sets_of_launches_in_a_row_are_cold(self):
        items, _ = self.perf("--context", "1K", op="attend,msa,dense,score")
        for item in items:
            with self.subTest(operator=item["operator"]):
                self.assertGreaterEqual(item["verification"]["outputs_seen"] * item["work"]["compulsory_bytes"], 2 << 20)

    def test_without_time_there_is_a_reason(self):
        items, tables = self.perf("--context", "1K", budget_s=0.9, op="attend,score,index,msa")
        last = items[-1]
        self.assertIsNone(last["back_to_back_us"])
        self.assertEqual(last["back_to_back"]["runs"], [])
        self.assertIn("of the budget are left", last["back_to_back"]["reason"])
        self.assertIn("not measured back to back", tables)
        self.assertGreater(last["time_us"]["count"], 2)

    def test_looking_at_inputs_takes_no_time_from_launches(self):
        # Half a second and more for each operator, twice.
        items, _ = self.perf("--context", "1K", "--cache", "hot", budget_s=2, op="attend,score,index,msa", env={"MSABENCH_FAKE_DOWNLOADS": "1500000"})
        self.assertEqual([i["state"] for i in items], ["measured"] * 4, [i["reason"] for i in items])

    def test_low_clocks_are_flagged(self):
        (item,), tables = self.perf("--context", "1K", mhz=",".join(["1980"] * 40 + ["1300"] * 12))
        low = item["low_clock_samples"]
        self.assertTrue(low)
        self.assertEqual(low, [i for i, mhz in enumerate(item["samples"]["sm_mhz"]) if mhz == 1300])
        self.assertIn(f"({len(low)} low clock)", tables)

    def test_a_launch_waits_for_the_clock_to_recover(self):
        (item,), _ = self.perf("--context", "1K", mhz="1980,1300,1300,1300")
        self.assertEqual(set(item["samples"]["sm_mhz"]), {1980})

    def test_different_clocks_are_not_compared(self):
        copy = self.folder / "other.so"
        shutil.copy(plugin("runs_on_a_fake_gpu"), copy)
        for mhz, compared in (("launches:1980,1900", False), ("launches:1980,1960", True)):
            with self.subTest(mhz=mhz):
                items, tables = self.perf("--context", "512", "--against", copy, mhz=mhz, suite="prefill", op="dense")
                for item in items:
                    figures = item["figures"]
                    self.assertEqual(figures["against"] is not None, compared)
                    self.assertEqual("against_refused" in figures, not compared)
                    self.assertIsNotNone(figures["back_to_back_against"])
                self.assertEqual("no comparison with the other: taken at clocks of" in tables, not compared)

    def test_without_its_library_e4m3_has_no_limit(self):
        (item,), tables = self.perf("--context", "1K")
        self.assertIsNone(item["figures"]["efficiency"])
        # Absent, or it refuses such a device.
        self.assertRegex(tables, r"(no cuBLAS was found|libcublas\S* refuses) .*, so no limit of arithmetic is known")
        self.assertRegex(tables, r"no limit of arithmetic in e4m3: (no cuBLASLt was found|\S*libcublasLt\S* refuses e4m3: \w+: status \d+)")


    def judge(self, case, *, impl="runs_on_a_fake_gpu", **driver):
        fake = BUILD.resolve() / "test-plugins" / "fake-driver"
        return run("repro", case, "--impl", plugin(impl), "--device", "cuda", env={"LD_LIBRARY_PATH": str(fake), **driver})

    def repro(self, family, **driver):
        return self.judge(f"dense/h8x2.d64.b32.k4.l1.i0/q1.n64K/fp32.contig/{family}/s0", **driver)

    def test_inputs_that_stay_are_uploaded_once_to_each_place(self):
        # Keys and values are 64 MiB, and none of these is made on the device. The rehearsal and the launches after it have a place each.
        done = self.repro("carry", MSABENCH_FAKE_UPLOADS=str(170 << 20))
        self.assertEqual(done.code, 0, done.out + done.err)

    def test_a_pool_can_be_larger_than_the_device(self):
        # Keys and values are 2 GiB each, and a few pages of them hold anything. An empty page that is read is NaN as elsewhere.
        case = "attend/h8x4.d128.b128.k4.l1.i0/q1.n2K/bf16.paged/random/pool16K/s0"
        memory = {"MSABENCH_FAKE_MEMORY": str(1 << 30)}
        done = self.judge(case, **memory)
        self.assertEqual(done.code, 0, done.out + done.err)
        done = self.judge(case, **memory, MSABENCH_FAKE_MAPPING="refused")
        self.assertEqual(done.code, 4, done.out + done.err)
        self.assertIn("the device has not so much left", done.err)
        self.assertEqual(self.judge(case, MSABENCH_FAKE_MEMORY=str(32 << 20)).code, 4)

    def test_small_parts_travel_together(self):
        # Each of the 2000 sequences has a page of its own; the rest of the pool holds nothing.
        case = "dense/h1x1.d16.b16.k1.l1.i0/q1.n16.x2000/bf16.paged/random/s0"
        for most, code in ((200, 0), (10, 1)):
            done = self.judge(case, MSABENCH_FAKE_COPIES=str(most))
            self.assertEqual(done.code, code, done.out + done.err)

    def test_what_one_launch_has_written_into_an_input_is_seen(self):
        done = self.judge("dense/h8x2.d64.b32.k4.l1.i0/rag.small/fp32.contig/random/s0", impl="changes_queries_on_a_fake_gpu")
        self.assertEqual(done.code, 1, done.out + done.err)
        self.assertIn("an input changed at q", " ".join(done.out.split()))

    def test_mutants_are_tried_on_a_device(self):
        fake = BUILD.resolve() / "test-plugins" / "fake-driver"
        path = self.folder / "selftest.json"
        few = ("selftest", "--only", "none", "--device", "cuda", "--filter", "dense/*rag.small*", "--filter", "select/m3/rag.holes*", "--json", path)
        for role, impl, code in (("--mutant", "changes_queries_on_a_fake_gpu", 0), ("--variant", "runs_on_a_fake_gpu", 0), ("--mutant", "runs_on_a_fake_gpu", 1)):
            done = run(*few, role, plugin(impl), env={"LD_LIBRARY_PATH": str(fake)})
            self.assertEqual(done.code, code, done.out + done.err)
            record = json.loads(path.read_text())
            tried, = record["mutants"] + record["variants"]
            self.assertTrue(tried["trials"])
            for trial in tried["trials"]:
                self.assertIn("--device cuda:0", trial["repro"])
        self.assertEqual(run(*few, "--mutant", plugin("drop_key")).code, 4)  # without a driver

    def test_large_inputs_are_made_on_the_device(self):
        limit = {"MSABENCH_FAKE_UPLOADS": str(24 << 20)}  # keys and values are 64 MiB
        (item,), _ = self.perf("--context", "64K", op="dense", budget_s=20, env=limit)
        self.assertEqual((item["state"], item["verification"]["verdict"]), ("measured", "pass"))
        for family, made in (("random", True), ("carry", False)):
            done = self.repro(family, **limit)
            self.assertEqual(done.code == 0, made, done.out + done.err)
            self.assertEqual("cuMemcpyHtoD" in done.out + done.err, not made, done.out + done.err)

    def test_further_input_sets_are_not_uploaded(self):
        limit = 2 << 20
        (item,), _ = self.perf("--context", "1K", op="dense", env={"MSABENCH_FAKE_UPLOADS": str(limit)})
        self.assertGreater(item["verification"]["outputs_seen"] * item["work"]["compulsory_bytes"], limit)

    def test_a_change_of_any_input_set_is_seen(self):
        # Its second launch has another input set than the first, and no download of that one.
        (item,), _ = self.perf("--context", "256", "--chunk", "256", suite="prefill", op="dense", impl="changes_queries_on_a_fake_gpu", code=1)
        self.assertGreater(item["verification"]["outputs_seen"], 1)
        self.assertEqual(item["verification"]["verdict"], "fail")
        self.assertIn("an input has changed during the timed launches", json.dumps(item))

    def test_a_device_that_sees_no_difference_is_a_fault_of_the_suite(self):
        fake = BUILD.resolve() / "test-plugins" / "fake-driver"
        for what, told in (("COMPARISON", "comparison of memory doesn't tell equal bytes from others"), ("CHECKSUM", "checksum of memory is not that of the host")):
            with self.subTest(what=what):
                done = run("perf", "--impl", plugin("runs_on_a_fake_gpu"), "--device", "cuda", "--op", "attend", "--shape", "h8x2.d64.b32.k4.l1.i0", "--type", "fp32",
                           "--suite", "decode", "--budget-s", 3, "--context", "1K", env={"LD_LIBRARY_PATH": str(fake), f"MSABENCH_FAKE_{what}": "blind"})
                self.assertEqual(done.code, 70, done.out + done.err)
                self.assertIn(told, " ".join((done.out + done.err).split()))

    def test_a_wrong_generator_is_a_fault_of_the_suite(self):
        done = self.repro("random", MSABENCH_FAKE_GENERATOR="wrong")
        self.assertEqual(done.code, 70, done.out + done.err)
        self.assertIn(f"makes another k than the host's at index {64 * 1024 * 2 * 64 - 1} of the stream", " ".join(done.out.split()))


class Kernels(unittest.TestCase):
    def test_the_text_of_the_generator_is_of_these_sources(self):
        done = subprocess.run([sys.executable, SOURCE / "host" / "worker" / "generate_inputs.py", "--check"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Example(ProgramTest):
    def faults(self):
        listed = subprocess.run([sys.executable, PLANT, "--list"], text=True, capture_output=True, check=True)
        return listed.stdout.split()

    def test_every_fault_fits_and_changes_something(self):
        self.assertGreaterEqual(len(self.faults()), 7)
        tools = subprocess.run([sys.executable, PLANT, "--list-sanitizers"], text=True, capture_output=True, check=True).stdout.split()
        self.assertEqual(tools, ["memcheck", "racecheck", "initcheck", "synccheck"])
        for fault in self.faults() + tools:
            target = self.folder / f"{fault}.cu"
            subprocess.run([sys.executable, PLANT, fault, EXAMPLE, target], check=True)
            self.assertNotEqual(target.read_text(), EXAMPLE.read_text(), fault)

    def test_a_fault_that_does_not_fit_is_told(self):
        other = self.folder / "other.cu"
        other.write_text("nothing of the example")
        done = subprocess.run([sys.executable, PLANT, "race", other, self.folder / "target.cu"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("race: its place is 0 times in", done.stderr)

    @unittest.skipUnless(shutil.which("nvcc"), "nvcc is not here")
    def test_compiles(self):
        done = subprocess.run(["nvcc", "-std=c++17", "-arch=sm_90a", "-c", "-Xcompiler", "-Wall,-Wextra,-Werror", "-I", SOURCE / "include", EXAMPLE,
                               "-o", self.folder / "attend.o"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
