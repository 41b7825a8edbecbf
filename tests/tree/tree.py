# SPDX-License-Identifier: Apache-2.0
"""Which files belong to the tree, in a git checkout and in an unpacked archive alike, and what the tests say about them."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(os.environ.get("MSABENCH_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])

# What scripts and tools leave behind; an archive has no .gitignore at work.
GENERATED = {".git", "build", "out", "dist", "__pycache__", ".cache", ".venv"}
SOURCE_SUFFIXES = {".h", ".hpp", ".c", ".cc", ".cpp", ".cu", ".cuh", ".inl"}
# Foreign files keep their own headers, names and lengths.
FOREIGN = "third_party/"


def _git(root, *arguments):
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.decode() if done.returncode == 0 else None


def files(root=ROOT):
    """Paths relative to root, sorted, of the files that are tracked or would be: without git, all but the generated ones."""
    root = pathlib.Path(root)
    top = _git(root, "rev-parse", "--show-toplevel")
    # An archive may be unpacked inside another project's checkout, whose git knows nothing of it.
    if top is not None and pathlib.Path(top.strip()).resolve() == root.resolve():
        listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = [name for name in listed.split("\0") if name and (root / name).is_file()]
    else:
        names = []
        for folder, folders, here in os.walk(root):
            folders[:] = [f for f in folders if f not in GENERATED]
            names += [(pathlib.Path(folder) / name).relative_to(root).as_posix() for name in here]
    return sorted(set(names))


def source_files(root=ROOT):
    """The C, C++ and CUDA files among them, templates (*.h.in) included."""
    return [name for name in files(root)
            if not name.startswith(FOREIGN) and pathlib.PurePath(name.removesuffix(".in")).suffix in SOURCE_SUFFIXES]


def text(name, root=ROOT):
    """The file's text, or None where it is binary."""
    data = (pathlib.Path(root) / name).read_bytes()
    if b"\0" in data[:8192]:
        return None
    return data.decode("utf-8", errors="replace")


def report(findings, what):
    """Prints each finding; exit status of the test. Nothing looked at is never a pass."""
    for finding in findings:
        print(finding)
    print(f"{what}: {len(findings)} finding(s)")
    sys.exit(1 if findings else 0)
