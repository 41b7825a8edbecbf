# SPDX-License-Identifier: Apache-2.0
"""msabench_gtest: the conformance cases as GoogleTest tests."""

import json
import os
import signal
import subprocess
import time
import unittest
import xml.etree.ElementTree

import program
from program import BUILD, QUICK, ProgramTest, plugin

PROGRAM = BUILD / "bin" / "msabench_gtest"
SUITE, TEST = QUICK.split("/", 1)
SMALL = "--gtest_filter=*rag.small*"


def environment(variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MSABENCH_", "GTEST_"))}
    return {**clean, **{name: str(value) for name, value in variables.items()}}


def run(*arguments, **variables):
    done = subprocess.run([PROGRAM, *map(str, arguments)], text=True, capture_output=True, stdin=subprocess.DEVNULL,
                          env=environment(variables), timeout=300)
    return program.Result(done)


class GoogleTest(ProgramTest):
    def xml(self, *arguments, code, **variables):
        path = self.folder / "tests.xml"
        result = run(*arguments, f"--gtest_output=xml:{path}", **variables)
        self.assertEqual(result.code, code, result.out + result.err)
        return {f"{case.get('classname')}/{case.get('name')}": case
                for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase")}

    def test_lists_what_msabench_lists(self):
        listed, suite = set(), ""
        result = run("--gtest_list_tests", MSABENCH_LEVEL="core")
        self.assertEqual(result.code, 0, result.err)
        for line in result.out.splitlines():
            if not line.startswith(" "):
                suite = line.rstrip(".")
            else:
                listed.add(f"{suite}/{line.strip()}")
        cases = program.run("list", "cases", "--level", "core", "--json", "-")
        self.assertEqual(cases.code, 0, cases.err)
        self.assertEqual(listed, {case["name"] for case in json.loads(cases.out)["cases"]})

    def test_right_kernels_pass_with_their_verdicts_in_the_xml(self):
        tests = self.xml(SMALL, code=0, MSABENCH_IMPL="naive", MSABENCH_THREADS=1)
        ran = {name: case for name, case in tests.items() if case.get("status") == "run"}
        self.assertGreater(len(ran), 3)
        for name, case in ran.items():
            properties = {p.get("name"): p.get("value") for p in case.iter("property")}
            self.assertEqual(properties["verdict"], "pass", name)
            self.assertEqual(len(properties["definition_sha256"]), 64)
            self.assertIn(f"repro {name} --impl naive --threads 1", properties["repro"])

    def test_a_wrong_kernel_fails_and_says_why(self):
        tests = self.xml("--gtest_filter=attend.*rag.small*", code=1, MSABENCH_IMPL=plugin("double_block"))
        failures = [f.get("message") for case in tests.values() for f in case.iter("failure")]
        self.assertTrue(failures)
        self.assertTrue(any("K1" in f and "row" in f and "reproduce: msabench repro attend/" in f for f in failures), failures)

    def test_a_crash_leaves_the_rest(self):
        tests = self.xml(SMALL, code=1, MSABENCH_IMPL=plugin("crash_attend"))
        verdicts = {name.split("/")[0]: p.get("value") for name, case in tests.items() for p in case.iter("property")
                    if p.get("name") == "verdict"}
        self.assertEqual((verdicts["attend"], verdicts["select"]), ("crash", "pass"))

    def test_shards_are_those_of_check(self):
        seen = []
        for index in range(3):
            tests = self.xml(SMALL, code=0, MSABENCH_IMPL="naive", GTEST_TOTAL_SHARDS=3, GTEST_SHARD_INDEX=index)
            seen += [name for name, case in tests.items() if case.get("result") == "completed"]
        whole = [name for name, case in self.xml(SMALL, code=0, MSABENCH_IMPL="naive").items() if case.get("result") == "completed"]
        self.assertEqual(set(seen), set(whole))
        marked = [c["name"] for c in json.loads(program.run("list", "--filter", "*rag.small*", "--json", "-").out)["cases"] if c["every_shard"]]
        self.assertEqual(len(seen), len(whole) + 2 * len(marked))

    def test_nothing_that_ran_is_no_pass(self):
        for arguments, variables in [(["--gtest_filter=no_such_case"], {}), ([SMALL], {"MSABENCH_IMPL": plugin("refuse_all")})]:
            result = run(*arguments, **{"MSABENCH_IMPL": "naive", **variables})
            self.assertEqual(result.code, 3, result.out + result.err)

    def test_bad_input(self):
        for words, variables in [
            (("MSABENCH_IMPL", "not set"), {"MSABENCH_IMPL": ""}),
            (("MSABENCH_IMPL", "nowhere.so"), {"MSABENCH_IMPL": "./nowhere.so"}),
            (("MSABENCH_LEVEL", "deep", "smoke"), {"MSABENCH_LEVEL": "deep"}),
            (("MSABENCH_SEED", "-1"), {"MSABENCH_SEED": "-1"}),
            (("GTEST_SHARD_INDEX", "3"), {"GTEST_SHARD_INDEX": "3", "GTEST_TOTAL_SHARDS": "3"}),
            (("GTEST_TOTAL_SHARDS", "3"), {"GTEST_TOTAL_SHARDS": "3"}),
            (("MSABENCH_THREADS", "0"), {"MSABENCH_THREADS": "0"}),
            (("MSABENCH_DEVICE", "tpu"), {"MSABENCH_DEVICE": "tpu"}),
            (("MSABENCH_TIMEOUT_S", "soon"), {"MSABENCH_TIMEOUT_S": "soon"}),
        ]:
            with self.subTest(words=words):
                result = run(SMALL, **{"MSABENCH_IMPL": "naive", **variables})
                self.assertEqual(result.code, 64, result.out + result.err)
                lines = result.err.strip().splitlines()
                self.assertEqual(len(lines), 1, result.err)
                self.assertTrue(lines[0].startswith("msabench_gtest: error: "), lines[0])
                for word in words:
                    self.assertIn(word, lines[0])
        self.assertEqual(run("--surprise", MSABENCH_IMPL="naive").code, 64)

    def test_errors_are_compared_with_naive(self):
        tests = self.xml("--gtest_filter=attend.*q1.n128K.x4*random*", code=0, MSABENCH_IMPL=plugin("rounds_weights"))
        ratios = [float(p.get("value")) for case in tests.values() for p in case.iter("property")
                  if p.get("name") == "errors_to_naive"]
        self.assertEqual(len(ratios), 1)
        self.assertGreater(ratios[0], 1.15)

    def test_help_names_the_variables(self):
        result = run("--help")
        self.assertEqual(result.code, 0)
        self.assertIn("MSABENCH_IMPL", result.out)

    def test_an_interrupt_ends_the_run_and_keeps_the_report(self):
        path = self.folder / "tests.xml"
        with subprocess.Popen([PROGRAM, "--gtest_filter=attend.*", f"--gtest_output=xml:{path}"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=environment({"MSABENCH_IMPL": plugin("hang_run")})) as running:
            time.sleep(2)
            running.send_signal(signal.SIGINT)
            out, _ = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 2, out)
        self.assertTrue(path.exists())


if __name__ == "__main__":
    unittest.main()
