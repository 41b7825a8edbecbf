# SPDX-License-Identifier: Apache-2.0
"""Runs the built msabench as a person would; shared by the tests of this folder."""

import json
import jsonschema
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path("build/release")
MSABENCH = BUILD / "bin" / "msabench"
PLUGINS = BUILD / "test-plugins"
SOURCE = pathlib.Path(__file__).resolve().parents[2]

SCHEMA = json.loads((SOURCE / "reports" / "schema" / "report-1.schema.json").read_text())

# A case that takes milliseconds, for tests of everything but numbers.
QUICK = "attend/h8x2.d64.b32.k4.l1.i0/rag.small/fp32.contig/random/s0"


class Result:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr


def run(*arguments, env=None, cwd=None, timeout=300, **more):
    environment = {**os.environ, "NO_COLOR": "1", **(env or {})}
    return Result(subprocess.run([str(MSABENCH), *map(str, arguments)], text=True, errors="replace", capture_output=True,
                                 stdin=subprocess.DEVNULL, env=environment, cwd=cwd, timeout=timeout, **more))


def plugin(name):
    path = PLUGINS / f"{name}.so"
    if not path.exists():
        raise AssertionError(f"{path} was not built")
    return path


class Busy:
    """As many processes that do nothing but run as there are cores."""

    def __enter__(self):
        self.running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]

    def __exit__(self, *_):
        for process in self.running:
            process.kill()
            process.wait()


class ProgramTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def report(self, *arguments, code=None, **more):
        """Runs with --json to a file and returns the report; None if there is none."""
        path = self.folder / "report.json"
        result = run(*arguments, "--json", path, **more)
        if code is not None:
            self.assertEqual(result.code, code, result.out + result.err)
        if not path.exists():
            return None
        report = json.loads(path.read_text())
        jsonschema.validate(report, SCHEMA)
        path.unlink()
        return report

    def german(self):
        """An environment whose numbers have commas: made here, since a locale that does not exist would change nothing for anybody."""
        made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", self.folder / "de_DE.UTF-8"], capture_output=True, text=True)
        self.assertTrue((self.folder / "de_DE.UTF-8/LC_NUMERIC").exists(), made.stderr)
        environment = {"LOCPATH": str(self.folder), "LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}
        comma = subprocess.run(["locale", "decimal_point"], capture_output=True, text=True, env={**os.environ, **environment})
        self.assertEqual(comma.stdout.strip(), ",")
        return environment

    def assert_refused(self, result, *words, code=64):
        """One clear line on stderr that holds every word, and nothing half done."""
        self.assertEqual(result.code, code, result.out + result.err)
        lines = result.err.strip().splitlines()
        self.assertEqual(len(lines), 1, result.err)
        self.assertTrue(lines[0].startswith("msabench: error: "), lines[0])
        for word in words:
            self.assertIn(word, lines[0])


if __name__ == "__main__":
    unittest.main()
