# SPDX-License-Identifier: Apache-2.0
"""Reports read with other people's parsers: JSON against its schema, JUnit as XML, and both after planted damage.

usage: formats_test.py REPORT_TOOL SCHEMA
"""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

try:
    import jsonschema
except ImportError:
    sys.exit("formats_test: the package python3-jsonschema is missing; install it (ci/setup does)")

TOOL, SCHEMA_PATH = sys.argv[1], pathlib.Path(sys.argv[2])
SCHEMA = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
RUNS = {"clean": 0, "mixed": 70, "partial": 2, "insensitive": 2, "random": 1, "unsupported": 3, "empty": 3, "open": 2,
        "parts": 1}


def no_constant(token):
    raise ValueError(token + " is not JSON")


def strict_json(text):
    return json.loads(text, parse_constant=no_constant)


def at(document, *path):
    for step in path:
        document = document[step]
    return document


def put(*path_and_value):
    *path, key, value = path_and_value

    def mutate(document):
        at(document, *path)[key] = value

    return mutate


def drop(*path):
    *parents, key = path

    def mutate(document):
        del at(document, *parents)[key]

    return mutate


FAIL = ("cases", 2)  # the failing case of `mixed`; its checks 2, 3, 4 are violated, not finite, not observed

# What the schema and the reader must both refuse.
DAMAGES = {
    "no object": None,
    "another format": put("schema", "nvbench.report/1"),
    "another major": put("schema", "msabench.report/2"),
    "a longer major": put("schema", "msabench.report/10"),
    "major missing": put("schema", "msabench.report/"),
    "schema of another type": put("schema", 1),
    "seed as a number": put("run", "seed", 0),
    "seed negative": put("run", "seed", "-1"),
    "seed beyond 20 digits": put("run", "seed", "100000000000000000000"),
    "partial as a number": put("run", "partial", 0),
    "argv as text": put("run", "argv", "msabench check"),
    "environment as a list": put("environment", []),
    "cases as an object": put("cases", {}),
    "case seed as a number": put(*FAIL, "seed", 7),
    "unknown verdict": put(*FAIL, "verdict", "passed"),
    "verdict of another type": put(*FAIL, "verdict", 2),
    "unknown kind": put(*FAIL, "kind", "numerical"),
    "checks as an object": put(*FAIL, "checks", {}),
    "rows as text": put(*FAIL, "rows_checked", "8"),
    "rows as a fraction": put(*FAIL, "rows_total", 8.5),
    "value null without tag": put(*FAIL, "checks", 2, "value", None),
    "value as text": put(*FAIL, "checks", 2, "value", "0.5"),
    "limit as a list": put(*FAIL, "checks", 2, "limit", [1]),
    "unknown tag": put(*FAIL, "checks", 3, "value_tag", "NaN"),
    "tag lost": drop(*FAIL, "checks", 3, "limit_tag"),
    "term as text": put(*FAIL, "checks", 2, "terms", "exponential", "small"),
    "got null without tag": put(*FAIL, "checks", 2, "worst", "got", None),
    "unknown slot": put(*FAIL, "checks", 2, "worst", "slot", "output"),
    "index as text": put(*FAIL, "checks", 2, "worst", "index", ["3"]),
    "gate as a number": put(*FAIL, "checks", 2, "gate", 1),
    "unknown dtype": put(*FAIL, "numerics", "pv_acc", "fp31"),
    "unknown profile word": put(*FAIL, "profile", "lse", "binary"),
    "samples as a list": put(*FAIL, "samples", []),
    "a sample as text": put(*FAIL, "samples", "time_us", 0, "fast"),
    "fault effect as text": put(*FAIL, "detectability", "by_fault", "drop_key", "much"),
    "summary count as text": put("summary", "verdicts", "pass", "1"),
    "unknown exit code": put("summary", "exit_code", 5),
    "verdict in the summary unknown": put("summary", "verdicts", "passed", 1),
}
REQUIRED = [
    ((), ["schema", "suite", "run", "environment", "implementation", "cases", "summary"]),
    (("suite",), ["version", "commit", "dirty", "lists", "selftest"]),
    (("run",), ["argv", "start", "seed", "shard", "partial"]),
    (("run", "shard"), ["index", "count"]),
    (("implementation",), ["name", "version", "sha256"]),
    (FAIL, ["name", "definition_sha256", "seed", "verdict", "checks", "detectability", "rows_checked", "rows_total",
            "repro", "samples"]),
    ((*FAIL, "checks", 2), ["id", "gate", "observed", "passed", "value", "limit", "unit", "terms", "worst"]),
    ((*FAIL, "checks", 2, "worst"), ["slot", "index", "got", "want"]),
    ((*FAIL, "detectability"), ["judged", "value"]),
    (("summary",), ["verdicts", "passed", "total", "partial", "exit_code"]),
]
for parents, keys in REQUIRED:
    for missing in keys:
        DAMAGES["missing " + ".".join(map(str, (*parents, missing)))] = drop(*parents, missing)

# The same, of parts.
PART_DAMAGES = {
    "parts as an object": put("run", "parts", {}),
    "unknown state": put("run", "parts", 0, "state", "skipped"),
    "state of another type": put("run", "parts", 0, "state", True),
    "seconds as text": put("run", "parts", 0, "seconds", "3"),
    "item as a number": put("run", "parts", 0, "item", 3),
    "source as text": put("run", "merged_from", 0, "conform.json"),
    "cases as a list": put("run", "merged_from", 0, "cases", []),
}
for parents, keys in [(("run", "parts", 0), ["part", "item", "of", "sha256", "state"]),
                      (("run", "merged_from", 0), ["file", "start", "argv", "shard", "cases", "partial"])]:
    for missing in keys:
        PART_DAMAGES["missing " + ".".join(map(str, (*parents, missing)))] = drop(*parents, missing)

# What a schema can't see; the reader must. Each with the run that it is planted in.
CONTRADICTIONS = {
    "term null without tag": ("mixed", put(*FAIL, "checks", 2, "terms", "exponential", None)),
    "a case cut off": ("mixed", lambda document: document["cases"].pop()),
    "a verdict repaired": ("mixed", put(*FAIL, "verdict", "pass")),
    "exit code repaired": ("mixed", put("summary", "exit_code", 0)),
    "partial hidden": ("partial", put("run", "partial", False)),
    "a failed part hidden": ("parts", put("run", "parts", 2, "state", "passed")),
    "a part not run cut off": ("open", drop("run", "parts")),
}

# Additions of a later minor version, which everybody must read.
ADDITIONS = {
    "later minor version": put("schema", "msabench.report/1.7"),
    "new key at the top": put("later", {"a": [1]}),
    "new key in a case": put(*FAIL, "later", None),
    "new key in a check": put(*FAIL, "checks", 2, "later", "x"),
    "new key in the profile": put(*FAIL, "profile", "later", 3),
    "new key in the run": put("run", "later", 1.5),
}


class Formats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name)
        subprocess.run([TOOL, "write", str(cls.folder)], check=True, timeout=60)
        cls.validator = jsonschema.Draft7Validator(SCHEMA)

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def text(self, name):
        return (self.folder / name).read_text(encoding="utf-8")

    def report(self, name):
        return strict_json(self.text(name + ".json"))

    def xml(self, name):
        return ElementTree.fromstring((self.folder / (name + ".xml")).read_bytes())

    def messages(self, document):
        return [f"{list(e.absolute_path)}: {e.message[:200]}" for e in self.validator.iter_errors(document)]

    def read_back(self, content):
        path = self.folder / "planted.json"
        path.write_text(content, encoding="utf-8")
        return subprocess.run([TOOL, "read", str(path)], capture_output=True, text=True, timeout=60)

    def assert_refused(self, done):
        self.assertEqual(done.returncode, 64, done.stdout + done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn("planted.json", done.stderr)

    def test_schema_is_a_schema(self):
        jsonschema.Draft7Validator.check_schema(SCHEMA)

    def test_reports_are_valid_and_read_back(self):
        for name, code in RUNS.items():
            with self.subTest(name):
                self.assertEqual(self.messages(self.report(name)), [])
                done = self.read_back(self.text(name + ".json"))
                self.assertEqual((done.returncode, done.stdout.strip()), (0, str(code)), done.stderr)
                self.assertEqual(self.report(name)["summary"]["exit_code"], code)

    def test_damage_is_refused_by_schema_and_reader(self):
        damages = [("mixed", *each) for each in DAMAGES.items()] + [("parts", *each) for each in PART_DAMAGES.items()]
        for run, name, mutate in damages:
            with self.subTest(name):
                damaged = copy.deepcopy(self.report(run))
                if mutate is None:
                    damaged = [damaged]
                else:
                    mutate(damaged)
                self.assertFalse(self.validator.is_valid(damaged))
                self.assert_refused(self.read_back(json.dumps(damaged)))

    def test_contradictions_are_refused_by_the_reader(self):
        for name, (run, mutate) in CONTRADICTIONS.items():
            with self.subTest(name):
                damaged = self.report(run)
                mutate(damaged)
                self.assert_refused(self.read_back(json.dumps(damaged)))

    def test_text_that_is_not_json_is_refused(self):
        whole = self.text("mixed.json")
        nan = whole.replace('"limit": 0.002', '"limit": NaN', 1)
        self.assertNotEqual(nan, whole)
        with self.assertRaises(ValueError):
            strict_json(nan)
        for name, content in {"NaN": nan, "cut": whole[: len(whole) // 2], "empty": "", "no JSON": "# report\n",
                              "infinity": whole.replace('"limit": 0.002', '"limit": 1e999', 1),
                              "trailing": whole + "{}"}.items():
            with self.subTest(name):
                self.assert_refused(self.read_back(content))

    def test_additions_are_read(self):
        for name, mutate in ADDITIONS.items():
            with self.subTest(name):
                extended = self.report("mixed")
                mutate(extended)
                self.assertEqual(self.messages(extended), [])
                done = self.read_back(json.dumps(extended))
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_junit_says_of_each_case_what_the_report_says(self):
        expected = {"pass": None, "quality-warning": None, "fail": "failure", "broken-promise": "failure",
                    "xpass": "failure", "crash": "error", "timeout": "error", "device-lost": "error",
                    "insensitive": "error", "suite-error": "error", "unsupported": "skipped", "waived": "skipped"}
        for run in RUNS:
            found = {}
            for suite in self.xml(run).iter("testsuite"):
                for case in suite.iter("testcase"):
                    children = [c.tag for c in case if c.tag in ("failure", "error", "skipped")]
                    self.assertLessEqual(len(children), 1)
                    found[case.get("name")] = (suite.get("name"), case, children[0] if children else None)
            for case in self.report(run)["cases"]:
                with self.subTest(run + " " + case["name"]):
                    suite, element, tag = found.pop(case["name"])
                    self.assertEqual(suite, case["name"].split("/")[0])
                    self.assertEqual(element.get("classname"), "/".join(case["name"].split("/")[:2]))
                    blind = run == "random" and case["verdict"] == "insensitive"
                    self.assertEqual(tag, "skipped" if blind else expected[case["verdict"]])
                    if tag:
                        self.assertTrue(element.find(tag).get("type").startswith(case["verdict"]))
                    if tag in ("failure", "error"):
                        self.assertIn(case["repro"], element.find(tag).text)
            # What is left speaks for parts, and for the run: there only where no case of it would look bad.
            expected_rest = {"open": [("parts", "error")], "parts": [("parts", "error"), ("parts", None), ("parts", "failure")]}
            for of_run in ("partial", "unsupported", "empty"):
                expected_rest[of_run] = [("run", "error")]
            self.assertEqual([(suite, tag) for suite, _, tag in found.values()], expected_rest.get(run, []), run)

    def test_junit_totals_are_the_sums(self):
        for run in RUNS:
            root = self.xml(run)
            for scope in [root, *root.iter("testsuite")]:
                with self.subTest(f"{run} {scope.get('name')}"):
                    self.assertEqual(int(scope.get("tests")), len(list(scope.iter("testcase"))))
                    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
                        self.assertEqual(int(scope.get(attribute)), len(list(scope.iter(tag))), attribute)

    def test_junit_keeps_hostile_text_as_text(self):
        root = self.xml("mixed")
        outs = "".join(e.text for e in root.iter("system-out"))
        self.assertIn("<b>&\"'|`*_[x](y) ]]> -->", outs)
        self.assertIn("\\x1b[31m\\x07\\xff", outs)
        self.assertIn("\n# second line\n", outs)
        self.assertEqual([c for c in outs if ord(c) < 32 and c != "\n"], [])
        warned = [e for e in root.iter("system-out") if "quality-warning" in e.text]
        self.assertEqual(len(warned), 1)

    def test_no_output_holds_control_characters(self):
        for run in RUNS:
            for suffix in (".json", ".xml", ".md"):
                bad = [hex(ord(c)) for c in self.text(run + suffix)
                       if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160]
                self.assertEqual(bad, [], run + suffix)

    def test_markdown_tables_are_rectangular(self):
        for run in RUNS:
            columns = None
            for line in self.text(run + ".md").splitlines():
                if not line.startswith("|"):
                    columns = None
                    continue
                bars = line.replace("\\\\", "").replace("\\|", "").count("|")
                columns = columns or bars
                self.assertEqual(bars, columns, line)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
