# SPDX-License-Identifier: Apache-2.0
"""What a failing line says, of every operator: case, check, worst element, got, want, limit and its largest term, what the
code names, the declaration that would have done, the command."""

import re
import unittest

from program import ProgramTest, plugin, run

CHANNEL = r"row \d+, head \d+, channel \d+"
# Case, fault, check, place of the worst element, what is named.
NUMBERS = [
    ("attend/m3.tp4/q4.n8K/bf16.paged/block_code/s0", "double_block", "K3", CHANNEL, r"block \d+ counted twice"),
    ("score/m3.tp4/q4.n2K/bf16.paged/index_code/s0", "drop_key", "K1", r"index head \d+, row \d+, block \d+", r"key \d+"),
    ("combine/m3.tp4/q4.n8K/bf16/partials.random/split8/s0", "combine_forgets_part", "K1", CHANNEL, None),
    ("qk_norm_rope/m3.tp4/q4.n300/bf16/tokens.random/s0", "rope_backwards", "K1", CHANNEL, None),
]
# Selections have no limit that is made of terms: blocks and their scores stand for it.
SELECTIONS = [
    ("select/m3.tp4/q4.n8K/fp32/select.gap/s0", "swap_block"),
    ("index/m3.tp4/q4.n8K/bf16.paged/random/s0", "swap_block"),
    ("msa/m3.tp4/q4.n8K/bf16.paged/planted/s0", "swap_block"),
]


class FailingLine(ProgramTest):
    def lines(self, case, fault):
        """What is printed of the failing case, with line breaks as spaces."""
        result = run("repro", case, "--impl", plugin(fault))
        self.assertEqual(result.code, 1, result.out + result.err)
        return re.sub(r"\s+", " ", result.out)

    def test_numbers(self):
        for case, fault, check, place, named in NUMBERS:
            with self.subTest(case=case, fault=fault):
                text = self.lines(case, fault)
                operator = case.split("/")[0]
                head = re.search(rf"fail \((numeric|nonfinite)\): {check} {operator} \w+ at {place}: (.*?) reproduce: ", text)
                self.assertIsNotNone(head, text)
                sentence = head.group(0)
                for part in (r"got \S+, want \S+", r"exceeds the limit \S+", r"largest term \w+ \S+", r"no declared number would have made it pass"):
                    self.assertRegex(sentence, part)
                if named:
                    self.assertRegex(sentence, named)
                self.assertIn(f"reproduce: msabench repro {case} --impl ", text)

    def test_selections(self):
        for case, fault in SELECTIONS:
            with self.subTest(case=case, fault=fault):
                text = self.lines(case, fault)
                operator = case.split("/")[0]
                self.assertRegex(text, rf"fail \(selection\): K5 {operator} ids at row \d+, index head \d+: block \d+ \(score \S+\) chosen, block \d+ \(score \S+\) left out")
                self.assertIn(f"reproduce: msabench repro {case} --impl ", text)

    def test_log_sum_exp(self):
        text = self.lines("attend/m3.tp4/q4.n300/bf16.paged/random/s0", "claims_base2_lse")
        self.assertRegex(text, r"K2 attend lse at row \d+, head \d+: got \S+, want \S+; error \S+ exceeds the limit \S+ \(largest term \w+ \S+\)")

    def test_the_declaration_that_would_have_done(self):
        text = self.lines("attend/m3.tp4/q4.n2K/bf16.paged/random/s0", "short_weights_undeclared")
        self.assertRegex(text, r"would pass with: p_operand")


if __name__ == "__main__":
    unittest.main()
