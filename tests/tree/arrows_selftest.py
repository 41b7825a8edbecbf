# SPDX-License-Identifier: Apache-2.0
"""The arrow test sees what it is there to see: forbidden includes planted in a copy of the tree, one at a time."""

import pathlib
import shutil
import tempfile
import unittest

import arrows
import tree

TABLE = """
| folder | holds | may include | must not know |
|---|---|---|---|
| `core/` | words | `std`, `fmt` | the rest |
| `host/` | executors | `std`, `core` | `judge` |
| `host/worker/` | the worker | `std`, `core`, `host`, `include/msabench/plugin.h`, `cuda` | |
| `include/` | the header | `std` | |
| `kernels/*` | kernels | `std`, `include/msabench/plugin.h` | |
| `kernels/mutants/` | mutants | `std`, `kernels/naive` | |
| `tests/` | tests | `all` | |
"""


class real_tree(unittest.TestCase):
    """Plants into a copy, so that the table that is shipped is the one that is tried."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        for name in [*tree.source_files(), arrows.TABLE]:
            (cls.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(tree.ROOT / name, cls.root / name)
        cls.before = set(arrows.check(cls.root)[0])

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def planted(self, path, line):
        """The findings that appear with a new file of this one line."""
        file = self.root / path
        self.assertFalse(file.exists())
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("// planted\n" + line + "\n", encoding="utf-8")
        try:
            return [finding for finding in arrows.check(self.root)[0] if finding not in self.before]
        finally:
            file.unlink()

    def assert_rejected(self, path, line, word):
        found = self.planted(path, line)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f"{path}:2: "), found)
        self.assertIn(word, found[0])

    def test_forbidden_project_includes(self):
        for path, line in [("core/zz_planted.h", '#include "host/zz_other.h"'),
                           ("reference/zz_planted.cpp", '#include "judge/zz_other.h"'),
                           ("judge/zz_planted.cpp", '#  include "host/zz_other.h"'),
                           ("reports/zz_planted.cpp", '#include "conformance/zz_other.h"'),
                           ("inputs/zz_planted.cpp", '#include "reference/zz_other.h"'),
                           ("kernels/naive/zz_planted.cpp", '#include "core/zz_other.h"'),
                           ("kernels/naive/zz_planted.cpp", '#include "../../core/zz_other.h"'),
                           ("cli/zz_planted.cpp", '#include "kernels/naive/zz_other.h"'),
                           ("core/zz_planted.cpp", '#include "../host/zz_other.h"')]:
            with self.subTest(path=path, line=line):
                # The target is there too, so that no finding is owed to its absence.
                header = line.split('"')[1].replace("../", "")
                (self.root / header).parent.mkdir(parents=True, exist_ok=True)
                (self.root / header).write_text("#pragma once\n", encoding="utf-8")
                self.assert_rejected(path, line, "may not include")
                (self.root / header).unlink()

    def test_only_the_worker_sees_the_plugin_header(self):
        line = "#include <msabench/plugin.h>"
        for path in ["core/zz_planted.h", "host/zz_planted.cpp", "judge/zz_planted.cpp", "conformance/zz_planted.cpp", "cli/zz_planted.cpp"]:
            with self.subTest(path=path):
                self.assert_rejected(path, line, "may not include")
        for path in ["host/worker/zz_planted.cpp", "kernels/naive/zz_planted.cpp"]:
            with self.subTest(path=path):
                self.assertEqual(self.planted(path, line), [])

    def test_forbidden_libraries(self):
        for path, line, word in [("kernels/naive/zz_planted.cpp", "#include <fmt/format.h>", "fmt"),
                                 ("kernels/naive/zz_planted.cpp", "#include <nlohmann/json.hpp>", "json"),
                                 ("host/zz_planted.cpp", "#include <cuda_runtime.h>", "cuda"),
                                 ("judge/zz_planted.h", "#include <cuda/barrier>", "cuda"),
                                 ("core/zz_planted.h", "#include <CLI/CLI.hpp>", "cli11"),
                                 ("reference/zz_planted.h", "#include <openssl/evp.h>", "libcrypto"),
                                 ("core/zz_planted.h", "#include <gtest/gtest.h>", "gtest"),
                                 ("core/zz_planted.h", "#include <boost/any.hpp>", "known library"),
                                 ("core/zz_planted.h", "#include ZZ_HEADER", "literal")]:
            with self.subTest(path=path, line=line):
                self.assert_rejected(path, line, word)
        self.assertEqual(self.planted("host/worker/zz_planted.cpp", "#include <cuda_runtime.h>"), [])

    def test_a_folder_without_a_row(self):
        found = self.planted("zz_planted/a.h", "#include <vector>")
        self.assertEqual(len(found), 1, found)
        self.assertIn("no row", found[0])


class small_tree(unittest.TestCase):
    """Rules of the table that no single row of the shipped one shows."""

    def findings(self, **sources):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {arrows.TABLE: TABLE, "include/msabench/plugin.h": "#include <stdint.h>\n", **sources}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            return arrows.check(root)[0]

    def test_allowed(self):
        self.assertEqual(self.findings(**{
            "core/a.h": "#include <vector>\n#include <fmt/format.h>\n",
            "core/b.h": '#include "core/a.h"\n#include "a.h"\n/*\n#include <gtest/gtest.h>\n*/\n// #include <omp.h>\n',
            "host/worker/c.cpp": '#include "host/d.h"\n#include "core/a.h"\n#include "msabench/plugin.h"\n#include <cuda/atomic>\n',
            "host/d.h": '#include "core/a.h"\n',
            "kernels/naive/e.cpp": '#include "msabench/plugin.h"\n#include "f.h"\n',
            "kernels/naive/f.h": "#include <cmath>\n",
            "kernels/mutants/g.cpp": '#include "../naive/f.h"\n',
            "tests/core/h.cpp": '#include <gtest/gtest.h>\n#include "kernels/naive/f.h"\n'}), [])

    def test_folders_below_a_row_are_apart(self):
        for path, line in [("host/d.cpp", '#include "host/worker/c.h"'), ("kernels/cpu/e.cpp", '#include "kernels/naive/f.h"'),
                           ("kernels/naive/e.cpp", '#include "kernels/mutants/g.h"'), ("host/d.cpp", '#include "worker/c.h"')]:
            with self.subTest(path=path, line=line):
                found = self.findings(**{path: line + "\n", "host/worker/c.h": "\n", "kernels/naive/f.h": "\n", "kernels/mutants/g.h": "\n"})
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(path + ":1: "), found)

    def test_a_table_that_lies(self):
        for table in ["no table here\n", TABLE.replace("`fmt`", "`fmmt`"), TABLE + "| `core/` | twice | `std` | |\n"]:
            with self.subTest(table=table), self.assertRaises(ValueError):
                self.findings(**{arrows.TABLE: table})


if __name__ == "__main__":
    unittest.main()
