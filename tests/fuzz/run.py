# SPDX-License-Identifier: Apache-2.0
"""Runs one fuzzer from its corpus, which stays as it is; what makes it fail is left beside the fuzzer.

usage: run.py FUZZER CORPUS
MSABENCH_FUZZ_SECONDS: how long (2)
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

MUTANTS_PER_SEED = 2  # fewer say that nothing was tried, however busy the machine


def main():
    fuzzer, corpus = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    seconds = float(os.environ.get("MSABENCH_FUZZ_SECONDS", "2"))
    seeds = [f for f in corpus.iterdir() if f.is_file()]
    if not seeds:
        sys.exit(f"fuzz: {corpus}: no seeds")
    with tempfile.TemporaryDirectory() as grown:
        done = subprocess.run([str(fuzzer), f"-max_total_time={max(1, round(seconds))}", "-timeout=20", "-rss_limit_mb=2048", "-max_len=65536",
                               f"-artifact_prefix={fuzzer}-", "-print_final_stats=1", grown, str(corpus)],
                              text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    runs = re.search(r"stat::number_of_executed_units: (\d+)", done.stdout)
    if done.returncode != 0 or not runs or int(runs.group(1)) < (1 + MUTANTS_PER_SEED) * len(seeds):
        print(done.stdout[-8000:])
        sys.exit(f"fuzz: {fuzzer.name}: exit code {done.returncode}, {runs.group(1) if runs else 'no'} runs")
    print(f"{fuzzer.name}: {runs.group(1)} runs from {len(seeds)} seeds")


if __name__ == "__main__":
    main()
