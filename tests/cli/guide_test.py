# SPDX-License-Identifier: Apache-2.0
"""docs/plugin-guide.md works as written: its commands are run in an empty folder against an installed msabench."""

import re
import subprocess
import unittest

from program import BUILD, SOURCE, ProgramTest


class Guide(ProgramTest):
    def test_commands_work_in_an_empty_folder(self):
        prefix, work = self.folder / "installed", self.folder / "empty"
        subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, capture_output=True)
        moved = self.folder / "moved"
        prefix.rename(moved)
        work.mkdir()
        blocks = re.findall(r"^```sh\n(.*?)^```$", (SOURCE / "docs" / "plugin-guide.md").read_text(), re.M | re.S)
        self.assertEqual(len(blocks), 3)
        outputs = []
        for block in blocks:
            done = subprocess.run(["bash", "-eu", "-c", f"prefix={moved}\n{block}"], cwd=work, text=True, capture_output=True)
            self.assertEqual(done.returncode, 0, block + done.stdout + done.stderr)
            outputs.append(done.stdout)
        self.assertIn("PASSED", outputs[1])
        self.assertNotIn("fail ", outputs[1])
        self.assertIn("FAILED", outputs[2])
        self.assertIn("rejected, exit code 1", outputs[2])
        self.assertTrue((work / "out" / "report.json").exists())


if __name__ == "__main__":
    unittest.main()
