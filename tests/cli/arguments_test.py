# SPDX-License-Identifier: Apache-2.0
"""Arguments: what is refused, with which line and code, and what each verb prints."""

import json
import os
import pathlib
import pty
import resource
import shutil
import subprocess
import unittest

from program import MSABENCH, QUICK, SOURCE, ProgramTest, run


class Refusals(ProgramTest):
    def test_unknown_words(self):
        for arguments, words in [
            (["check", "--impl", "naive", "--level", "corr"], ["--level", "corr", "smoke", "core"]),
            (["check", "--impl", "naive", "--op", "attendd"], ["--op", "attendd", "attend"]),
            (["check", "--impl", "nobody"], ["--impl", "nobody", "naive"]),
            (["check", "--impl", "./no/such/file.so"], ["--impl", "file.so"]),
            (["check", "--impl", SOURCE / "README.md"], ["--impl", "README.md"]),
            (["check", "--impl", SOURCE], ["--impl"]),
            (["check", "--impl", "/dev/null"], ["--impl"]),
            (["check", "--impl", ""], ["--impl"]),
            (["check", "--impl", "naive", "--device", "tpu"], ["--device", "tpu", "cuda"]),
            (["check", "--impl", "naive", "--device", "cuda"], ["--device", "naive"]),
            (["check", "--impl", "naive", "--seed", "-1"], ["--seed", "-1"]),
            (["check", "--impl", "naive", "--seed", "18446744073709551616"], ["--seed"]),
            (["check", "--impl", "naive", "--shard", "2/2"], ["--shard", "2/2"]),
            (["check", "--impl", "naive", "--shard", "1"], ["--shard"]),
            (["check", "--impl", "naive", "--shard", "0/0"], ["--shard"]),
            (["check", "--impl", "naive", "--timeout-s", "0"], ["--timeout-s"]),
            (["check", "--impl", "naive", "--timeout-s", "nan"], ["--timeout-s"]),
            (["check", "--impl", "naive", "--threads", "0"], ["--threads"]),
            (["check", "--impl", "naive", "--bogus"], ["--bogus", "--help"]),
            (["check", "--impl", "naive", "--json", ""], ["--json", "empty"]),
            (["check", "--impl", "naive", "--filter", ""], ["--filter", "empty"]),
            (["check", "--impl", "naive", "--fuzz", ""], ["--fuzz", "empty"]),
            (["check", "--impl", "naive", "--out", ""], ["--out", "empty"]),
            (["repro", "attend/m3/q1.n1K/bf16.paged/needle/s0", "--impl", "naive", "--dump", ""], ["--dump", "empty"]),
            (["selftest", "--without", ""], ["--without", "empty"]),
            (["selftest", "--only", ""], ["--only", "empty"]),
            (["perf", "--impl", "naive", "--against", ""], ["--against", "empty"]),
            (
                ["repro", f"kl/m3.tp4/rag.draft/bf16.contig/random/coeff{10**39}/s0", "--impl", "naive"],
                ["coefficient", "fp32", "3.4e38"],
            ),
            (
                ["repro", "index/m3/q4.n8K/bf16.paged/hot_flat.n60000/fp8/s0", "--impl", "naive"],
                ["e4m3", "448", "fp8"],
            ),
            (["check"], ["--impl"]),
            (["repro", "attend/m3/q1.n1024/bf16.paged/needle/s0", "--impl", "naive"], ["write attend/m3/q1.n1K"]),
            (["repro", "nonsense", "--impl", "naive"], ["nonsense", "operator/shape"]),
            (["repro", "attend/m3/q1.n32M/bf16.paged/needle/s0", "--impl", "naive"], ["32M"]),
            (["describe", "a\nb"], ["case"]),
            (["list", "sheep"], ["sheep", "implementations"]),
            (["golden", "check", "no-such.safetensors"], ["no-such.safetensors"]),
            (["frobnicate"], ["frobnicate", "check"]),
            (["golden", "chek"], ["golden", "chek", "check", "make"]),
            ([], ["--help"]),
        ]:
            with self.subTest(arguments=arguments):
                self.assert_refused(run(*arguments), *words)

    def test_a_case_that_does_not_fit_the_memory_is_refused_before_it_is_made(self):
        self.assert_refused(run("repro", "select/m3/q1M.n1M/fp32/select.random/s0", "--impl", "naive"), "memory", code=4)

    def test_contradictions(self):
        for arguments, words in [
            (["--in-process", "--timeout-s", "5"], ["--timeout-s", "--in-process"]),
            (["--json", "-", "--junit", "-"], ["--junit"]),
            (["--json", self.folder / "x", "--junit", self.folder / "x"], ["--junit", "--json"]),
        ]:
            with self.subTest(arguments=arguments):
                self.assert_refused(run("repro", QUICK, "--impl", "naive", *arguments), *words)

    def test_nothing_selected_is_no_pass(self):
        result = run("check", "--impl", "naive", "--filter", "nothing*")
        self.assertEqual(result.code, 3, result.out + result.err)
        self.assertIn("nothing selected", result.err)
        self.assertEqual(run("list", "--filter", "nothing*").code, 3)

    def test_one_of_several_filters_is_enough(self):
        def cases(*filters):
            done = run("list", *(word for each in filters for word in ("--filter", each)), "--json", "-")
            return [c["name"] for c in json.loads(done.out)["cases"]]
        self.assertEqual(sorted(cases("select/*", "combine/*")), sorted(cases("select/*") + cases("combine/*")))
        self.assertGreater(min(len(cases("select/*")), len(cases("combine/*"))), 0)
        # What follows is no further glob.
        self.assert_refused(run("list", "--filter", "select/*", "combine/*"), "combine/*")
        self.assert_refused(run("check", "--impl", "naive", "--filter", "select/*", "--filter", ""), "--filter", "empty")


class Outputs(ProgramTest):
    def test_json_to_stdout_leaves_tables_on_stderr(self):
        for arguments in (["list"], ["list", "implementations"], ["list", "vocabulary"], ["describe", QUICK], ["env"],
                          ["repro", QUICK, "--impl", "naive"],
                          ["golden", "check", SOURCE / "tests/golden/attn_chunk.safetensors"]):
            with self.subTest(arguments=arguments):
                result = run(*arguments, "--json", "-")
                self.assertEqual(result.code, 0, result.err)
                json.loads(result.out)
                self.assertTrue(result.err.strip())

    def test_version_and_help(self):
        for arguments in (["--version"], ["--help"], ["check", "--help"], ["golden", "check", "--help"]):
            result = run(*arguments)
            self.assertEqual(result.code, 0)
            self.assertTrue(result.out.strip())

    def test_outputs_do_not_depend_on_the_locale(self):
        german = self.german()
        for arguments in (["describe", QUICK, "--json", "-"], ["list"]):
            plain, other = run(*arguments), run(*arguments, env=german)
            self.assertEqual(plain.out, other.out)
            self.assertEqual(plain.err, other.err)
        command = ["repro", QUICK, "--impl", "naive", "--threads", "1"]
        plain, other = self.report(*command, code=0), self.report(*command, code=0, env=german)
        self.assertEqual(plain["cases"][0]["checks"], other["cases"][0]["checks"])

    def on_terminal(self, *arguments, env=None):
        """What a person sees: standard output is a terminal."""
        ours, theirs = pty.openpty()
        environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | (env or {})
        process = subprocess.Popen([str(MSABENCH), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=theirs,
                                   stderr=subprocess.DEVNULL, env=environment)
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
        os.close(ours)
        self.assertEqual(process.wait(), 0)
        return seen.decode()

    def test_colour_obeys_the_terminal_and_no_color(self):
        command = ["repro", QUICK, "--impl", "naive"]
        coloured = "\x1b[3"
        self.assertIn(coloured, self.on_terminal(*command))
        self.assertNotIn(coloured, self.on_terminal(*command, env={"NO_COLOR": "1"}))
        self.assertNotIn("\x1b", run(*command, env={"NO_COLOR": ""}).out)

    def test_a_terminal_shows_the_time_left(self):
        command = ["check", "--impl", "naive", "--filter", "*rag.small*"]
        self.assertRegex(self.on_terminal(*command), r"\r\x1b\[K1/\d+ cases, .* left")
        self.assertNotIn(" left", run(*command).out)

    def test_all_reports_are_left(self):
        out = self.folder / "deep" / "er"
        result = run("check", "--impl", "naive", "--filter", "*rag.small/fp32*", "--out", out, "--junit", self.folder / "j.xml")
        self.assertEqual(result.code, 0, result.out + result.err)
        for name in ("report.json", "report.md", "junit.xml"):
            self.assertTrue((out / name).stat().st_size > 0)
        self.assertTrue((self.folder / "j.xml").stat().st_size > 0)
        self.assertEqual(sorted(p.name for p in out.iterdir()), ["junit.xml", "report.json", "report.md"])

    def test_describe_names_what_a_case_must_see(self):
        report = json.loads(run("describe", "attend/m3/q1.n1M/bf16.paged/needle/s0", "--json", "-").out)
        self.assertIn("drop_heavy_key", report["target_faults"])
        self.assertEqual(report["definition"]["problem"]["hq"], 64)


class Environment(ProgramTest):
    """The machine or the installation can't do it: exit code 4 and one line; what was seen before is kept."""

    def installed(self, worker):
        (self.folder / "bin").mkdir()
        (self.folder / "lib/msabench").mkdir(parents=True)
        program = shutil.copy(MSABENCH, self.folder / "bin")
        shutil.copy(MSABENCH.parent.parent / "lib/msabench/naive.so", self.folder / "lib/msabench")
        if worker:
            shutil.copy(worker, self.folder / "bin/msabench-worker")
        return subprocess.run([program, "repro", QUICK, "--impl", "naive"], capture_output=True, text=True)

    def assert_environment(self, done, *words):
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_missing_worker(self):
        self.assert_environment(self.installed(None), "worker", "missing")

    def test_a_program_that_is_no_worker(self):
        self.assert_environment(self.installed("/bin/true"), "worker", "ends at once")

    def test_a_worker_that_can_not_be_executed(self):
        self.assert_environment(self.installed(SOURCE / "README.md"), "worker")

    def test_too_few_descriptors(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))
        done = subprocess.run([str(MSABENCH), "repro", QUICK, "--impl", "naive"], capture_output=True, text=True, preexec_fn=few)
        self.assert_environment(done, "open files")


class Unwritable(ProgramTest):
    """Output paths are tried before the first case runs. CI runs as root, so permissions prove nothing."""

    def check(self, *arguments, words=()):
        result = run("repro", QUICK, "--impl", "naive", *arguments)
        self.assert_refused(result, *words)
        self.assertNotIn("pass", result.out)

    def test_file_as_parent(self):
        (self.folder / "file").write_text("keep me")
        self.check("--json", self.folder / "file" / "r.json", words=["--json"])
        self.check("--out", self.folder / "file", words=["--out"])
        self.check("--junit", self.folder / "file" / "j.xml", words=["--junit"])
        self.assertEqual((self.folder / "file").read_text(), "keep me")

    def test_folder_as_file_and_proc(self):
        self.check("--json", self.folder, words=["--json"])
        self.check("--json", "/proc/self/nowhere.json", words=["--json"])
        self.check("--out", "/proc/nowhere", words=["--out"])

    def test_lost_tables_are_told(self):
        for arguments in (["list"], ["describe", QUICK], ["env"], ["--version"], ["check", "--help"]):
            with self.subTest(arguments=arguments), open("/dev/full", "w") as full:
                done = subprocess.run([str(MSABENCH), *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 64)
                self.assertIn("standard output", done.stderr)
        with subprocess.Popen([str(MSABENCH), "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            process.stdout.close()
            self.assertEqual(process.stderr.read(), "")

    def test_no_space_left(self):
        """A limit of file sizes stands for a full device: files can be made there, but nothing fits."""
        for option, path in (("--json", self.folder / "r.json"), ("--out", self.folder / "out"), ("--junit", self.folder / "j.xml")):
            with self.subTest(option=option):
                result = run("repro", QUICK, "--impl", "naive", option, path,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
                self.assert_refused(result, option)
                self.assertNotIn("pass", result.out)
        self.assertEqual([p for p in self.folder.rglob("*") if p.is_file()], [])

    def test_missing_folder_of_a_file(self):
        self.check("--json", self.folder / "none" / "r.json", words=["--json"])

    def test_an_existing_report_survives_a_bad_run(self):
        old = self.folder / "r.json"
        old.write_text("old")
        self.assertEqual(run("repro", "nonsense", "--impl", "naive", "--json", old).code, 64)
        self.assertEqual(old.read_text(), "old")


if __name__ == "__main__":
    unittest.main()
