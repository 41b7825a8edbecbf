# SPDX-License-Identifier: Apache-2.0
"""Plugins for CUDA devices, as far as a machine without a GPU can tell."""

import ctypes
import os
import shutil
import subprocess
import sys
import unittest

from program import BUILD, QUICK, SOURCE, ProgramTest, plugin, run

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
