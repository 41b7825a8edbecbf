# SPDX-License-Identifier: Apache-2.0
"""Runs over random cases that have to find a planted fault; shared by the short and the long test."""

import shlex

import program
from program import plugin


class FuzzTest(program.ProgramTest):
    def assert_found(self, name, operation, checks, seconds, *arguments):
        """Random cases of all operators, or those of `arguments`, find the fault of a plugin, shrink it, and its smallest case fails alone."""
        report = self.report("check", "--impl", plugin(name), "--fuzz", seconds, "--seed", "1", *arguments, code=1, timeout=seconds + 120)
        found = [f for f in report["run"]["fuzz"]["failures"] if f["smallest"].startswith(operation + "/")]
        self.assertTrue(found, report["run"]["fuzz"])
        self.assertEqual({f["what"] for f in found} - set(checks), set(), found)
        cases = {c["name"]: c for c in report["cases"]}
        for f in found:
            self.assertIn(f["found"], cases)
            repro = shlex.split(cases[f["smallest"]]["repro"])
            self.assertEqual(repro[:3], ["msabench", "repro", f["smallest"]])
            alone = self.report(*repro[1:], code=1)["cases"][0]
            self.assertEqual(alone["verdict"], f["what"].split()[0])
            for check in f["what"].split()[1:]:
                self.assertIn(check, [c["id"] for c in alone["checks"] if c["gate"] and c["observed"] and not c["passed"]])
        return found
