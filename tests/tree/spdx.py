# SPDX-License-Identifier: Apache-2.0
"""Every file begins with its licence identifier: in the first line, or in the second behind `#!` or an XML declaration."""

import pathlib

import tree

IDENTIFIER = "SPDX-License-Identifier: Apache-2.0"
# Formats without comments, and data whose bytes are what is tested.
EXEMPT_SUFFIXES = {".json", ".jsonl", ".safetensors", ".golden", ".bin", ".png", ".csv", ".txt", ".npy", ".gz"}
EXEMPT_NAMES = {"LICENSE", "NOTICE"}
TEXT_DESPITE_SUFFIX = {"CMakeLists.txt"}


def exempt(name):
    path = pathlib.PurePath(name)
    if name.startswith(tree.FOREIGN) and path.name not in TEXT_DESPITE_SUFFIX:
        return True
    return path.name not in TEXT_DESPITE_SUFFIX and (path.name in EXEMPT_NAMES or path.suffix in EXEMPT_SUFFIXES)


def main():
    findings, looked_at = [], 0
    for name in tree.files():
        if exempt(name):
            continue
        looked_at += 1
        text = tree.text(name)
        if text is None:
            findings.append(f"{name}: binary, and its suffix is not one of the data formats of tests/tree/spdx.py")
            continue
        lines = text.splitlines()[:2]
        first = lines[1:2] if lines and lines[0].startswith(("#!", "<?xml")) else lines[:1]
        if not first or IDENTIFIER not in first[0]:
            findings.append(f"{name}: does not begin with {IDENTIFIER}")
        if "\r" in text:
            findings.append(f"{name}: has carriage returns")
        if text and not text.endswith("\n"):
            findings.append(f"{name}: the last line has no end")
    if looked_at == 0:
        findings.append("no file found: nothing was checked")
    tree.report(findings, f"licence lines, {looked_at} files")


if __name__ == "__main__":
    main()
