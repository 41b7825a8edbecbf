# SPDX-License-Identifier: Apache-2.0
"""msabench probe-numerics: what is told of an implementation is what is known of it."""

import json
import unittest

from program import ProgramTest, plugin, run


class ProbeNumerics(ProgramTest):
    def numbers(self, *arguments, code=0):
        result = run("probe-numerics", *arguments, "--json", "-")
        self.assertEqual(result.code, code, result.err)
        self.document = json.loads(result.out)
        return {n["field"]: n for n in self.document["numbers"]}

    def told(self, *arguments, code=0):
        return {field: n["seen"] for field, n in self.numbers(*arguments, code=code).items()}

    def test_naive_in_every_type(self):
        for kind in ("bf16", "fp16", "fp32"):
            for operation in ("attend", "dense"):
                with self.subTest(kind=kind, operation=operation):
                    numbers = self.numbers("--impl", "naive", "--type", kind, "--op", operation)
                    self.assertEqual(numbers["out_store"]["seen"], kind)
                    self.assertEqual(numbers["operand"]["seen"], kind)
                    self.assertEqual({numbers[f]["seen"] for f in ("p_operand", "score_acc", "score_store", "pv_acc",
                                                                   "partial_store")}, {"fp32"})
                    told = {n["comparison"] for f, n in numbers.items() if not f.startswith("chain_")}
                    self.assertEqual(told, {"equal"})
                    self.assertEqual(self.document["proposed"], self.document["declared"])

    def test_cpu_is_as_it_declares(self):
        numbers = self.numbers("--impl", "cpu")
        self.assertEqual([f for f, n in numbers.items() if n["comparison"].startswith(("finer", "coarser"))], [])

    def test_honest_variants(self):
        for name, known in [
            ("rounds_weights", {"p_operand": "bf16", "lse_from_rounded_p": "0"}),
            ("truncates_weights", {"p_operand": "bf16 truncated", "lse_from_rounded_p": "0"}),
            ("adds_rounded_weights", {"p_operand": "bf16", "lse_from_rounded_p": "1"}),
            ("stores_short_scores", {"score_store": "bf16", "rounded_operands": "0"}),
            ("prescales_query", {"operand": "bf16", "rounded_operands": "1", "score_store": "fp32"}),
            ("stores_short_partials", {"partial_store": "bf16", "pv_acc": "fp32"}),
        ]:
            with self.subTest(name=name):
                numbers = self.numbers("--impl", plugin(name))
                self.assertEqual({f: numbers[f]["seen"] for f in known}, known)
                self.assertEqual({numbers[f]["comparison"] for f in known}, {"equal"})

    def test_coarser_and_finer_declarations(self):
        self.assertEqual(self.numbers("--impl", plugin("declares_too_coarse"))["p_operand"]["comparison"], "coarser than seen")
        numbers = self.numbers("--impl", plugin("accumulate_16bit"), code=1)
        self.assertEqual((numbers["pv_acc"]["seen"], numbers["pv_acc"]["comparison"]), ("bf16", "finer than seen"))

    def test_what_cannot_be_told_is_said(self):
        numbers = self.numbers("--impl", plugin("emits_no_lse"))
        self.assertIsNone(numbers["score_store"]["seen"])
        self.assertEqual(numbers["score_store"]["comparison"], "not told apart")
        self.assertIsNone(numbers["chain_out"]["seen"])

    def test_the_text_has_a_declaration(self):
        result = run("probe-numerics", "--impl", "naive")
        self.assertIn("(msabench_numerics){", result.out)
        self.assertIn(".p_operand = {2, 32, 1},", result.out)

    def test_bad_input(self):
        for arguments, words in [(("--op", "select"), "--op select"), (("--type", "fp8"), "--type fp8"),
                                 (("--impl", plugin("refuse_all")), "--impl")]:
            with self.subTest(arguments=arguments):
                whole = arguments if "--impl" in arguments else ("--impl", "naive", *arguments)
                result = run("probe-numerics", *whole)
                self.assertEqual(result.code, 64, result.out)
                self.assertEqual(len(result.err.strip().splitlines()), 1)
                self.assertIn(words, result.err)


if __name__ == "__main__":
    unittest.main()
