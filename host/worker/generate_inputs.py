#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes generate_inputs.ptx of generate_inputs.cu with the nvcc of the path, or tells with --check whether it would be the same: by
the hash of the sources anywhere, and by what nvcc makes of them where it is the one that made the text."""

import hashlib
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE, TARGET = HERE / "generate_inputs.cu", HERE / "generate_inputs.ptx"

HEAD = """\
// SPDX-License-Identifier: Apache-2.0
// Of generate_inputs.cu, by {version}: run generate_inputs.py to make it anew.
// Sources: {sources}
"""


def sources():
    """SHA-256 of the kernel and of every header of the tree that it includes."""
    root, seen, left = HERE.parents[1], [], [SOURCE]
    while left:
        path = left.pop()
        if path in seen:
            continue
        seen.append(path)
        for line in path.read_text().splitlines():
            if line.startswith('#include "'):
                left.append(root / line.split('"')[1])
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(seen))).hexdigest()


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
    return HEAD.format(version=release(), sources=sources()) + "\n".join(lines) + "\n"


def main():
    if sys.argv[1:] != ["--check"]:
        TARGET.write_text(made())
        return
    kept = TARGET.read_text()
    if sources() not in kept:
        sys.exit(f"{TARGET.name} is of other sources than {SOURCE.name} and its headers are now; run {pathlib.Path(__file__).name}")
    if shutil.which("nvcc") is None or release() not in kept:
        print(f"{TARGET.name}: of these sources; what it says is compared where the nvcc is that made it")
        return
    if made() != kept:
        sys.exit(f"{TARGET.name} is not what nvcc makes of {SOURCE.name}; run {pathlib.Path(__file__).name}")


if __name__ == "__main__":
    main()
