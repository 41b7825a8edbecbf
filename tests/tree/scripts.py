# SPDX-License-Identifier: Apache-2.0
"""The scripts of ci/: strict, executable, of sound syntax, documented, and hard on arguments they don't know."""

import os
import re
import subprocess
import tempfile
import unittest

import tree

SCRIPTS = [name for name in tree.files() if name.startswith(("ci/", ".ci/")) and not name.endswith((".md", ".txt"))]
PROGRAMS = [name for name in SCRIPTS if not name.endswith(".sh")]


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60, **options)


class scripts(unittest.TestCase):
    def test_they_are_there(self):
        for name in ["ci/setup", "ci/test", "ci/qualify", "ci/nightly", "ci/format", "ci/tidy", ".ci/run"]:
            self.assertIn(name, SCRIPTS)

    def test_syntax_and_strictness(self):
        for name in SCRIPTS:
            with self.subTest(script=name):
                checked = run("bash", "-n", str(tree.ROOT / name))
                self.assertEqual((checked.returncode, checked.stderr), (0, ""))
                if name in PROGRAMS:
                    self.assertTrue(os.access(tree.ROOT / name, os.X_OK), "not executable")
                    self.assertRegex(tree.text(name), re.compile(r"^set -euo pipefail$", re.MULTILINE))
                    self.assertTrue(tree.text(name).startswith("#!/usr/bin/env bash\n"))

    def test_help_and_unknown_arguments_from_any_folder(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            for name in ["ci/setup", "ci/test", "ci/nightly", "ci/format", "ci/gpu"]:
                with self.subTest(script=name):
                    shown = run("bash", str(tree.ROOT / name), "--help", cwd=elsewhere)
                    self.assertEqual(shown.returncode, 0)
                    self.assertIn("usage: " + name, shown.stdout)
                    self.assertNotIn("set -euo", shown.stdout)
                    refused = run("bash", str(tree.ROOT / name), "--nonsense", cwd=elsewhere)
                    self.assertEqual((refused.returncode, refused.stdout), (64, ""))
                    self.assertEqual(refused.stderr, f"{name}: error: argument --nonsense: unknown; see {name} --help\n")
            self.assertEqual(os.listdir(elsewhere), [])

    def test_the_build_server_runs_the_tests(self):
        self.assertRegex(tree.text(".ci/run"), r'exec bash "\$\(dirname "\$\{BASH_SOURCE\[0\]\}"\)/\.\./ci/test" "\$@"\n$')


if __name__ == "__main__":
    unittest.main()
