# SPDX-License-Identifier: Apache-2.0
"""Every header compiles alone, with the project's warnings as errors: it includes what it uses.

usage: headers.py BINARY_DIR COMPILER. The flags are those of a source file of the same folder in BINARY_DIR/compile_commands.json.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

import tree

FOLDERS = ("core", "inputs", "reference", "host", "judge", "conformance", "perf", "reports", "cli", "include")
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wno-sign-conversion", "-Werror"]
DEFAULT = ["-std=c++20", "-I" + str(tree.ROOT), "-I" + str(tree.ROOT / "include")]


def search_flags(command):
    """Where it looks for headers, its macros and its language; not how it optimises or instruments."""
    words, flags = shlex.split(command), []
    for index, word in enumerate(words):
        if word == "-isystem":
            flags += [word, words[index + 1]]
        elif word.startswith(("-I", "-D", "-std=", "-fopenmp")):
            flags.append(word)
    return flags


def flags_by_folder(binary_dir):
    database = pathlib.Path(binary_dir) / "compile_commands.json"
    if not database.is_file():
        sys.exit(f"{database}: not there; configure with CMake's Ninja or Makefile generator")
    by_folder = {}
    for entry in json.loads(database.read_text(encoding="utf-8")):
        file = pathlib.Path(entry["file"])
        if file.suffix in {".cpp", ".cc"} and file.is_relative_to(tree.ROOT):
            folder = file.relative_to(tree.ROOT).parent.as_posix()
            by_folder.setdefault(folder, search_flags(entry["command"]))
    return by_folder


def flags_of(header, by_folder):
    folder = pathlib.PurePath(header).parent
    for place in [folder, *folder.parents]:
        if place.as_posix() in by_folder:
            return by_folder[place.as_posix()]
    return DEFAULT


def compile_alone(compiler, header, flags):
    """The compiler's complaints, or None. Read from standard input, since `#pragma once` warns in a main file."""
    done = subprocess.run([compiler, *flags, *WARNINGS, "-fsyntax-only", "-x", "c++", "-"], cwd=tree.ROOT, text=True,
                          input=f'#include "{tree.ROOT / header}"\n#include "{tree.ROOT / header}"\n', capture_output=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()


def main():
    binary_dir, compiler = sys.argv[1:3]
    by_folder = flags_by_folder(binary_dir)
    headers = [name for name in tree.source_files() if name.split("/")[0] in FOLDERS and name.endswith((".h", ".hpp"))]
    findings = [] if headers else ["no header found: nothing was checked"]
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        jobs = {header: pool.submit(compile_alone, compiler, header, flags_of(header, by_folder)) for header in headers}
        for header, job in jobs.items():
            if job.result() is not None:
                findings.append(f"{header}: does not compile alone\n{job.result()}")
    tree.report(findings, f"headers compiled alone, {len(headers)}")


if __name__ == "__main__":
    main()
