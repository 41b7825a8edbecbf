# SPDX-License-Identifier: Apache-2.0
"""msabench_bench: figures of msabench perf as Google Benchmark benchmarks. The machine of a test is never quiet, so that
most of it is about what has no number."""

import json
import os
import subprocess
import unittest

import program
from program import BUILD, Busy, ProgramTest

PROGRAM = BUILD / "bin" / "msabench_bench"


def environment(variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MSABENCH_")}
    return {**clean, "MSABENCH_CONTEXT": "1K", "MSABENCH_BUDGET_S": "2", **{name: str(value) for name, value in variables.items()}}


def run(*arguments, **variables):
    done = subprocess.run([PROGRAM, *map(str, arguments)], text=True, capture_output=True, stdin=subprocess.DEVNULL,
                          env=environment(variables), timeout=300)
    return program.Result(done)


class GoogleBenchmark(ProgramTest):
    def test_lists_points_and_operators(self):
        result = run("--benchmark_list_tests")
        self.assertEqual(result.code, 0, result.err)
        operators = {line.split("/")[0] for line in result.out.splitlines()}
        self.assertLessEqual({"attend", "dense", "index", "msa"}, operators)

    def test_a_busy_machine_has_no_times(self):
        with Busy():
            result = run("--benchmark_filter=attend", "--benchmark_format=json", MSABENCH_IMPL="naive")
        self.assertEqual(result.code, 4, result.out + result.err)
        for benchmark in json.loads(result.out)["benchmarks"]:
            self.assertTrue(benchmark["error_occurred"])
            self.assertIn("busy", benchmark["error_message"])
            self.assertIn("MSABENCH_BUSY=tell", benchmark["error_message"])

    def test_a_busy_machine_has_marked_times_where_asked(self):
        with Busy():
            result = run("--benchmark_filter=attend", "--benchmark_format=json", MSABENCH_IMPL="naive", MSABENCH_BUSY="tell")
        self.assertEqual(result.code, 0, result.out + result.err)
        for benchmark in json.loads(result.out)["benchmarks"]:
            self.assertGreater(benchmark["real_time"], 0)
            self.assertIn("busy machine", benchmark["label"])

    def test_nothing_that_ran_is_no_result(self):
        result = run("--benchmark_filter=nonsense", MSABENCH_IMPL="naive")
        self.assertEqual(result.code, 3, result.out + result.err)
        self.assertIn("nothing ran", result.err)

    def test_bad_input(self):
        for words, variables in [
            (("MSABENCH_IMPL", "not set"), {"MSABENCH_IMPL": ""}),
            (("MSABENCH_IMPL", "nowhere.so"), {"MSABENCH_IMPL": "./nowhere.so"}),
            (("MSABENCH_SUITE", "encode", "decode"), {"MSABENCH_SUITE": "encode"}),
            (("MSABENCH_SELECTION", "best", "random"), {"MSABENCH_SELECTION": "best"}),
            (("MSABENCH_CONTEXT", "8k"), {"MSABENCH_CONTEXT": "8k"}),
            (("MSABENCH_BATCH", "0"), {"MSABENCH_BATCH": "0"}),
            (("MSABENCH_BUDGET_S", "-1"), {"MSABENCH_BUDGET_S": "-1"}),
            (("MSABENCH_BUSY", "maybe", "tell"), {"MSABENCH_BUSY": "maybe"}),
        ]:
            with self.subTest(words=words):
                result = run(**{"MSABENCH_IMPL": "naive", **variables})
                self.assertEqual(result.code, 64, result.out + result.err)
                lines = result.err.strip().splitlines()
                self.assertEqual(len(lines), 1, result.err)
                for word in ("msabench_bench: error: ", *words):
                    self.assertIn(word, lines[0])
        self.assertEqual(run("--surprise", MSABENCH_IMPL="naive").code, 64)

    def test_help_names_the_variables(self):
        result = run("--help")
        self.assertIn("MSABENCH_IMPL", result.out)


if __name__ == "__main__":
    unittest.main()
