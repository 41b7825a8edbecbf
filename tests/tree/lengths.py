# SPDX-License-Identifier: Apache-2.0
"""A file that outgrows its subject is split, unless it is named here with the reason."""

import pathlib

import tree

LONGEST = 600  # lines; the aim is 400
ALLOWED = {}  # path: why it reads better whole
SUFFIXES = tree.SOURCE_SUFFIXES | {".py", ".cmake", ".sh"}


def main():
    findings, looked_at = [], 0
    for name in tree.files():
        if name.startswith(tree.FOREIGN):
            continue
        path = pathlib.PurePath(name)
        if path.suffix not in SUFFIXES and path.name != "CMakeLists.txt" and path.parts[0] != "ci":
            continue
        looked_at += 1
        lines = (tree.text(name) or "").count("\n")
        if lines > LONGEST and name not in ALLOWED:
            findings.append(f"{name}: {lines} lines, more than {LONGEST}; split it by subject")
        if lines <= LONGEST and name in ALLOWED:
            findings.append(f"{name}: {lines} lines, so it need not be named in tests/tree/lengths.py any more")
    if looked_at == 0:
        findings.append("no file found: nothing was checked")
    tree.report(findings, f"lengths, {looked_at} files")


if __name__ == "__main__":
    main()
