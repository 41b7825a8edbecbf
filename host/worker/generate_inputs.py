#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes generate_inputs.ptx of generate_inputs.cu with the nvcc of the path, or tells with --check whether it would be the same."""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE, TARGET = HERE / "generate_inputs.cu", HERE / "generate_inputs.ptx"

HEAD = """\
// SPDX-License-Identifier: Apache-2.0
// Of generate_inputs.cu, by {version}: run generate_inputs.py to make it anew.
"""


def release():
    told = subprocess.run(["nvcc", "--version"], text=True, capture_output=True, check=True).stdout
    return next(line for line in told.splitlines() if line.startswith("Cuda compilation tools")).replace("Cuda compilation tools", "nvcc")


def made():
    command = ["nvcc", "-ptx", "-arch=compute_75", "-std=c++20", "-O3", "--expt-relaxed-constexpr", "-I", HERE.parents[1], SOURCE, "-o", "-"]
    text = subprocess.run(command, text=True, capture_output=True, check=True).stdout
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("//")]
    # Nothing in it is newer than this, and older drivers read no newer version.
    replaced = {".version": ".version 7.0", ".target": ".target sm_70"}
    lines = [replaced.get(line.split()[0], line) for line in lines]
    return HEAD.format(version=release()) + "\n".join(lines) + "\n"


def main():
    text = made()
    if sys.argv[1:] == ["--check"]:
        kept = TARGET.read_text()
        if text == kept:
            return
        if release() not in kept:
            print(f"not compared: {TARGET.name} is of another release than {release()}")
            return
        sys.exit(f"{TARGET.name} is not what nvcc makes of {SOURCE.name}; run {pathlib.Path(__file__).name}")
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
