# SPDX-License-Identifier: Apache-2.0
"""ci/gpu on a machine without a GPU: a program that leaves `--device cuda` out and judges plain plugins, and a compute-sanitizer that
is a script. What is tested is which parts run, are skipped, are not run, and what a merged report says of them."""

import json
import os
import shutil
import subprocess
import unittest
from pathlib import Path

from program import BUILD, MSABENCH, SOURCE, ProgramTest, plugin, run

PROGRAM = """#!/usr/bin/env bash
# Plain plugins in the place of CUDA's, two operators in the place of a level, and a perf that measures nothing.
arguments=()
while (($# > 0)); do
  case "$1" in
    --device | --filter) shift ;;
    --level) arguments+=(--level sanitize --op select,combine); shift ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
if [[ "${arguments[0]}" == selftest ]]; then arguments+=(--filter 'select/m3/rag.holes/*'); fi
# One shard finds no memory the first time.
if [[ -n "${FAKE_MEMORY:-}" && ! -f "$FAKE_MEMORY" && "${arguments[*]}" == *"--shard 1/"* ]]; then
  echo "msabench: error: no memory"
  : >"$FAKE_MEMORY"
  exit "${FAKE_CODE:-4}"
fi
if [[ "${arguments[0]}" == perf ]]; then
  for ((i = 0; i < ${#arguments[@]}; ++i)); do
    case "${arguments[i]}" in
      --impl) file="${arguments[i + 1]}" ;;
      --out) folder="${arguments[i + 1]}" ;;
    esac
  done
  # A run that refuses leaves no report.
  if [[ -n "${folder:-}" && "${FAKE_PERF:-0}" != 4 ]]; then
    mkdir -p "$folder"
    echo "${arguments[*]}" >"$folder/perf.md"
    PROGRAM check --impl naive --level sanitize --op select --json - 2>/dev/null | grep -m 2 -E '^ *"(commit|device)": ' >"$folder/perf.json"
    printf '"partial": %s,\\n"sha256": "%s"\\n' "${FAKE_PARTIAL:-false}" "$(sha256sum "$file" | cut -d ' ' -f 1)" >>"$folder/perf.json"
    printf '3 measured  1 unverified  \\nUNVERIFIED: nobody could say\\nreports: %s\\n' "$folder/perf.json"
  fi
  echo "perf ended"
  exit "${FAKE_PERF:-0}"
fi
# It fails, and says nothing of cases; or runs nothing any more.
if [[ -n "${FAKE_SILENT:-}" && "${arguments[0]}" == check && "${arguments[*]}" != *--json* ]]; then exit 1; fi
if [[ -n "${FAKE_LOST:-}" && "${arguments[0]}" == repro ]]; then
  echo "device lost"
  exit 1
fi
# Whatever the build tree has of them, this dist has none built in for CUDA.
if [[ "${arguments[*]}" == "list implementations" ]]; then
  PROGRAM list implementations | awk '$2 != "cuda"'
  exit
fi
exec PROGRAM "${arguments[@]}"
"""

SANITIZER = """#!/usr/bin/env bash
while [[ "$1" == --* ]]; do
  case "$1" in
    --version) echo "Version 1.2.3"; exit ;;
    --tool) tool="$2" ;;
    --log-file) log="$2" ;;
    --num-cuda-barriers) barriers="$2" ;;
  esac
  shift 2
done
if [[ "${FAKE_SANITIZER:-}" == refuses ]]; then
  echo "========= Error: Device not supported" >"$log"
  exit 1
fi
code=0
"$@" || code=$?
errors=0
[[ "$*" != */sanitizer/* || "${FAKE_SANITIZER:-}" == blind ]] || errors=1
[[ -z "${FAKE_ERROR:-}" || "$tool $*" != $FAKE_ERROR ]] || errors=2
((errors == 0)) || echo '========= Invalid __global__ write of "4\\5" bytes' >"$log"
[[ "${FAKE_SANITIZER:-}" != doubts || "$tool $*" != synccheck*--level* ]] || echo "========= Warning: Overflow. Results might be incorrect." >>"$log"
# Left to itself it counts too few of a kernel's barriers.
case "$tool:${barriers:-none}" in
  racecheck:none | synccheck:none) echo "========= Warning: Detected overflow of tracked cuda::barrier structures. Results might be incorrect." >>"$log" ;;
esac
if [[ "$tool" == racecheck ]]; then
  echo "========= RACECHECK SUMMARY: $errors hazards displayed ($errors errors, 0 warnings)" >>"$log"
else
  echo "========= ERROR SUMMARY: $errors errors" >>"$log"
fi
exit "$code"
"""

TIMED = ["decode", "decode-e4m3", "prefill-1m", "prefill-1m-e4m3", "attend-shared64", "whole-1m", "training-kl", "vision", "decode-16-1m", "decode-16",
         "training", "prefill", "whole-1m-e4m3", "decode-16-e4m3"]
# Of the plugin cuda.
TIMED_OF_CUDA = ["decode", "prefill-1m", "training-kl", "vision", "decode-16-1m", "training", "prefill"]
TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]


class GpuScript(ProgramTest):
    def setUp(self):
        super().setUp()
        self.dist, self.out = self.folder / "dist", self.folder / "out"
        naive = BUILD / "lib" / "msabench" / "naive.so"
        for name in ["ci", "bin", "cuda/sanitizer"]:
            (self.dist / name).mkdir(parents=True)
        for name in ["gpu", "gpu_merge.sh", "gpu_perf.sh", "gpu_sanitize.sh", "lib.sh"]:
            shutil.copy(SOURCE / "ci" / name, self.dist / "ci")
        self.script(self.dist / "bin" / "msabench", PROGRAM.replace("PROGRAM", str(MSABENCH.resolve())))
        (self.dist / "bin" / "msabench-worker").write_text("worker")
        shutil.copy(naive, self.dist / "cuda" / "example.so")
        for tool in TOOLS:
            shutil.copy(naive, self.dist / "cuda" / "sanitizer" / f"{tool}.so")
        self.sanitizer = self.folder / "compute-sanitizer"
        self.script(self.sanitizer, SANITIZER)

    def script(self, path, text):
        path.write_text(text)
        path.chmod(0o755)

    def gpu(self, *arguments, code, **env):
        environment = {"PATH": "/usr/bin:/bin", "COMPUTE_SANITIZER": str(self.sanitizer), **env}
        done = subprocess.run(["bash", str(self.dist / "ci" / "gpu"), *map(str, arguments)], text=True, capture_output=True, env=environment,
                              stdin=subprocess.DEVNULL, timeout=300)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def parts(self, folder=None):
        return [json.loads(line) for line in ((folder or self.out) / "parts.jsonl").read_text().splitlines()]

    # Whatever the build tree's state is: a build with local changes takes nothing over.
    def clean(self):
        probe = self.folder / "probe.json"
        run("check", "--impl", "naive", "--level", "sanitize", "--op", "select", "--json", probe)
        return not json.loads(probe.read_text())["suite"]["dirty"]

    def test_every_tool_runs_on_the_worker_and_the_plugin(self):
        text = self.gpu("sanitize", "--out", self.out, code=0)
        self.assertIn("sanitize: all passed", text)
        expected = {(tool, "example") for tool in TOOLS} | {(f"{tool} of the worker's kernels", "suite") for tool in TOOLS}
        self.assertEqual({(p["item"], p["of"]) for p in self.parts()}, expected)
        self.assertEqual({p["state"] for p in self.parts()}, {"passed"})
        self.assertLessEqual(len(list(self.out.iterdir())), 8)
        again = self.gpu("sanitize", "--out", self.out, code=0)
        self.assertEqual(again.count("passed before"), 8 if self.clean() else 0)

    def test_without_compute_sanitizer_nothing_passes(self):
        text = self.gpu("sanitize", "--out", self.out, code=4, COMPUTE_SANITIZER=str(self.folder / "nowhere"))
        self.assertIn("not run: no compute-sanitizer", text)
        self.assertEqual({p["state"] for p in self.parts()}, {"not-run"})
        # It is done when there is one.
        self.gpu("sanitize", "--out", self.out, code=0)

    def test_one_that_does_not_run_here_is_told(self):
        text = self.gpu("sanitize", "--out", self.out, code=4, FAKE_SANITIZER="refuses")
        self.assertIn("doesn't run a known-good kernel here", text)
        self.assertIn("Device not supported", text)
        self.assertEqual({p["state"] for p in self.parts()}, {"not-run"})

    def test_one_that_sees_nothing_proves_nothing(self):
        text = self.gpu("sanitize", "--out", self.out, code=4, FAKE_SANITIZER="blind")
        self.assertIn("the sanitizer sees nothing", text)
        self.assertEqual({p["state"] for p in self.parts()}, {"not-run"})

    def test_one_that_doubts_itself_proves_nothing(self):
        text = self.gpu("sanitize", "--out", self.out, code=4, FAKE_SANITIZER="doubts")
        self.assertIn("synccheck of example: not run: combine/*: the tool doubts itself: Warning: Overflow.", text)
        self.assertEqual([(p["item"], p["of"]) for p in self.parts() if p["state"] == "not-run"], [("synccheck", "example")])

    def test_an_error_fails_and_is_kept(self):
        error = f"racecheck *--impl {self.dist}/cuda/example.so*--level sanitize*"
        text = self.gpu("sanitize", "--out", self.out, code=1, FAKE_ERROR=error)
        self.assertIn("racecheck of example: FAILED: combine/*: 2 errors: Invalid __global__ write", text)
        self.assertEqual([(p["item"], p["of"]) for p in self.parts() if p["state"] == "failed"], [("racecheck", "example")])
        self.assertIn("Invalid __global__ write", (self.out / "sanitize.txt").read_text())
        if self.clean():
            self.assertIn("racecheck of example: FAILED before", self.gpu("sanitize", "--out", self.out, code=1))

    def test_what_takes_too_long_is_left(self):
        text = self.gpu("sanitize", "--out", self.out, "--seconds", 1, code=2)
        self.assertIn("8 left", text)
        # It takes three times the 65 s that a tool may need to see that it is usable and to judge something.
        self.assertIn("8 left", self.gpu("sanitize", "--out", self.out, "--seconds", 190, code=2))

    def test_a_sanitizer_goes_on_where_the_time_was_over(self):
        script = self.dist / "ci" / "gpu_sanitize.sh"
        text = script.read_text()
        # The time is over once some cases of FAKE_LATE are done.
        late = text.replace("keep_pieces() {\n", 'keep_pieces() {\n  [[ "$3" != "${FAKE_LATE:-}" ]] || SECONDS=100000\n')
        self.assertNotEqual(text, late)
        self.script(script, late)
        text = self.gpu("sanitize", "--out", self.out, "--jobs", 1, code=2, FAKE_LATE="example")
        self.assertIn("sanitize memcheck of example: 1 of 2 operators done", text)
        self.assertIn("7 left", text)
        self.assertEqual([p["of"] for p in self.parts()], ["suite"])
        text = self.gpu("sanitize", "--out", self.out, "--jobs", 1, code=0)
        self.assertEqual({p["state"] for p in self.parts()}, {"passed"})
        self.assertIn("sanitize memcheck of example: passed", text)
        pieces = [line.split("\t") for line in (self.out / "sanitize.tsv").read_text().splitlines()]
        seen = [[p[3], p[5]] for p in pieces if p[:2] == ["memcheck", "example"]]
        if self.clean():
            self.assertEqual(seen, [["combine/*", "passed"], ["select/*", "passed"]])
        # A failure stands, whatever is left.
        shutil.rmtree(self.out)
        error = f"memcheck *--impl {self.dist}/cuda/example.so*--level sanitize*"
        text = self.gpu("sanitize", "--out", self.out, "--jobs", 1, code=1, FAKE_LATE="example", FAKE_ERROR=error)
        self.assertIn('memcheck of example: FAILED: combine/*: 2 errors: Invalid __global__ write of "4\\5" bytes; 1 of 2 operators not tried', text)

    def test_parts_of_several_sessions_make_one_report(self):
        first, second, merged = self.folder / "first", self.folder / "second", self.folder / "merged"
        self.gpu("conform", "--out", first, code=0)
        self.gpu("sanitize", "--out", second, code=0)
        text = self.gpu("merge", "--out", merged, first, code=2)
        self.assertIn("sanitize memcheck of example: no session has run it", text)
        self.gpu("perf", "--out", first, code=0)
        text = self.gpu("merge", "--out", merged, first, second, code=2)  # no planted fault was tried
        self.assertIn(f"1 of {9 + len(TIMED)} other parts not run: faults all of suite", text)
        self.assertIn("--suite decode", (merged / "example" / "perf-decode.md").read_text())
        report = json.loads((merged / "example" / "report.json").read_text())
        self.assertEqual({p["part"] for p in report["run"]["parts"]}, {"sanitize", "perf", "faults"})
        self.assertEqual(len(report["run"]["merged_from"]), 8)
        self.assertEqual(report["summary"]["exit_code"], 2)
        page = (merged / "summary.md").read_text()
        self.assertIn("| [example](example/report.md) | INCOMPLETE: ", page)
        self.assertIn("| sanitize | memcheck | example | passed |", page)
        self.assertIn("| perf | decode | example | passed |", page)
        self.assertTrue(all(c["verdict"] == "pass" for c in report["cases"]))

    def test_the_page_of_all_tells_of_the_files_that_were_merged(self):
        old, new, merged = self.folder / "old", self.folder / "new", self.folder / "merged"
        example = self.dist / "cuda" / "example.so"
        self.gpu("perf", "--out", old, code=0)
        shutil.copy(example, self.dist / "cuda" / "another.so")
        self.gpu("perf", "--out", old, self.dist / "cuda" / "another.so", code=0)
        shutil.copy(BUILD / "lib" / "msabench" / "cpu.so", example)
        self.gpu("conform", "--out", new, example, code=0)
        self.gpu("merge", "--out", merged, old, new, code=2)
        self.assertNotIn("| perf |", (merged / "summary.md").read_text())
        self.assertEqual(list((merged / "example").glob("perf-*")), [])
        self.gpu("perf", "--out", new, example, code=0)
        self.gpu("merge", "--out", merged, old, new, code=2)
        page = (merged / "summary.md").read_text()
        self.assertEqual([page.count(f"| perf | {item} | example | passed |") for item in TIMED], [1] * len(TIMED))
        self.assertNotIn("another", page)
        # Of another commit: one page can't tell of both.
        other = self.folder / "other"
        other.mkdir()
        report = json.loads((new / "conform-example.json").read_text())
        report["suite"]["commit"] = "0" * 40
        (other / "conform-zebra.json").write_text(json.dumps(report, indent=2))
        self.assertIn("merge them apart", self.gpu("merge", "--out", merged, new, other, code=64))

    def test_planted_faults_have_to_be_rejected(self):
        fault = self.dist / "cuda" / "fault_none.so"
        shutil.copy(self.dist / "cuda" / "example.so", fault)
        text = self.gpu("conform", "--out", self.out, code=1)
        self.assertIn("faults fault_none of suite: FAILED: a planted fault that is NOT rejected", text)
        shutil.copy(fault, fault.with_name("fault_untried.so"))
        text = self.gpu("merge", "--out", self.folder / "merged", self.out, code=1)
        self.assertEqual(text.count("failed   faults fault_none"), 1)
        self.assertIn("faults fault_untried of suite: no session has run it", text)

    def test_a_fault_is_rejected_by_something_that_it_did(self):
        fault = self.dist / "cuda" / "fault_one.so"
        # A result that is wrong says so itself.
        shutil.copy(plugin("change_input"), fault)
        self.assertIn("faults fault_one of suite: passed", self.gpu("faults", "--out", self.out, code=0, FAKE_LOST="1"))
        # A process that ended may have lost a device that was lost before.
        shutil.rmtree(self.out)
        shutil.copy(plugin("crash_run"), fault)
        text = self.gpu("faults", "--out", self.out, code=4, FAKE_LOST="1")
        self.assertIn("not run: rejected by the selftest: crash; but then a known-good kernel doesn't run either: device lost", text)
        self.assertIn("passed, ", self.gpu("faults", "--out", self.out, code=0))
        # A failure of nothing.
        shutil.rmtree(self.out)
        shutil.copy(self.dist / "cuda" / "example.so", fault)
        self.assertIn("fault_one of suite: not run: exit 1", self.gpu("faults", "--out", self.out, code=4, FAKE_SILENT="1"))

    def test_faults_of_the_plugin_cuda_come_in_an_archive(self):
        kernels = self.folder / "kernels"
        kernels.mkdir()
        (kernels / "cases.txt").write_text("select_crash select/*\nselect_nothing select/*\n")
        shutil.copy(plugin("crash_run"), kernels / "select_crash.so")
        shutil.copy(self.dist / "cuda" / "example.so", kernels / "select_nothing.so")
        subprocess.run(["tar", "-cJf", self.dist / "cuda" / "kernel_faults.tar.xz", "-C", kernels, "cases.txt", "select_crash.so", "select_nothing.so"], check=True)
        text = self.gpu("faults", "--out", self.out, "--jobs", 2, code=1)
        self.assertIn("faults select_crash of suite: passed", text)
        self.assertIn("rejected by the selftest: crash", text)
        self.assertIn("faults select_nothing of suite: FAILED: a planted fault that is NOT rejected", text)
        self.assertEqual({p["item"] for p in self.parts()}, {"select_crash", "select_nothing"})
        self.gpu("conform", "--out", self.out, self.dist / "cuda" / "example.so", code=0)
        self.gpu("merge", "--out", self.folder / "merged", self.out, code=1)
        page = (self.folder / "merged" / "summary.md").read_text()
        self.assertIn("| faults | select_crash | suite | passed | rejected by the selftest: crash |", page)
        self.assertIn("| faults | select_nothing | suite | failed |", page)

    def test_a_dist_that_was_not_finished_has_no_faults_to_pass(self):
        (self.dist / "lib" / "msabench").mkdir(parents=True)
        shutil.copy(self.dist / "cuda" / "example.so", self.dist / "lib" / "msabench" / "cuda.so")
        shutil.copy(plugin("change_input"), self.dist / "cuda" / "fault_one.so")
        text = self.gpu("faults", "--out", self.out, code=4)
        self.assertIn("faults fault_one of suite: passed", text)
        self.assertIn("kernel_faults.tar.xz is missing", text)

    def test_shards_are_judged_at_once_and_alone_where_memory_is_short(self):
        text = self.gpu("conform", "--out", self.out, "--jobs", 3, self.dist / "cuda" / "example.so", code=0, FAKE_MEMORY=str(self.folder / "memory"))
        self.assertNotIn("not run", text)
        self.assertEqual(sorted(p["item"] for p in self.parts()), [f"core shard {i} of 8" for i in range(8)])
        self.assertEqual(text.splitlines()[-2].split(":")[1], " conform core shard 1 of 8 of example")
        self.assertEqual(len(json.loads((self.out / "conform-example.json").read_text())["run"]["merged_from"]), 8)
        # What has ended otherwise has not, and is told.
        shutil.rmtree(self.out)
        (self.folder / "memory").unlink()
        text = self.gpu("conform", "--out", self.out, "--jobs", 3, self.dist / "cuda" / "example.so", code=4, FAKE_MEMORY=str(self.folder / "memory"), FAKE_CODE="2")
        self.assertEqual(text.count("core shard 1 of 8"), 1)
        self.assertIn("core shard 1 of 8 of example: not run: no memory", text)
        # One at a time it is told at once.
        shutil.rmtree(self.out)
        (self.folder / "memory").unlink()
        text = self.gpu("conform", "--out", self.out, "--jobs", 1, self.dist / "cuda" / "example.so", code=4, FAKE_MEMORY=str(self.folder / "memory"))
        self.assertIn("core shard 1 of 8 of example: not run: no memory", text)

    def test_nothing_judged_is_told_with_its_reason(self):
        folder = self.folder / "nothing"
        folder.mkdir()
        self.assertIn("so nothing was judged; run ci/gpu conform", self.gpu("merge", folder, code=3))
        (folder / "parts.jsonl").write_text('{"part":"conform","item":"core shard 1 of 8","of":"example","sha256":"","commit":"1","dirty":false,"device":"",'
                                            '"state":"not-run","seconds":0,"detail":"no driver here; go elsewhere"}\n')
        self.assertIn("so nothing was judged (no driver here; go elsewhere); run ci/gpu conform", self.gpu("merge", folder, code=3))

    def test_all_parts_go_as_far_as_the_time_does(self):
        text = self.gpu("all", "--out", self.out, code=4, FAKE_PERF="4", COMPUTE_SANITIZER=str(self.folder / "nowhere"))
        self.assertEqual({p["part"] for p in self.parts()}, {"conform", "sanitize", "perf"})
        self.assertIn("conform: all passed", text)
        shutil.copy(self.dist / "cuda" / "example.so", self.dist / "cuda" / "fault_none.so")
        text = self.gpu("all", "--out", self.out, code=1)
        self.assertIn("sanitize: all passed", text)
        text = self.gpu("all", "--out", self.out, "--seconds", 20, code=2)
        self.assertIn("all: perf left", text)

    def test_a_busy_machine_is_no_failure(self):
        text = self.gpu("perf", "--out", self.out, code=4, FAKE_PERF="4")
        self.assertIn("perf decode of example: not run", text)
        self.gpu("perf", "--out", self.out, code=1, FAKE_PERF="1")

    def archived(self):
        text = subprocess.run(["tar", "-tzf", self.out / "perf-example.tar.gz"], text=True, capture_output=True, check=True).stdout
        return sorted(Path(line).name for line in text.split() if not line.endswith("/"))

    def test_what_is_timed_is_one_archive_of_each_plugin(self):
        text = self.gpu("perf", "--out", self.out, code=0)
        items = [p["item"] for p in self.parts()]
        self.assertEqual(items, TIMED)
        self.assertEqual(self.archived(), sorted(f"perf-{i}.{kind}" for i in TIMED for kind in ["json", "md"]))
        self.assertEqual(len(list(self.out.iterdir())), 2)
        self.assertEqual({p["detail"] for p in self.parts()}, {"3 measured 1 unverified UNVERIFIED: nobody could say; without cudnn, which is not in the dist"})
        self.assertNotIn("--against", text)
        again = self.gpu("perf", "--out", self.out, code=0)
        self.assertEqual(again.count("passed before"), len(TIMED) if self.clean() else 0)
        # The reports are gone, so the lines are worth nothing.
        (self.out / "perf-example.tar.gz").unlink()
        self.assertNotIn("passed before", self.gpu("perf", "--out", self.out, code=0))
        # Of another file: made again.
        shutil.copy(BUILD / "lib" / "msabench" / "cpu.so", self.dist / "cuda" / "example.so")
        text = self.gpu("perf", "--out", self.out, code=0)
        self.assertEqual(text.count("is of another commit or plugin"), len(TIMED))

    def test_of_cuda_what_has_a_target_is_timed(self):
        shutil.copy(self.dist / "cuda" / "example.so", self.folder / "cuda.so")
        self.gpu("perf", "--out", self.out, self.folder / "cuda.so", code=0)
        self.assertEqual([p["item"] for p in self.parts()], TIMED_OF_CUDA)
        pages = subprocess.run(["tar", "-xzOf", self.out / "perf-cuda.tar.gz", "./perf-prefill.md", "./perf-decode.md"], text=True, capture_output=True, check=True).stdout
        self.assertIn("--context 32K --chunk 8K", pages)
        self.assertIn("--context 8K,128K,1M", pages)

    def test_unverified_figures_are_kept_and_an_interrupted_run_is_not_done(self):
        self.gpu("perf", "--out", self.out, code=4, FAKE_PERF="2")
        self.assertEqual({p["state"] for p in self.parts()}, {"incomplete"})
        self.assertEqual(self.archived(), sorted(f"perf-{i}.{kind}" for i in TIMED for kind in ["json", "md"]))
        self.gpu("conform", "--out", self.out, self.dist / "cuda" / "example.so", code=0)
        text = self.gpu("merge", "--out", self.folder / "merged", self.out, code=2)
        self.assertIn(f"{len(TIMED)} of {len(TIMED) + 9} other parts incomplete: perf decode of example", " ".join(text.split()))
        self.assertIn("| perf | decode | example | incomplete | 3 measured 1 unverified UNVERIFIED: nobody could say", (self.folder / "merged" / "summary.md").read_text())
        # It costs time of a device, and may end alike: only where it is asked for.
        if self.clean():
            text = self.gpu("perf", "--out", self.out, code=4)
            self.assertEqual(text.count("incomplete before"), len(TIMED))
        text = self.gpu("perf", "--out", self.out, "--again", code=0)
        self.gpu("merge", "--out", self.folder / "merged", self.out, code=2)
        self.assertIn("| perf | decode | example | passed |", (self.folder / "merged" / "summary.md").read_text())
        shutil.rmtree(self.out)
        self.gpu("perf", "--out", self.out, code=4, FAKE_PERF="2", FAKE_PARTIAL="true")
        self.assertEqual({p["state"] for p in self.parts()}, {"not-run"})

    def test_dense_of_cudnn_is_the_baseline_where_it_is_built(self):
        (self.dist / "lib" / "msabench").mkdir(parents=True)
        for name in ["cudnn", "cublas_twin"]:
            shutil.copy(self.dist / "cuda" / "example.so", self.dist / "lib" / "msabench" / f"{name}.so")
        listed = "msabench list implementations"
        program = (self.dist / "bin" / "msabench").read_text()
        line = """  PROGRAM list implementations | awk '$2 != "cuda"'""".replace("PROGRAM", str(MSABENCH.resolve()))
        self.assertIn(line, program, listed)
        self.script(self.dist / "bin" / "msabench", program.replace(line, "  printf 'cudnn cuda x\\ncublas_twin cuda x\\n'"))
        # No baseline is timed by itself, so the example is.
        self.gpu("perf", "--out", self.out, code=0)
        self.assertEqual({p["of"] for p in self.parts()}, {"example"})
        pages = subprocess.run(["tar", "-xzOf", self.out / "perf-example.tar.gz", "./perf-decode.md", "./perf-training.md"], text=True, capture_output=True, check=True).stdout
        self.assertEqual(pages.count("--against cudnn"), 2)
        self.assertIn("--grad storage", pages)
        self.gpu("perf", "--out", self.out, "cudnn", code=0)
        pages = subprocess.run(["tar", "-xzOf", self.out / "perf-cudnn.tar.gz", "./perf-decode.md"], text=True, capture_output=True, check=True).stdout
        self.assertNotIn("--against", pages)

    def test_a_report_that_is_gone_is_made_again(self):
        self.gpu("conform", "--out", self.out, code=0)
        (self.out / "conform-example.json").unlink()
        text = self.gpu("conform", "--out", self.out, code=0)
        self.assertNotIn("passed before", text)
        self.assertEqual(len(json.loads((self.out / "conform-example.json").read_text())["run"]["merged_from"]), 8)
        text = self.gpu("conform", "--out", self.out, code=0)
        self.assertEqual(text.count("passed before"), 8 if self.clean() else 0)
        # Another file of the same name.
        shutil.copy(BUILD / "lib" / "msabench" / "cpu.so", self.dist / "cuda" / "example.so")
        text = self.gpu("conform", "--out", self.out, code=0)
        self.assertIn("is of another commit or plugin", text)
        self.assertEqual(json.loads((self.out / "conform-example.json").read_text())["implementation"]["name"], "cpu")

    def test_nothing_to_do_is_no_pass(self):
        self.assertIn("faults: nothing to do", self.gpu("faults", "--out", self.out, code=3))
        shutil.copy(plugin("crash_run"), self.dist / "cuda" / "fault_crash.so")
        (self.dist / "cuda" / "example.so").unlink()
        for part in ["conform", "perf", "sanitize", "all"]:
            with self.subTest(part):
                text = self.gpu(part, "--out", self.out, code=3)
                self.assertIn("PLUGIN: none is built in for CUDA", text)
                self.assertNotIn("passed", text)
        # That the program doesn't list anything is told as that.
        program = self.dist / "bin" / "msabench"
        self.script(program, program.read_text().replace("arguments=()", '[[ "$*" != "list implementations" ]] || exit 1\narguments=()', 1))
        self.assertIn("doesn't list its implementations", self.gpu("conform", "--out", self.out, code=70))

    def test_bad_arguments(self):
        many = [self.folder / f"p{i}.so" for i in range(8)] + [self.folder / "odd name.so"]
        for each in many:
            each.write_text("")
        odd = many.pop()
        for arguments, words in [(["sanitize", "--out"], "--out: needs a value"), (["merge"], "FOLDER: none given"),
                                 (["merge", self.folder / "nowhere"], "is no folder"), (["conform", "nowhere"], "PLUGIN nowhere: is neither"),
                                 (["perf", "--seconds", "x"], "--seconds x"), (["conform", "--jobs", "0"], "--jobs 0"), (["faults", "p.so"], "takes no PLUGIN"), (["perf", "--dist", self.folder], "holds no bin/msabench"),
                                 (["perf", "--dist", ""], "--dist: is empty"), (["perf", "--out", ""], "--out: is empty"),
                                 (["conform"] + 2 * [self.dist / "cuda" / "example.so"], "another one has that name"), (["conform", *many], "give at most 7 at a time"),
                                 (["sanitize", odd], "rename it"), ([], "part (none)")]:
            with self.subTest(arguments=arguments):
                self.assertIn(words, self.gpu(*arguments, code=64))
        self.folder.joinpath("empty").mkdir()
        self.assertIn("nothing was judged", self.gpu("merge", self.folder / "empty", code=3))


if __name__ == "__main__":
    unittest.main()
