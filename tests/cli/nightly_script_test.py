# SPDX-License-Identifier: Apache-2.0
"""How ci/nightly ends, in a tree in which every program but it is a line that ends as it is told."""

import os
import shutil
import subprocess
import unittest
from pathlib import Path

from program import SOURCE, ProgramTest

# $FAILS: words of a command that fails. Targets of nvcc are there only where it is.
STUB = """#!/usr/bin/env bash
line="$(basename "$0") $*"
if [[ "$line" == *"-t query"* ]]; then command -v nvcc >/dev/null; exit; fi
[[ -z "${FAILS:-}" || "$line" != *"$FAILS"* ]]
"""


class Nightly(ProgramTest):
    def setUp(self):
        super().setUp()
        # As it is found on the machine, but for nvcc.
        self.programs = self.folder / "programs"
        self.tree = self.folder / "tree"
        (self.tree / "ci").mkdir(parents=True)
        self.programs.mkdir()
        for name in ["nightly", "lib.sh"]:
            shutil.copy(SOURCE / "ci" / name, self.tree / "ci")
        for folder in ["/usr/bin", "/bin"]:
            for path in Path(folder).iterdir():
                if path.name != "nvcc" and not (self.programs / path.name).exists():
                    (self.programs / path.name).symlink_to(path)
        (self.tree / "tests" / "ptx").mkdir(parents=True)
        (self.tree / "tests" / "ptx" / "interpreted_test.py").write_text("")
        for name in ["cmake", "ninja", "ctest"]:
            self.stub(self.programs / name)
        for name in ["ci/setup", "ci/format", "ci/tidy", "build/release/bin/msabench"]:
            self.stub(self.tree / name)

    def stub(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(STUB)
        path.chmod(0o755)

    def nightly(self, *arguments, code, fails=""):
        done = subprocess.run([str(self.tree / "ci" / "nightly"), *arguments], text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=120,
                              env={"PATH": str(self.programs), "HOME": str(self.folder), "FAILS": fails})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return (done.stdout + done.stderr).splitlines()

    def test_all_that_there_is(self):
        self.stub(self.programs / "nvcc")
        lines = self.nightly(code=0)
        self.assertRegex(lines[-1], "all of it passed in")
        self.assertIn("ci/nightly: CUDA kernels without a GPU, every case and fault ...", lines)

    def test_what_is_skipped_has_not_passed(self):
        lines = self.nightly(code=4)
        self.assertIn("passed but for what was skipped: plugin cuda for newer GPUs, nvcc is not on the PATH; CUDA kernels, preset release", lines[-1])
        self.assertFalse([line for line in lines if "all of it" in line])

    def test_cuda_can_be_left_out(self):
        self.assertRegex(self.nightly("--without-cuda", code=0)[-1], "all of it but CUDA passed in")
        self.stub(self.programs / "nvcc")
        self.assertNotIn("ci/nightly: CUDA kernels without a GPU, every case and fault ...", self.nightly("--without-cuda", code=0))

    def test_a_failure_is_told_at_the_end(self):
        self.assertIn("failed: fuzz parsers (exit 1)", self.nightly(code=1, fails="-L ^fuzz$")[-1])
        lines = self.nightly(code=1, fails="selftest")
        self.assertIn("failed: self-test, every case (exit 1)", lines[-1])


if __name__ == "__main__":
    unittest.main()
