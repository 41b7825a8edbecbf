# SPDX-License-Identifier: Apache-2.0
"""Random cases of all operators find each of these faults within a minute."""

import unittest

from fuzz_run import FuzzTest

SECONDS = 40


class LongFuzz(FuzzTest):
    def test_tails_of_tiles(self):
        self.assert_found("vit_drops_remainder", "vit_attend", ["fail K0", "fail K1", "fail K2", "fail K3"], SECONDS)

    def test_groups_of_heads(self):
        self.assert_found("wrong_kv_head", "attend", ["fail K0", "fail K1", "fail K2", "fail K3"], SECONDS)

    def test_ids(self):
        self.assert_found("swap_block", "select", ["fail K5", "broken-promise K5"], SECONDS)

    def test_ties(self):
        self.assert_found("ties_high", "select", ["broken-promise K5"], SECONDS)

    def test_scales(self):
        self.assert_found("next_heads_scale", "attend", ["fail K0", "fail K1", "fail K2", "fail K3"], SECONDS)

    def test_strides(self):
        for f in self.assert_found("ignores_strides", "attend", ["fail K0", "fail K1", "fail K2", "fail K3"], SECONDS):
            self.assertIn("/stride/", f["smallest"])

    def test_rows_without_keys(self):
        self.assert_found("combine_nothing", "combine", ["fail K0", "fail K1", "fail K2"], SECONDS)


if __name__ == "__main__":
    unittest.main()
